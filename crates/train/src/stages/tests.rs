//! Every cut of a small model with a table that is used at both ends and a mask that every layer
//! adds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{
    CROSSING, Graph, Node, Op, Optimizer, Phase, Real, Source, State, StateKind, ValueId, parse_graph, verify,
};

use rewrite::{Blocks, Segment};

use super::{Stages, stage, stages};
use crate::{LOSS, NORM, ROUNDING, Step, TrainError, forward, step};

const LAYERS: usize = 3;

fn model() -> Graph {
    let mut text = "graph \"model\" {\n".to_owned();
    let mut next = 0;
    let mut line = |statement: &str, type_: &str, origin: &str| -> i32 {
        let origin = if origin.is_empty() { String::new() } else { format!(" # origin \"{origin}\"") };
        writeln!(text, "  %{next} = {statement} : {type_}{origin}").unwrap();
        next += 1;
        next - 1
    };
    let x = line("input \"x\"", "f32[4,8]", "");
    let mask = line("input \"mask\"", "f32[4,8]", "");
    let table = line("weight \"table\"", "f32[8,8]", "");
    let weights: Vec<i32> =
        (0..LAYERS).map(|it| line(&format!("weight \"w{it}\""), "f32[8,8]", "")).collect();
    let mask = line(&format!("neg %{mask}"), "f32[4,8]", "mask");
    let mut last = line(&format!("contract \"ab,bc->ac\" %{x} %{table}"), "f32[4,8]", "first");
    for (layer, weight) in weights.into_iter().enumerate() {
        let product = format!("contract \"ab,bc->ac\" %{last} %{weight}");
        last = line(&product, "f32[4,8]", &format!("product {layer}"));
        last = line(&format!("add %{last} %{mask}"), "f32[4,8]", &format!("masked {layer}"));
        last = line(&format!("gelu %{last}"), "f32[4,8]", &format!("active {layer}"));
    }
    last = line(&format!("contract \"ab,cb->ac\" %{last} %{table}"), "f32[4,8]", "last");
    last = line(&format!("reduce_sum dims=[0,1] %{last}"), "f32[1,1]", "sum");
    last = line(&format!("reshape shape=[] %{last}"), "f32[]", "loss");
    writeln!(text, "  return \"loss\" %{last}\n}}").unwrap();
    parse_graph(&text).unwrap()
}

/// The step of the model, and how many blocks it has.
fn whole(again: &Recompute, clip: Option<f64>, precision: Precision) -> (Step, usize) {
    let recipe = Recipe {
        precision,
        micro_batches: 4,
        clip,
        ..Recipe::new(
            Loss::Output("loss".to_owned()),
            Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.0) },
        )
    };
    let mut blocks = rewrite::blocks(&forward(&model(), &recipe).unwrap());
    cut(&mut blocks);
    let count = blocks.segments.len();
    let recipe = Recipe { recompute: vec![again.clone(); count], ..recipe };
    (step(&blocks, &recipe).unwrap(), count)
}

/// Cuts the model before each layer and behind the last, whatever blocks are found in so small a one.
fn cut(blocks: &mut Blocks) {
    let nodes = &blocks.graph.nodes;
    let starts = |node: &planner_ir::Node| node.origin.starts_with("product") || node.origin == "last";
    let mut first: Vec<usize> = (0..nodes.len()).filter(|&it| starts(&nodes[it])).collect();
    first.insert(0, 0);
    let ends = first[1..].iter().copied().chain([nodes.len()]);
    let segment = blocks.segments[0].clone();
    let part = |(start, end)| Segment { nodes: start..end, ..segment.clone() };
    blocks.segments = first.iter().copied().zip(ends).map(part).collect();
}

/// All first blocks of stages.
fn cuts(blocks: usize) -> Vec<Vec<usize>> {
    let chosen = |set: usize| (1..blocks).filter(move |it| set >> (it - 1) & 1 == 1);
    (0..1 << (blocks - 1)).map(|set| std::iter::once(0).chain(chosen(set)).collect()).collect()
}

/// Calls it with all steps, all their cuts and what these make.
fn every(mut check: impl FnMut(&Step, &[usize], &Stages)) {
    let recipes = [
        (Recompute::Nothing, None, Precision::F32),
        (Recompute::Full, Some(1.0), Precision::F32),
        (Recompute::Selective, None, Precision::F32),
        (Recompute::Nothing, Some(1.0), Precision::Bf16Stochastic),
    ];
    for (again, clip, precision) in recipes {
        let (step, blocks) = whole(&again, clip, precision);
        assert!(blocks > LAYERS, "{blocks} blocks");
        for first in cuts(blocks) {
            let all = stages(&step, &first).unwrap();
            for (number, own) in all.stages.iter().enumerate() {
                assert_eq!(stage(&step, &first, number).as_ref(), Ok(own), "{first:?}, {number}");
            }
            check(&step, &first, &all);
        }
    }
}

