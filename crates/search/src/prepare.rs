//! A program that has been cut into sections, made ready for the search: spaces, problems, a chain.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use plan::Pin;
use planner_ir::{Mesh, NodeId, Phase, Source, ValueId};
use rayon::prelude::*;
use rewrite::{Offer, Space, SpaceError, Spaces};

use crate::assemble::{Assembled, Counted, Held, assemble};
use crate::beside::AtRest;
use crate::chain::{Chain, Global, Segment, Shared, unite};
use crate::clocks::Weights;
use crate::fixed::{FixedError, Kept, allowed, keep};
use crate::live::Live;
use crate::manner::settle;
use crate::prices::Prices;
use crate::problem::Problem;
use crate::request::{Pinned, PlanError};
use crate::ruled::restrict;
use crate::section::{Cut, Section, SharedValue};
use crate::ways::Found;

/// A cut program with what the search has found out about it.
pub(crate) struct Prepared<'a> {
    pub(crate) cut: Cut<'a>,
    pub(crate) spaces: Vec<Arc<Space>>,
    pub(crate) assembled: Vec<Assembled>,
    /// What is fixed of each section.
    fixed: Vec<Kept>,
    /// For each section, whether blocks may not be of it.
    forbidden: Vec<bool>,
    /// For each section, what of it another program has at rest.
    there: Vec<AtRest>,
    /// What another program has at rest, and what its steps take besides (bytes).
    others: [u64; 2],
}

impl<'a> Prepared<'a> {
    /// The spaces and problems of the sections, with these micro-batches under way.
    pub(crate) fn new(
        cut: Cut<'a>,
        mesh: &Mesh,
        (prices, known, weights): (&dyn Prices, &Spaces, Weights),
        (offer, live): (Offer, Live),
        (pinned, pins): (Option<&Pinned>, &[Pin]),
    ) -> Result<Self, PlanError> {
        let values = pinned.map(|pinned| pinned.values(cut.graph)).unwrap_or_default();
        let names: BTreeSet<ValueId> = values.keys().copied().collect();
        let spaces = spaces(&cut, mesh, offer, (&names, known));
        let mut spaces = spaces.map_err(PlanError::Space)?;
        let pairs = cut.sections.iter().zip(&mut spaces);
        let fixed = pairs.map(|(section, space)| keep((cut.graph, section), space, mesh, pins));
        let fixed = fixed.collect();
        if let Some(rules) = prices.rules() {
            cut.sections.iter().zip(&mut spaces).for_each(|(section, space)| restrict(section, space, rules));
        }
        let pairs = cut.sections.par_iter().zip(&mut spaces);
        pairs.for_each(|(section, space)| settle(section, space, mesh, prices));
        let turn = turn(&cut);
        let beside = pinned.map(|it| it.beside.values(cut.graph)).unwrap_or_default();
        let there: Vec<AtRest> = cut.sections.iter().map(|section| AtRest::of(section, &beside)).collect();
        let found = Found::default();
        let pairs = cut.sections.par_iter().zip(&spaces).enumerate();
        let assembled = pairs.map(|(index, (section, space))| {
            let counted = match &turn {
                _ if cut.graph.training.is_none() || cut.sections.len() == 1 => Counted::Every,
                Some((turn, nodes)) if *turn == index => Counted::Turn(nodes.clone()),
                _ => Counted::Kept,
            };
            let whole = |own: ValueId| section.repetitions.first().map(|it| it.values[own.0]);
            let layout = |own: ValueId| Some((own, *values.get(&whole(own)?)?));
            let fixed = held(section, &names).into_iter().filter_map(layout).collect();
            let memory = (&counted, live, &there[index]);
            assemble(section, space, mesh, (prices, &found, weights), memory, fixed)
        });
        let assembled = assembled.collect();
        let forbidden = vec![false; cut.sections.len()];
        let others = pinned.map_or([0, 0], |it| [it.beside.resident, it.beside.arena]);
        Ok(Self { cut, spaces, assembled, fixed, forbidden, there, others })
    }

