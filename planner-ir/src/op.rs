//! The operations of a program.
//!
//! An operation says what its results are in terms of its operands; how it is partitioned
//! follows from its loops (`loops.rs`). Broadcasting is numpy's: shapes are aligned at their
//! last dimension, and an extent of 1 (or a missing dimension) repeats.

use crate::data::{DType, Real, Type};

/// An operation, with everything that is known when the program is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A value known when the program is made, in little-endian bytes, row-major.
    Constant {
        /// The result's type.
        result: Type,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// One number, repeated: `y[..] = value`.
    Fill {
        /// The result's type.
        result: Type,
        /// The number; truth values are 0 and 1.
        value: Real,
    },
    /// `y[i] = start + step * i` for i < length: `y: [length]`.
    Iota {
        /// The elements of the result.
        dtype: DType,
        /// How many there are.
        length: u64,
        /// The first.
        start: Real,
        /// The difference of one to the next.
        step: Real,
    },
    /// A function of each element.
    Unary(Unary),
    /// A function of two operands' elements, broadcast.
    Binary(Binary),
    /// `y = condition ? a : b`; operands condition (bool), a, b, broadcast.
    Select,
    /// Each element converted. To bool: whether it is not zero. Float to integer: toward zero.
    Cast(DType),
    /// `activation(a) * b`, broadcast: the gated units (SwiGLU is `Silu`).
    Gated(Unary),
    /// A sum of products in index notation: every matrix product.
    Contract(Contract),
    /// One number for all the elements along some dimensions, whose extent becomes 1.
    Reduce {
        /// Which number.
        reduction: Reduction,
        /// The dimensions, ascending.
        dims: Vec<usize>,
    },
    /// The position (i64) of the extreme along a dimension, whose extent becomes 1; the first
    /// of equals.
    ArgExtreme {
        /// Which extreme.
        extreme: Extreme,
        /// The dimension.
        dim: usize,
    },
    /// `exp(x - max) / sum(exp(x - max))` along a dimension.
    Softmax {
        /// The dimension.
        dim: usize,
    },
    /// `log(softmax(x))` along a dimension.
    LogSoftmax {
        /// The dimension.
        dim: usize,
    },
    /// `(x - mean) / sqrt(variance + epsilon) * scale [+ bias]` over the last `dims` dimensions;
    /// operands x, scale, and optionally bias, both broadcast to x.
    LayerNorm {
        /// How many trailing dimensions are one sample.
        dims: usize,
        /// Added to the variance.
        epsilon: Real,
    },
    /// `x / sqrt(mean(x^2) + epsilon) * scale` over the last `dims` dimensions; operands x and
    /// scale, which is broadcast to x. Computed in f32 at least.
    RmsNorm {
        /// How many trailing dimensions are one sample.
        dims: usize,
        /// Added to the mean square.
        epsilon: Real,
    },
    /// Each sample and channel of `x: [n, c, ...]` made mean 0 and variance 1 over the remaining
    /// dimensions, then times `scale: [c]` plus `bias: [c]`.
    InstanceNorm {
        /// Added to the variance.
        epsilon: Real,
    },
    /// Scaled dot-product attention.
    Attention(Attention),
    /// Rotary position embedding: `x * cos + rotate(x) * sin`, cos and sin broadcast to x and of
    /// its last extent. Operands x, cos, sin.
    Rotary(Pairing),
    /// The same elements, row-major, in another shape.
    Reshape {
        /// The shape.
        shape: Vec<u64>,
    },
    /// `y.shape[i] = x.shape[permutation[i]]`.
    Transpose {
        /// Which dimension of the operand each dimension of the result is.
        permutation: Vec<usize>,
    },
    /// Repeats extents of 1 (and adds leading dimensions) up to a shape.
    Expand {
        /// The shape.
        shape: Vec<u64>,
    },
    /// The operands one after another along a dimension.
    Concat {
        /// The dimension.
        dim: usize,
    },
    /// `y[i..] = x[starts + i * steps ..]`, for every dimension.
    Slice {
        /// The first index taken, for each dimension.
        starts: Vec<u64>,
        /// The difference of one index to the next (may be negative), for each dimension.
        steps: Vec<i64>,
        /// How many are taken, for each dimension.
        sizes: Vec<u64>,
    },
    /// More elements around (or fewer: negative counts cut).
    Pad {
        /// How many before, for each dimension.
        before: Vec<i64>,
        /// How many after, for each dimension.
        after: Vec<i64>,
        /// What they are.
        edge: Edge,
    },
    /// `y[.., i.., ..] = data[.., indices[i..], ..]` along a dimension of data: embedding is
    /// `dim = 0`. Operands data, indices (integers; negative ones count from the end).
    Gather {
        /// The dimension of data that indices replace.
        dim: usize,
    },
    /// `y[i..] = data[i.. with the dim-th replaced by indices[i..]]`. Operands data, indices.
    GatherElements {
        /// The dimension.
        dim: usize,
    },
    /// `y[b.., i.., r..] = data[b.., indices[b.., i.., :], r..]`. Operands data, indices.
    GatherNd {
        /// How many leading dimensions both share.
        batch_dims: usize,
    },
    /// data with the elements at `indices` (as in `GatherElements`) replaced by, or combined
    /// with, those of updates. Operands data, indices, updates.
    ScatterElements {
        /// The dimension.
        dim: usize,
        /// How.
        scatter: Scatter,
    },
    /// data with the slices at `indices` (as in `GatherNd`, no batch dimensions) replaced by, or
    /// combined with, those of updates. Operands data, indices, updates.
    ScatterNd {
        /// How.
        scatter: Scatter,
    },
    /// The elements of the last two dimensions on one side of a diagonal, zero elsewhere.
    Triangle {
        /// Which side.
        triangle: Triangle,
        /// The diagonal: 0 is the main one, positive is above it.
        diagonal: i64,
    },
    /// Running sums along a dimension.
    CumSum {
        /// The dimension.
        dim: usize,
        /// Whether a sum leaves its own element out.
        exclusive: bool,
        /// Whether sums run from the end.
        reverse: bool,
    },
    /// The k extreme elements along a dimension, in order, and where they were (i64); equal ones
    /// by lower index. Two results.
    TopK {
        /// The dimension.
        dim: usize,
        /// How many.
        k: u64,
        /// Which extreme.
        extreme: Extreme,
    },
    /// Convolution: `x: [n, c, spatial..]`, `w: [m, c / groups, window..]`, optionally a bias
    /// `[m]`.
    Conv(Conv),
    /// Each dimension resampled.
    Resize(Resize),
    /// For each row of scores along the last dimension: `-log softmax(scores)[label]`, and 0
    /// where the label is the ignored one. Operands scores `[.., c]`, labels `[..]`.
    CrossEntropy {
        /// The label that does not count.
        ignored: i64,
    },
    /// A mixture of experts with gated units: `y[t] = sum_e gates[t,e] *
    /// (activation(x[t] up[e]) * (x[t] gate[e])) down[e]`, computed only where the gate is not
    /// zero. Operands `x: [t, h]`, `gates: [t, e]`, `up: [e, f, h]`, `gate: [e, f, h]`,
    /// `down: [e, h, f]`; without the fourth, the units are not gated.
    Experts {
        /// The function of the hidden units.
        activation: Unary,
        /// How many experts a token uses: what a gate row's non-zeros number at most.
        active: u64,
    },
    /// Block-quantised weights made whole: `y[n,k] = (q[n,k] - zero[n,b]) * scale[n,b]`, b = k /
    /// block. Operands packed `[n, blocks, block * bits / 8]` (u8, low bits first), scales
    /// `[n, blocks]`, and optionally zero points, packed `[n, ceil(blocks * bits / 8)]`.
    Dequantize {
        /// Bits of one number: 2, 4 or 8.
        bits: u64,
        /// How many numbers share a scale.
        block: u64,
        /// How many numbers a row has: k.
        columns: u64,
    },
    /// Each element kept with probability 1 − ratio and divided by that, else 0; and the mask.
    /// Which are kept depends on the seed and the element's index alone. Two results.
    Dropout {
        /// The probability of 0.
        ratio: Real,
        /// Where the randomness starts.
        seed: u64,
    },
    /// A piece of program whose shapes or control flow depend on data. It is kept whole: every
    /// device computes it.
    Region(Box<Region>),
    /// An operation whose shapes depend on data; only inside a region.
    Dynamic(Dynamic),
}

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the function of that name")]
pub enum Unary {
    Abs,
    Ceil,
    Cos,
    Erf,
    Exp,
    Floor,
    /// `x Φ(x)`.
    Gelu,
    /// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `x sigmoid(1.702 x)`.
    GeluQuick,
    IsInf,
    IsNan,
    Log,
    Neg,
    Not,
    Reciprocal,
    Relu,
    /// To the nearest integer, halves to even.
    Round,
    Sigmoid,
    Sign,
    /// `x sigmoid(x)`.
    Silu,
    Sin,
    Softplus,
    Sqrt,
    Tanh,
}

