//! Tests of measurements: what must hold on any machine, and what fits must find again.

use cost_models::machine::Tile;
use cost_models::machine::measured::{Measurements, host};
use cost_models::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};
use cost_models::{compute::MatrixProduct, compute::matrix_product, machine::Precision};
use planner_ir::DType;

use super::*;

#[test]
fn larger_messages_take_longer_and_products_have_a_rate() {
    let [small, large] = [64, 1 << 24].map(|bytes| Wanted::Message(bytes).seconds().unwrap());
    assert!(0.0 < small && small < large, "{small} {large}");
    assert!(Wanted::Product(DType::F32, [16; 3]).seconds().unwrap() > 0.0);
}

/// Measurements that a made-up machine would give: its numbers are found again.
#[test]
fn numbers_that_times_were_made_with_are_found_again() {
    let made = Measurements {
        memory_capacity: Bytes(1 << 30),
        memory_reserved: Bytes(1 << 20),
        memory_bandwidth: BytesPerSecond(2e10),
        launch: Seconds(1e-7),
        vector_peak: FlopsPerSecond(1e10),
        matrix_f64: FlopsPerSecond(5e10),
        matrix_f32: FlopsPerSecond(1e11),
        matrix_integer: FlopsPerSecond(3e9),
        product_start: Seconds(2.5e-7),
        tile: Tile { m: 8, n: 32 },
        tile_start: Seconds(2e-8),
        link_bandwidth: BytesPerSecond(5e9),
        hop: Seconds(1e-5),
        processors: 2,
        passes: Vec::new(),
    };
    let machine = host("made", &made, "made").unwrap();
    let exact = cost_models::units::exact;
    let time = |wanted: Wanted| match wanted {
        Wanted::Product(DType::F32, shape) | Wanted::Products(shape) => {
            matrix_product(&machine.device, &MatrixProduct::forward(1, shape, Precision::F32)).0
        }
        Wanted::Product(DType::F64, [m, n, k]) => 2.0 * exact(m * n * k) / 5e10,
        Wanted::Product(_, [m, n, k]) => 2.0 * exact(m * n * k) / 3e9,
        Wanted::Sum(elements) => 1e-7 + exact(elements) / 1e10,
        Wanted::Sums(elements) => 12.0 * exact(elements) / 2e10,
        Wanted::Pass(pass, rows) => {
            let kind = 1.0 + exact(u64::try_from(pass.name().len()).unwrap());
            1e-7 * kind + 1e-9 * kind * exact(256 * rows)
        }
        Wanted::Message(bytes) => 1e-5 + exact(u64::try_from(bytes).unwrap()) / 5e9,
    };
    let memory = (made.memory_capacity, made.memory_reserved);
    let (found, fits) = fits::fitted(2, memory, &mut |wanted| Ok(time(wanted))).unwrap();
    let near = |found: f64, made: f64, part: f64| (found / made - 1.0).abs() < part;
    assert!(near(found.matrix_f32.0, 1e11, 0.05), "{found:?}");
    assert!(near(found.hop.0, 1e-5, 0.001) && near(found.link_bandwidth.0, 5e9, 0.001), "{found:?}");
    assert_eq!(found.passes.len(), Pass::ALL.len());
    for (pass, start, element) in &found.passes {
        let kind = 1.0 + exact(u64::try_from(pass.name().len()).unwrap());
        assert!(near(start.0, 1e-7 * kind, 0.01), "{pass:?} {start:?}");
        let score = if *pass == Pass::Score { 4.0 * 32.0 / found.matrix_f32.0 } else { 0.0 };
        assert!(near(element.0 + score, 1e-9 * kind, 0.05), "{pass:?} {element:?}");
    }
    for fit in &fits {
        assert!(near(fit.fitted, fit.measured, 0.1), "{fit:?}");
    }
    let shown = fits::shown(&fits);
    assert!(shown.contains("product of f32 8 x 8 x 8") && shown.contains("on average"), "{shown}");
}
