//! Tests of spelled norms and losses: what they compute, and what may be split.

use kernels::Array;
use planner_ir::{Binary, Contract, DType, Graph, Label, Op, Output, Real, Source, Type, Unary, ValueId};

use super::spelled;
use crate::blocks::{Blocks, blocks, check};
use crate::raise::tests::evaluate::{Dice, difference, evaluate};

const EPSILON: Real = Real(1e-5);
const IGNORED: i64 = -100;

/// A graph of one operation on values from outside.
fn single(op: Op, operands: &[Type]) -> Graph {
    let mut graph = Graph::default();
    let outside = |(number, type_): (usize, &Type)| (type_.clone(), Source::Input(format!("input.{number}")));
    let outside: Vec<(Type, Source)> = operands.iter().enumerate().map(outside).collect();
    let values = outside.into_iter().map(|(type_, source)| graph.push_value(type_, source)).collect();
    let types = op.infer(operands).unwrap();
    let value = graph.push_node(op, values, types, "the only one".to_owned())[0];
    graph.outputs.push(Output { name: "y".to_owned(), value });
    graph
}

/// The same with what can be spelled out spelled out, verified.
fn spelled_out(before: &Blocks, which: &dyn Fn(usize) -> bool) -> Blocks {
    let after = spelled(before, which);
    planner_ir::verify(&after.graph).unwrap();
    check(&after).unwrap();
    after
}

/// What an operation makes, and what it makes spelled out.
fn both(op: &Op, operands: &[Array]) -> [Array; 2] {
    let types: Vec<Type> = operands.iter().map(|it| it.type_().clone()).collect();
    let graph = single(op.clone(), &types);
    let after = spelled_out(&blocks(&graph), &|_| true).graph;
    assert!(after.nodes.iter().all(|node| node.op != *op || matches!(op, Op::CrossEntropy { .. })));
    assert!(after.nodes.len() > 1, "{after}");
    [&graph, &after].map(|graph| evaluate(graph, operands).unwrap().remove(0))
}

fn dice() -> Dice {
    Dice { state: 7, below: 2 }
}

#[test]
fn spelled_norms_are_the_norms() {
    let mut dice = dice();
    for (dtype, allowed) in [(DType::F64, 1e-12), (DType::F32, 1e-6), (DType::BF16, 1e-2)] {
        for (shape, dims) in [(vec![3, 2, 8], 1), (vec![5, 6], 1), (vec![2, 3, 4], 2)] {
            let sample = &shape[shape.len() - dims..];
            let [scale, bias] = [0, 1].map(|_| dice.array(&Type::new(dtype, sample)));
            let x = dice.array(&Type::new(dtype, &shape[..]));
            let cases = [
                (Op::LayerNorm { dims, epsilon: EPSILON }, vec![x.clone(), scale.clone(), bias]),
                (Op::LayerNorm { dims, epsilon: EPSILON }, vec![x.clone(), scale.clone()]),
                (Op::RmsNorm { dims, epsilon: EPSILON }, vec![x, scale]),
            ];
            for (op, operands) in cases {
                let [expected, found] = both(&op, &operands);
                let apart = difference(&found, &expected);
                assert!(apart < allowed, "{op:?} of {dtype} {shape:?} is off by {apart:e}");
            }
        }
    }
}

#[test]
fn a_spelled_norm_of_a_large_mean_and_a_small_deviation_is_right() {
    // Elements in f32, whose mean is 100 and whose deviation is 0.01.
    let mut dice = dice();
    #[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
    let elements: Vec<f32> = (0..4096).map(|_| (100.0 + 0.01 * 3f64.sqrt() * dice.number()) as f32).collect();
    let ones = |dtype| {
        let op = Op::Fill { result: Type::new(dtype, [1024]), value: Real(1.0) };
        kernels::evaluate(&op, &[]).unwrap().remove(0)
    };
    let x = Array::of::<f32>(vec![4, 1024], &elements).unwrap();
    let wide = kernels::evaluate(&Op::Cast(DType::F64), &[&x]).unwrap().remove(0);
    let op = Op::LayerNorm { dims: 1, epsilon: Real(1e-12) };
    let [expected, _] = both(&op, &[wide, ones(DType::F64)]);
    let [_, found] = both(&op, &[x, ones(DType::F32)]);
    let apart = |found: &[f64]| -> f64 {
        let expected = expected.to_floats().unwrap();
        let most = expected.iter().fold(0.0, |most: f64, it| most.max(it.abs()));
        found.iter().zip(&expected).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs())) / most
    };
    let found = found.to_floats().unwrap();
    // The mean itself is rounded: to a part of 1e-7 of 100, which is 1e-3 of the deviation.
    assert!(apart(&found) < 1e-3, "off by {:e}", apart(&found));
    // The difference of the mean square and the squared mean has no digit left.
    let row = &elements[..1024];
    let square = row.iter().map(|it| it * it).sum::<f32>() / 1024.0;
    let mean = row.iter().sum::<f32>() / 1024.0;
    let variance = square - mean * mean;
    assert!((variance - 1e-4).abs() > 0.5e-4, "this test would accept the other formula: {variance:e}");
}