/// A function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the function of that name")]
pub enum Binary {
    Add,
    And,
    Div,
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Max,
    Min,
    /// The remainder with the divisor's sign.
    Mod,
    /// The remainder with the dividend's sign.
    Fmod,
    Mul,
    Or,
    /// The exponent may have another element type; the result has the base's.
    Pow,
    Sub,
    Xor,
}

/// How the elements along a dimension become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the function of that name")]
pub enum Reduction {
    Max,
    Mean,
    Min,
    Product,
    Sum,
}

/// The largest or the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "said above")]
pub enum Extreme {
    Largest,
    Smallest,
}

/// One side of a diagonal, with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "said above")]
pub enum Triangle {
    Upper,
    Lower,
}

/// Which elements of a row are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pairing {
    /// i with i + d/2: `rotate(x) = concat(-x[d/2..], x[..d/2])`.
    Halves,
    /// 2i with 2i + 1: `rotate(x)[2i] = -x[2i+1]`, `rotate(x)[2i+1] = x[2i]`.
    Neighbours,
}

/// What updates do to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the function of that name")]
pub enum Scatter {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

/// What stands around a padded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// One number.
    Constant(Real),
    /// The value mirrored at its border elements.
    Reflect,
    /// The border elements repeated.
    Repeat,
    /// The value again from its other end.
    Wrap,
}

