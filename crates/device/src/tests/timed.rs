//! Times of single things on a GPU whose speed is planted, and what operations make on one that computes.

use kernels::{Array, evaluate};
use planner_ir::{Binary, Contract, DType, Label, Op, Type};

use crate::bench::{Bench, Issued, Trial};
use crate::emulated::{Emulated, emulated};
use crate::settings::Settings;

/// A rate of memory and of copies (bytes per second), and what a launch and an event take (seconds).
const PLANTED: [(&str, f64); 12] = [
    ("processors", 100.0),
    ("memory_bytes", 4e10),
    ("launch", 3e-6),
    ("event", 2e-6),
    ("copy_start", 5e-6),
    ("copy", 2e12),
    ("memory", 1e12),
    ("noise", 0.02),
    ("outliers", 0.05),
    ("product_start", 1e-6),
    ("sustained", 0.5),
    ("heating", 1e-3),
];

fn bench(gpu: &Emulated) -> Bench {
    let libraries = vec![gpu.libraries.clone()];
    Bench::open(&Settings {
        libraries,
        cache: Some(gpu.cache.clone()),
        workspace: 1 << 16,
        ..Settings::default()
    })
    .unwrap()
}

fn sum(elements: u64) -> Trial {
    let type_ = Type::new(DType::F32, [elements]);
    let operands = vec![type_.clone(), type_.clone()];
    Trial::Operation { op: Op::Binary(Binary::Add), operands, results: vec![type_] }
}

#[test]
fn times_are_those_that_were_planted_without_what_events_take() {
    let gpu = emulated().planted("a planted GPU", &PLANTED);
    let mut bench = bench(&gpu);
    assert_eq!((bench.facts().name.as_str(), bench.facts().processors), ("a planted GPU", 100));
    let mut refused = 0;
    for (trial, expected) in [
        (Trial::Copy(1 << 20), 5e-6 + 2.0 * 1_048_576.0 / 2e12),
        (Trial::Copy(1 << 30), 5e-6 + 2.0 * 1_073_741_824.0 / 2e12),
        (Trial::Launch(Issued::Alone), 3e-6),
        (Trial::Launch(Issued::Captured), 3e-6),
        (sum(1 << 28), 3e-6 + 12.0 * 268_435_456.0 / 1e12),
    ] {
        let sample = bench.time(&trial).unwrap();
        assert!((sample.seconds / expected - 1.0).abs() < 0.02, "{trial:?}: {sample:?} for {expected}");
        assert!(sample.kept > 2 * sample.refused && sample.spread < 0.03, "{trial:?}: {sample:?}");
        refused += sample.refused;
    }
    assert!(refused > 0, "some of the planted outliers are refused");
}

#[test]
fn operations_make_what_processors_make() {
    let gpu = emulated();
    let mut bench = bench(&gpu);
    let numbers = |shape: [u64; 2]| {
        let count = u32::try_from(shape[0] * shape[1]).unwrap();
        let all: Vec<f32> =
            (0..count).map(|it| f32::from(u8::try_from(it * 7 % 13).unwrap()) - 6.0).collect();
        Array::of::<f32>(shape, &all).unwrap()
    };
    let [i, j, k] = [0, 1, 2].map(Label);
    let product = Op::Contract(Contract { left: vec![i, k], right: vec![j, k], result: vec![i, j] });
    for (op, left, right) in [
        (Op::Binary(Binary::Mul), numbers([5, 7]), numbers([5, 7])),
        (product, numbers([4, 8]), numbers([6, 8])),
        (Op::Gather { dim: 0 }, numbers([6, 4]), Array::of::<i64>([3], &[5, 0, 2]).unwrap()),
    ] {
        let expected = evaluate(&op, &[&left, &right]).unwrap();
        let results = expected.iter().map(|it| it.type_().clone()).collect();
        let operands = vec![left.type_().clone(), right.type_().clone()];
        let trial = Trial::Operation { op, operands, results };
        assert_eq!(bench.compute(&trial, &[&left, &right]).unwrap(), expected, "{trial:?}");
    }
    assert!(bench.time(&sum(1000)).unwrap().seconds > 0.0);
}
