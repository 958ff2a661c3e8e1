//! What a stage of a pipeline sends and receives, and the parts in which it does a micro-batch.
//!
//! What crosses is an output of one stage and an input of others, of the same name. It is sent as soon
//! as it is made, and received just before it is first used.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Graph, NodeId, Phase, ValueId};

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
