//! The class of each operation: what costs, words and searches ask of it instead of its name.

use super::{Attention, Binary, Contract, Conv, Op, Recurrence, Unary};

/// What kind of work an operation is, with the attributes that its costs depend on.
///
/// The enum and the ones in it are closed: whoever treats classes differently matches all of them, with
/// no wildcard. So a new operation of a known class is priced and named as that class is, and a new class
/// does not compile until each of these places says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpClass<'a> {
    /// Numbers known when the program is made.
    Constant,
    /// Each element of a result by the elements at its place in the operands, broadcast.
    Elementwise(ElementwiseClass),
    /// A sum of products in index notation.
    MatrixProduct(&'a Contract),
    /// Products over the windows of a convolution.
    Convolution(ConvolutionClass<'a>),
    /// Scaled dot-product attention.
    Attention(AttentionClass<'a>),
    /// States that go from token to token.
    Recurrence(Recurrence),
    /// Products with the weights of the experts that tokens are routed to.
    Experts(ExpertsClass),
    /// Rows by their mean and variance or mean square, and gradients of that.
    Norm(NormClass),
    /// Softmax of rows, and its gradient.
    Softmax,
    /// The logarithm of softmax of rows.
    LogSoftmax,
    /// Cross entropy of rows of scores, and its gradient.
    CrossEntropy,
    /// One number, or its position, for all elements along dimensions.
    Reduction,
    /// As many or several numbers of a row that depend on the order or the rank of its elements.
    Scan,
    /// The elements of operands, at other places that attributes say.
    Movement(MovementClass),
    /// Elements at places that indices say, and the gradient of that.
    Gather(GatherClass),
    /// Elements put at places that indices say.
    Scatter,
    /// Each dimension resampled.
    Resampling,
    /// Packed weights unpacked.
    Dequantization,
    /// Numbers made ones of fewer bits with scales, and the magnitudes that scales follow from.
    Quantization,
    /// One step of an optimizer.
    Optimizer,
    /// A piece of program that is kept whole.
    Region,
    /// An operation of a region whose shapes depend on data.
    Dynamic,
}

/// What is computed of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementwiseClass {
    /// A function of one element, or its gradient.
    Unary(Unary),
    /// A gated unit with this activation, or its gradient.
    Gated(Unary),
    /// A function of two elements.
    Binary(Binary),
    /// Rotary position embedding, or its gradient.
    Rotary,
    /// A choice, a conversion, or a mask.
    Choice,
}

/// Which of the three values of a convolution is computed of the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionClass<'a> {
    /// The result.
    Forward(&'a Conv),
    /// The gradient towards x.
    InputGradient(&'a Conv),
    /// The gradient towards w.
    WeightGradient(&'a Conv),
}

/// What is computed of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionClass<'a> {
    /// The result.
    Forward(&'a Attention),
    /// The gradients.
    Gradient(&'a Attention),
    /// Results of parts of the keys made one: passes over results, no products.
    Merge,
}

/// What is computed of a mixture of experts, each token by so many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "active is the number of experts of a token")]
pub enum ExpertsClass {
    /// The result.
    Forward { active: u64 },
    /// The gradients.
    Gradient { active: u64 },
}

/// By what rows are normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormClass {
    /// The mean and the variance of the last dimensions.
    Layer,
    /// The mean square of the last dimensions.
    RootMeanSquare,
    /// The mean and the variance of each channel.
    Instance,
}

/// How elements move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovementClass {
    /// All elements of an operand, in another order or shape.
    Reorder,
    /// All elements of the operands, repeated or after one another.
    Copy,
    /// Some of the elements; only those are read.
    Slice,
    /// The elements, and others around them.
    Pad,
}

/// What indices choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "dim is the dimension that indices replace")]
pub enum GatherClass {
    /// Rows along a dimension: an embedding.
    Rows,
    /// Elements, or slices by several indices.
    Elements,
    /// The gradient towards the rows.
    RowsGradient { dim: usize },
}

impl Op {
    /// The class of the operation.
    #[must_use]
    pub fn class(&self) -> OpClass<'_> {
        match self {
            Self::Constant { .. } | Self::Fill { .. } | Self::Iota { .. } => OpClass::Constant,
            Self::Unary(function) | Self::UnaryGradient(function) => {
                OpClass::Elementwise(ElementwiseClass::Unary(*function))
            }
            Self::Gated(function) | Self::GatedGradient(function) => {
                OpClass::Elementwise(ElementwiseClass::Gated(*function))
            }
            Self::Binary(function) => OpClass::Elementwise(ElementwiseClass::Binary(*function)),
            Self::Rotary(_) | Self::RotaryGradient(_) => OpClass::Elementwise(ElementwiseClass::Rotary),
            Self::Select
            | Self::Cast(_)
            | Self::Triangle { .. }
            | Self::Dropout { .. }
            | Self::RoundStochastically { .. } => OpClass::Elementwise(ElementwiseClass::Choice),
            Self::Contract(contract) | Self::ScaledContract { contract, .. } => {
                OpClass::MatrixProduct(contract)
            }
            Self::Conv(conv) => OpClass::Convolution(ConvolutionClass::Forward(conv)),
            Self::ConvInputGradient { conv, .. } => {
                OpClass::Convolution(ConvolutionClass::InputGradient(conv))
            }
            Self::ConvWeightGradient { conv, .. } => {
                OpClass::Convolution(ConvolutionClass::WeightGradient(conv))
            }
            Self::Attention(attention) => OpClass::Attention(AttentionClass::Forward(attention)),
            Self::AttentionGradient { attention, .. } => {
                OpClass::Attention(AttentionClass::Gradient(attention))
            }
            Self::AttentionMerge => OpClass::Attention(AttentionClass::Merge),
            Self::Recurrence(it) => OpClass::Recurrence(*it),
            Self::Experts { active, .. } => OpClass::Experts(ExpertsClass::Forward { active: *active }),
            Self::ExpertsGradient { active, .. } => {
                OpClass::Experts(ExpertsClass::Gradient { active: *active })
            }
            Self::LayerNorm { .. } | Self::LayerNormGradient { .. } => OpClass::Norm(NormClass::Layer),
            Self::RmsNorm { .. } | Self::RmsNormGradient { .. } => OpClass::Norm(NormClass::RootMeanSquare),
            Self::InstanceNorm { .. } => OpClass::Norm(NormClass::Instance),
            Self::Softmax { .. } | Self::SoftmaxGradient { .. } => OpClass::Softmax,
            Self::LogSoftmax { .. } => OpClass::LogSoftmax,
            Self::CrossEntropy { .. } | Self::CrossEntropyGradient { .. } => OpClass::CrossEntropy,
            Self::Reduce { .. } | Self::ArgExtreme { .. } => OpClass::Reduction,
            Self::CumSum { .. } | Self::TopK { .. } => OpClass::Scan,
            Self::Reshape { .. } | Self::Transpose { .. } => OpClass::Movement(MovementClass::Reorder),
            Self::Expand { .. } | Self::Concat { .. } => OpClass::Movement(MovementClass::Copy),
            Self::Slice { .. } => OpClass::Movement(MovementClass::Slice),
            Self::Pad { .. } => OpClass::Movement(MovementClass::Pad),
            Self::Gather { .. } => OpClass::Gather(GatherClass::Rows),
            Self::GatherElements { .. } | Self::GatherNd { .. } => OpClass::Gather(GatherClass::Elements),
            Self::GatherGradient { dim, .. } => OpClass::Gather(GatherClass::RowsGradient { dim: *dim }),
            Self::ScatterElements { .. } | Self::ScatterNd { .. } => OpClass::Scatter,
            Self::Resize(_) => OpClass::Resampling,
            Self::Dequantize { .. } => OpClass::Dequantization,
            Self::Amax { .. }
            | Self::Quantize { .. }
            | Self::QuantizeBlocks { .. }
            | Self::QuantizeNvfp4(_)
            | Self::Remember => OpClass::Quantization,
            Self::Update(_) => OpClass::Optimizer,
            Self::Region(_) => OpClass::Region,
            Self::Dynamic(_) => OpClass::Dynamic,
        }
    }
}