    /// The boundary of a section.
    fn boundary(&self, index: usize) -> Segment {
        let (section, assembled) = (&self.cut.sections[index], &self.assembled[index]);
        // What passes through is handed on as it came, or what is shared as it is delivered.
        let exit = |value: &ValueId| {
            let delivered = assembled.delivered[value.0].as_ref();
            delivered.or(assembled.rest[value.0].as_ref()).map(|it| it.node)
        };
        let shared = self.shared(index).map(|(it, held)| Shared { node: held.node, global: it.number });
        Segment {
            problem: Problem::default(),
            entry: section.entry.iter().filter_map(|it| self.end(index, *it).map(|it| it.node)).collect(),
            exit: section.exit.iter().filter_map(exit).collect(),
            shared: shared.collect(),
            count: section.repetitions.len(),
            variants: Vec::new(),
        }
    }

    /// Where a value of a section is handed on, or comes from outside.
    fn end(&self, index: usize, value: ValueId) -> Option<&Held> {
        let (section, assembled) = (&self.cut.sections[index], &self.assembled[index]);
        let rest = assembled.rest[value.0].as_ref().filter(|_| section.is_outside(value));
        rest.or(assembled.delivered[value.0].as_ref())
    }

    /// The values of a section that are shared, and what holds them.
    fn shared(&self, index: usize) -> impl Iterator<Item = (&SharedValue, &Held)> {
        let shared = self.cut.sections[index].shared.iter();
        let held = move |it: &SharedValue| {
            self.assembled[index].given[it.value.0].as_ref().or_else(|| self.end(index, it.value))
        };
        shared.filter_map(move |it| held(it).map(|held| (it, held)))
    }

    /// The problem of a section where seconds count so, and its boundary; what it knows of shared values is added.
    fn segment(&self, index: usize, weights: &Weights, globals: &mut Vec<Option<Global>>) -> Segment {
        let section = &self.cut.sections[index];
        for (it, held) in self.shared(index) {
            if globals.len() <= it.number {
                globals.resize(it.number + 1, None);
            }
            // Several values may have one number: what is at rest counts.
            let global = self.global_of(index, it.value, held);
            let before = globals[it.number].take().filter(|before| before.resident.iter().any(|&it| it > 0));
            globals[it.number] = before.or(Some(global));
        }
        let mut problem = self.assembled[index].problem(section, weights);
        if self.forbidden[index] {
            problem.times.iter_mut().for_each(|times| times.fill(f64::INFINITY));
        }
        // Steps take turns in one memory: it is as large as the other program's, whatever this one holds in its own.
        if index == 0 && self.others[1] > 0 {
            problem.windows.push(self.others[1]);
        }
        Segment { problem, ..self.boundary(index) }
    }

    /// A shared value: resident, once, if it is at rest in the whole program too.
    fn global_of(&self, index: usize, value: ValueId, held: &Held) -> Global {
        let (section, space) = (&self.cut.sections[index], &self.spaces[index]);
        let whole = section.repetitions[0].values[value.0];
        let at_rest = !matches!(self.cut.graph.value(whole).source, Source::Result { .. });
        let bytes = |&layout: &usize| {
            let layout = &space.layouts[value.0][layout];
            let local = layout.local_bytes(section.graph.type_of(value));
            if at_rest { self.there[index].bytes(value, layout, local) } else { 0 }
        };
        let resident: Vec<u64> = held.layouts.iter().map(bytes).collect();
        Global { times: vec![0.0; resident.len()], resident }
    }

    /// Whether a section is the same in another program, whatever seconds count.
    fn is_alike(&self, other: &Self, index: usize) -> bool {
        self.forbidden[index] == other.forbidden[index]
            && self.boundary(index) == other.boundary(index)
            && self.assembled[index] == other.assembled[index]
    }
}

/// For each section the programs that its blocks may be of: of those in which it is the same, the first.
pub(crate) fn kinds(programs: &[Prepared<'_>]) -> Vec<Vec<usize>> {
    let kinds = |index| {
        let mut kinds: Vec<usize> = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            if !kinds.iter().any(|&it| programs[it].is_alike(program, index)) {
                kinds.push(number);
            }
        }
        kinds
    };
    (0..programs.first().map_or(0, |first| first.cut.sections.len())).map(kinds).collect()
}

