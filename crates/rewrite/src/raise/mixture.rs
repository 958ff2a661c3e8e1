//! Mixtures of experts that regions compute expert by expert, as one operation each.
//!
//! Which rows an expert computes is data, so that what exporters write for it is a region, which
//! nobody can split and which has no gradient. Two spellings are known:
//!
//! - **sorted**: the rows are sorted by expert, and one region has for each expert a product with
//!   the rows from where the expert before ended to where this one ends;
//! - **masked**: a region for each expert takes the rows that a mask marks, and scatters what the
//!   expert makes of them, times the tokens' weights for it, into zeros; the regions' results are
//!   added.
//!
//! Either is `Op::Experts`, `y[t] = sum_e gates[t,e] f_e(x[t])`, whose shapes are known; the gates
//! are computed from what says which rows are whose. They are 0 where a row is not the expert's,
//! so that an expert without rows adds nothing, in both. The sums are the same but for their
//! order, and but for a chosen expert of weight 0 whose units overflow.

mod origin; // what makes the values of a graph
mod body; // what makes the values of a region
mod sorted; // regions over rows sorted by expert
mod hits; // what is known of a region's values but for how many rows are marked
mod chosen; // masks that mark where an expert was chosen
mod masked; // regions of one expert over marked rows
mod build; // operations added to a graph

use std::collections::BTreeMap;

use planner_ir::{Binary, Graph, Node, Op, Output, Source, ValueId};

pub(super) use origin::integers;

use build::Build;
use masked::Masked;

/// The graph with mixtures of experts for the regions that are such.
pub(super) fn mixed(graph: &Graph) -> Graph {
    let new = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut mixing =
        Mixing { old: graph, new, values: vec![None; graph.values.len()], sums: BTreeMap::new() };
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            mixing.values[id.0] = Some(mixing.new.push_value(value.type_.clone(), value.source.clone()));
        }
    }
    for node in &graph.nodes {
        match mixing.sum(node) {
            Some((result, sum)) => {
                mixing.sums.insert(result, sum);
            }
            None => mixing.copy(node),
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: mixing.value(it.value) };
    let outputs = graph.outputs.iter().map(output).collect();
    Graph { outputs, ..mixing.new }
}

/// One graph becoming another.
struct Mixing<'a> {
    old: &'a Graph,
    new: Graph,
    /// For each old value, the new one, once it is made.
    values: Vec<Option<ValueId>>,
    /// The sums of masked regions, which are made when something else uses them: until then they
    /// may be part of a larger sum.
    sums: BTreeMap<ValueId, Sum<'a>>,
}

/// A sum of masked regions.
struct Sum<'a> {
    /// What makes its value in the old graph.
    node: &'a Node,
    parts: Vec<Masked>,
}

impl<'a> Mixing<'a> {
    /// The sum of masked regions that a node is, and its value.
    fn sum(&self, node: &'a Node) -> Option<(ValueId, Sum<'a>)> {
        let &[result] = node.results.as_slice() else {
            return None;
        };
        let parts = match (&node.op, node.operands.as_slice()) {
            (Op::Region(region), _) => vec![masked::masked(self.old, region, &node.operands)?],
            (Op::Binary(Binary::Add), &[a, b]) => match (self.sums.get(&a), self.sums.get(&b)) {
                (Some(a), Some(b)) => [a.parts.clone(), b.parts.clone()].concat(),
                (Some(sum), None) if origin::is_zero(self.old, b) => sum.parts.clone(),
                (None, Some(sum)) if origin::is_zero(self.old, a) => sum.parts.clone(),
                _ => return None,
            },
            _ => return None,
        };
        Some((result, Sum { node, parts }))
    }

    /// The new value for an old one that has been met.
    fn value(&mut self, old: ValueId) -> ValueId {
        if let Some(sum) = self.sums.remove(&old) {
            match self.mixture(&sum, old) {
                Some(made) => self.values[old.0] = Some(made),
                None => self.copy(sum.node),
            }
        }
        self.values[old.0].expect("operands come before what uses them")
    }

    /// The experts that a sum of masked regions is. What an attempt leaves behind when it fails,
    /// no output needs.
    fn mixture(&mut self, sum: &Sum<'_>, value: ValueId) -> Option<ValueId> {
        let mixture = masked::mixture(&sum.parts)?;
        let mixture = mixture.map(|it| self.value(it));
        let made = Build { graph: &mut self.new, origin: &sum.node.origin }.masked(&mixture)?;
        (self.new.type_of(made) == self.old.type_of(value)).then_some(made)
    }

    /// Adds an old node to the new graph, or the experts that it is.
    fn copy(&mut self, node: &Node) {
        let operands: Vec<ValueId> = node.operands.iter().map(|&operand| self.value(operand)).collect();
        let types = self.old.types_of(&node.results);
        let results = match &node.op {
            Op::Region(region) => sorted::sorted(region)
                .and_then(|it| Build { graph: &mut self.new, origin: &node.origin }.sorted(&it, &operands))
                .filter(|&made| *self.new.type_of(made) == types[0])
                .map(|made| vec![made]),
            _ => None,
        };
        let results = results
            .unwrap_or_else(|| self.new.push_node(node.op.clone(), operands, types, node.origin.clone()));
        for (old, new) in node.results.iter().zip(results) {
            self.values[old.0] = Some(new);
        }
    }
}

#[cfg(test)]
mod tests;
