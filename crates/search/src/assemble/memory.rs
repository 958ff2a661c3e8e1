//! What certainly is there, so that no plan that fits is missed.
//!
//! Weights, inputs, prepared values and states are resident. At each operation, what has been made
//! and is used later is live in the layout that is held, and the operation's results and the
//! operands that it uses last are there in the layouts it works on. What else a plan holds (copies,
//! values on their way) is counted when it is written (`compose::memory`).
//!
//! What an operation leaves as it is ([`planner_ir::Op::keeps_order`]) is the same memory as its
//! operand, and is there by itself from when that is gone. So is what is written over an input.
//!
//! A training step turns round once: when the forward pass ends, everything that any section keeps
//! for its gradients is there at once. So that is resident too, and other moments count only in the
//! section where the step turns, whose own values are live there as anywhere else.
//!
//! In a stage of a pipeline several micro-batches are under way at once ([`Live`]): what is kept is
//! there for each of them, and what is received of the forward pass of the stage before.

use std::ops::Range;

use planner_ir::{CROSSING, NodeId, Phase, Source, ValueId};
use rewrite::Added;

use super::{Assembly, Done, Held as Layouts, Use};
use crate::beside::AtRest;
use crate::live::Live;
use crate::problem::{Held, Live as There};
use crate::slots::slots;

/// Which moments are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All: nothing is kept elsewhere that is not resident.
    Every,
    /// Those of these operations: the section is where the step turns, and what others keep is
    /// there while they run.
    Turn(Range<usize>),
    /// That at which the step turns.
    Kept,
}

