//! A graph without operations that nothing needs.

use planner_ir::{Graph, Output, Source, ValueId};

/// The graph without operations of whose results no output is made. What is given stays.
pub(in crate::generation) fn without(graph: &Graph) -> Graph {
    let mut needed = vec![false; graph.values.len()];
    for output in &graph.outputs {
        needed[output.value.0] = true;
    }
    for node in graph.nodes.iter().rev() {
        if node.results.iter().any(|it| needed[it.0]) {
            node.operands.iter().for_each(|it| needed[it.0] = true);
        }
    }
    let mut made = vec![ValueId(usize::MAX); graph.values.len()];
    let mut kept = Graph { name: graph.name.clone(), ..Graph::default() };
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            made[id.0] = kept.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for node in graph.nodes.iter().filter(|it| it.results.iter().any(|it| needed[it.0])) {
        let operands = node.operands.iter().map(|it| made[it.0]).collect();
        let types = graph.types_of(&node.results);
        let results = kept.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (old, new) in node.results.iter().zip(results) {
            made[old.0] = new;
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: made[it.value.0] };
    kept.outputs = graph.outputs.iter().map(output).collect();
    kept
}
