//! The blocks of a program as sections that hand values on.
//!
//! What crosses from a section to the next (or from a repetition to the next) is *entry* and
//! *exit*. What more than one place uses, or what crosses further, is *shared*: it has one layout
//! everywhere. A program whose blocks leave values behind for others, in a way that neither
//! expresses, is one section.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Graph, NodeId, Source, ValueId};
use rewrite::{Binding, Block, Blocks, Segment};

use crate::section::{Repetition, Section, SharedValue, Sharing};

/// The most values that sections may share: their layouts are searched together.
const MOST_SHARED: usize = 8;

/// The sections of a program, which is `blocks.graph`.
pub fn sections(blocks: &Blocks) -> Vec<Section> {
    let joined = Join::new(blocks).join();
    joined.unwrap_or_else(|| vec![Section::whole(&blocks.graph)])
}

struct Join<'a> {
    graph: &'a Graph,
    sections: Vec<Section>,
    /// For each section, which of its entries are fixed because its repetitions are joined so.
    carries: Vec<Vec<(ValueId, ValueId)>>,
    /// For each value of the program, the section that makes it.
    maker: Vec<Option<usize>>,
    /// For each value of the program, the sections that use it.
    users: Vec<BTreeSet<usize>>,
    /// For each value of the program, how many operands of repetitions it is.
    bound: Vec<usize>,
    prepared: Vec<bool>,
    /// The numbers of the values that are shared.
    shared: BTreeMap<ValueId, usize>,
}

impl<'a> Join<'a> {
    fn new(blocks: &'a Blocks) -> Self {
        let graph = &blocks.graph;
        let mut join = Self {
            graph,
            sections: Vec::new(),
            carries: Vec::new(),
            maker: vec![None; graph.values.len()],
            users: vec![BTreeSet::new(); graph.values.len()],
            bound: vec![0; graph.values.len()],
            prepared: graph.prepared(),
            shared: BTreeMap::new(),
        };
        let mut rest = &blocks.segments[..];
        while let Some(first) = rest.first() {
            let block = &blocks.unique[first.block];
            let (these, after) = rest.split_at(block.count.min(rest.len()));
            // What repeats has something on either side that can hand values on.
            if block.count > 1 && join.carries.last().is_none_or(|carries| !carries.is_empty()) {
                join.push_empty();
            }
            join.push(block, these);
            rest = after;
        }
        if join.carries.last().is_some_and(|carries| !carries.is_empty()) {
            join.push_empty();
        }
        join
    }

    fn push_empty(&mut self) {
        let repetitions = vec![Repetition { values: vec![], nodes: vec![] }];
        let graph = Graph::default();
        self.sections.push(Section { repetitions, ..Section::whole(&graph) });
        self.carries.push(vec![]);
    }

    fn push(&mut self, block: &Block, segments: &[Segment]) {
        let index = self.sections.len();
        let body = &block.body;
        let repetitions: Vec<Repetition> = segments.iter().map(|it| self.repetition(body, it)).collect();
        for repetition in &repetitions {
            for (place, value) in repetition.values.iter().enumerate() {
                match body.values[place].source {
                    Source::Result { .. } => self.maker[value.0] = Some(index),
                    _ => {
                        self.users[value.0].insert(index);
                        self.bound[value.0] += 1;
                    }
                }
            }
        }
        let outputs: BTreeSet<ValueId> = self.graph.outputs.iter().map(|output| output.value).collect();
        let is_returned = |place: &ValueId| {
            let made = matches!(body.value(*place).source, Source::Result { .. });
            made && repetitions.iter().any(|it| outputs.contains(&it.values[place.0]))
        };
        let returned = body.value_ids().filter(is_returned).collect();
        let carried = block.bindings.iter().enumerate().filter_map(|(operand, binding)| match binding {
            Binding::Carried(result) if block.count > 1 => {
                Some((ValueId(operand), body.outputs[*result].value))
            }
            _ => None,
        });
        self.carries.push(carried.collect());
        self.sections.push(Section { returned, repetitions, ..Section::whole(body) });
    }

    /// The program's values and operations in one place of a block.
    fn repetition(&self, body: &Graph, segment: &Segment) -> Repetition {
        let nodes: Vec<NodeId> = segment.nodes.clone().map(NodeId).collect();
        let value = |(place, value): (usize, &planner_ir::Value)| match value.source {
            Source::Result { node, index } => self.graph.node(nodes[node.0]).results[index],
            _ => segment.operands[place],
        };
        Repetition { values: body.values.iter().enumerate().map(value).collect(), nodes }
    }

    /// The sections, joined; nothing if they cannot be.
    fn join(mut self) -> Option<Vec<Section>> {
        for index in 0..self.sections.len() {
            self.join_operands(index)?;
        }
        for index in 1..self.sections.len() {
            self.join_boundary(index)?;
        }
        if self.shared.len() > MOST_SHARED {
            return None;
        }
        self.share()?;
        Some(self.sections)
    }

