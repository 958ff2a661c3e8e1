//! Equal computations made once, needless ones not at all.

use std::collections::BTreeMap;

use planner_ir::{Graph, Op, Output, Source, ValueId};

/// The graph without nodes that no output needs, and with one node for equal operations on equal
/// operands.
pub fn shared(graph: &Graph) -> Graph {
    let mut result = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut values: Vec<ValueId> = vec![ValueId(usize::MAX); graph.values.len()];
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = result.push_value(value.type_.clone(), value.source.clone());
        }
    }
    let mut known: BTreeMap<(&Op, Vec<ValueId>), Vec<ValueId>> = BTreeMap::new();
    for (node, _) in graph.nodes.iter().zip(needed(graph)).filter(|(_, needed)| *needed) {
        let operands: Vec<ValueId> = node.operands.iter().map(|operand| values[operand.0]).collect();
        let results = known.entry((&node.op, operands)).or_insert_with_key(|(op, operands)| {
            let types = graph.types_of(&node.results);
            result.push_node((*op).clone(), operands.clone(), types, node.origin.clone())
        });
        for (&old, &new) in node.results.iter().zip(results.iter()) {
            values[old.0] = new;
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: values[it.value.0] };
    result.outputs = graph.outputs.iter().map(output).collect();
    result
}

fn needed(graph: &Graph) -> Vec<bool> {
    let mut values = vec![false; graph.values.len()];
    for output in &graph.outputs {
        values[output.value.0] = true;
    }
    let mut needed = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        needed[index] = node.results.iter().any(|result| values[result.0]);
        if needed[index] {
            for operand in &node.operands {
                values[operand.0] = true;
            }
        }
    }
    needed
}
