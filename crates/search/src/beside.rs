//! What another program on the same devices holds, whose steps take turns with those of the one that is planned.
//!
//! ```text
//! held = rest of both − what both have at rest alike + the larger of the memories of their steps
//! ```
//!
//! So a weight costs nothing in the layout in which the other program has it already, and a step that needs less
//! memory than the other one's saves nothing.

use std::borrow::Cow;
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

/// The sections of programs, such that what is at rest here is held alike in all places where one stands.
pub(crate) fn apart<'a>(
    graphs: &[&Graph],
    cut: Vec<Cow<'a, [Section]>>,
    beside: Option<&Beside>,
) -> Vec<Cow<'a, [Section]>> {
    let Some(beside) = beside.filter(|it| !it.blocks.is_empty()) else { return cut };
    let values: Vec<BTreeMap<ValueId, &Layout>> = graphs.iter().map(|it| beside.values(it)).collect();
    let places = |index: usize| cut[0][index].repetitions.len();
    let is_same = |it: &Cow<'_, [Section]>| {
        it.len() == cut[0].len() && (0..it.len()).all(|index| it[index].repetitions.len() == places(index))
    };
    if !cut.iter().all(is_same) {
        return cut;
    }
    let held = |index: usize, place: usize| {
        let mut layouts: Vec<Option<&Layout>> = Vec::new();
        for (sections, values) in cut.iter().zip(&values) {
            let own = &sections[index].repetitions[place].values;
            layouts.extend(own.iter().map(|it| values.get(it).copied()));
        }
        layouts
    };
    let parts = |sections: &[Section]| {
        let of = |(index, section): (usize, &Section)| {
            let all: Vec<usize> = (0..section.repetitions.len()).collect();
            let runs = all.chunk_by(|a, b| held(index, *a) == held(index, *b));
            let one = |run: &[usize]| {
                let repetitions = run.iter().map(|it| section.repetitions[*it].clone()).collect();
                Section { repetitions, ..section.clone() }
            };
            runs.map(one).collect::<Vec<_>>()
        };
        sections.iter().enumerate().flat_map(of).collect()
    };
    cut.iter().map(|sections| Cow::Owned(parts(sections))).collect()
}

/// The values of a section that another program has at rest, and in which layout: the same in all of its places.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtRest(BTreeMap<ValueId, Layout>);

impl AtRest {
    /// Of a section, where values of its program are at rest so.
    pub(crate) fn of(section: &Section, values: &BTreeMap<ValueId, &Layout>) -> Self {
        let Some(place) = section.repetitions.first().filter(|_| !values.is_empty()) else {
            return Self::default();
        };
        let layout = |own: ValueId| Some((own, (*values.get(&place.values[own.0])?).clone()));
        Self(section.graph.value_ids().filter_map(layout).collect())
    }

    /// What a value takes that is at rest in a layout (bytes).
    pub(crate) fn bytes(&self, value: ValueId, layout: &Layout, bytes: u64) -> u64 {
        if self.0.get(&value) == Some(layout) { 0 } else { bytes }
    }
}

#[cfg(test)]
mod tests;
