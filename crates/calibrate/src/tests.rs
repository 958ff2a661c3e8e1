//! Tests of measurements: what must hold on any machine, and what fits must find again.

use std::sync::Mutex;

use cost_models::compute::{MatrixProduct, matrix_product};
use cost_models::machine::measured::host;
use cost_models::machine::{Machine, Precision, Tile};
use cost_models::units::{BytesPerSecond, FlopsPerSecond, Ratio, Seconds, exact};
use cost_models::work::{self, Rows, Work};
use files::folder::Folder;

use super::exchanges::Kind;
use super::*;

#[test]
fn larger_exchanges_take_longer_and_all_kinds_of_operations_can_be_measured() {
    let times =
        [1 << 12, 1 << 24].map(|bytes| Wanted::Exchange(Kind::AllReduce, 2, bytes).seconds(Effort::Quick));
    let [small, large] = times.map(Result::unwrap);
    assert!(0.0 < small && small < large, "{small} {large}");
    assert!(Wanted::Product(DType::F32, [16; 3]).seconds(Effort::Quick).unwrap() > 0.0);
    for pass in Pass::ALL {
        assert!(Wanted::Pass(pass, passes::rows(pass)[0]).seconds(Effort::Quick).unwrap() > 0.0, "{pass:?}");
    }
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
        turned_rate: BytesPerSecond(1.5e10),
        aliased_rate: BytesPerSecond(2e9),
        link_bandwidth: BytesPerSecond(5e9),
        local_rate: BytesPerSecond(1.2e10),
        exchange_start: Seconds(2e-6),
        exchange_round: Seconds(4e-6),
        hop: Seconds(1e-5),
        processors: 2,
        products_together: Ratio(0.9),
        memory_together: Ratio(0.75),
        passes: Pass::ALL.map(|it| (it, Seconds(kind(it) * 1e-7), Seconds(kind(it) * 1e-9))).into(),
    }
}

/// What a kind of passes takes, as a multiple.
fn kind(pass: Pass) -> f64 {
    1.0 + exact(u64::try_from(pass.name().len()).unwrap())
}

/// What a measurement of that machine gives (seconds).
fn time(machine: &Machine, wanted: Wanted) -> f64 {
    match wanted {
        Wanted::Product(DType::F32, shape) => {
            matrix_product(&machine.device, &MatrixProduct::forward(1, shape, Precision::F32)).0
        }
        Wanted::Turned([m, n, k]) => {
            // Those whose rows lie a multiple of 4 KiB apart take longer.
            let rate = if k % 1024 == 0 { 2e9 } else { 1.5e10 };
            time(machine, Wanted::Product(DType::F32, [m, n, k])) + 4.0 * exact(n * k) / rate
        }
        Wanted::Products(shape) => time(machine, Wanted::Product(DType::F32, shape)) / 0.9,
        Wanted::Product(DType::F64, [m, n, k]) => 2.0 * exact(m * n * k) / 5e10,
        Wanted::Product(_, [m, n, k]) => 2.0 * exact(m * n * k) / 3e9,
        Wanted::Sum(IN_MEMORY) => 12.0 * exact(IN_MEMORY) / 2e10,
        Wanted::Sum(elements) => 1e-7 + exact(elements) / 1e10,
        Wanted::Sums(elements) => 12.0 * exact(elements) / 1.5e10,
        Wanted::Pass(Pass::Score, rows) => attention(machine, rows),
        Wanted::Pass(pass, rows) => kind(pass) * (1e-7 + 1e-9 * exact(256 * rows)),
        Wanted::Exchange(kind, ranks, bytes) => exchanges::priced(machine, kind, ranks, bytes).unwrap().0,
    }
}

/// Causal attention of so many queries and keys on that machine.
fn attention(machine: &Machine, queries: u64) -> f64 {
    let (op, operands) = passes::example(Pass::Score, queries);
    let results = &operands[..1];
    let work = Work { op: &op, whole: &operands, operands: &operands, results, rows: Rows::Together };
    work::operation(&machine.device, &work).0
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
    assert!(near(found.turned_rate.0, 1.5e10, 1e-6) && near(found.aliased_rate.0, 2e9, 1e-6), "{found:?}");
    assert!(near(found.products_together.0, 0.9, 1e-9), "{found:?}");
    assert!(near(found.memory_bandwidth.0, 2e10, 1e-9) && near(found.memory_together.0, 0.75, 1e-9));
    assert_eq!(found.passes.len(), Pass::ALL.len());
    for (pass, start, element) in &found.passes {
        // Attention has what the products that are fitted leave of its time.
        let part = if *pass == Pass::Score { 0.2 } else { 0.01 };
        assert!(near(start.0, 1e-7 * kind(*pass), part), "{pass:?} {start:?}");
        assert!(near(element.0, 1e-9 * kind(*pass), part), "{pass:?} {element:?}");
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
    let said = Mutex::new(Vec::new());
    let (found, _) = measured(Effort::Quick, &mut notes, &|doing| said.lock().unwrap().push(doing)).unwrap();
    assert!(near(found.turned_rate.0, 1.5e10, 1e-6) && found.launch.0 > 0.0, "{found:?}");
    assert_eq!(Notes::beside(&output, "made").unwrap().count(), before + 1);
    let said = said.into_inner().unwrap();
    assert_eq!(said.len(), before + 1);
    let last = said.last().unwrap().to_string();
    assert!(last.starts_with(&format!("measuring {0} of {0}: ", before + 1)), "{last}");
    assert!(last.ends_with(&format!(" ({before} are there from before)")), "{last}");
}
