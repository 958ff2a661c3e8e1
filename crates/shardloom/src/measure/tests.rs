//! Tests of measurements: what must hold on any machine, and what fits must find again.

use cost_models::compute::{MatrixProduct, matrix_product};
use cost_models::machine::measured::host;
use cost_models::machine::{Machine, Precision, Tile};
use cost_models::units::{BytesPerSecond, FlopsPerSecond, Ratio, Seconds, exact};

use super::*;
use crate::bench::folder::Folder;

#[test]
fn larger_messages_take_longer_and_products_have_a_rate() {
    let [small, large] = [64, 1 << 24].map(|bytes| Wanted::Message(bytes).seconds().unwrap());
    assert!(0.0 < small && small < large, "{small} {large}");
    assert!(Wanted::Product(DType::F32, [16; 3]).seconds().unwrap() > 0.0);
}

/// The numbers of a made-up machine.
fn made() -> Measurements {
    Measurements {
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
        packing_cache: Bytes(1 << 21),
        packing_rate: BytesPerSecond(3e10),
        link_bandwidth: BytesPerSecond(5e9),
        hop: Seconds(1e-5),
        processors: 2,
        products_together: Ratio(0.9),
        memory_together: Ratio(0.75),
        passes: Vec::new(),
    }
}

/// What a kind of passes takes, as a multiple.
fn kind(pass: Pass) -> f64 {
    1.0 + exact(u64::try_from(pass.name().len()).unwrap())
}

/// What a measurement of that machine gives (seconds).
fn time(machine: &Machine, wanted: Wanted) -> f64 {
    match wanted {
        Wanted::Product(DType::F32, shape) | Wanted::Turned(shape) => {
            matrix_product(&machine.device, &MatrixProduct::forward(1, shape, Precision::F32)).0
        }
        Wanted::Products(shape) => time(machine, Wanted::Product(DType::F32, shape)) / 0.9,
        Wanted::Product(DType::F64, [m, n, k]) => 2.0 * exact(m * n * k) / 5e10,
        Wanted::Product(_, [m, n, k]) => 2.0 * exact(m * n * k) / 3e9,
        Wanted::Sum(IN_MEMORY) => 12.0 * exact(IN_MEMORY) / 2e10,
        Wanted::Sum(elements) => 1e-7 + exact(elements) / 1e10,
        Wanted::Sums(elements) => 12.0 * exact(elements) / 1.5e10,
        Wanted::Pass(pass, rows) => kind(pass) * (1e-7 + 1e-9 * exact(256 * rows)),
        Wanted::Message(bytes) => 1e-5 + exact(u64::try_from(bytes).unwrap()) / 5e9,
    }
}

fn near(found: f64, made: f64, part: f64) -> bool {
    (found / made - 1.0).abs() < part
}

#[test]
fn numbers_that_times_were_made_with_are_found_again() {
    let machine = host("made", &made(), "made").unwrap();
    let memory = (made().memory_capacity, made().memory_reserved);
    let (found, fits) = fits::fitted(2, memory, &mut |wanted| Ok(time(&machine, wanted))).unwrap();
    assert!(near(found.matrix_f32.0, 1e11, 0.05), "{found:?}");
    assert!(near(found.hop.0, 1e-5, 0.01) && near(found.link_bandwidth.0, 5e9, 0.001), "{found:?}");
    assert!(near(found.products_together.0, 0.9, 1e-9), "{found:?}");
    assert!(near(found.memory_bandwidth.0, 2e10, 1e-9) && near(found.memory_together.0, 0.75, 1e-9));
    assert_eq!(found.passes.len(), Pass::ALL.len());
    for (pass, start, element) in &found.passes {
        assert!(near(start.0, 1e-7 * kind(*pass), 0.01), "{pass:?} {start:?}");
        let score = if *pass == Pass::Score { 4.0 * 32.0 / found.matrix_f32.0 } else { 0.0 };
        assert!(near(element.0 + score, 1e-9 * kind(*pass), 0.05), "{pass:?} {element:?}");
    }
    for fit in &fits {
        assert!(near(fit.fitted, fit.measured, 0.1), "{fit:?}");
    }
    let shown = fits::shown(&fits);
    assert!(shown.contains("product of f32 8 x 8 x 8") && shown.contains("on average"), "{shown}");
}

/// Of all measurements one is missing in the file: it alone is made.
#[test]
fn what_was_measured_before_is_what_a_machine_is_made_of() {
    let folder = Folder::new("resumed", None).unwrap();
    let output = folder.path.join("machine.json");
    let machine = host("made", &made(), "made").unwrap();
    let mut notes = Notes::beside(&output, "made").unwrap();
    for wanted in Wanted::all().into_iter().filter(|it| *it != Wanted::Sum(1)) {
        notes.of(&wanted.name(), || Ok(time(&machine, wanted))).unwrap();
    }
    let mut notes = Notes::beside(&output, "made").unwrap();
    let before = notes.count();
    let said = std::cell::RefCell::new(Vec::new());
    let (found, _) = measured(&mut notes, &|what| said.borrow_mut().push(what)).unwrap();
    assert!(near(found.link_bandwidth.0, 5e9, 0.001) && found.launch.0 > 0.0, "{found:?}");
    assert_eq!(Notes::beside(&output, "made").unwrap().count(), before + 1);
    assert_eq!(said.borrow().len(), before + 1);
    let last = format!("measuring {0} of {0} ({before} are there from before)", before + 1);
    assert!(said.borrow().iter().any(|it| it.starts_with(&last)), "{:?}", said.borrow());
}
