//! What operations of one kind differ in.

use crate::data::Real;

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
    /// Replace, where data are: nothing else uses them, and the result takes their place.
    Write,
    Add,
    Mul,
    Max,
    Min,
}

impl Scatter {
    /// Every way.
    pub const ALL: [Self; 6] = [Self::Replace, Self::Write, Self::Add, Self::Mul, Self::Max, Self::Min];

    /// Whether updates take the place of what is there.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::Write)
    }
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
/// optionally a mask, broadcast to `[b, H, s, t]`: added if it is of numbers (in f16: [`Attention::LOW_F16`]),
/// and if it is of truth values, false hides the key; and optionally documents, integers for queries,
/// broadcast to `[b, H, s, 1]`, and for keys, to `[b, H, 1, t]`: keys of others than the query's are hidden. A
/// row that sees no key is as `blind` says.
///
/// With `sinks` the last operand, broadcast to `[b, H, s, 1]`, is a score that the softmax of each row has besides,
/// of a key whose value is 0. Of a block of the keys it is that plus the logarithm of the block's share of the keys:
/// merged, blocks have it once. It is among the scores that statistics are of.
///
/// Source: Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023, section 3.3.
///
/// With `statistics` there is a second result `[b, H, s, 2]` (f32, and of f64 f64), two numbers for
/// each row: the largest of its scores, bounded and masked, and the sum of `exp(score - largest)`;
/// -inf and 0 if it sees no key and is 0. They stay apart: `largest + ln(sum)` is rounded to the largest where
/// that is a large finite mask.
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
    /// What a query that sees no key gets.
    pub blind: Blind,
    /// Whether the last operand is a score that each row has besides.
    pub sinks: bool,
    /// Whether there is a second result, which the gradient needs, and parts that are merged.
    pub statistics: bool,
}

impl Attention {
    /// The score of keys that a query has the mean of: lower than any that is seen.
    pub const BLIND: f32 = f32::MIN;

    /// A finite number of a mask in f16 that is not above this leaves nothing of a score of up to 4: their sum in
    /// f16 is a multiple of 8. The score is [`Self::BLIND`] then.
    pub const LOW_F16: f32 = -8192.0;

    /// The operands that mask scores, of those after q, k and v, or in the gradient after dy.
    pub fn masking<'a, T>(&self, rest: &'a [T]) -> &'a [T] {
        match rest {
            [masks @ .., _] if self.sinks => masks,
            _ => rest,
        }
    }

    /// The mask, and the documents of queries and keys, of the same operands.
    pub fn masks<'a, T>(&self, rest: &'a [T]) -> (Option<&'a T>, Option<[&'a T; 2]>) {
        Self::masks_of(self.masking(rest))
    }

    /// The mask and the documents of the operands that mask scores.
    pub fn masks_of<T>(masking: &[T]) -> (Option<&T>, Option<[&T; 2]>) {
        match masking {
            [mask] => (Some(mask), None),
            [queries, keys] => (None, Some([queries, keys])),
            [mask, queries, keys] => (Some(mask), Some([queries, keys])),
            _ => (None, None),
        }
    }
}

/// What a query that sees no key gets.
///
/// A mean is what is left where keys are hidden by a very low finite number: each of them has the score
/// [`Attention::BLIND`], and that score has a gradient, as the sum of a score and such a number has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blind {
    /// 0.
    #[default]
    Zero,
    /// The mean of all values.
    Mean,
    /// The mean of the values whose keys are hidden once: by the mask, or because of where they are, and
    /// not by both.
    Once,
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

/// How a parameter p follows its gradient g. All elements alike.
///
/// Source: PyTorch, `torch.optim.SGD` (no dampening, not Nesterov) and `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Optimizer {
    /// `p' = p - rate * (g + decay * p)`. No moments.
    Sgd {
        /// How much of the parameter is added to its gradient.
        decay: Real,
    },
    /// `m' = momentum * m + (g + decay * p)`, `p' = p - rate * m'`. Moment m.
    Momentum {
        /// How much of the moment stays.
        momentum: Real,
        /// How much of the parameter is added to its gradient.
        decay: Real,
    },
    /// `m' = beta1 m + (1 - beta1) g`, `v' = beta2 v + (1 - beta2) g²`, `p' = p (1 - rate decay) -
    /// rate / (1 - beta1^step) * m' / (sqrt(v') / sqrt(1 - beta2^step) + epsilon)`. Moments m, v.
    AdamW {
        /// How much of the first moment stays.
        beta1: Real,
        /// How much of the second moment stays.
        beta2: Real,
        /// Added to the root of the second moment.
        epsilon: Real,
        /// How much the parameter shrinks, as a multiple of the rate.
        decay: Real,
    },
}

impl Optimizer {
    /// How many values it remembers of a parameter.
    pub fn moments(self) -> usize {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } => 1,
            Self::AdamW { .. } => 2,
        }
    }

    /// How many numbers of no dimensions it takes: scale, rate and perhaps the step.
    pub fn numbers(self) -> usize {
        match self {
            Self::Sgd { .. } | Self::Momentum { .. } => 2,
            Self::AdamW { .. } => 3,
        }
    }
}

impl Unary {
    /// Whether the function has a derivative (but for single points).
    pub fn is_smooth(self) -> bool {
        match self {
            Self::Ceil | Self::Floor | Self::IsInf | Self::IsNan | Self::Not | Self::Round | Self::Sign => {
                false
            }
            Self::Abs
            | Self::Cos
            | Self::Erf
            | Self::Exp
            | Self::Gelu
            | Self::GeluTanh
            | Self::GeluQuick
            | Self::Log
            | Self::Neg
            | Self::Reciprocal
            | Self::Relu
            | Self::Sigmoid
            | Self::Silu
            | Self::Sin
            | Self::Softplus
            | Self::Sqrt
            | Self::Tanh => true,
        }
    }
}
