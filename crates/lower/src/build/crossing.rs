//! What a stage of a pipeline sends and receives, as instructions.

use plan::Copy;
use planner_ir::{Carried, NodeId, Source, ValueId};

use super::Build;
use crate::action::{Action, Origin, Received, Sent};
use crate::ends::Arriving;
use crate::error::LowerError;
use crate::facts::carried;
use crate::program::Stream;
use crate::storage::{BufferId, Kind};

impl Build<'_> {
    /// A place for what another stage sends, and its arrival; before it, that of what the same stage
    /// sends before.
    pub(super) fn receive(&mut self, value: ValueId, crossing: usize) -> Result<BufferId, LowerError> {
        let (ends, plan) = (self.ends, self.plan);
        for arriving in &ends.arriving {
            let is_it = |it: &Arriving| ends.received.get(&it.name) == Some(&crossing);
            let Some(place) = arriving.iter().position(is_it) else { continue };
            for earlier in arriving[..place].iter().filter(|it| it.from == arriving[place].from) {
                self.arrive(&earlier.name)?;
            }
        }
        let (layout, type_) = (&plan.layouts[value.0], plan.graph.type_of(value));
        let output = self.buffer(Kind::Activation, layout.local_type(type_));
        let received = Received { output, parts: Vec::new() };
        self.push(Stream::Receiving, Action::Receive(received), Origin::Crossing(crossing));
        Ok(output)
    }

    /// Receives what has not been yet of what arrives in a part of a micro-batch, or in the update:
    /// there before the guard, so that nothing is left on its way where a step stops.
    pub(super) fn receive_all(&mut self, part: usize) -> Result<(), LowerError> {
        let ends = self.ends;
        ends.arriving.get(part).into_iter().flatten().try_for_each(|it| self.arrive(&it.name))
    }

    fn arrive(&mut self, name: &str) -> Result<(), LowerError> {
        let graph = &self.plan.graph;
        let is_it =
            |value: &ValueId| matches!(&graph.value(*value).source, Source::Input(input) if input == name);
        let value = graph.value_ids().find(is_it);
        value.map_or(Ok(()), |value| self.copy(value, Copy::Made).map(|_| ()))
    }

    /// Sends what an operation makes for other stages.
    pub(super) fn send_results(&mut self, node: NodeId) -> Result<(), LowerError> {
        let (ends, plan, facts) = (self.ends, self.plan, self.facts);
        if ends.sent.is_empty() {
            return Ok(());
        }
        let results = &plan.graph.node(node).results;
        for (output, &copy) in plan.graph.outputs.iter().zip(&facts.outputs) {
            let Some(&crossing) = ends.sent.get(&output.name) else { continue };
            if results.contains(&output.value) && !self.is_sum(output.value) {
                let input = self.copy(output.value, copy)?;
                self.send(input, crossing);
            }
        }
        Ok(())
    }

    /// Sends the sums over micro-batches that other stages use.
    pub(super) fn send_sums(&mut self) -> Result<(), LowerError> {
        let (ends, plan, facts) = (self.ends, self.plan, self.facts);
        for (output, &copy) in plan.graph.outputs.iter().zip(&facts.outputs) {
            let Some(&crossing) = ends.sent.get(&output.name) else { continue };
            if self.is_sum(output.value) {
                let input = self.copy(output.value, copy)?;
                self.send(input, crossing);
            }
        }
        Ok(())
    }

    fn send(&mut self, input: BufferId, crossing: usize) {
        let sent = Sent { input, parts: Vec::new() };
        self.push(Stream::Sending, Action::Send(sent), Origin::Crossing(crossing));
    }

    /// Whether a value is a sum over micro-batches.
    fn is_sum(&self, value: ValueId) -> bool {
        carried(self.plan).iter().any(|&Carried { state, next }| {
            let summed = |it: &Source| matches!(it, Source::State(state) if state.kind.is_summed());
            next == value && summed(&self.plan.graph.value(state).source)
        })
    }
}
