//! What states become: sums set to zero, copies that take the places of states, sums that are settled.

use std::collections::BTreeSet;
use std::sync::Arc;

use planner_ir::{Carried, NodeId, Op, Real, StateKind, ValueId};

use crate::action::{Action, Block, Compute, Origin};
use crate::build::Build;
use crate::error::LowerError;
use crate::facts::carried;
use crate::program::Stream;
use crate::storage::{Kind, Region};
use crate::strided::all_of;
use plan::Copy;

impl Build<'_> {
    /// Sets sums to zero to which something is added: others are written first.
    pub(crate) fn clear(&mut self) -> Result<(), LowerError> {
        let read: BTreeSet<ValueId> =
            self.plan.graph.nodes.iter().flat_map(|node| &node.operands).copied().collect();
        for &Carried { state, .. } in carried(self.plan) {
            if !self.state_kind(state).is_some_and(StateKind::is_summed) || !read.contains(&state) {
                continue;
            }
            let buffer = self.copy(state, Copy::Made)?;
            let result = self.program.buffer(buffer).type_.clone();
            let action = Compute {
                op: Arc::new(Op::Fill { result, value: Real(0.0) }),
                name: self.program.states.last().map_or("", |port| &port.name).into(),
                operands: Vec::new(),
                results: vec![Block { buffer, spans: Vec::new() }],
            };
            self.push(Stream::Compute, Action::Compute(action), Origin::State(state));
        }
        Ok(())
    }

    /// Makes the copies of an operation's results that are to take the places of states, at once:
    /// then no more of them are there at a time than need be.
    pub(crate) fn carry(&mut self, node: NodeId) -> Result<(), LowerError> {
        let (facts, results) = (self.facts, &self.plan.graph.node(node).results);
        let becomes = |next: &ValueId| facts.becomes.get(next).map(|states| (*next, states));
        let carried = results.iter().filter_map(becomes);
        for (next, &(state, copy)) in
            carried.flat_map(|(next, states)| states.iter().map(move |it| (next, it)))
        {
            let mut from = self.copy(next, copy)?;
            if self.program.storage(from).kind.region() == Region::Resident {
                // Another state, which may be gone when this one is written.
                from = self.whole_copy(from, Kind::Activation, Origin::State(state));
            }
            let to = self.copy(state, Copy::Made)?;
            self.carried.push((state, from, to));
        }
        Ok(())
    }

    /// Puts what states become into their places.
    pub(crate) fn finish_carrying(&mut self) {
        for (state, from, to) in std::mem::take(&mut self.carried) {
            let strided = all_of(&self.program.buffer(to).type_);
            self.copy_elements(Stream::Compute, from, to, strided, Origin::State(state));
        }
    }

    /// After the micro-batches: sums are in their states' places, and what was copied from those
    /// before is out of date.
    pub(crate) fn settle_sums(&mut self) -> Result<(), LowerError> {
        let plan = self.plan;
        let (mut states, mut settled) = (BTreeSet::new(), Vec::new());
        for (&Carried { state, next }, &copy) in carried(plan).iter().zip(&plan.carried) {
            if self.state_kind(state).is_some_and(StateKind::is_summed) {
                let buffer = self.copy(state, Copy::Made)?;
                states.insert(state);
                settled.extend([((state, Copy::Made), buffer), ((next, copy), buffer)]);
            }
        }
        self.copies.retain(|(value, _), _| !states.contains(value));
        self.copies.extend(settled);
        Ok(())
    }
}
