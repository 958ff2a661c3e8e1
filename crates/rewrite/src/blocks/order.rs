//! Orders of the nodes in which repetition may show.
//!
//! The order is depth first from the results, operands left to right, so that it depends on local
//! structure only and equal layers come out equal. Two things would spoil it. A value that many
//! layers read would be computed inside the first of them: such values are visited beforehand.
//! Which values these are is judged by how far apart, along the longest path, their readers are;
//! how far is too far depends on the model, so there are several candidates. And what an output
//! alone needs would come last: it is put where its last operand is made.

use std::collections::BTreeSet;

use planner_ir::{Graph, NodeId, Op, Output, Source, ValueId};

/// Constants up to this size are copied to each reader (bytes).
const SMALL: u64 = 256;

/// The graph without nodes that no output needs, and with a copy of each small constant for each
/// of its readers.
pub(crate) fn with_local_constants(graph: &Graph) -> Graph {
    let alive = ancestors(graph, graph.outputs.iter().map(|output| output.value));
    let mut result = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut values: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = Some(result.push_value(value.type_.clone(), value.source.clone()));
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        if !alive[index] || is_small(graph, index) {
            continue;
        }
        let mut copies: Vec<(ValueId, ValueId)> = Vec::new();
        let mut operands = Vec::with_capacity(node.operands.len());
        for &operand in &node.operands {
            let copied = copies.iter().find(|(original, _)| *original == operand).map(|(_, copy)| *copy);
            let known = copied.or(values[operand.0]);
            operands.push(known.unwrap_or_else(|| {
                let copy = copy_constant(graph, operand, &mut result);
                copies.push((operand, copy));
                copy
            }));
        }
        let types = graph.types_of(&node.results);
        let results = result.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (&old, new) in node.results.iter().zip(results) {
            values[old.0] = Some(new);
        }
    }
    for output in &graph.outputs {
        let value = values[output.value.0].unwrap_or_else(|| copy_constant(graph, output.value, &mut result));
        values[output.value.0] = Some(value);
        result.outputs.push(Output { name: output.name.clone(), value });
    }
    result
}

fn is_small(graph: &Graph, node: usize) -> bool {
    let node = &graph.nodes[node];
    match &node.op {
        Op::Constant { result, .. } => result.bytes() <= SMALL,
        Op::Fill { .. } | Op::Iota { .. } => true,
        _ => false,
    }
}

fn copy_constant(graph: &Graph, value: ValueId, result: &mut Graph) -> ValueId {
    let Source::Result { node, index } = graph.value(value).source else {
        return value;
    };
    let node = graph.node(node);
    let types = graph.types_of(&node.results);
    result.push_node(node.op.clone(), Vec::new(), types, node.origin.clone())[index]
}

/// The graph with its nodes in another order.
pub(super) fn reordered(graph: &Graph, order: &[NodeId]) -> Graph {
    let mut result = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut values: Vec<ValueId> = vec![ValueId(usize::MAX); graph.values.len()];
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = result.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for &id in order {
        let node = graph.node(id);
        let operands = node.operands.iter().map(|operand| values[operand.0]).collect();
        let types = graph.types_of(&node.results);
        let results = result.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (&old, new) in node.results.iter().zip(results) {
            values[old.0] = new;
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: values[it.value.0] };
    result.outputs = graph.outputs.iter().map(output).collect();
    result
}

/// The orders to try.
pub(super) fn candidates(graph: &Graph) -> Vec<Vec<NodeId>> {
    let trunk = Trunk::of(graph);
    let mut early: BTreeSet<Vec<NodeId>> = BTreeSet::new();
    let mut orders = Vec::new();
    let mut least = trunk.length + 1;
    while least > 0 {
        let far = |id: &NodeId| trunk.spans[id.0] >= least;
        let nodes: Vec<NodeId> = graph.node_ids().filter(far).collect();
        if early.insert(nodes.clone()) {
            orders.push(depth_first(graph, &nodes, trunk.end));
        }
        least = least * 2 / 3;
    }
    orders
}

/// The nodes that these values need.
fn ancestors(graph: &Graph, values: impl Iterator<Item = ValueId>) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes.len()];
    let mark = |needed: &mut Vec<bool>, value: ValueId| {
        if let Source::Result { node, .. } = graph.value(value).source {
            needed[node.0] = true;
        }
    };
    for value in values {
        mark(&mut needed, value);
    }
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        if needed[index] {
            for &operand in &node.operands {
                mark(&mut needed, operand);
            }
        }
    }
    needed
}