    /// Decides which operands of a section are shared.
    fn join_operands(&mut self, index: usize) -> Option<()> {
        let section = &self.sections[index];
        let repeats = section.repetitions.len() > 1;
        for place in section.graph.value_ids() {
            let made = matches!(section.graph.value(place).source, Source::Result { .. });
            if made || self.carries[index].iter().any(|&(entry, _)| entry == place) {
                continue;
            }
            let values: BTreeSet<ValueId> = section.repetitions.iter().map(|it| it.values[place.0]).collect();
            let Some(&value) = values.first() else { continue };
            let several = self.users[value.0].len() > 1;
            if values.len() > 1 {
                // Each repetition has its own: a weight or an input, which nothing else may use.
                let made = |it: &ValueId| self.maker[it.0].is_some() && !self.prepared[it.0];
                if values.iter().any(|it| self.bound[it.0] > 1 || made(it)) {
                    return None;
                }
                continue;
            }
            let from_before = self.maker[value.0].is_some_and(|maker| maker + 1 == index);
            let local = self.maker[value.0].is_none() && !repeats && !several;
            let handed = from_before && !repeats && !several && self.hands_on(index - 1, value);
            if !local && !handed {
                let number = self.shared.len();
                self.shared.entry(value).or_insert(number);
            }
        }
        Some(())
    }

    /// Whether a section can hand a value on: it stands once, or its repetitions carry it.
    fn hands_on(&self, index: usize, value: ValueId) -> bool {
        let section = &self.sections[index];
        let Some(last) = section.repetitions.last() else { return false };
        section.repetitions.len() == 1
            || self.carries[index].iter().any(|&(_, exit)| last.values[exit.0] == value)
    }

    /// Makes the exit of a section and the entry of the next one agree.
    fn join_boundary(&mut self, index: usize) -> Option<()> {
        let carried_out = self.carries[index - 1].clone();
        let carried_in = self.carries[index].clone();
        if !carried_out.is_empty() {
            // What repetitions carry leaves the last one, whether it is used or not.
            let last = self.sections[index - 1].repetitions.last()?.values.clone();
            for (_, exit) in carried_out {
                self.sections[index - 1].exit.push(exit);
                let entry = self.outside(index, last[exit.0]);
                self.sections[index].entry.push(entry);
            }
            return carried_in.is_empty().then_some(());
        }
        let mut pairs: Vec<(ValueId, ValueId)> = Vec::new();
        let first = self.sections[index].repetitions.first()?.values.clone();
        if carried_in.is_empty() {
            for place in self.sections[index].graph.value_ids().collect::<Vec<_>>() {
                let made = matches!(self.sections[index].graph.value(place).source, Source::Result { .. });
                let value = first[place.0];
                let handed = self.maker[value.0] == Some(index - 1) && !self.shared.contains_key(&value);
                if !made && handed {
                    pairs.push((place, self.place(index - 1, value)?));
                }
            }
        } else {
            for (entry, _) in carried_in {
                // Whatever the first repetition reads passes through the section before.
                let exit = self.outside(index - 1, first[entry.0]);
                pairs.push((entry, exit));
            }
        }
        for (entry, exit) in pairs {
            self.sections[index].entry.push(entry);
            self.sections[index - 1].exit.push(exit);
        }
        Some(())
    }

    /// Where a value of the program stands in a section.
    fn place(&self, index: usize, value: ValueId) -> Option<ValueId> {
        let first = self.sections[index].repetitions.first()?;
        first.values.iter().position(|&it| it == value).map(ValueId)
    }

    /// Where a value of the program stands in a section that stands once; taken in from outside
    /// if it is not there yet.
    fn outside(&mut self, index: usize, value: ValueId) -> ValueId {
        if let Some(place) = self.place(index, value) {
            return place;
        }
        let number = self.sections[index].graph.values.len();
        let name = format!("handed on {number}");
        let source = if self.prepared[value.0] { Source::Weight(name) } else { Source::Input(name) };
        let place = self.sections[index].graph.push_value(self.graph.type_of(value).clone(), source);
        self.sections[index].repetitions[0].values.push(value);
        let made = self.maker[value.0].is_some() && !self.prepared[value.0];
        let from_before = index > 0 && self.maker[value.0] == Some(index - 1);
        if made && !from_before || self.users[value.0].len() > 1 {
            let next = self.shared.len();
            self.shared.entry(value).or_insert(next);
        }
        place
    }

    /// Lists the shared values of every section, where they are used and where they are made, or where
    /// they enter from repetitions that make them.
    fn share(&mut self) -> Option<()> {
        for section in &self.sections {
            let (last, before) = section.repetitions.split_last()?;
            let is_shared = |value: &ValueId| self.shared.contains_key(value);
            for place in section.graph.value_ids().filter(|&it| section.is_made(it)) {
                let leaves = section.exit.contains(&place);
                let kept = before.iter().any(|it| is_shared(&it.values[place.0]));
                if kept || !before.is_empty() && !leaves && is_shared(&last.values[place.0]) {
                    return None;
                }
            }
        }
        let repeats: Vec<bool> = self.sections.iter().map(|it| it.repetitions.len() > 1).collect();
        for (index, section) in self.sections.iter_mut().enumerate() {
            for place in section.graph.value_ids() {
                let value = section.repetitions[0].values[place.0];
                let Some(&number) = self.shared.get(&value) else { continue };
                let made = section.is_made(place);
                let given = self.maker[value.0].is_some_and(|maker| maker + 1 == index && repeats[maker]);
                let here = if section.entry.contains(&place) { given } else { !made || !repeats[index] };
                if here {
                    let weight = matches!(self.graph.value(value).source, Source::Weight(_));
                    let sharing = if weight { Sharing::Anywhere } else { Sharing::Whole };
                    section.shared.push(SharedValue { value: place, number, sharing });
                }
            }
        }
        Some(())
    }
}
