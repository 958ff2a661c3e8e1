//! Programs in which operations that are alike stand once.
//!
//! A block of very many operations has few that differ: products of one value, sums of what they make. What
//! each may be partitioned into depends on what it computes, and on how what it uses and makes may be held.
//! So operations are alike that compute the same of values that are alike. Values are alike that come from
//! outside in the same way and have one type, or that are the same result of operations that are alike; what
//! is handed on, kept or returned is like nothing else.
//!
//! A value of such a program is used as any of those it stands for is used: it may be held in every layout
//! that is asked for of one of them. So nothing is left out.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use planner_ir::{Carried, Graph, Node, NodeId, Op, Output, Source, Type, Value, ValueId};
use rustc_hash::FxBuildHasher;

use super::Space;

/// A program, and what each part of another one is in it.
pub(super) struct Once {
    pub(super) graph: Graph,
    /// For each value of the other program, the one that stands for it.
    pub(super) values: Vec<ValueId>,
    /// For each operation, the one that stands for it.
    pub(super) nodes: Vec<NodeId>,
}

type Values = IndexSet<ValueId, FxBuildHasher>;

/// What values that come from outside have in common.
#[derive(PartialEq, Eq, Hash)]
enum Outside<'a> {
    Given(&'a Type),
    Weight(&'a Type),
    Alone(ValueId),
}

impl Once {
    /// Of a graph of which these values are handed on.
    pub(super) fn of(graph: &Graph, boundary: &[ValueId]) -> Self {
        let carried = graph.training.iter().flat_map(|it| &it.carried).flat_map(|it| [it.state, it.next]);
        let outputs = graph.outputs.iter().map(|it| it.value);
        let alone: Values = boundary.iter().copied().chain(carried).chain(outputs).collect();
        let mut once = Self {
            graph: Graph { name: graph.name.clone(), ..Graph::default() },
            values: vec![ValueId(usize::MAX); graph.values.len()],
            nodes: Vec::with_capacity(graph.nodes.len()),
        };
        once.add_outside(graph, &alone);
        once.add_operations(graph, &alone);
        once.graph.outputs = graph.outputs.iter().map(|it| once.output(it)).collect();
        once.graph.training.clone_from(&graph.training);
        for it in once.graph.training.iter_mut().flat_map(|it| &mut it.carried) {
            let [state, next] = [it.state, it.next].map(|value| once.values[value.0]);
            *it = Carried { state, next };
        }
        once
    }

    /// The space of the other program: what it may do with each part is what it may do with the one that
    /// stands for it.
    pub(super) fn spread(&self, space: &Space) -> Space {
        let values = || self.values.iter().map(|it| it.0);
        Space {
            layouts: values().map(|it| Arc::clone(&space.layouts[it])).collect(),
            choices: self.nodes.iter().map(|it| Arc::clone(&space.choices[it.0])).collect(),
            moves: values().map(|it| Arc::clone(&space.moves[it])).collect(),
            prepared: values().map(|it| space.prepared[it]).collect(),
            striped: space.striped,
            statistics: space.statistics,
        }
    }

    fn add_outside(&mut self, graph: &Graph, alone: &Values) {
        let mut known: IndexMap<Outside<'_>, ValueId, FxBuildHasher> = IndexMap::default();
        for (number, value) in graph.values.iter().enumerate() {
            let id = ValueId(number);
            let kind = match &value.source {
                Source::Result { .. } => continue,
                _ if alone.contains(&id) => Outside::Alone(id),
                Source::Input(_) => Outside::Given(&value.type_),
                Source::Weight(_) => Outside::Weight(&value.type_),
                Source::State(_) => Outside::Alone(id),
            };
            let values = &mut self.graph.values;
            self.values[number] = *known.entry(kind).or_insert_with(|| {
                values.push(value.clone());
                ValueId(values.len() - 1)
            });
        }
    }

    fn add_operations(&mut self, graph: &Graph, alone: &Values) {
        let mut known: IndexMap<(&Op, Vec<ValueId>), NodeId, FxBuildHasher> = IndexMap::default();
        for node in &graph.nodes {
            let operands: Vec<ValueId> = node.operands.iter().map(|it| self.values[it.0]).collect();
            let is_alone = node.results.iter().any(|it| alone.contains(it));
            let key = (&node.op, operands);
            let found = known.get(&key).copied().filter(|_| !is_alone);
            let id = found.unwrap_or_else(|| self.add_operation(graph, node, &key.1));
            if !is_alone {
                known.entry(key).or_insert(id);
            }
            for (own, &result) in node.results.iter().zip(&self.graph.nodes[id.0].results) {
                self.values[own.0] = result;
            }
            self.nodes.push(id);
        }
    }

    fn add_operation(&mut self, graph: &Graph, node: &Node, operands: &[ValueId]) -> NodeId {
        let id = NodeId(self.graph.nodes.len());
        let results = 0..node.results.len();
        let results = results.map(|index| {
            let type_ = graph.type_of(node.results[index]).clone();
            self.graph.values.push(Value { type_, source: Source::Result { node: id, index } });
            ValueId(self.graph.values.len() - 1)
        });
        let results = results.collect();
        self.graph.nodes.push(Node { operands: operands.to_vec(), results, ..node.clone() });
        id
    }

    fn output(&self, output: &Output) -> Output {
        Output { name: output.name.clone(), value: self.values[output.value.0] }
    }
}