/// Whether an operation makes the mask, or converts it for the layers.
fn is_of_mask(node: &Node) -> bool {
    node.origin == "mask" || node.origin.starts_with("masked") && matches!(node.op, Op::Cast(_))
}

/// How often each operation of some phases is there.
fn counted<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    phases: &[Phase],
) -> BTreeMap<(Phase, String, String), usize> {
    let mut counts = BTreeMap::new();
    for node in nodes.into_iter().filter(|node| phases.contains(&node.phase) && !is_of_mask(node)) {
        *counts.entry((node.phase, node.origin.clone(), node.op.to_string())).or_default() += 1;
    }
    counts
}

fn has_input(graph: &Graph, name: &str) -> bool {
    graph.values.iter().any(|it| it.source == Source::Input(name.to_owned()))
}

fn has_state(graph: &Graph, kind: StateKind, name: &str) -> bool {
    let state = State { kind, name: name.to_owned() };
    graph.values.iter().any(|it| it.source == Source::State(state.clone()))
}

#[test]
fn one_stage_is_the_step() {
    let (step, _) = whole(&Recompute::Nothing, Some(1.0), Precision::F32);
    let one = stages(&step, &[0]).unwrap();
    assert_eq!(one.crossings, []);
    let [alone] = &one.stages[..] else { panic!("{} stages", one.stages.len()) };
    assert_eq!(counted(&alone.graph.nodes, &Phase::ALL), counted(&step.graph.nodes, &Phase::ALL));
    let [found, expected] = [alone, &step].map(|it| (it.graph.values.len(), it.graph.outputs.len()));
    assert_eq!(found, expected);
}

#[test]
fn every_operation_is_in_the_stage_of_its_block_and_stages_are_programs() {
    every(|step, first, made| {
        assert_eq!(made.stages.len(), first.len());
        let phases = [Phase::Forward, Phase::Backward, Phase::Gradient];
        let nodes = made.stages.iter().flat_map(|stage| &stage.graph.nodes);
        assert_eq!(counted(nodes, &phases), counted(&step.graph.nodes, &phases), "{first:?}");
        for (number, stage) in made.stages.iter().enumerate() {
            if let Err(error) = verify(&stage.graph) {
                panic!("{first:?}, stage {number}: {error}\n{}", stage.graph);
            }
            let end = first.get(number + 1).copied().unwrap_or(usize::MAX);
            assert_eq!(stage.homes.len(), stage.graph.nodes.len());
            for (node, home) in stage.graph.nodes.iter().zip(&stage.homes) {
                let everywhere = node.phase == Phase::Update || is_of_mask(node);
                assert!(everywhere || (first[number]..end).contains(home), "{first:?} {}", node.origin);
            }
            for (node, of) in stage.graph.nodes.iter().zip(&stage.forward) {
                let of = of.map(|it| &stage.graph.nodes[it.0]);
                assert!(of.is_none_or(|of| of.phase == Phase::Forward || node.phase == of.phase));
            }
        }
    });
}

#[test]
fn crossings_have_an_output_and_inputs_and_no_other_stage_has_them() {
    every(|_, first, made| {
        for crossing in &made.crossings {
            let ends = made.stages.iter().enumerate();
            let given: Vec<usize> = ends
                .clone()
                .filter(|it| it.1.graph.outputs.iter().any(|output| output.name == crossing.name))
                .map(|it| it.0)
                .collect();
            let taken: Vec<usize> =
                ends.filter(|it| has_input(&it.1.graph, &crossing.name)).map(|it| it.0).collect();
            assert_eq!((given, &taken), (vec![crossing.from], &crossing.to), "{first:?} {crossing:?}");
            assert!(!taken.is_empty() && !taken.contains(&crossing.from));
        }
        let mut names: Vec<&String> = made.crossings.iter().map(|it| &it.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), made.crossings.len());
    });
}

/// What an update does before it waits for another stage is all that need not wait, so that stages do
/// not reduce their gradients one after another. What rounding starts from is a number of an input,
/// made where it is needed.
#[test]
fn updates_wait_for_other_stages_as_late_as_they_can() {
    every(|_, first, made| {
        for stage in &made.stages {
            let graph = &stage.graph;
            let mut waits: Vec<bool> = graph
                .values
                .iter()
                .map(|it| matches!(&it.source, Source::Input(name) if name.starts_with(CROSSING)))
                .collect();
            let mut late = false;
            for node in graph.nodes.iter().filter(|node| node.phase == Phase::Update) {
                let is_late = node.operands.iter().any(|operand| waits[operand.0]);
                node.results.iter().for_each(|result| waits[result.0] = is_late);
                assert!(
                    is_late || !late || node.origin == "rounding",
                    "{first:?}: {} could be done before\n{graph}",
                    node.origin
                );
                late |= is_late;
            }
        }
    });
}

