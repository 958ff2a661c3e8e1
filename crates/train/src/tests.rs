//! Tests of what does not need a model. Steps of real models are held against PyTorch in the tests
//! of the whole.

use plan::{Loss, Masters, Precision, Recipe, Recompute, Tie};
use planner_ir::{Binary, DType, Op, Optimizer, Phase, Real, Source, StateKind, parse_graph, verify};

use crate::late::late_conversions;
use crate::{TrainError, forward, step, tied};

/// A copy becomes a use of the original, and what cannot be a copy is refused.
#[test]
fn copies_become_uses_of_the_original() {
    let graph = parse_graph(
        "graph \"\" {
  %0 = weight \"a\" : f32[3,2]
  %1 = weight \"b\" : f32[2,3]
  %2 = weight \"c\" : f32[3,2]
  return \"a\" %0, \"b\" %1, \"c\" %2
}
",
    )
    .unwrap();
    let tie = |copy: &str, original: &str, transposed| Tie {
        copy: copy.to_owned(),
        original: original.to_owned(),
        transposed,
    };
    let expected = "graph \"\" {\n  %0 = weight \"a\" : f32[3,2]\n  %1 = weight \"c\" : f32[3,2]
  %2 = transpose permutation=[1,0] %0 : f32[2,3] # origin \"b\"
  return \"a\" %0, \"b\" %2, \"c\" %1\n}\n";
    assert_eq!(tied(&graph, &[tie("b", "a", true)]), Ok(parse_graph(expected).unwrap()));
    for wrong in [
        vec![tie("b", "a", false)],
        vec![tie("b", "x", true)],
        vec![tie("x", "a", true)],
        vec![tie("a", "a", false)],
        vec![tie("b", "a", true), tie("a", "c", false)],
        vec![tie("b", "a", true), tie("b", "c", true)],
    ] {
        assert!(matches!(tied(&graph, &wrong), Err(TrainError::Tie(..))), "{wrong:?}");
    }
}

/// What is made wider stands right before what reads it first, in the same block alone.
#[test]
fn conversions_stand_where_they_are_read() {
    let graph = parse_graph(
        "graph \"\" {
  %0 = input \"x\" : bf16[4]
  %1 = input \"y\" : f32[4]
  %2 = cast to=f32 %0 : f32[4]
  %3 = cast to=bf16 %1 : bf16[4]
  %4 = neg %1 : f32[4]
  %5 = cast to=f64 %2 : f64[4]
  %6 = neg %3 : bf16[4]
  %7 = neg %5 : f64[4]
  %8 = neg %2 : f32[4]
  return \"a\" %4, \"b\" %6, \"c\" %7, \"d\" %8
}
",
    )
    .unwrap();
    let in_one = late_conversions(&graph, &[0; 7]);
    assert_eq!(in_one, [1, 2, 4, 0, 3, 5, 6]);
    // What the last block but one reads is converted in the first, which does not read it.
    let in_two = late_conversions(&graph, &[0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(in_two, [0, 1, 2, 4, 3, 5, 6]);
}

/// What the gradient of experts makes for their weights is added in the backward part, which makes it; what a product
/// makes for a weight, the gates' here, is made and added when gradients of weights are.
#[test]
fn gradients_of_weights_are_added_when_they_are_made() {
    let [backward, gradient] = [Phase::Backward, Phase::Gradient];
    let apart = "  %2 = weight \"up\" : f32[3,6,4]
  %3 = weight \"gate\" : f32[3,6,4]
  %4 = weight \"down\" : f32[3,4,6]
  %5 = contract \"ab,bc->ac\" %0 %1 : f32[8,3]
  %6 = experts activation=silu active=3 %0 %5 %2 %3 %4 : f32[8,4]
";
    let expected = [("down", backward), ("gate", backward), ("router", gradient), ("up", backward)];
    assert_eq!(added(apart, 6), expected.map(named));
    // Both in one weight, of which each is a part.
    let packed = "  %2 = weight \"both\" : f32[3,12,4]
  %3 = weight \"down\" : f32[3,4,6]
  %4 = slice starts=[0,0,0] steps=[1,1,1] sizes=[3,6,4] %2 : f32[3,6,4]
  %5 = slice starts=[0,6,0] steps=[1,1,1] sizes=[3,6,4] %2 : f32[3,6,4]
  %6 = contract \"ab,bc->ac\" %0 %1 : f32[8,3]
  %7 = experts activation=silu active=3 %0 %6 %4 %5 %3 : f32[8,4]
";
    assert_eq!(added(packed, 7), [("both", backward), ("down", backward), ("router", gradient)].map(named));
}

fn named((name, phase): (&str, Phase)) -> (String, Phase) {
    (name.to_owned(), phase)
}

/// When gradients of each weight of experts, whose result has that number, and of their router's are added to sums.
fn added(experts: &str, result: usize) -> Vec<(String, Phase)> {
    let [summed, loss] = [result + 1, result + 2];
    let graph = parse_graph(&format!(
        "graph \"\" {{
  %0 = input \"x\" : f32[8,4]
  %1 = weight \"router\" : f32[4,3]
{experts}  %{summed} = reduce_sum dims=[0,1] %{result} : f32[1,1]
  %{loss} = reshape shape=[] %{summed} : f32[]
  return \"loss\" %{loss}
}}
"
    ))
    .unwrap();
    let recipe = Recipe {
        precision: Precision::Bf16,
        micro_batches: 2,
        ..Recipe::new(Loss::Output("loss".to_owned()), Optimizer::Sgd { decay: Real(0.0) })
    };
    let blocks = rewrite::blocks(&forward(&graph, &recipe).unwrap());
    let recompute = vec![Recompute::Nothing; blocks.segments.len()];
    let step = step(&blocks, &Recipe { recompute, ..recipe }).unwrap().graph;
    verify(&step).unwrap();
    let (sums, for_sums) = (step.sums(), step.for_sums());
    let mut added = Vec::new();
    for node in step.nodes.iter().filter(|it| it.op == Op::Binary(Binary::Add)) {
        let Some(sum) = sums[node.results[0].0] else { continue };
        let Source::State(state) = &step.value(sum).source else { panic!("{sum:?}") };
        if state.kind == StateKind::Gradient {
            added.push((state.name.clone(), node.phase));
        }
    }
    added.sort_unstable();
    let made = step.nodes.iter().find(|it| matches!(it.op, Op::ExpertsGradient { .. })).unwrap();
    let only: Vec<bool> = made.results.iter().map(|it| for_sums[it.0]).collect();
    assert_eq!(only, [false, false, true, true, true]);
    added
}

