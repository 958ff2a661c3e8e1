//! What a training step is.

use planner_ir::{Graph, NodeId};

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
