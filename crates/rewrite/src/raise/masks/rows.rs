//! Masks that are the same for all queries, heads or examples: attention takes one, which it repeats.
//!
//! Exporters repeat a mask of padding for every query before they turn it into numbers, and what is as large
//! as the scores is then computed. Whether elements differ along a dimension follows from what they are made
//! of.

use std::collections::BTreeMap;

use planner_ir::{Graph, Node, Op, Output, Source, ValueId};

/// The graph with masks of attention that are repeated as late as can be.
pub(super) fn once(graph: &Graph) -> Graph {
    let mut taking = Taking {
        old: graph,
        new: Graph { name: graph.name.clone(), ..Graph::default() },
        values: vec![ValueId(usize::MAX); graph.values.len()],
        alike: alike(graph),
        once: BTreeMap::new(),
    };
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            taking.values[id.0] = taking.new.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for node in &graph.nodes {
        taking.node(node);
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: taking.values[it.value.0] };
    let outputs = graph.outputs.iter().map(output).collect();
    Graph { outputs, ..taking.new }
}

struct Taking<'a> {
    old: &'a Graph,
    new: Graph,
    /// For each old value, the new one.
    values: Vec<ValueId>,
    /// For each old value, along which dimensions its elements do not differ.
    alike: Vec<Dims>,
    /// For an old value, the new one that has one element along dimensions along which all are alike.
    once: BTreeMap<(ValueId, Dims), ValueId>,
}

/// Dimensions of scores, counted from the end: queries, heads, examples.
pub(super) type Dims = [bool; 3];

/// Which of them queries are.
pub(super) const QUERIES: usize = 0;

/// Whether a value has more than one element along a dimension.
fn has_many(graph: &Graph, value: ValueId, dim: usize) -> bool {
    let shape = &graph.type_of(value).shape;
    shape.len().checked_sub(dim + 2).is_some_and(|at| shape[at] > 1)
}

/// For each value, along which dimensions its elements do not differ.
pub(super) fn alike(graph: &Graph) -> Vec<Dims> {
    let mut alike: Vec<Dims> =
        graph.value_ids().map(|id| [0, 1, 2].map(|dim| !has_many(graph, id, dim))).collect();
    for node in &graph.nodes {
        let of_operands = match &node.op {
            Op::Fill { .. } | Op::Expand { .. } | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) => {
                [0, 1, 2].map(|dim| node.operands.iter().all(|it| alike[it.0][dim]))
            }
            _ => continue,
        };
        for &result in &node.results {
            alike[result.0] = of_operands;
        }
    }
    alike
}

impl Taking<'_> {
    fn node(&mut self, node: &Node) {
        let mut operands: Vec<ValueId> = node.operands.iter().map(|it| self.values[it.0]).collect();
        let given = match &node.op {
            Op::Attention(attention) => attention.masks(&node.operands[3..]).0,
            _ => None,
        };
        if let Some(&mask) = given {
            let dims = [0, 1, 2].map(|dim| has_many(self.old, mask, dim) && self.alike[mask.0][dim]);
            if dims.contains(&true) {
                operands[3] = self.taken(mask, dims);
            }
        }
        let types = self.old.types_of(&node.results);
        let results = self.new.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (old, new) in node.results.iter().zip(results) {
            self.values[old.0] = new;
        }
    }

    /// The new value with one element along these dimensions, along which all are alike.
    fn taken(&mut self, value: ValueId, dims: Dims) -> ValueId {
        let dims = [0, 1, 2].map(|dim| dims[dim] && has_many(self.old, value, dim));
        if dims == [false; 3] {
            return self.values[value.0];
        }
        if let Some(&taken) = self.once.get(&(value, dims)) {
            return taken;
        }
        let Source::Result { node, .. } = self.old.value(value).source else { return self.values[value.0] };
        let node = self.old.node(node);
        let mut type_ = self.old.type_of(value).clone();
        let rank = type_.rank();
        for dim in (0..3).filter(|&dim| dims[dim]) {
            type_.shape[rank - 2 - dim] = 1;
        }
        let operands: Vec<ValueId> = node.operands.iter().map(|&it| self.taken(it, dims)).collect();
        let op = match &node.op {
            Op::Fill { value, .. } => Op::Fill { result: type_.clone(), value: *value },
            Op::Expand { .. } if *self.new.type_of(operands[0]) == type_ => {
                self.once.insert((value, dims), operands[0]);
                return operands[0];
            }
            Op::Expand { .. } => Op::Expand { shape: type_.shape.clone() },
            op => op.clone(),
        };
        let taken = self.new.push_node(op, operands, vec![type_], node.origin.clone())[0];
        self.once.insert((value, dims), taken);
        taken
    }
}