/// The mask depends on an input alone: whoever uses it makes it, and it does not cross.
#[test]
fn masks_are_made_where_they_are_used() {
    every(|_, first, made| {
        for stage in &made.stages {
            let of = |start: &str| stage.graph.nodes.iter().filter(|it| it.origin.starts_with(start)).count();
            let uses = stage.graph.nodes.iter().any(|it| it.origin.starts_with("masked"));
            let masks = of("mask") - of("masked");
            assert_eq!(masks > 0, uses && has_input(&stage.graph, "mask"), "{first:?}");
            assert!(masks <= 2, "once, and once again for gradients");
        }
    });
}

/// The table's gradients are summed at both ends, the sums cross once, and both make one update.
#[test]
fn a_tied_parameter_is_a_state_of_its_users_and_its_sums_cross() {
    every(|_, first, made| {
        let states = |kind, name: &str| {
            let has = |stage: &&Step| has_state(&stage.graph, kind, name);
            made.stages.iter().filter(has).count()
        };
        let users = if first.len() == 1 { 1 } else { 2 };
        for kind in [StateKind::Parameter, StateKind::FirstMoment] {
            assert_eq!(states(kind, "table"), users, "{first:?}");
            for layer in 0..LAYERS {
                assert_eq!(states(kind, &format!("w{layer}")), 1, "{first:?}");
            }
        }
        assert_eq!(states(StateKind::Gradient, "table"), users);
        // What changes the table is done by both, with operands from the same ends in the same order.
        let ends = [&made.stages[0], &made.stages[made.stages.len() - 1]];
        let updates = ends.map(|stage| {
            let carried = &stage.graph.training.as_ref().unwrap().carried;
            let changed = |kind| {
                carried.iter().any(|it| {
                    let state = State { kind, name: "table".to_owned() };
                    stage.graph.value(it.state).source == Source::State(state)
                })
            };
            [StateKind::Parameter, StateKind::FirstMoment, StateKind::Gradient].map(changed)
        });
        assert_eq!(updates, [[true; 3]; 2], "{first:?}");
    });
}

/// What the rounding of each parameter starts from: its number, and how many are added to the step's.
fn starts(graph: &Graph) -> BTreeMap<String, (u64, usize)> {
    let maker = |value: ValueId| match graph.value(value).source {
        Source::Result { node, .. } => Some(graph.node(node)),
        _ => None,
    };
    let start = |node: &Node| {
        let Op::RoundStochastically { seed } = node.op else { return None };
        let (mut number, mut added) = (node.operands[1], 0);
        while let Some(Node { operands, .. }) = maker(number) {
            (number, added) = (operands[0], added + 1);
        }
        assert_eq!(graph.value(number).source, Source::Input(ROUNDING.to_owned()));
        // What is rounded was made of the stage's own state.
        let cast = maker(maker(node.operands[0]).unwrap().operands[0]).unwrap();
        let state = State { kind: StateKind::Parameter, name: node.origin.clone() };
        assert_eq!(graph.value(cast.operands[0]).source, Source::State(state));
        Some((node.origin.clone(), (seed, added)))
    };
    graph.nodes.iter().filter_map(start).collect()
}

/// No two parameters are rounded alike, nor is one otherwise in another stage, or elsewhere.
#[test]
fn parameters_are_rounded_alike_in_every_cut() {
    every(|step, first, made| {
        let whole = starts(&step.graph);
        let different: BTreeSet<(u64, usize)> = whole.values().copied().collect();
        assert_eq!(different.len(), whole.len());
        let has = |stage: &Step, name: &str| has_state(&stage.graph, StateKind::Parameter, name);
        for stage in &made.stages {
            let mut expected = whole.clone();
            expected.retain(|name, _| has(stage, name));
            assert_eq!(starts(&stage.graph), expected, "{first:?}");
        }
    });
    let (step, _) = whole(&Recompute::Nothing, None, Precision::Bf16Stochastic);
    assert_eq!(starts(&step.graph).len(), 1 + LAYERS);
}

/// Every stage returns what the step returns, and changes the states that it has.
#[test]
fn every_stage_returns_the_loss_and_changes_its_states() {
    every(|step, first, made| {
        for stage in &made.stages {
            let returned = |graph: &Graph| -> Vec<String> {
                let names = graph.outputs.iter().map(|it| it.name.clone());
                names.filter(|it| it == LOSS || it == NORM).collect()
            };
            assert_eq!(returned(&stage.graph), returned(&step.graph));
            let training = stage.graph.training.as_ref().unwrap();
            assert_eq!(training.micro_batches, 4);
            for id in stage.graph.value_ids() {
                let is_state = matches!(stage.graph.value(id).source, Source::State(_));
                let carried = training.carried.iter().any(|it| it.state == id);
                assert_eq!(is_state, carried, "{first:?}\n{}", stage.graph);
            }
        }
    });
}

#[test]
fn cuts_that_there_are_not_are_refused() {
    let (step, blocks) = whole(&Recompute::Nothing, None, Precision::F32);
    for first in [&[][..], &[1], &[0, 0], &[0, 2, 1], &[0, blocks], &[0, usize::MAX]] {
        assert_eq!(stages(&step, first), Err(TrainError::Stages(first.to_vec(), blocks)));
    }
}
