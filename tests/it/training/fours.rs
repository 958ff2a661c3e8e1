//! A step with products of 4 bits against one computed by numpy, of quantised and dequantised values.

use std::collections::BTreeMap;

use kernels::Array;
use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{Op, Optimizer, Real, Source, State, StateKind, parse_graph};
use run::Reference;

use super::cases::{Arrays, floats};
use crate::tidy::root;

/// Three layers: the first two are narrow, and the second has a gradient of what it reads.
const MODEL: &str = r#"graph "model" {
  %0 = input "x" : f32[32,32]
  %1 = input "t" : f32[32,16]
  %2 = weight "w0" : f32[32,32]
  %3 = weight "w1" : f32[32,32]
  %4 = weight "w2" : f32[32,16]
  %5 = contract "ab,bc->ac" %0 %2 : f32[32,32]
  %6 = relu %5 : f32[32,32]
  %7 = contract "ab,bc->ac" %6 %3 : f32[32,32]
  %8 = relu %7 : f32[32,32]
  %9 = contract "ab,bc->ac" %8 %4 : f32[32,16]
  %10 = mul %9 %1 : f32[32,16]
  %11 = reduce_sum dims=[0,1] %10 : f32[1,1]
  %12 = reshape shape=[] %11 : f32[]
  return "loss" %12
}
"#;

/// Numbers that bf16 holds: of both signs, and of sizes that differ from block to block.
fn numbers(shape: [u64; 2], salt: u64) -> Array {
    let number = |at: u64| {
        let mixed = at.wrapping_mul(2_654_435_761).wrapping_add(salt.wrapping_mul(40_503)) >> 7;
        let small = f64::from(u32::try_from(mixed % 127).unwrap()) - 63.0;
        small / 64.0 * 2_f64.powi(i32::try_from(mixed / 127 % 4).unwrap() - 2)
    };
    let all: Vec<f64> = (0..shape[0] * shape[1]).map(number).collect();
    let wide = Array::of(shape, &all).unwrap();
    kernels::evaluate(&Op::Cast(planner_ir::DType::F32), &[&wide]).unwrap().remove(0)
}

/// What one step of a rate of 1 takes from the weights, which is their gradient; with the seed of its chances.
fn gradients(precision: Precision, seed: i64) -> BTreeMap<String, Vec<f64>> {
    let recipe = Recipe {
        precision,
        ..Recipe::new(Loss::Output("loss".to_owned()), Optimizer::Sgd { decay: Real(0.0) })
    };
    let blocks = rewrite::blocks(&train::forward(&parse_graph(MODEL).unwrap(), &recipe).unwrap());
    let recompute = vec![Recompute::Nothing; blocks.segments.len()];
    let graph = train::step(&blocks, &Recipe { recompute, ..recipe }).unwrap().graph;
    let weights: Arrays = [("w0", [32, 32]), ("w1", [32, 32]), ("w2", [32, 16])]
        .into_iter()
        .zip(3..)
        .map(|((name, shape), salt)| (name.to_owned(), numbers(shape, salt)))
        .collect();
    let mut inputs: Arrays =
        [("x".to_owned(), numbers([32, 32], 1)), ("t".to_owned(), numbers([32, 16], 2))].into();
    if graph.values.iter().any(|it| it.source == Source::Input(train::SEED.to_owned())) {
        inputs.insert(train::SEED.to_owned(), Array::of::<i64>([], &[seed]).unwrap());
    }
    let mut device = Reference::new(&graph, &weights).unwrap();
    let rate = [(train::RATE.to_owned(), Array::of::<f32>([], &[1.0]).unwrap())].into();
    device.train(&[inputs], &rate).unwrap();
    let moved = |(name, before): (&String, &Array)| {
        let master = State { kind: StateKind::Master, name: name.clone() };
        let after = floats(device.state(&master).unwrap());
        (name.clone(), floats(before).iter().zip(after).map(|(before, after)| before - after).collect())
    };
    weights.iter().map(moved).collect()
}

/// How far numbers are from others, by the sums of squares.
fn apart(found: &[f64], expected: &[f64]) -> f64 {
    let square = |it: f64| it * it;
    let off: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    (off / expected.iter().copied().map(square).sum::<f64>()).sqrt()
}

/// Blocks, squares, both scales, the transform and the chances are all numpy's own: a number that is rounded to
/// the other side moves a gradient by some hundredths, and there are few, where a sum ends between two bf16.
#[test]
fn gradients_of_4_bits_are_those_of_numpy() {
    let path = root().join("tests/cases/narrow/nvfp4.json");
    let text = std::fs::read_to_string(path).unwrap();
    let expected: BTreeMap<String, Vec<f64>> = serde_json::from_str(&text).unwrap();
    let found = gradients(Precision::Nvfp4, 7);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let of = |precision, seed| {
        let other = gradients(precision, seed);
        expected.iter().map(|(name, expected)| apart(&other[name], expected)).collect::<Vec<f64>>()
    };
    for (name, expected) in &expected {
        let off = apart(&found[name], expected);
        assert!(off < 0.01, "{name} is off by {off}; {:?}", of(Precision::Bf16, 7));
    }
    // Other chances, and none of 4 bits, are something else.
    let others = of(Precision::Nvfp4, 8);
    assert!(others[0] > 0.03 && others[1] > 0.03, "{others:?}");
    let wide = of(Precision::Bf16, 7);
    assert!(wide[0] > 0.05 && wide[1] > 0.05, "{wide:?}");
}
