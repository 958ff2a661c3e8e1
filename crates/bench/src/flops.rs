//! The arithmetic of a graph: a multiplication and an addition for each product that is summed.

use std::collections::BTreeMap;

use planner_ir::{Graph, Label, Node, Op};

/// The operations of all matrix products, attention among them, of one step.
///
/// Attention is counted whole, also where a mask hides half of it.
pub(crate) fn flops(graph: &Graph) -> u64 {
    graph.nodes.iter().map(|node| of(graph, node)).sum()
}

fn of(graph: &Graph, node: &Node) -> u64 {
    let shape = |operand: usize| graph.type_of(node.operands[operand]).shape.as_slice();
    match &node.op {
        Op::Contract(contract) => {
            let labels = [(&contract.left, shape(0)), (&contract.right, shape(1))];
            let extents = labels.into_iter().flat_map(|(labels, shape)| labels.iter().copied().zip(shape));
            2 * extents.collect::<BTreeMap<Label, &u64>>().into_values().product::<u64>()
        }
        Op::Attention(_) => {
            let (queries, values) = (shape(0), shape(2));
            let (Some(own), Some(made)) = (queries.last(), values.last()) else { return 0 };
            let keys = values.iter().rev().nth(1).copied().unwrap_or(1);
            let pairs = queries[..queries.len() - 1].iter().product::<u64>() * keys;
            2 * pairs * (own + made)
        }
        _ => 0,
    }
}
