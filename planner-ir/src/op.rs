//! The operations of a program.
//!
//! An operation says what its results are in terms of its operands; how it is partitioned
//! follows from its loops (`loops.rs`). Broadcasting is numpy's: shapes are aligned at their
//! last dimension, and an extent of 1 (or a missing dimension) repeats.

mod adding; // results that are added to operands
mod attributes; // what operations of one kind differ in
mod class; // what kind of work operations are
mod merging; // how parts of results are made one
mod nvfp4; // numbers of 4 bits with scales
mod recurrence; // states that go from token to token
mod region; // programs whose shapes depend on data

pub use attributes::{
    Attention, Binary, Blind, Contract, Conv, Edge, Extreme, Interpolation, Label, Optimizer, Pairing,
    Reduction, Resize, Scatter, Triangle, Unary,
};
pub use class::{
    AttentionClass, ConvolutionClass, ElementwiseClass, ExpertsClass, GatherClass, MovementClass, NormClass,
    OpClass,
};
pub use merging::Merging;
pub use nvfp4::{Nvfp4, numbers, packed_dim};
pub use recurrence::Recurrence;
pub use region::{Dynamic, Region, RegionNode};

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
    /// A sum of products in index notation: every matrix product. Operands a, b, and optionally what the sum is
    /// added to, of the result's shape: of the elements of a and b, or of those in which these are accumulated,
    /// and then the result is, without being rounded in between.
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
    /// Attention to some keys and attention to others, made attention to all of them. Each part is a
    /// result `[.., s, e]` and its statistics `[.., s, 2]`: the largest score m and the sum l of a row.
    /// Operands y1, s1, y2, s2. With `m = max(m1, m2)` and `wi = exp(mi - m) li`: `l = w1 + w2`,
    /// `y = (w1 y1 + w2 y2) / l`, and 0 where m is -inf. Two results, y and s, which may be merged
    /// again.
    ///
    /// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, section 3.1.
    AttentionMerge,
    /// Rotary position embedding: `x * cos + rotate(x) * sin`, cos and sin broadcast to x and of
    /// its last extent. Operands x, cos, sin.
    Rotary(Pairing),
    /// A state that goes from token to token: a selective scan or a gated delta rule.
    Recurrence(Recurrence),
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
    /// with, those of updates. Operands data, indices, updates. Indices are as many as updates; where these are written
    /// in place ([`Scatter::Write`]), an extent of 1 along another dimension repeats.
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
    /// where the label is the ignored one. Operands scores `[.., c]`, labels `[..]`. A label that
    /// is neither ignored nor from 0 to below c is an error when it is met.
    CrossEntropy {
        /// The label that does not count.
        ignored: i64,
    },
    /// A mixture of experts with gated units: `y[t] = sum_e gates[t,e] *
    /// (activation(x[t] up[e]) * (x[t] gate[e])) down[e]`, computed only where the gate is not
    /// zero. Operands `x: [t, h]`, `gates: [t, e]`, `up: [e, f, h]`, `gate: [e, f, h]`,
    /// `down: [e, h, f]`; without the fourth, the units are not gated. Gated units may have two operands more,
    /// `[e, f]` each, that are added to both products before anything else.
    Experts {
        /// The function of the hidden units.
        activation: Unary,
        /// If set, gated units are `activation(min(a, limit)) * (max(min(b, limit), -limit) + 1)` of both products a
        /// and b: those of gpt-oss.
        limit: Option<Real>,
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
    /// Which are kept depends on the seed, the element's index and, if there is a second operand
    /// (i64, of no dimensions), that number alone: another number keeps others. Two results.
    Dropout {
        /// The probability of 0.
        ratio: Real,
        /// Where the randomness starts.
        seed: u64,
    },
    /// Each f32 as one of the two bf16 next to it: up with a probability of how much of the way it
    /// is, else down, so that the mean over all randomness is the number itself. What bf16 can say
    /// stays, and so do infinities and what is not a number; beyond the largest finite bf16, a
    /// finite number is that one. Which way depends on the seed, the element's index and, if there
    /// is a second operand (i64, of no dimensions), that number alone.
    ///
    /// Source: Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015, section
    /// 3.1; for parameters without a master in more precision, Zamirai et al., "Revisiting BFloat16
    /// Training", 2021, section 3.2.
    RoundStochastically {
        /// Where the randomness starts.
        seed: u64,
    },
    /// `dx = f'(x) * dy`: the gradient of a function of each element. Operands x and dy of one
    /// type. Of `Abs` and `Relu` it is 0 at 0; functions to truth values and steps have none.
    UnaryGradient(Unary),
    /// `da = activation'(a) * b * dy` and `db = activation(a) * dy`: the gradients of a gated
    /// unit. Operands a, b, dy of one type; two results.
    GatedGradient(Unary),
    /// `dx = y * (dy - sum(y * dy))` along a dimension: the gradient of softmax by its result y.
    /// Operands y, dy.
    SoftmaxGradient {
        /// The dimension.
        dim: usize,
    },
    /// The gradient of `LayerNorm` towards x. With `n = (x - mean) / deviation` and
    /// `g = dy * scale`: `dx = (g - mean(g) - n * mean(g * n)) / deviation`, `deviation =
    /// sqrt(variance + epsilon)`. Operands x, scale (broadcast to x), dy. In f32 at least.
    LayerNormGradient {
        /// How many trailing dimensions are one sample.
        dims: usize,
        /// Added to the variance.
        epsilon: Real,
    },
    /// The gradient of `RmsNorm` towards x. With `r = sqrt(mean(x^2) + epsilon)`, `n = x / r` and
    /// `g = dy * scale`: `dx = (g - n * mean(g * n)) / r`. Operands x, scale (broadcast to x), dy.
    /// In f32 at least.
    RmsNormGradient {
        /// How many trailing dimensions are one sample.
        dims: usize,
        /// Added to the mean square.
        epsilon: Real,
    },
    /// The gradients of attention towards q, k, v and, if `mask`, its mask of numbers. With the
    /// weights `p = exp(score - largest) / sum` by the statistics and `ds = p * (dy·v - dy·y)`: `dv = pᵀ dy`,
    /// `dq = scale * (ds * bound') k`, `dk = scale * (ds * bound')ᵀ q`, `dmask = ds`, summed over
    /// what the mask is repeated along. Operands q, k, v, y, statistics, dy, and the mask and the documents
    /// if attention had them; y and statistics are what attention makes of the whole sequences.
    ///
    /// Source: Dao, "FlashAttention-2", 2023, algorithm 2.
    AttentionGradient {
        /// What attention was computed.
        attention: Attention,
        /// Whether there is a fourth result, the gradient of the mask.
        mask: bool,
    },
    /// `dx = dy * cos + rotateᵀ(dy * sin)`: the gradient of `Rotary` towards x. Operands dy, cos,
    /// sin.
    RotaryGradient(Pairing),
    /// `ddata[.., j, ..] = sum of dy[.., i.., ..] where indices[i..] = j`: the gradient of
    /// `Gather` towards data. Operands indices (negative ones count from the end), dy.
    GatherGradient {
        /// The dimension of data that indices replace.
        dim: usize,
        /// The extent of that dimension.
        extent: u64,
    },
    /// The gradient of a convolution towards x: each `dy` times its window, added where the
    /// window lay. Operands w, dy.
    ConvInputGradient {
        /// The convolution.
        conv: Conv,
        /// The spatial extents of x, which w and dy leave open.
        spatial: Vec<u64>,
    },
    /// The gradient of a convolution towards w: `dw[m, c, tap] = sum of dy[n, m, point] *
    /// x[n, c, where the tap meets the point]`. Operands x, dy.
    ConvWeightGradient {
        /// The convolution.
        conv: Conv,
        /// The extents of a window, which x and dy leave open.
        window: Vec<u64>,
    },
    /// `dscores = dloss * (softmax(scores) - onehot(label))` for each row, and 0 where the label
    /// is the ignored one: the gradient of `CrossEntropy`. Operands scores `[.., c]`, labels
    /// `[..]`, dloss `[..]`.
    CrossEntropyGradient {
        /// The label that does not count.
        ignored: i64,
    },
    /// The gradients of `Experts` towards its operands, in this order. Operands those, and dy. The
    /// gradient of a gate that is 0 is 0: its expert was not computed. What is beyond a limit has none.
    /// Last, in order, what some of the gradients of weights are added to, of the elements of the weights or of
    /// those in which they are accumulated; so is the sum then.
    ExpertsGradient {
        /// The function of the hidden units.
        activation: Unary,
        /// What units are bounded by.
        limit: Option<Real>,
        /// How many experts a token uses: what a gate row's non-zeros number at most.
        active: u64,
        /// The results that are added to something, ascending: of those of weights.
        adds: Vec<usize>,
    },
    /// The largest magnitude (f32) of each of so many equal parts of every dimension. Operand x, floating
    /// point; result `parts`. What is not a number stays so.
    Amax {
        /// How many parts each dimension has.
        parts: Vec<u64>,
        /// The dimension along which a random Hadamard transform is done to each 16 elements first.
        rotated: Option<usize>,
    },
    /// Each element over one scale for all, as the nearest number of 8 bits: `y = x / scale`, where `scale =
    /// amax / largest number of the type`, and 1 where that is below the normal numbers of f32, or not finite.
    /// Operands x and magnitudes (f32) of which amax is the largest: those of its parts, or those of steps
    /// before; results y and the scale (f32), of no dimensions, and the largest magnitudes of parts of x, if
    /// they are said. A finite number beyond the largest of the type becomes that.
    ///
    /// Source: Micikevicius et al., "FP8 Formats for Deep Learning", 2022, section 3.
    Quantize {
        /// The elements of y.
        to: DType,
        /// How many parts each dimension has of which the largest magnitudes are found on the way.
        parts: Option<Vec<u64>>,
    },
    /// The largest magnitudes of a value in the last steps, with one step more: the oldest is left out, and the
    /// largest of all parts is last. Operands the history (f32, one dimension) and the magnitudes (f32) of
    /// parts; result the history.
    ///
    /// Source: NVIDIA Transformer Engine, recipe `DelayedScaling`.
    Remember,
    /// The same with a scale for each block along a dimension, a power of two: `scale = 2^(floor(log2(amax)) −
    /// largest exponent of the type)`, within 2^±127. What is beyond the largest number then is that number.
    /// Operand x; results y, and the exponents of the scales plus 127 (u8), as many along the dimension as it
    /// has blocks. An exponent of 255 says that the block has what is not finite.
    ///
    /// Source: Open Compute Project, "Microscaling Formats (MX) Specification", version 1.0, sections 5.3 and
    /// 6.3.
    QuantizeBlocks {
        /// The elements of y.
        to: DType,
        /// The dimension.
        dim: usize,
        /// How many elements share a scale.
        block: u64,
    },
    /// Each element as a number of 4 bits (E2M1) with a scale of 8 (E4M3) for each block of 16, and one for all:
    /// `all = amax / (6 · 448)`, `scale = largest magnitude of the block / 6 / all`, `y = x / (scale · all)`.
    /// What is beyond 6 is 6. Operands x, the largest magnitudes (f32) of its parts, of which amax is the
    /// largest, and for stochastic rounding a number (i64) that makes it another one; results the numbers (u8,
    /// two in a byte), the scales of blocks, and the scale of all (f32), of no dimensions.
    QuantizeNvfp4(Nvfp4),
    /// A sum of products of quantised numbers, each times its scale. Operands a and b, of 8 bits each, and the
    /// scales of a and of b: one number (f32) of no dimensions, or exponents plus 127 (u8) of as many blocks as
    /// they have along each dimension. Or of 4 bits, two in a byte (u8), the scales (f8e4m3fn) of their blocks,
    /// and of each the scale of all (f32). Last, optionally, what the sum is added to, of the result's type.
    /// Summed in f32.
    ScaledContract {
        /// The sum.
        contract: Contract,
        /// The elements of the result.
        to: DType,
    },
    /// One step of an optimizer: a parameter, and what the optimizer remembers of it, after the
    /// step. Operands p, its gradient g, the moments of the optimizer in order, and of no
    /// dimensions (f32): scale, by which g is multiplied first; rate, the learning rate; and for
    /// `AdamW` the number of the step, from 1. Results p' and the moments', in order.
    Update(Optimizer),
    /// A piece of program whose shapes or control flow depend on data. It is kept whole: every
    /// device computes it.
    Region(Box<Region>),
    /// An operation whose shapes depend on data; only inside a region.
    Dynamic(Dynamic),
}

impl Op {
    /// Whether it is a product of numbers of 8 bits, which have scales.
    pub fn has_scales(&self) -> bool {
        matches!(self, Self::ScaledContract { .. })
    }

    /// Whether each element of its result is one of an operand's, converted or not, zero, or a sum of such.
    pub fn keeps_elements(&self) -> bool {
        matches!(
            self,
            Self::Binary(Binary::Add)
                | Self::Cast(_)
                | Self::Concat { .. }
                | Self::Pad { .. }
                | Self::Reshape { .. }
                | Self::Slice { .. }
                | Self::Transpose { .. }
        )
    }

    /// Whether the operation leaves the bytes of its operand, of that type, as they are, so that
    /// its result is the same memory in another shape.
    ///
    /// A reshape's operand and result have the same loops in the same order, so that blocks of them
    /// too are the same elements in the same order.
    pub fn keeps_order(&self, operand: &Type) -> bool {
        match self {
            Self::Reshape { .. } => true,
            Self::Transpose { permutation } => {
                let moved = permutation.iter().filter(|&&dim| operand.shape[dim] != 1);
                moved.is_sorted()
            }
            _ => false,
        }
    }
}
