//! Programs whose shapes depend on data.

use super::{Extreme, Op};
use crate::data::{DType, Real, Type};

/// A program whose shapes or control flow depend on data.
///
/// Its values are numbered: the region's operands, then the results of its nodes in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    /// How many operands there are.
    pub operands: usize,
    /// The operations, each after those it uses.
    pub nodes: Vec<RegionNode>,
    /// The numbers of the values that are the region's results.
    pub results: Vec<usize>,
    /// The types of the results: they do not depend on data.
    pub types: Vec<Type>,
}

/// An operation of a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionNode {
    /// What is computed.
    pub op: Op,
    /// The numbers of the values that it is computed from.
    pub operands: Vec<usize>,
    /// How many results it has.
    pub results: usize,
}

/// An operation that takes shapes as data (integers, one-dimensional unless said otherwise).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dynamic {
    /// The operand's shape (i64).
    Shape,
    /// The indices (i64) of the elements that are not zero: `[rank, count]`, row-major order.
    NonZero,
    /// Operands x, shape; as ONNX's Reshape: -1 is inferred, and 0 copies unless `zero_is_zero`.
    Reshape {
        /// Whether 0 means an extent of 0.
        zero_is_zero: bool,
    },
    /// Operands x, shape: broadcast both ways, as ONNX's Expand.
    Expand,
    /// Operands x, starts, ends, axes, steps, as ONNX's Slice.
    Slice,
    /// Operands start, limit, step (scalars), as ONNX's Range.
    Range,
    /// Operand shape; one number, repeated.
    Fill {
        /// The elements.
        dtype: DType,
        /// The number.
        value: Real,
    },
    /// Operands x, counts: as many results as counts, one after another along a dimension.
    Split {
        /// The dimension.
        dim: usize,
    },
    /// Operands x, k (one number): as `Op::TopK`.
    TopK {
        /// The dimension.
        dim: usize,
        /// Which extreme.
        extreme: Extreme,
    },
    /// Operands x, repeats: x repeated along each dimension.
    Tile,
    /// Adds dimensions of extent 1 at these places of the result.
    Unsqueeze {
        /// The places, ascending.
        dims: Vec<usize>,
    },
    /// Removes these dimensions of extent 1.
    Squeeze {
        /// The dimensions, ascending.
        dims: Vec<usize>,
    },
    /// Operands the most turns (one integer), a condition (one truth value), the states, then what else
    /// the body uses. While there is a turn left and the condition is true, the body makes of the
    /// turn's number (i64, from 0), the condition, the states and the rest another condition, other
    /// states, and elements of lists. Results are the last states, and the lists: their elements along
    /// a new first dimension.
    Loop {
        /// How many states there are.
        states: usize,
        /// What happens in a turn.
        body: Box<Region>,
    },
    /// Operands condition (one truth value), then those of both branches: the results of one.
    If {
        /// What is computed if it is true.
        yes: Box<Region>,
        /// What is computed if it is false.
        no: Box<Region>,
    },
}
