//! Losses of labels whose scores are masked: spelled out, their gradients are those of the whole.

use kernels::Array;
use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{Binary, DType, Graph, Op, Output, Reduction, Source, State, StateKind, Type};
use rewrite::Blocks;
use run::Reference;

use super::cases::{Arrays, SGD, floats};

/// Four parts of 11 classes, and a class of the second.
const CLASSES: u64 = 44;
const LABEL: i64 = 13;

/// The loss of a row of scores to which a mask is added.
fn blocks() -> Blocks {
    let mut graph = Graph::default();
    let row = Type::new(DType::F32, [1, CLASSES]);
    let weight = graph.push_value(row.clone(), Source::Weight("scores".to_owned()));
    let mask = graph.push_value(row.clone(), Source::Input("mask".to_owned()));
    let labels = graph.push_value(Type::new(DType::I64, [1]), Source::Input("labels".to_owned()));
    let sum = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
    let one = Type::new(DType::F32, [1]);
    let mut node = |op: Op, operands: Vec<_>, type_: &Type| {
        graph.push_node(op, operands, vec![type_.clone()], "masked".to_owned())[0]
    };
    let scores = node(Op::Binary(Binary::Add), vec![weight, mask], &row);
    let losses = node(Op::CrossEntropy { ignored: -100 }, vec![scores, labels], &one);
    let loss = node(sum.clone(), vec![losses], &Type::new(DType::F32, [1]));
    let ones = node(Op::Fill { result: one.clone(), value: planner_ir::Real(1.0) }, vec![], &one);
    let count = node(sum, vec![ones], &Type::new(DType::F32, [1]));
    let scalar = Type::new(DType::F32, []);
    let [loss, count] = [loss, count].map(|it| node(Op::Reshape { shape: vec![] }, vec![it], &scalar));
    graph.outputs = [("sum", loss), ("count", count)]
        .map(|(name, value)| Output { name: name.to_owned(), value })
        .to_vec();
    rewrite::blocks(&graph)
}

/// The loss, and its gradient towards each score.
fn trained(spelled: &[usize], mask: &[f32]) -> (f64, Vec<f64>) {
    let blocks = blocks();
    let recipe = Recipe {
        precision: Precision::F32,
        recompute: vec![Recompute::Nothing; blocks.segments.len()],
        spelled: spelled.to_vec(),
        ..Recipe::new(Loss::Output("loss".to_owned()), SGD)
    };
    let graph = train::step(&blocks, &recipe).unwrap().graph;
    planner_ir::verify(&graph).unwrap();
    let scores: Vec<f32> = (0..44_i16).map(|it| f32::from(it * 5 % 17) * 0.5).collect();
    let array = |numbers: &[f32]| Array::of::<f32>(vec![1, CLASSES], numbers).unwrap();
    let weights = Arrays::from([("scores".to_owned(), array(&scores))]);
    let mut device = Reference::new(&graph, &weights).unwrap();
    let labels = Array::of::<i64>(vec![1], &[LABEL]).unwrap();
    let batch = Arrays::from([("mask".to_owned(), array(mask)), ("labels".to_owned(), labels)]);
    let rate = Array::of::<f32>(vec![], &[1.0]).unwrap();
    let outputs = device.train(&[batch], &Arrays::from([(train::RATE.to_owned(), rate)])).unwrap();
    // A step whose loss is infinite is not taken, but its gradient is there.
    let state = State { kind: StateKind::Gradient, name: "scores".to_owned() };
    (floats(&outputs[train::LOSS])[0], floats(device.state(&state).unwrap()))
}

#[test]
fn gradients_of_a_masked_label_are_those_of_the_whole_loss() {
    // Nothing, the label alone, its part, all other parts, all but the label's neighbours, all.
    let masks: [&[(usize, usize)]; 6] =
        [&[], &[(13, 14)], &[(11, 22)], &[(0, 11), (22, 44)], &[(0, 11), (13, 14), (22, 44)], &[(0, 44)]];
    for masked in masks {
        for low in [-1e9_f32, f32::MIN, f32::NEG_INFINITY] {
            // Of a row of nothing there is no loss.
            if masked == [(0, 44)] && low.is_infinite() {
                continue;
            }
            let mut mask = vec![0.0; 44];
            masked.iter().for_each(|&(from, to)| mask[from..to].fill(low));
            let [(loss, expected), (spelled, found)] = [&[][..], &[0]].map(|it| trained(it, &mask));
            assert!(
                (loss - spelled).abs() <= 1e-6 * loss.abs() || loss.to_bits() == spelled.to_bits(),
                "{spelled}, not {loss}"
            );
            assert!(expected[13] < -0.5, "the label's gradient is {}", expected[13]);
            for (class, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let off = (found - expected).abs();
                assert!(off < 2e-6, "{masked:?} at {low:e}, class {class}: {found}, expected {expected}");
            }
        }
    }
    // Of a row of nothing there is no loss and no gradient.
    for spelled in [&[][..], &[0]] {
        let (loss, gradient) = trained(spelled, &[f32::NEG_INFINITY; 44]);
        assert!(loss.is_nan() && gradient.iter().any(|it| it.is_nan()), "{spelled:?}: {loss}, {gradient:?}");
    }
}