/// The longest path, and how far apart along it each node's readers are.
struct Trunk {
    end: Option<NodeId>,
    length: usize,
    /// The distance from the first to the last place on the path that is reached from the node
    /// without the path.
    spans: Vec<usize>,
}

impl Trunk {
    fn of(graph: &Graph) -> Self {
        let mut depth = vec![0; graph.nodes.len()];
        for id in graph.node_ids() {
            depth[id.0] = producers(graph, id).map(|it| depth[it.0] + 1).max().unwrap_or(0);
        }
        let end =
            graph.node_ids().reduce(|best, next| if depth[next.0] > depth[best.0] { next } else { best });
        let mut path = Vec::new();
        let mut next = end;
        while let Some(node) = next {
            path.push(node);
            next = producers(graph, node)
                .reduce(|best, next| if depth[next.0] > depth[best.0] { next } else { best });
        }
        path.reverse();
        let mut place = vec![None; graph.nodes.len()];
        for (index, node) in path.iter().enumerate() {
            place[node.0] = Some(index);
        }
        let users = graph.users();
        let mut reached: Vec<Option<(usize, usize)>> = vec![None; graph.nodes.len()];
        let mut spans = vec![0; graph.nodes.len()];
        for index in (0..graph.nodes.len()).rev() {
            for user in graph.nodes[index].results.iter().flat_map(|result| &users[result.0]) {
                let at = place[user.0].map(|it| (it, it)).or(reached[user.0]);
                reached[index] = match (reached[index], at) {
                    (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                    (known, None) => known,
                    (None, known) => known,
                };
            }
            spans[index] = reached[index].map_or(0, |(first, last)| last - first);
        }
        Self { end, length: path.len(), spans }
    }
}

fn producers(graph: &Graph, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    graph.node(node).operands.iter().filter_map(|&operand| match graph.value(operand).source {
        Source::Result { node, .. } => Some(node),
        _ => None,
    })
}

/// These nodes with what they need, then the trunk's end, then the outputs; what the trunk's end
/// does not need comes as soon as it can.
fn depth_first(graph: &Graph, early: &[NodeId], end: Option<NodeId>) -> Vec<NodeId> {
    let mut main = Walk::new(graph);
    let needed = end.map(|end| ancestors(graph, graph.node(end).results.iter().copied()));
    let needed = needed.unwrap_or_default();
    for &node in early.iter().filter(|node| needed[node.0]).chain(&end) {
        main.visit(node);
    }
    let mut position = vec![None; graph.nodes.len()];
    for (index, node) in main.order.iter().enumerate() {
        position[node.0] = Some(index);
    }
    let mut tails: Vec<Vec<NodeId>> = vec![Vec::new(); main.order.len()];
    for id in graph.node_ids().filter(|id| !needed[id.0]) {
        position[id.0] = producers(graph, id).filter_map(|it| position[it.0]).max();
        if let Some(at) = position[id.0] {
            tails[at].push(id);
        }
    }
    let mut all = Walk::new(graph);
    for (index, &node) in main.order.iter().enumerate() {
        all.visit(node);
        for &tail in &tails[index] {
            all.visit(tail);
        }
    }
    for id in graph.node_ids() {
        all.visit(id);
    }
    all.order
}

/// A walk that appends each node after those whose results it uses.
struct Walk<'a> {
    graph: &'a Graph,
    seen: Vec<bool>,
    order: Vec<NodeId>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self { graph, seen: vec![false; graph.nodes.len()], order: Vec::new() }
    }

    fn visit(&mut self, root: NodeId) {
        if std::mem::replace(&mut self.seen[root.0], true) {
            return;
        }
        let mut path = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let Some(&operand) = self.graph.node(*node).operands.get(*next) else {
                self.order.push(*node);
                path.pop();
                continue;
            };
            *next += 1;
            if let Source::Result { node, .. } = self.graph.value(operand).source
                && !std::mem::replace(&mut self.seen[node.0], true)
            {
                path.push((node, 0));
            }
        }
    }
}
