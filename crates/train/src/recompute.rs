//! Which operations of a block are done again for its gradients, rather than their results kept.

use std::collections::BTreeSet;

use plan::Recompute;
use planner_ir::{Graph, Node, NodeId, Op, Source, ValueId};
use rewrite::Blocks;

use crate::TrainError;

/// For each operation of the forward program, whether it is done again. `places` says in which
/// block it stands, `decisions` what of each block is done again.
///
/// What only takes parameters apart is always done again: kept, it would be a second copy of them.
pub(crate) fn again(
    blocks: &Blocks,
    places: &[usize],
    decisions: &[Recompute],
    trained: &BTreeSet<String>,
) -> Result<Vec<bool>, TrainError> {
    let graph = &blocks.graph;
    check(blocks, decisions)?;
    let prepared = graph.prepared();
    let core = attention_core(graph);
    let mut parameters: Vec<bool> = graph
        .values
        .iter()
        .map(|value| matches!(&value.source, Source::Weight(name) if trained.contains(name)))
        .collect();
    let mut again = Vec::new();
    for node in graph.node_ids() {
        let Node { operands, results, .. } = graph.node(node);
        let is_prepared = results.iter().all(|result| prepared[result.0]);
        let taken_apart = is_prepared && operands.iter().any(|operand| parameters[operand.0]);
        for result in results {
            parameters[result.0] = taken_apart;
        }
        let place = places[node.0];
        again.push(match &decisions[place] {
            _ if is_prepared => taken_apart,
            Recompute::Nothing => false,
            Recompute::Selective => core[node.0],
            Recompute::Full => true,
            Recompute::AllBut(kept) => {
                let number = node.0 - blocks.segments[place].nodes.start;
                kept.binary_search(&number).is_err()
            }
        });
    }
    Ok(again)
}

/// Whether what is kept of blocks are operations that these have, in order.
fn check(blocks: &Blocks, decisions: &[Recompute]) -> Result<(), TrainError> {
    for (place, (segment, decision)) in blocks.segments.iter().zip(decisions).enumerate() {
        let Recompute::AllBut(kept) = decision else { continue };
        let ascends = kept.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends || kept.last().is_some_and(|&last| last >= segment.nodes.len()) {
            return Err(TrainError::Kept(place, segment.nodes.len()));
        }
    }
    Ok(())
}

/// What stands between the two products of attention where it is not one operation: products of
/// two computed values that lead to a softmax, the softmax, and what leads from there to another
/// such product, without that.
///
/// Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
/// 2022, section 5.
fn attention_core(graph: &Graph) -> Vec<bool> {
    let prepared = graph.prepared();
    let inner = |node: NodeId| {
        let node = graph.node(node);
        matches!(node.op, Op::Contract(_)) && node.operands.iter().all(|operand| !prepared[operand.0])
    };
    let count = graph.nodes.len();
    // Behind a product of computed values, with nothing but operations on elements between.
    let mut after_scores = vec![false; count];
    let mut after_softmax = vec![false; count];
    for node in graph.node_ids() {
        let makers = || graph.node(node).operands.iter().filter_map(|&operand| maker(graph, operand));
        let is_softmax = matches!(graph.node(node).op, Op::Softmax { .. });
        after_scores[node.0] = inner(node) || (passes(graph, node) && makers().any(|it| after_scores[it.0]));
        after_softmax[node.0] = (is_softmax && after_scores[node.0])
            || (passes(graph, node) && makers().any(|it| after_softmax[it.0]));
    }
    // From the second product back to the first.
    let mut core = vec![false; count];
    let users = graph.users();
    for node in (0..count).rev().map(NodeId) {
        let leads = graph
            .node(node)
            .results
            .iter()
            .flat_map(|result| &users[result.0])
            .any(|&user| core[user.0] || (inner(user) && after_softmax[node.0]));
        core[node.0] = leads && after_scores[node.0];
    }
    core
}

/// Whether an operation stands inside attention if its operands do.
fn passes(graph: &Graph, node: NodeId) -> bool {
    matches!(
        graph.node(node).op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Softmax { .. }
            | Op::Dropout { .. }
            | Op::Reshape { .. }
            | Op::Expand { .. }
    )
}

fn maker(graph: &Graph, value: ValueId) -> Option<NodeId> {
    match graph.value(value).source {
        Source::Result { node, .. } => Some(node),
        _ => None,
    }
}