/// The name of an index in a contraction; printed as a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u8);

/// `result[..] = sum over the labels missing in it of left[..] * right[..]`.
///
/// Invariant: a label occurs at most once in each list; each label of the result occurs in an
/// operand; a label that the result lacks occurs in both operands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Contract {
    /// The labels of the left operand's dimensions.
    pub left: Vec<Label>,
    /// The labels of the right operand's dimensions.
    pub right: Vec<Label>,
    /// The labels of the result's dimensions.
    pub result: Vec<Label>,
}

/// Scaled dot-product attention, with grouped heads.
///
/// `y[b,h,s,:] = sum_t softmax_t(bound(scale * q[b,h,s,:]·k[b,g,t,:]) + mask[b,h,s,t]) v[b,g,t,:]`
/// with `g = h / (H / G)`. Operands `q: [b, H, s, d]`, `k: [b, G, t, d]`, `v: [b, G, t, e]`, and
/// optionally a mask, broadcast to `[b, H, s, t]`: added if it is of numbers, and if it is of
/// truth values, false hides the key. A row that sees no key is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attention {
    /// What products are multiplied by.
    pub scale: Real,
    /// Whether query s sees only keys up to `s + t.extent - s.extent` (aligned at the end).
    pub causal: bool,
    /// If not 0, `bound(x) = softcap * tanh(x / softcap)`.
    pub softcap: Real,
    /// If set, a query sees only this many keys up to its own.
    pub window: Option<u64>,
}

/// The attributes of a convolution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conv {
    /// The distance of windows, for each spatial dimension.
    pub strides: Vec<u64>,
    /// The distance of elements in a window, for each spatial dimension.
    pub dilations: Vec<u64>,
    /// Zeros before, for each spatial dimension.
    pub before: Vec<u64>,
    /// Zeros after, for each spatial dimension.
    pub after: Vec<u64>,
    /// Into how many independent groups channels fall.
    pub groups: u64,
}

/// How a dimension is resampled: `x = (y + 0.5) / scale - 0.5` if half-pixel, else `x = y / scale`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resize {
    /// The shape of the result.
    pub shape: Vec<u64>,
    /// The factor of each dimension.
    pub scales: Vec<Real>,
    /// Whether samples are taken at pixel centres.
    pub half_pixel: bool,
    /// What stands between samples.
    pub interpolation: Interpolation,
}

/// What stands between samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interpolation {
    /// The sample at or before the position.
    NearestFloor,
    /// The nearest sample, the lower of two equally near ones.
    NearestPreferFloor,
    /// A straight line.
    Linear,
}

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
    /// Operands condition (one truth value), then those of both branches: the results of one.
    If {
        /// What is computed if it is true.
        yes: Box<Region>,
        /// What is computed if it is false.
        no: Box<Region>,
    },
}