impl Assembly<'_> {
    /// Counts what is there, with these micro-batches under way.
    pub(super) fn add_memory(&mut self, counted: &Counted, live: Live, there: &AtRest) {
        let graph = &self.section.graph;
        let moments = self.moments(counted);
        for value in graph.value_ids() {
            if self.is_resident(value) {
                if let Some(rest) = self.assembled.rest[value.0].clone() {
                    self.add_resident(value, &rest, self.times_received(value, live));
                    self.leave_out_there(value, &rest, there);
                }
                continue;
            }
            if self.uses[value.0].is_empty() || self.is_counted_elsewhere(value) {
                continue;
            }
            let from = self.made(value);
            let held = self.assembled.held[value.0].clone();
            // At the turn, of all micro-batches under way; besides windows, of all but one.
            let besides = if *counted == Counted::Kept { 0 } else { 1 };
            let times = if self.is_kept(value) {
                let there = self.seen(value).is_some_and(|seen| self.is_there_kept(seen));
                if there {
                    0
                } else {
                    live.kept(|phase| self.is_used_in(value, phase)).saturating_sub(besides)
                }
            } else if self.is_left(value) {
                live.left()
            } else {
                0
            };
            if times > 0 {
                self.add_resident(value, held.as_ref().unwrap_or(&from), times);
            }
            if *counted == Counted::Kept {
                continue;
            }
            let Span { made, used, last } = self.live(value);
            let made_until = if held.is_some() { used } else { last };
            let alone = self.alone(value).clamp(made, last);
            if made < alone {
                let bytes = self.bytes_of_own(value, &from);
                self.add_live(&moments, made..alone.min(made_until), from.node, bytes);
            }
            let bytes = self.bytes(value, &from.layouts);
            self.add_live(&moments, alone..made_until, from.node, bytes);
            if let Some(held) = held {
                let bytes = self.bytes(value, &held.layouts);
                self.add_live(&moments, used.max(alone)..last, held.node, bytes);
            }
        }
        for node in graph.node_ids() {
            self.add_touched(node, &moments);
        }
        self.assembled.frame.windows = vec![0; moments[graph.nodes.len()]];
    }

    /// For each operation, and after the last, how many before it have a window.
    fn moments(&self, counted: &Counted) -> Vec<usize> {
        let is_counted = |node: NodeId| {
            let runs_here = match counted {
                Counted::Every => true,
                Counted::Turn(nodes) => nodes.contains(&node.0),
                Counted::Kept => false,
            };
            runs_here && self.assembled.work[node.0].is_some()
        };
        let mut moments = vec![0];
        moments.extend(self.section.graph.node_ids().scan(0, |before, node| {
            *before += usize::from(is_counted(node));
            Some(*before)
        }));
        moments
    }

    /// What a node holds while these operations run.
    fn add_live(&mut self, moments: &[usize], operations: Range<usize>, node: usize, bytes: usize) {
        if operations.is_empty() {
            return;
        }
        let [from, until] = [operations.start, operations.end].map(|it| moments[it]);
        if from < until {
            self.assembled.frame.live.push(There { held: Held { node, bytes }, from, until });
        }
    }

    /// A value that is there through everything, so many times.
    fn add_resident(&mut self, value: ValueId, held: &Layouts, times: u64) {
        let bytes = self.bytes(value, &held.layouts);
        self.assembled.frame.bytes[bytes].iter_mut().for_each(|it| *it = it.saturating_mul(times));
        self.assembled.frame.resident.push(Held { node: held.node, bytes });
    }

    /// Leaves out of what was added last what another program has at rest already.
    fn leave_out_there(&mut self, value: ValueId, rest: &Layouts, there: &AtRest) {
        let Some(bytes) = self.assembled.frame.resident.last().map(|it| it.bytes) else { return };
        let layouts = rest.layouts.iter().map(|&it| &self.space.layouts[value.0][it]);
        let list = self.assembled.frame.bytes[bytes].iter_mut().zip(layouts);
        list.for_each(|(bytes, layout)| *bytes = there.bytes(value, layout, *bytes));
    }

    /// An operation's results, and the operands that it uses last.
    fn add_touched(&mut self, node: NodeId, moments: &[usize]) {
        let graph = &self.section.graph;
        let moment = node.0..node.0 + 1;
        if moments[moment.start] == moments[moment.end] {
            return;
        }
        let Some(Done { node: work, choices }) = &self.assembled.work[node.0] else { return };
        let node_ = graph.node(node);
        let local = |value: ValueId, layout: usize| {
            self.space.layouts[value.0][layout].local_bytes(graph.type_of(value))
        };
        // A value that is used twice is there once.
        let first = |(index, value): &(usize, &ValueId)| !node_.operands[..*index].contains(value);
        let is_last = |&(_, &value): &(usize, &ValueId)| {
            let there = self.is_resident(value) || self.is_counted_elsewhere(value);
            !there && self.live(value).last == node.0 && self.alone(value) <= node.0
        };
        let operands = node_.operands.iter().enumerate().filter(first).filter(is_last);
        let operands: Vec<(usize, &ValueId)> = operands.collect();
        let joint = self.assembled.joints.iter().find(|it| it.has(node));
        let touched = |(place, &choice): (usize, &usize)| -> u64 {
            let is_view = self.is_view(node, choice);
            let choice = &self.space.choices[node.0][choice];
            // Rows that come, and what is made of them. What blocks in time steps need hangs on their slots.
            let routed = match choice.partition.routed[..] {
                [] => 0,
                _ => slots(graph, node_, &choice.partition),
            };
            let operands = operands.iter().map(|&(index, value)| (value, &choice.operands[index]));
            let results = node_.results.iter().zip(&choice.results);
            let results = results.filter(|(result, _)| !is_view && !self.is_counted_elsewhere(**result));
            // Where no product adds to the sum, what is added is there.
            let is_apart = joint.is_some_and(|it| it.is_apart(place));
            let added =
                node_.operands.iter().zip(&choice.operands).chain(node_.results.iter().zip(&choice.results));
            let added = added.filter(|(value, _)| is_apart && self.may_be_none(**value));
            let all = operands.chain(results).chain(added);
            routed + all.map(|(&value, &layout)| local(value, layout)).sum::<u64>()
        };
        let bytes = choices.iter().enumerate().map(touched).collect();
        let node = *work;
        let problem = &mut self.assembled.frame;
        problem.bytes.push(bytes);
        let bytes = problem.bytes.len() - 1;
        self.add_live(moments, moment, node, bytes);
    }

    /// Whether a value stays where it is through everything.
    fn is_resident(&self, value: ValueId) -> bool {
        self.assembled.rest[value.0].is_some() && !self.section.is_outside(value)
    }

    /// Whether a value is counted where it is made or at rest, being shared; or may be in the place
    /// of one that is resident, being what a state becomes; or may be none, being added by what makes it.
    fn is_counted_elsewhere(&self, value: ValueId) -> bool {
        let shared = self.section.is_outside(value) && !self.section.enters(value);
        let becomes = |it: &Use| matches!(it, Use::Carried(_));
        let in_place = self.summed[value.0] || self.uses[value.0].iter().any(becomes);
        shared || self.section.is_made(value) && in_place || self.may_be_none(value)
    }

    /// Whether a value is none where the product that makes it adds it to a sum.
    fn may_be_none(&self, value: ValueId) -> bool {
        let adds = |it: &Added| {
            let result = |node: NodeId, index: usize| self.section.graph.node(node).results[index];
            result(it.product, it.result) == value || it.widened.is_some_and(|node| result(node, 0) == value)
        };
        self.added.iter().any(adds)
    }

    /// Whether a partition of an operation leaves its first operand as it is, or writes over it where it is.
    fn is_view(&self, node: NodeId, choice: usize) -> bool {
        let (graph, operands) = (&self.section.graph, &self.section.graph.node(node).operands);
        if graph.written(node).is_some() {
            return true;
        }
        let choice = &self.space.choices[node.0][choice];
        let ([operand], [layout]) = (&operands[..], &choice.operands[..]) else { return false };
        let local = self.space.layouts[operand.0][*layout].local_type(graph.type_of(*operand));
        graph.node(node).op.keeps_order(&local)
    }

    /// The value whose memory a value may be.
    fn seen(&self, value: ValueId) -> Option<ValueId> {
        let Source::Result { node, .. } = self.section.graph.value(value).source else { return None };
        let Done { choices, .. } = self.assembled.work[node.0].as_ref()?;
        let seen = choices.iter().any(|&choice| self.is_view(node, choice));
        seen.then(|| self.section.graph.node(node).operands[0])
    }

    /// From which operation on a value is certainly not the memory of another one that is counted.
    fn alone(&self, value: ValueId) -> usize {
        match self.seen(value) {
            Some(seen) if self.is_resident(seen) || self.is_counted_elsewhere(seen) => usize::MAX,
            Some(seen) => self.alone(seen).max(self.live(seen).last.saturating_add(1)),
            None => 0,
        }
    }

    /// Whether a value, or one whose memory it may be, is there at the turn already.
    fn is_there_kept(&self, value: ValueId) -> bool {
        let counted = self.is_resident(value) || self.is_counted_elsewhere(value) || self.is_kept(value);
        counted || self.seen(value).is_some_and(|seen| self.is_there_kept(seen))
    }

    /// How many times a value that is at rest is there: more than once what is received from
    /// another stage.
    fn times_received(&self, value: ValueId, live: Live) -> u64 {
        let source = &self.section.graph.value(value).source;
        match source {
            Source::Input(name) if name.starts_with(CROSSING) => {
                live.received(|phase| self.is_used_in(value, phase))
            }
            _ => 1,
        }
    }

    /// Whether a value is kept from the forward pass for gradients, and not by another section:
    /// what is handed on is counted by the section that takes it.
    fn is_kept(&self, value: ValueId) -> bool {
        let forward = match self.phase(value) {
            Some(phase) => phase == Phase::Forward && !self.section.is_delivered(value),
            None => self.section.entry.contains(&value),
        };
        forward && self.is_for_gradients(value)
    }

    fn is_for_gradients(&self, value: ValueId) -> bool {
        self.is_used_in(value, Phase::Backward) || self.is_used_in(value, Phase::Gradient)
    }

    /// Whether the backward part leaves a value for the gradients of weights.
    fn is_left(&self, value: ValueId) -> bool {
        self.phase(value) == Some(Phase::Backward) && self.is_used_in(value, Phase::Gradient)
    }

    fn is_used_in(&self, value: ValueId, phase: Phase) -> bool {
        let graph = &self.section.graph;
        let is = |it: &Use| matches!(it, Use::Operand(node, _) if graph.node(*node).phase == phase);
        self.uses[value.0].iter().any(is)
    }

    /// When a value is there.
    fn live(&self, value: ValueId) -> Span {
        let made = match self.section.graph.value(value).source {
            Source::Result { node, .. } => node.0 + 1,
            _ => 0,
        };
        // What flows back to the section before is used there at once.
        let flows_back = matches!(self.phase(value), Some(Phase::Backward | Phase::Gradient));
        let own = |it: &&Use| !flows_back || matches!(it, Use::Operand(..));
        let positions = self.uses[value.0].iter().filter(own).map(|it| self.moment(it));
        let first = positions.clone().min().unwrap_or(made);
        // What flows back is not there before it is used.
        let made = if self.section.from_after.contains(&value) { first } else { made };
        let used = first.max(made);
        Span { made, used, last: positions.max().unwrap_or(made).max(used) }
    }

    /// What a value holds as it is made, and nothing where it is the memory of another.
    fn bytes_of_own(&mut self, value: ValueId, made: &Layouts) -> usize {
        let own = self.bytes(value, &made.layouts);
        if let Source::Result { node, .. } = self.section.graph.value(value).source
            && let Some(Done { choices, .. }) = &self.assembled.work[node.0]
        {
            let views: Vec<bool> = choices.iter().map(|&choice| self.is_view(node, choice)).collect();
            let bytes = self.assembled.frame.bytes[own].iter_mut().zip(views);
            bytes.filter(|(_, view)| *view).for_each(|(bytes, _)| *bytes = 0);
        }
        own
    }

    fn bytes(&mut self, value: ValueId, layouts: &[usize]) -> usize {
        let type_ = self.section.graph.type_of(value);
        let local = |&layout: &usize| self.space.layouts[value.0][layout].local_bytes(type_);
        self.assembled.frame.bytes.push(layouts.iter().map(local).collect());
        self.assembled.frame.bytes.len() - 1
    }
}

/// Positions of operations: after which a value is made, at which it is used first, and last.
struct Span {
    made: usize,
    used: usize,
    last: usize,
}
