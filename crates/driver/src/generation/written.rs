//! Entries that a step writes into a cache of fixed size are written where that is.
//!
//! Exporters write them at indices of a dimension (`ScatterElements`), or, with the places brought to the front and
//! back again, as slices (`Transpose`, `ScatterND`, `Transpose`).

use std::collections::BTreeMap;

use plan::{Form, Kept};
use planner_ir::{Graph, NodeId, Op, Output, Scatter, Source, ValueId};

/// What is written where.
struct Write {
    past: ValueId,
    /// The dimension of places.
    dim: usize,
    indices: ValueId,
    /// How many entries there are.
    count: u64,
    updates: ValueId,
    /// How the dimensions of updates come to be those of the cache, if they are others.
    turned: Option<Vec<usize>>,
}

/// The step with its entries written over the cache that it finds, of each part that it returns with them in it and
/// uses in no other way.
pub(crate) fn in_place(graph: &Graph, kept: &[Kept]) -> Graph {
    let users = graph.users();
    let entries = kept.iter().filter(|it| it.form == Form::Entries);
    let writes: BTreeMap<NodeId, Write> = entries.filter_map(|it| write(graph, it, &users)).collect();
    let mut made = vec![ValueId(usize::MAX); graph.values.len()];
    let mut written = Graph { name: graph.name.clone(), ..Graph::default() };
    for id in graph.value_ids().filter(|it| !matches!(graph.value(*it).source, Source::Result { .. })) {
        made[id.0] = written.push_value(graph.type_of(id).clone(), graph.value(id).source.clone());
    }
    for (id, node) in graph.node_ids().zip(&graph.nodes) {
        let types = graph.types_of(&node.results);
        let results = match writes.get(&id).and_then(|it| pushed(&mut written, it, &made, &node.origin)) {
            Some(result) => vec![result],
            None => {
                let operands = node.operands.iter().map(|it| made[it.0]).collect();
                written.push_node(node.op.clone(), operands, types, node.origin.clone())
            }
        };
        node.results.iter().zip(results).for_each(|(old, new)| made[old.0] = new);
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: made[it.value.0] };
    written.outputs = graph.outputs.iter().map(output).collect();
    rewrite::shared(&written)
}

/// The operation that makes what a part becomes, if all that it does is to write over it.
fn write(graph: &Graph, part: &Kept, users: &[Vec<NodeId>]) -> Option<(NodeId, Write)> {
    let present = graph.outputs.iter().find(|it| it.name == part.present)?.value;
    let last = maker(graph, present)?;
    let (scattered, turned) = match &graph.node(last).op {
        Op::Transpose { permutation } => (graph.node(last).operands[0], Some(permutation.clone())),
        _ => (present, None),
    };
    let scatter = maker(graph, scattered)?;
    let [data, indices, updates] = graph.node(scatter).operands[..] else { return None };
    let dim = match (&graph.node(scatter).op, &turned) {
        (Op::ScatterElements { dim, scatter: Scatter::Replace }, None) => *dim,
        (Op::ScatterNd { scatter: Scatter::Replace }, Some(back)) => {
            // A tuple of one index for each slice.
            let asked = &graph.type_of(indices).shape;
            let is_list = asked.len() == 2 && asked[1] == 1;
            is_list.then(|| back.iter().position(|&it| it == 0))??
        }
        _ => return None,
    };
    let first = match &turned {
        None => scatter,
        Some(back) => {
            let first = maker(graph, data)?;
            let Op::Transpose { permutation } = &graph.node(first).op else { return None };
            let is_inverse = back.iter().enumerate().all(|(to, &from)| permutation.get(from) == Some(&to));
            let alone = users[data.0] == [scatter] && users[scattered.0] == [last];
            let is_returned = graph.outputs.iter().any(|it| it.value == scattered || it.value == data);
            (is_inverse && alone && !is_returned).then_some(first)?
        }
    };
    let past = *graph.node(first).operands.first()?;
    let is_past = matches!(&graph.value(past).source, Source::Input(name) if *name == part.past);
    let uses = graph.node(first).operands.iter().filter(|it| **it == past).count();
    let is_returned = graph.outputs.iter().any(|it| it.value == past);
    let is_alone = is_past && users[past.0] == [first] && uses == 1 && !is_returned;
    let count = graph.type_of(indices).shape[if turned.is_some() { 0 } else { dim }];
    is_alone.then_some((last, Write { past, dim, indices, count, updates, turned }))
}

/// The operation that makes a value.
fn maker(graph: &Graph, value: ValueId) -> Option<NodeId> {
    match graph.value(value).source {
        Source::Result { node, .. } => Some(node),
        _ => None,
    }
}

/// The cache with entries written over it.
fn pushed(graph: &mut Graph, write: &Write, made: &[ValueId], origin: &str) -> Option<ValueId> {
    let mut push = |op: Op, operands: Vec<ValueId>| -> Option<ValueId> {
        let types = op.infer(&graph.types_of(&operands)).ok()?;
        graph.push_node(op, operands, types, origin.to_owned()).first().copied()
    };
    let [past, mut indices, mut updates] = [write.past, write.indices, write.updates].map(|it| made[it.0]);
    if let Some(permutation) = &write.turned {
        let mut shape = vec![1; permutation.len()];
        shape[write.dim] = write.count;
        indices = push(Op::Reshape { shape }, vec![indices])?;
        updates = push(Op::Transpose { permutation: permutation.clone() }, vec![updates])?;
    }
    push(Op::ScatterElements { dim: write.dim, scatter: Scatter::Write }, vec![past, indices, updates])
}

#[cfg(test)]
mod tests;
