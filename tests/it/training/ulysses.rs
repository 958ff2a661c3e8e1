//! Context parallel training by heads: the sequence is split everywhere but in attention, where heads
//! are; between both are exchanges, each of all to all.
//!
//! Source: Jacobs et al., "DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long
//! Sequence Transformer Models", 2023.

use plan::{Assignment, Plan, Recompute};
use planner_ir::{Graph, Move, Node, Op, Optimizer, Partition, ValueId};
use rewrite::Steps;
use search::MachinePrices;

use super::cases::{self, ADAMW, Case, MOMENTUM, parted};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use super::{expect_none, faults_of};
use crate::corpus::machine;

/// Models, how they are trained, and on how many ranks, which divide the heads of keys: with as many of
/// them as of queries; with fewer, and attention done again for its gradient; with fewer, from another
/// exporter.
const TRIALS: [(&str, Optimizer, Recompute, &[u64]); 3] = [
    ("gpt2/legacy.onnx", ADAMW, Recompute::Nothing, &[2, 4]),
    ("llama/legacy.onnx", MOMENTUM, Recompute::Full, &[2]),
    ("llama_op23/", ADAMW, Recompute::Nothing, &[2]),
];

/// A training step planned with the sequence split over so many ranks, and held against PyTorch.
fn check(case: &Case, (optimizer, decision): (Optimizer, Recompute), ranks: u64) -> Result<(), String> {
    let (mesh, machine) = machine(&ranks.to_string());
    let prepared = case.prepared(&case.training(optimizer, decision), &parted(&case.batch(0), 1));
    let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
    let prices = Preferring::new(Manner::Heads, prices, &prepared.graph, &prepared.sections);
    let plan = case.plan_in(&prepared, &mesh, &machine, &prices, Steps::One)?;
    check_plan(&plan)?;
    println!("{} on {ranks}: {:?}", case.title, plan::strategy(&plan));
    by_heads(&plan)?;
    let (found, expected) = (exchanged(&plan), textbook(&plan.graph, ranks));
    if found != expected {
        return Err(format!("exchanges bring {found:?} bytes, in the textbook {expected:?}"));
    }
    case.check_training(&plan, optimizer, 1)
}

/// Says what attention has anything but its heads split.
fn by_heads(plan: &Plan) -> Result<(), String> {
    let mut count = 0;
    for (node, assignment) in plan.graph.nodes.iter().zip(&plan.assignments) {
        if !attends(node) {
            continue;
        }
        let Assignment::Computed { partition, .. } = assignment else {
            return Err(format!("{}: no partition", node.origin));
        };
        if !splits_heads(&plan.graph, node, partition) {
            return Err(format!("{}: {partition:?} splits more than heads, or none", node.origin));
        }
        count += 1;
    }
    if count == 0 { Err("nothing attends".to_owned()) } else { Ok(()) }
}

fn attends(node: &Node) -> bool {
    matches!(node.op, Op::Attention(_) | Op::AttentionGradient { .. })
}

/// Whether the heads of keys are split, and no other loop is.
fn splits_heads(graph: &Graph, node: &Node, partition: &Partition) -> bool {
    let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
    let of_keys = loops.operands[1][1].first().copied();
    loops.ids().all(|it| partition.loops[it.0].is_empty() == (Some(it) != of_keys))
}

/// How many dimensions queries, keys and values have: examples, heads, tokens, elements.
const HEADS: usize = 4;

/// What each exchange of something with heads brings all ranks, least first (bytes).
fn exchanged(plan: &Plan) -> Vec<u64> {
    let with_heads = plan.transfers.iter().filter(|it| plan.graph.type_of(it.value).rank() == HEADS);
    let moved = with_heads.flat_map(|it| it.moves.iter().zip(&it.bytes));
    let mut all: Vec<u64> =
        moved.filter(|it| matches!(it.0, Move::AllToAll { .. })).map(|it| *it.1).collect();
    all.sort_unstable();
    all
}

/// The same of the textbook: of Q, K, V and Y forward, of their gradients backward, each brings all n
/// ranks (n − 1)/n of the value. And Y once more: of what is kept for the backward pass there is one copy,
/// by tokens, as what attention leads to needs it for the gradient of its parameters; attention's own
/// gradient needs it by heads.
fn textbook(graph: &Graph, ranks: u64) -> Vec<u64> {
    let part = |value: &ValueId| (ranks - 1) * graph.type_of(*value).bytes() / ranks;
    let turned = |node: &Node| match node.op {
        Op::Attention(_) => [&node.operands[..3], &node.results[..1]].concat(),
        // The gradient of Y is as large as Y.
        Op::AttentionGradient { .. } => [&node.results[..3], &[node.operands[3]; 2]].concat(),
        _ => vec![],
    };
    let mut all: Vec<u64> = graph.nodes.iter().flat_map(turned).map(|it| part(&it)).collect();
    all.sort_unstable();
    all
}

#[test]
fn sequences_are_turned_into_heads_for_attention_and_train_as_pytorch() {
    let mut failures = Vec::new();
    for (model, optimizer, decision, ranks) in TRIALS {
        let mut all = cases::all().into_iter();
        let Some(path) = all.find(|path| path.to_string_lossy().contains(model)) else { continue };
        for &ranks in ranks {
            let what = format!("{model} by heads on {ranks}");
            failures.extend(faults_of(&what, || {
                let case = Case::load(&path).stretched(1, ranks);
                let wrong = check(&case, (optimizer, decision.clone()), ranks).err();
                wrong.map(|error| format!("{what}: {error}")).into_iter().collect()
            }));
        }
    }
    expect_none(&failures);
}
