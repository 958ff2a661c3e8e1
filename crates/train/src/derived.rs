//! What a training step is.

use planner_ir::{Graph, NodeId};
use rewrite::Joined;

/// A training step, and where its operations belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The program. Its inputs are those of the model, the learning rate and what else the
    /// optimizer is told; its outputs the mean loss and, if it is bounded, the gradients' norm.
    pub graph: Graph,
    /// For each operation the forward block that it is of, or whose gradients or parameters it
    /// computes.
    pub homes: Vec<usize>,
    /// For each operation that computes gradients, is done again for them, or reads a norm's result
    /// or a quantised weight as a value of its own, the forward operation that it belongs to; for one that
    /// quantises a value, the one that finds its magnitudes, or that quantised it first.
    pub forward: Vec<Option<NodeId>>,
    /// For each operation of the forward program, the one that does it forward: none for a conversion
    /// that is none here, and for what nothing needs.
    pub made: Vec<Option<NodeId>>,
}

impl Step {
    /// For each operation its block, counted from this one on; nothing of those before it.
    #[must_use]
    pub fn homes_from(&self, first: usize) -> Vec<Option<usize>> {
        self.homes.iter().map(|home| home.checked_sub(first)).collect()
    }

    /// The same with those products that add to sums in a program that was planned of it.
    #[must_use]
    pub fn joined_as(&self, planned: &Graph) -> Self {
        let Joined { graph, nodes, .. } = rewrite::joined_as(&self.graph, planned);
        let number = |it: &Option<NodeId>| nodes.binary_search(&(*it)?).ok().map(NodeId);
        Self {
            homes: nodes.iter().map(|it| self.homes[it.0]).collect(),
            forward: nodes.iter().map(|it| number(&self.forward[it.0])).collect(),
            made: self.made.iter().map(number).collect(),
            graph,
        }
    }
}