/// What is in f32 alone and used in slices is converted, and its gradients are put together, once; with one micro-batch
/// they take the place of what was there.
#[test]
fn parameters_in_f32_that_are_used_in_slices_are_converted_once() {
    let graph = parse_graph(
        "graph \"\" {
  %0 = input \"x\" : f32[8,4]
  %1 = weight \"w\" : f32[4,8]
  %2 = slice starts=[0,0] steps=[1,1] sizes=[4,4] %1 : f32[4,4]
  %3 = slice starts=[0,4] steps=[1,1] sizes=[4,4] %1 : f32[4,4]
  %4 = contract \"ab,bc->ac\" %0 %2 : f32[8,4]
  %5 = contract \"ab,bc->ac\" %4 %3 : f32[8,4]
  %6 = reduce_sum dims=[0,1] %5 : f32[1,1]
  %7 = reshape shape=[] %6 : f32[]
  return \"loss\" %7
}
",
    )
    .unwrap();
    let recipe = Recipe {
        precision: Precision::Bf16,
        masters: Masters::Alone,
        ..Recipe::new(Loss::Output("loss".to_owned()), Optimizer::Sgd { decay: Real(0.0) })
    };
    let blocks = rewrite::blocks(&forward(&graph, &recipe).unwrap());
    let recompute = vec![Recompute::Nothing; blocks.segments.len()];
    let step = step(&blocks, &Recipe { recompute, ..recipe }).unwrap().graph;
    verify(&step).unwrap();
    let kept: Vec<DType> = step
        .values
        .iter()
        .filter(|it| matches!(&it.source, Source::State(state) if state.kind != StateKind::Total))
        .map(|it| it.type_.dtype)
        .collect();
    assert_eq!(kept, [DType::F32; 2], "a parameter and its gradient");
    let count = |is: &dyn Fn(&Op) -> bool| step.nodes.iter().filter(|it| is(&it.op)).count();
    assert_eq!(count(&|op| matches!(op, Op::Pad { .. })), 0);
    assert_eq!(count(&|op| matches!(op, Op::Concat { .. })), 1);
    let on = step.on_parameters();
    let is = |it: &(&planner_ir::Node, &bool)| {
        let whole = step.type_of(it.0.results[0]).shape == [4, 8];
        *it.1 && whole && matches!(it.0.op, Op::Cast(DType::BF16))
    };
    let converted: Vec<Phase> = step.nodes.iter().zip(&on).filter(is).map(|it| it.0.phase).collect();
    assert_eq!(converted, [Phase::Forward, Phase::Backward], "once in each part");
    let sums = step.sums();
    let adds = step.nodes.iter().filter(|it| it.op == Op::Binary(Binary::Add));
    let is_gradient = |it: &planner_ir::Node| {
        let sum = sums[it.results[0].0].map(|sum| &step.value(sum).source);
        matches!(sum, Some(Source::State(state)) if state.kind == StateKind::Gradient)
    };
    assert_eq!(adds.filter(|it| is_gradient(it)).count(), 0, "nothing is added to zeros");
    // What is known before a micro-batch: what parameters are converted to, and no sum.
    let known = step.known_before();
    for (node, on) in step.nodes.iter().zip(&on).filter(|it| it.0.phase == Phase::Forward) {
        let is_known = known[node.results[0].0];
        assert!(*on || !is_known, "{}", node.op);
        assert!(is_known || !matches!(node.op, Op::Cast(DType::BF16)) || !on, "{}", node.op);
    }
    for (value, known) in step.values.iter().zip(known) {
        if let Source::State(state) = &value.source {
            assert_eq!(known, !state.kind.is_summed(), "{}", state.name);
        }
    }
}