#[test]
fn a_spelled_cross_entropy_is_the_cross_entropy() {
    let mut dice = dice();
    for (rows, classes) in [(vec![7], 12), (vec![2, 5], 48), (vec![3], 35), (vec![4], 96)] {
        for dtype in [DType::F32, DType::F64] {
            let scores = dice.array(&Type::new(dtype, [&rows[..], &[classes]].concat()));
            let ten = Array::of::<f64>(vec![], &[10.0]).unwrap();
            let ten = kernels::evaluate(&Op::Cast(dtype), &[&ten]).unwrap().remove(0);
            let scores = kernels::evaluate(&Op::Binary(Binary::Mul), &[&scores, &ten]).unwrap().remove(0);
            let count = usize::try_from(rows.iter().product::<u64>()).unwrap();
            let label = |row: usize| match (row + 1) % 5 {
                0 => IGNORED,
                _ => i64::try_from(dice.next() % classes).unwrap(),
            };
            let labels: Vec<i64> = (0..count).map(label).collect();
            let labels = Array::of::<i64>(rows.clone(), &labels).unwrap();
            let [expected, found] = both(&Op::CrossEntropy { ignored: IGNORED }, &[scores, labels]);
            let apart = difference(&found, &expected);
            assert!(apart < 1e-6, "{rows:?} of {classes} classes: off by {apart:e}");
        }
    }
}

#[test]
fn a_label_that_is_no_class_is_an_error_where_it_is_spelled_out_too() {
    // Parts are of 11 classes: the part of -1 would be 0, were it told as of others.
    let types = [Type::new(DType::F32, [1, 44]), Type::new(DType::I64, [1])];
    let graph = single(Op::CrossEntropy { ignored: IGNORED }, &types);
    let after = spelled_out(&blocks(&graph), &|_| true).graph;
    let scores = dice().array(&types[0]);
    for (label, is_class) in [(0, true), (43, true), (IGNORED, true), (44, false), (-1, false)] {
        let labels = Array::of::<i64>(vec![1], &[label]).unwrap();
        let outcome = evaluate(&after, &[scores.clone(), labels]);
        assert_eq!(outcome.is_ok(), is_class, "{label}: {outcome:?}");
    }
}

#[test]
fn what_has_no_parts_or_is_no_norm_stays_as_it_is() {
    let scores = |classes: u64, dtype| [Type::new(dtype, [2, classes]), Type::new(DType::I64, [2])];
    let stays = |op: Op, types: &[Type]| {
        let before = blocks(&single(op, types));
        assert_eq!(spelled_out(&before, &|_| true), before);
    };
    // A prime number of classes, narrow scores, and a label that may be a class of a part.
    stays(Op::CrossEntropy { ignored: IGNORED }, &scores(211, DType::F32));
    stays(Op::CrossEntropy { ignored: IGNORED }, &scores(48, DType::BF16));
    stays(Op::CrossEntropy { ignored: 0 }, &scores(48, DType::F32));
    stays(Op::Unary(Unary::Gelu), &[Type::new(DType::F32, [2, 8])]);
}

