//! What a stage of a pipeline sends and receives, and the parts in which it does a micro-batch.
//!
//! What crosses is an output of one stage and an input of others, of the same name. It is sent as soon
//! as it is made, and received just before it is first used.

use std::collections::{BTreeMap, BTreeSet};

use plan::Copy;
use planner_ir::{Carried, Graph, NodeId, Phase, Source, ValueId};

use crate::action::{Action, Received, Sent};
use crate::build::Build;
use crate::error::LowerError;
use crate::facts::carried;
use crate::program::{BufferId, Kind, Origin, Stream};

/// The ends of crossings at a stage; nothing if there is one stage only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    /// Which stage it is.
    pub(crate) stage: usize,
    /// The outputs that are sent, by name: which crossing.
    pub(crate) sent: BTreeMap<String, usize>,
    /// The inputs that are received, by name: which crossing.
    pub(crate) received: BTreeMap<String, usize>,
    /// For each part of a micro-batch, and then the update, the inputs that are received in it: for each
    /// sender in the order in which it sends.
    pub(crate) arriving: Vec<Vec<Arriving>>,
    /// In which parts a micro-batch is done.
    pub(crate) parts: Parts,
}

/// An input that is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arriving {
    /// The stage that sends it.
    pub(crate) from: usize,
    /// What it is called.
    pub(crate) name: String,
}

/// In which parts a micro-batch is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Parts {
    /// One.
    #[default]
    One,
    /// Forward; all gradients.
    Two,
    /// Forward; the gradients of values; those of parameters.
    Three,
}

impl Ends {
    /// The operations of each part of a micro-batch, in order.
    pub(crate) fn parts(&self, graph: &Graph) -> Vec<Vec<NodeId>> {
        let nodes = graph.node_ids().filter(|node| graph.node(*node).phase != Phase::Update);
        if self.parts == Parts::One {
            return vec![nodes.collect()];
        }
        let (forward, rest): (Vec<NodeId>, Vec<NodeId>) =
            nodes.partition(|node| graph.node(*node).phase == Phase::Forward);
        if self.parts == Parts::Two {
            return vec![forward, rest];
        }
        let early = self.needed_early(graph, &rest);
        let (backward, weights) = rest.into_iter().partition(|node| early.contains(node));
        vec![forward, backward, weights]
    }

    /// Of the operations after the forward part, those that the gradients of values need, or that
    /// make what is sent.
    fn needed_early(&self, graph: &Graph, rest: &[NodeId]) -> BTreeSet<NodeId> {
        let sent = graph.outputs.iter().filter(|output| self.sent.contains_key(&output.name));
        let mut needed: BTreeSet<ValueId> = sent.map(|output| output.value).collect();
        // A sum over micro-batches is sent after all of them.
        let training = graph.training.iter().flat_map(|training| &training.carried);
        training.for_each(|it| {
            needed.remove(&it.next);
        });
        let mut early = BTreeSet::new();
        for &id in rest.iter().rev() {
            let node = graph.node(id);
            if node.phase == Phase::Backward || node.results.iter().any(|result| needed.contains(result)) {
                early.insert(id);
                needed.extend(&node.operands);
            }
        }
        early
    }
}

impl Build<'_> {
    /// A place for what another stage sends, and its arrival; before it, that of what the same stage
    /// sends before.
    pub(crate) fn receive(&mut self, value: ValueId, crossing: usize) -> Result<BufferId, LowerError> {
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
    pub(crate) fn receive_all(&mut self, part: usize) -> Result<(), LowerError> {
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
    pub(crate) fn send_results(&mut self, node: NodeId) -> Result<(), LowerError> {
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
    pub(crate) fn send_sums(&mut self) -> Result<(), LowerError> {
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
