//! Stretches as blocks and their bindings.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Graph, NodeId, Output, Source, ValueId};

use super::runs::{Place, Places, Run};
use super::{Binding, Block, Blocks, Segment};

/// The blocks of a graph whose nodes are in order, given its runs: what lies between runs is
/// blocks of one repetition.
pub(super) fn describe(graph: Graph, runs: &[Run]) -> Blocks {
    let order: Vec<NodeId> = graph.node_ids().collect();
    let mut found = Found {
        places: Places::of(&graph, &order),
        exported: exported(&graph, runs),
        prepared: graph.prepared(),
        graph: &graph,
        unique: Vec::new(),
        segments: Vec::new(),
    };
    let mut start = 0;
    for run in runs.iter().chain(&[Run { start: graph.nodes.len(), period: 0, count: 0 }]) {
        if start < run.start {
            found.push(Run { start, period: run.start - start, count: 1 });
        }
        if run.count > 0 {
            found.push(*run);
        }
        start = run.start + run.period * run.count;
    }
    let Found { unique, segments, .. } = found;
    Blocks { graph, unique, segments }
}

/// For each value, whether a segment other than its own uses it, or an output is it.
fn exported(graph: &Graph, runs: &[Run]) -> Vec<bool> {
    let mut segment = vec![0; graph.nodes.len()];
    let mut starts = BTreeSet::new();
    for run in runs {
        starts.extend((0..=run.count).map(|it| run.start + it * run.period));
    }
    for at in 1..segment.len() {
        segment[at] = segment[at - 1] + usize::from(starts.contains(&at));
    }
    let mut exported = vec![false; graph.values.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        for operand in &node.operands {
            if let Source::Result { node, .. } = graph.value(*operand).source {
                exported[operand.0] |= segment[node.0] != segment[at];
            }
        }
    }
    for output in &graph.outputs {
        exported[output.value.0] = true;
    }
    exported
}

/// What has been described so far.
struct Found<'a> {
    graph: &'a Graph,
    places: Places<'a>,
    exported: Vec<bool>,
    prepared: Vec<bool>,
    unique: Vec<Block>,
    segments: Vec<Segment>,
}

impl Found<'_> {
    fn push(&mut self, run: Run) {
        let Run { start, period, count } = run;
        let graph = self.graph;
        let bases: Vec<usize> = (0..count).map(|it| start + it * period).collect();
        let results = self.results(&bases, period);
        let mut body = Graph { name: format!("{}.{}", graph.name, self.unique.len()), ..Graph::default() };
        let slots = self.slots(&bases, period);
        let mut bindings = Vec::new();
        for (index, slot) in slots.slots.iter().enumerate() {
            let all_prepared = slot.iter().all(|value| self.prepared[value.0]);
            let name = index.to_string();
            let source = if all_prepared { Source::Weight(name) } else { Source::Input(name) };
            body.push_value(graph.type_of(slot[0]).clone(), source);
            bindings.push(self.binding(slot, &bases, period, &results));
        }
        let mut made: Vec<Vec<ValueId>> = Vec::new();
        for offset in 0..period {
            let node = &graph.nodes[start + offset];
            let operand = |(index, &value): (usize, &ValueId)| match self.places.place(value, start, period) {
                Place::Inside(offset, index) => made[offset][index],
                Place::Outside(_) => slots.at[&(offset, index)],
            };
            let operands = node.operands.iter().enumerate().map(operand).collect();
            let types = graph.types_of(&node.results);
            made.push(body.push_node(node.op.clone(), operands, types, node.origin.clone()));
        }
        for (number, &(offset, index)) in results.iter().enumerate() {
            body.outputs.push(Output { name: number.to_string(), value: made[offset][index] });
        }
        for (repetition, &base) in bases.iter().enumerate() {
            self.segments.push(Segment {
                block: self.unique.len(),
                nodes: base..base + period,
                operands: slots.slots.iter().map(|slot| slot[repetition]).collect(),
                results: results.iter().map(|&(at, index)| graph.nodes[base + at].results[index]).collect(),
            });
        }
        self.unique.push(Block { body, bindings, count });
    }

    /// The places of a block whose values some repetition's surroundings use.
    fn results(&self, bases: &[usize], period: usize) -> Vec<(usize, usize)> {
        let mut results = Vec::new();
        for offset in 0..period {
            for index in 0..self.graph.nodes[bases[0] + offset].results.len() {
                let used = |&base: &usize| self.exported[self.graph.nodes[base + offset].results[index].0];
                if bases.iter().any(used) {
                    results.push((offset, index));
                }
            }
        }
        results
    }

    /// The operands of a block: places that read the same values in every repetition are one.
    fn slots(&self, bases: &[usize], period: usize) -> Slots {
        let mut known: BTreeMap<Vec<ValueId>, ValueId> = BTreeMap::new();
        let mut slots = Slots { slots: Vec::new(), at: BTreeMap::new() };
        for offset in 0..period {
            for (index, &value) in self.graph.nodes[bases[0] + offset].operands.iter().enumerate() {
                if let Place::Inside(..) = self.places.place(value, bases[0], period) {
                    continue;
                }
                let bound: Vec<ValueId> =
                    bases.iter().map(|base| self.graph.nodes[base + offset].operands[index]).collect();
                let next = ValueId(slots.slots.len());
                let slot = *known.entry(bound.clone()).or_insert(next);
                if slot == next {
                    slots.slots.push(bound);
                }
                slots.at.insert((offset, index), slot);
            }
        }
        slots
    }

    fn binding(
        &self,
        slot: &[ValueId],
        bases: &[usize],
        period: usize,
        results: &[(usize, usize)],
    ) -> Binding {
        let given = |value: &ValueId| !matches!(self.graph.value(*value).source, Source::Result { .. });
        if slot.iter().all(|value| value == &slot[0]) {
            return if slot.len() == 1 && given(&slot[0]) { Binding::Private } else { Binding::Shared };
        }
        let carried = match self.places.place(slot[1], bases[0], period) {
            Place::Inside(offset, index) => results.iter().position(|&it| it == (offset, index)),
            Place::Outside(_) => None,
        };
        carried.map_or(Binding::Private, Binding::Carried)
    }
}

/// The operands of a block.
struct Slots {
    /// For each, what each repetition binds.
    slots: Vec<Vec<ValueId>>,
    /// For each place (node, operand) that reads one, which.
    at: BTreeMap<(usize, usize), ValueId>,
}