/// A program of layers: each normalises, multiplies and adds.
fn layers(number: u64) -> Blocks {
    let mut graph = Graph::default();
    let f32 = |shape: &[u64]| Type::new(DType::F32, shape);
    let mut push = |op: Option<Op>, operands: Vec<ValueId>, source: Type| -> ValueId {
        let name = format!("value.{}", graph.values.len());
        match op {
            None if operands.is_empty() => graph.push_value(source, Source::Weight(name)),
            None => unreachable!("what is given has no operands"),
            Some(op) => {
                let types = op.infer(&graph.types_of(&operands)).unwrap();
                graph.push_node(op, operands, types, name)[0]
            }
        }
    };
    let scale = push(None, vec![], f32(&[6]));
    let mut x = push(None, vec![], f32(&[2, 5, 6]));
    for _ in 0..number {
        let normal = push(Some(Op::RmsNorm { dims: 1, epsilon: EPSILON }), vec![x, scale], f32(&[]));
        let weight = push(None, vec![], f32(&[6, 6]));
        let labels = |text: &str| text.bytes().map(Label).collect();
        let product = Contract { left: labels("abc"), right: labels("cd"), result: labels("abd") };
        let product = push(Some(Op::Contract(product)), vec![normal, weight], f32(&[]));
        x = push(Some(Op::Binary(Binary::Add)), vec![x, product], f32(&[]));
    }
    graph.outputs.push(Output { name: "y".to_owned(), value: x });
    blocks(&graph)
}

#[test]
fn some_of_the_repetitions_may_be_spelled_out() {
    let before = layers(4);
    let norms =
        |it: &Blocks| it.graph.nodes.iter().filter(|node| matches!(node.op, Op::RmsNorm { .. })).count();
    assert_eq!(spelled_out(&before, &|_| false), before);
    assert_eq!(norms(&spelled_out(&before, &|_| true)), 0);
    let some = spelled_out(&before, &|segment| segment == before.segments.len() - 1);
    assert!((1..4).contains(&norms(&some)), "{}", some.graph);
    assert_eq!(some.segments.len(), before.segments.len());
}

#[test]
fn classes_that_are_masked_take_no_part_in_a_spelled_cross_entropy() {
    // Four parts of 11 classes.
    let labels = Array::of::<i64>(vec![3], &[2, 13, 40]).unwrap();
    for masked in [-1e9_f32, -1e30, f32::NEG_INFINITY] {
        // The first class of each part, and all of one part.
        let score = |at: i16| match at % 44 {
            0 | 11 | 22..=33 => masked,
            class => f32::from(class) * 0.25 + f32::from(at / 44),
        };
        let scores: Vec<f32> = (0..3 * 44).map(score).collect();
        let scores = Array::of(vec![3, 44], &scores).unwrap();
        let [expected, found] = both(&Op::CrossEntropy { ignored: IGNORED }, &[scores, labels.clone()]);
        let apart = difference(&found, &expected);
        assert!(apart < 1e-6, "{masked:e}: {found:?}, expected {expected:?}");
    }
}

#[test]
fn a_label_that_is_masked_has_the_same_loss_where_it_is_spelled_out() {
    // Four parts of 11 classes.
    let all = |masked: &[(usize, usize)], low: f32| -> Vec<f32> {
        let mut scores: Vec<f32> = (0..44_i16).map(|it| f32::from(it * 5 % 17) * 0.5).collect();
        masked.iter().for_each(|&(from, to)| scores[from..to].fill(low));
        scores
    };
    // The label alone, its part, all other parts, these and the label, all.
    let masks: [&[(usize, usize)]; 5] =
        [&[(13, 14)], &[(11, 22)], &[(0, 11), (22, 44)], &[(0, 11), (13, 14), (22, 44)], &[(0, 44)]];
    for masked in masks {
        for low in [-1e9, f32::MIN, f32::NEG_INFINITY] {
            let scores = Array::of::<f32>(vec![1, 44], &all(masked, low)).unwrap();
            let label = Array::of::<i64>(vec![1], &[13]).unwrap();
            let [expected, found] = both(&Op::CrossEntropy { ignored: IGNORED }, &[scores, label]);
            let [expected, found] = [expected, found].map(|it| it.to_floats().unwrap()[0]);
            let near = (expected - found).abs() <= 1e-6 * expected.abs().max(1.0);
            let same = near || expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
            assert!(same, "{masked:?} at {low:e}: {found}, expected {expected}");
        }
    }
}
