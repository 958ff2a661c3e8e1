//! What another program on the same devices holds, whose steps take turns with those of the one that is planned.
//!
//! ```text
//! held = rest of both − what both have at rest alike + the larger of the memories of their steps
//! ```
//!
//! So a weight costs nothing in the layout in which the other program has it already, and a step that needs less
//! memory than the other one's saves nothing.

use std::collections::BTreeMap;

use plan::{Assignment, Plan};
use planner_ir::{Graph, Layout, NodeId, Source, ValueId};

use crate::section::Section;

/// What another program on the same devices holds of each. By default, nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// All that it has at rest (bytes).
    pub resident: u64,
    /// What its steps take besides (bytes).
    pub arena: u64,
    /// The layouts of weights, and of what is computed of weights alone, that it has at rest.
    blocks: BTreeMap<Term, Layout>,
    /// What its terms that are computed are.
    terms: BTreeMap<(String, Vec<Term>), usize>,
}

/// A weight, or what operations make of weights alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Term {
    Weight(String),
    /// The number of the term, and which result of it.
    Made(usize, usize),
}

impl Beside {
    /// What a plan holds: so much at rest, and so much in its steps (bytes).
    pub fn of(plan: &Plan, resident: u64, arena: u64) -> Self {
        let mut terms = BTreeMap::new();
        let is_prepared = |node: NodeId| matches!(plan.assignments[node.0], Assignment::Prepared);
        let known = known(&plan.graph, is_prepared, |key| {
            let next = terms.len();
            Some(*terms.entry(key).or_insert(next))
        });
        let blocks = resting(plan).into_iter();
        let blocks =
            blocks.filter_map(|value| Some((known.get(&value)?.clone(), plan.layouts[value.0].clone())));
        Self { resident, arena, blocks: blocks.collect(), terms }
    }

    /// What takes nothing but so much in its steps (bytes).
    pub fn of_steps(arena: u64) -> Self {
        Self { arena, ..Self::default() }
    }

    /// What each value that a plan has at rest, and that is at rest here in the same layout, takes (bytes).
    pub fn shared(&self, plan: &Plan) -> Vec<u64> {
        let there = self.values(&plan.graph);
        let is_alike = |value: &ValueId| there.get(value).is_some_and(|it| **it == plan.layouts[value.0]);
        let bytes = |value: ValueId| plan.layouts[value.0].local_bytes(plan.graph.type_of(value));
        resting(plan).into_iter().filter(is_alike).map(bytes).collect()
    }

    /// The values of a graph that are at rest here, and in which layout.
    pub(crate) fn values(&self, graph: &Graph) -> BTreeMap<ValueId, &Layout> {
        if self.blocks.is_empty() {
            return BTreeMap::new();
        }
        let known = known(graph, |_| true, |key| self.terms.get(&key).copied());
        known.into_iter().filter_map(|(value, term)| Some((value, self.blocks.get(&term)?))).collect()
    }
}

/// The values of a graph that are weights, or that some operations make of weights alone, and what they are. Terms
/// that have no number are left out.
fn known(
    graph: &Graph,
    among: impl Fn(NodeId) -> bool,
    mut number: impl FnMut((String, Vec<Term>)) -> Option<usize>,
) -> BTreeMap<ValueId, Term> {
    let weight = |value: ValueId| match &graph.value(value).source {
        Source::Weight(name) => Some((value, Term::Weight(name.clone()))),
        _ => None,
    };
    let mut known: BTreeMap<ValueId, Term> = graph.value_ids().filter_map(weight).collect();
    for node in graph.node_ids().filter(|it| among(*it)) {
        let made = graph.node(node);
        let operands = made.operands.iter().map(|it| known.get(it).cloned()).collect::<Option<Vec<Term>>>();
        let Some(operands) = operands else { continue };
        if let Some(number) = number((format!("{:?}", made.op), operands)) {
            let results = made.results.iter().enumerate();
            known.extend(results.map(|(index, value)| (*value, Term::Made(number, index))));
        }
    }
    known
}

/// The weights and prepared values that a plan has at rest: those that are used while it runs.
fn resting(plan: &Plan) -> Vec<ValueId> {
    let graph = &plan.graph;
    let is_prepared = |node: NodeId| matches!(plan.assignments[node.0], Assignment::Prepared);
    let mut used = vec![false; graph.values.len()];
    let runs = graph.node_ids().filter(|it| !is_prepared(*it));
    runs.flat_map(|it| &graph.node(it).operands).for_each(|it| used[it.0] = true);
    graph.outputs.iter().for_each(|it| used[it.value.0] = true);
    let rests = |value: &ValueId| match graph.value(*value).source {
        Source::Weight(_) => true,
        Source::Result { node, .. } => is_prepared(node),
        _ => false,
    };
    graph.value_ids().filter(|it| used[it.0]).filter(rests).collect()
}

/// For each layout of a value of a section, in which of its places another program has the value at rest so.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtRest {
    /// How many places the section has.
    places: u64,
    /// The values, and the layouts in which they are at rest in some of these.
    values: BTreeMap<ValueId, Vec<Layout>>,
}

impl AtRest {
    /// Of a section, where values of its program are at rest so.
    pub(crate) fn of(section: &Section, values: &BTreeMap<ValueId, &Layout>) -> Self {
        let places = u64::try_from(section.repetitions.len()).unwrap_or(u64::MAX);
        if values.is_empty() {
            return Self { places, values: BTreeMap::new() };
        }
        let layouts = |own: ValueId| -> Vec<Layout> {
            let each = section.repetitions.iter().filter_map(|it| values.get(&it.values[own.0]));
            each.map(|it| (*it).clone()).collect()
        };
        let values = section.graph.value_ids().map(|it| (it, layouts(it)));
        Self { places, values: values.filter(|it| !it.1.is_empty()).collect() }
    }

    /// What a value takes that is at rest in a layout, on average over the places, rounded up (bytes).
    pub(crate) fn bytes(&self, value: ValueId, layout: &Layout, bytes: u64) -> u64 {
        let Some(there) = self.values.get(&value) else { return bytes };
        let alike = there.iter().filter(|it| *it == layout).count();
        let others = self.places.saturating_sub(u64::try_from(alike).unwrap_or(u64::MAX));
        bytes.saturating_mul(others).div_ceil(self.places.max(1))
    }
}

#[cfg(test)]
mod tests;
