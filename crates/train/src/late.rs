//! Conversions where they are read.

use std::collections::BTreeMap;

use planner_ir::{Graph, Op, ValueId};

/// The operations in an order in which what is converted to more bytes for an operation is converted
/// right before it, within a block: what is kept until then is small, and a loss finds its scores as they
/// were made.
pub(crate) fn late_conversions(graph: &Graph, places: &[usize]) -> Vec<usize> {
    let bytes = |value: ValueId| graph.type_of(value).dtype.bytes();
    // For each operation what is converted right before it.
    let mut before: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut is_late = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        let (Op::Cast(_), &[x], &[y]) = (&node.op, &node.operands[..], &node.results[..]) else { continue };
        if bytes(x) >= bytes(y) {
            continue;
        }
        let reader = graph.nodes[index..].iter().position(|it| it.operands.contains(&y));
        if let Some(reader) = reader.map(|after| index + after).filter(|&it| places[it] == places[index]) {
            before.entry(reader).or_default().push(index);
            is_late[index] = true;
        }
    }
    let mut order = Vec::with_capacity(graph.nodes.len());
    let mut open: Vec<usize> = (0..graph.nodes.len()).rev().filter(|&it| !is_late[it]).collect();
    while let Some(index) = open.pop() {
        match before.remove(&index) {
            Some(late) => {
                open.push(index);
                open.extend(late.into_iter().rev());
            }
            None => order.push(index),
        }
    }
    order
}
