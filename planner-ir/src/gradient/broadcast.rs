//! Gradients of what was repeated: the sum over the repetitions.

use super::Emit;
use crate::graph::ValueId;
use crate::op::{Op, Reduction};

impl Emit<'_> {
    /// The gradient towards a value of this shape that was broadcast to that of `gradient`.
    pub(super) fn gathered(&mut self, gradient: ValueId, shape: &[u64]) -> ValueId {
        let from = self.type_of(gradient).shape;
        if from == shape {
            return gradient;
        }
        let missing = from.len() - shape.len();
        let repeated = |dim: &usize| *dim < missing || (shape[dim - missing] == 1 && from[*dim] != 1);
        let dims: Vec<usize> = (0..from.len()).filter(repeated).collect();
        let sum = if dims.iter().any(|&dim| from[dim] != 1) {
            self.one(Op::Reduce { reduction: Reduction::Sum, dims }, &[gradient])
        } else {
            gradient
        };
        self.shaped(sum, shape)
    }

    /// The same elements in another shape.
    pub(super) fn shaped(&mut self, value: ValueId, shape: &[u64]) -> ValueId {
        if self.graph.type_of(value).shape == shape {
            return value;
        }
        self.one(Op::Reshape { shape: shape.to_vec() }, &[value])
    }

    /// Repeated up to a shape.
    pub(super) fn expanded(&mut self, value: ValueId, shape: &[u64]) -> ValueId {
        if self.graph.type_of(value).shape == shape {
            return value;
        }
        self.one(Op::Expand { shape: shape.to_vec() }, &[value])
    }
}