/// The sections as a chain where seconds count so, each repetition being that of one of the programs of its kinds.
pub(crate) fn chain(programs: &[Prepared<'_>], kinds: &[Vec<usize>], weights: &Weights) -> Chain {
    let mut globals: Vec<Option<Global>> = Vec::new();
    let mut segments = Vec::new();
    for (index, kinds) in kinds.iter().enumerate() {
        let segment = |&it: &usize| programs[it].segment(index, weights, &mut globals);
        segments.push(unite(kinds.iter().map(segment).collect()));
    }
    let one = |bytes: u64| Global { times: vec![0.0], resident: vec![bytes] };
    let mut globals: Vec<Global> = globals.into_iter().map(|it| it.unwrap_or_else(|| one(0))).collect();
    let others = programs.first().map_or(0, |it| it.others[0]);
    globals.extend((others > 0).then(|| one(others)));
    Chain { globals, segments }
}

/// Forbids a block of one program where it has no such operation as something is fixed of in another one,
/// or one that cannot be computed so.
pub(crate) fn forbid(programs: &mut [Prepared<'_>], mesh: &Mesh, pins: &[Pin]) -> Result<(), FixedError> {
    for section in 0..programs.first().map_or(0, |first| first.cut.sections.len()) {
        let forms: Vec<&Kept> = programs.iter().map(|it| &it.fixed[section]).collect();
        let allowed = allowed(&forms, mesh, pins)?;
        for (program, _) in programs.iter_mut().zip(allowed).filter(|(_, allowed)| !allowed) {
            program.forbidden[section] = true;
        }
    }
    Ok(())
}

/// Whether programs differ in the insides of their sections only.
pub(crate) fn are_alike(first: &Cut<'_>, other: &Cut<'_>) -> bool {
    let same = |(a, b): (&Section, &Section)| {
        let place = |it: &Section, value: ValueId| {
            let ends = it.entry.iter().chain(&it.exit);
            ends.clone().position(|&end| end == value)
        };
        let ends = |it: &Section| -> Vec<_> {
            let ends = it.entry.iter().chain(&it.exit);
            ends.map(|&value| it.graph.type_of(value).clone()).collect()
        };
        let tied = |it: &Section| -> Vec<_> {
            let tied = it.tied.iter();
            tied.map(|&(end, value)| (place(it, end), it.graph.type_of(value).clone())).collect()
        };
        let shared = |it: &Section| {
            let one = |shared: &SharedValue| (shared.number, it.graph.type_of(shared.value).to_string());
            let mut all: Vec<(usize, String)> = it.shared.iter().map(one).collect();
            all.sort();
            all.dedup();
            all
        };
        a.repetitions.len() == b.repetitions.len()
            && (a.entry.len(), ends(a)) == (b.entry.len(), ends(b))
            && tied(a) == tied(b)
            && shared(a) == shared(b)
    };
    first.sections.len() == other.sections.len() && first.sections.iter().zip(other.sections).all(same)
}

/// The values of a section that are some of the program's.
fn held(section: &Section, values: &BTreeSet<ValueId>) -> BTreeSet<ValueId> {
    let whole =
        |own: &ValueId| section.repetitions.first().is_some_and(|it| values.contains(&it.values[own.0]));
    section.graph.value_ids().filter(whole).collect()
}

/// The space of each section, known or found in parallel; of values that are pinned, all layouts.
fn spaces(
    cut: &Cut<'_>,
    mesh: &Mesh,
    offer: Offer,
    (pinned, known): (&BTreeSet<ValueId>, &Spaces),
) -> Result<Vec<Arc<Space>>, SpaceError> {
    let one = |section: &Section| {
        let shared = section.shared.iter().map(|it| it.value);
        let tied = section.tied.iter().map(|&(_, it)| it);
        let ends = section.entry.iter().chain(&section.exit).chain(&section.returned).copied();
        let pinned = held(section, pinned);
        let boundary: Vec<ValueId> = ends.chain(tied).chain(shared).chain(pinned).collect();
        known.of(&section.graph, mesh, &boundary, offer)
    };
    cut.sections.par_iter().map(one).collect()
}

/// The section where a training step turns round, if it stands once, and those of its operations
/// around the first backward one that no operation of another section comes between: while they
/// run, what the others keep is there.
fn turn(cut: &Cut<'_>) -> Option<(usize, Range<usize>)> {
    let index = cut.sections.len().checked_sub(1)?;
    let [only] = &cut.sections[index].repetitions[..] else { return None };
    let backward = |node: &NodeId| cut.graph.node(*node).phase == Phase::Backward;
    let turn = only.nodes.iter().position(backward)?;
    let follows = |at: &usize| only.nodes[*at].0 == only.nodes[*at - 1].0 + 1;
    let first = (1..=turn).rev().take_while(follows).last().map_or(turn, |it| it - 1);
    let end = (turn + 1..only.nodes.len()).take_while(follows).last().unwrap_or(turn) + 1;
    Some((index, first..end))
}
