//! What each ONNX operator is in operations of the graph: the table from its name.

mod emit; // short forms of what is emitted
mod conversion; // conversion of elements
mod elementwise; // sums, products and other functions of elements
mod activation; // functions of one value that are spelled out in simpler ones
mod linear; // matrix products
mod quantised; // integers and narrow numbers with scales
mod einsum; // index notation
mod norms; // normalisations, softmax and dropout
mod reduce; // sums, extremes and other numbers along dimensions
mod movement; // the same elements in another shape or order
mod pieces; // pieces of values, and values of pieces
mod indexing; // reading and writing at indices
mod shapes; // constants, and values made of shapes
mod conv; // convolution, pooling and resampling
mod transposed; // transposed convolution
mod causal_conv; // convolution over what came before, with a state
mod loss; // losses
mod training; // steps of optimisers
mod mask; // which keys a query sees
mod rotary; // rotary position embedding
mod attention; // the standard attention operator
mod fused_attention; // ONNX Runtime's attention operators for whole sequences
mod grouped_attention; // ONNX Runtime's attention operator with grouped heads and a cache
mod linear_attention; // attention by a state that goes from token to token
mod experts; // ONNX Runtime's mixture of experts
mod contrib; // operators of ONNX Runtime that are several standard ones

use planner_ir::{Binary, DType, Extreme, Reduction, Unary, ValueId};

use crate::builder::Builder;
use crate::error::ImportError;
use crate::node::OnnxNode;
use crate::tensor;

type Result<T> = std::result::Result<T, ImportError>;

/// The values of a node's declared outputs; `None` where nobody uses one.
type Outputs = Result<Vec<Option<ValueId>>>;

/// Emits what a node computes and returns the values of its declared outputs.
pub(crate) fn lower(b: &mut Builder, n: &OnnxNode) -> Outputs {
    match n.domain {
        "" | "ai.onnx" => standard(b, n),
        "com.microsoft" => microsoft(b, n),
        "ai.onnx.preview.training" => training::step(b, n),
        _ => Err(n.unsupported("the operator")),
    }
}

/// Operators of the standard that have one result; the others are in `standard_several`.
#[expect(clippy::too_many_lines, reason = "a table")]
fn standard(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let result = match n.op_type {
        "Abs" => elementwise::unary(b, n, Unary::Abs),
        "Add" => elementwise::binary(b, n, Binary::Add),
        "And" => elementwise::binary(b, n, Binary::And),
        "ArgMax" => reduce::arg_extreme(b, n, Extreme::Largest),
        "ArgMin" => reduce::arg_extreme(b, n, Extreme::Smallest),
        "AveragePool" => conv::average_pool(b, n),
        "Cast" => conversion::cast(b, n),
        "CastLike" => conversion::cast_like(b, n),
        "Ceil" => elementwise::unary(b, n, Unary::Ceil),
        "Celu" => activation::celu(b, n),
        "Clip" => elementwise::clip(b, n),
        "Concat" => pieces::concat(b, n),
        "Constant" => shapes::constant(b, n),
        "ConstantOfShape" => shapes::constant_of_shape(b, n),
        "Conv" => conv::conv(b, n),
        "ConvInteger" => quantised::conv_integer(b, n),
        "ConvTranspose" => transposed::conv(b, n),
        "Cos" => elementwise::unary(b, n, Unary::Cos),
        "CumSum" => reduce::running_sum(b, n),
        "DepthToSpace" => movement::depth_to_space(b, n),
        "DequantizeLinear" => quantised::dequantize(b, n),
        "Div" => elementwise::binary(b, n, Binary::Div),
        "Einsum" => einsum::einsum(b, n),
        "Elu" => activation::elu(b, n),
        "Equal" => elementwise::binary(b, n, Binary::Equal),
        "Erf" => elementwise::unary(b, n, Unary::Erf),
        "Exp" => elementwise::unary(b, n, Unary::Exp),
        "Expand" => movement::expand(b, n),
        "EyeLike" => shapes::eye_like(b, n),
        "Flatten" => movement::flatten(b, n),
        "Floor" => elementwise::unary(b, n, Unary::Floor),
        "Gather" => indexing::gather(b, n),
        "GatherElements" => indexing::gather_elements(b, n),
        "GatherND" => indexing::gather_nd(b, n),
        "Gelu" => activation::gelu(b, n),
        "Gemm" => linear::gemm(b, n),
        "GlobalAveragePool" => conv::global_pool(b, n, Reduction::Mean),
        "GlobalMaxPool" => conv::global_pool(b, n, Reduction::Max),
        "Greater" => elementwise::binary(b, n, Binary::Greater),
        "GreaterOrEqual" => elementwise::binary(b, n, Binary::GreaterOrEqual),
        "GroupNormalization" => norms::group_norm(b, n),
        "HardSigmoid" => activation::hard_sigmoid(b, n),
        "HardSwish" => activation::hard_swish(b, n),
        "Hardmax" => reduce::hardmax(b, n),
        "Identity" => n.input(0),
        "InstanceNormalization" => norms::instance_norm(b, n),
        "IsInf" => elementwise::is_inf(b, n),
        "IsNaN" => elementwise::unary(b, n, Unary::IsNan),
        "LeakyRelu" => activation::leaky_relu(b, n),
        "Less" => elementwise::binary(b, n, Binary::Less),
        "LessOrEqual" => elementwise::binary(b, n, Binary::LessOrEqual),
        "Log" => elementwise::unary(b, n, Unary::Log),
        "LogSoftmax" => norms::log_softmax(b, n),
        "LpNormalization" => norms::lp_norm(b, n),
        "MatMul" => linear::matmul(b, n),
        "MatMulInteger" => linear::matmul_integer(b, n),
        "Max" => elementwise::joined(b, n, Binary::Max),
        "Mean" => elementwise::mean(b, n),
        "MeanVarianceNormalization" => norms::mean_variance_norm(b, n),
        "Min" => elementwise::joined(b, n, Binary::Min),
        "Mish" => activation::mish(b, n),
        "Mod" => elementwise::remainder(b, n),
        "Mul" => elementwise::binary(b, n, Binary::Mul),
        "Neg" => elementwise::unary(b, n, Unary::Neg),
        "NegativeLogLikelihoodLoss" => loss::negative_log_likelihood(b, n),
        "NonZero" => indexing::non_zero(b, n),
        "Not" => elementwise::unary(b, n, Unary::Not),
        "OneHot" => indexing::one_hot(b, n),
        "Or" => elementwise::binary(b, n, Binary::Or),
        "PRelu" => activation::parametric_relu(b, n),
        "Pad" => pieces::pad(b, n),
        "Pow" => elementwise::power(b, n),
        "QLinearConv" => quantised::conv(b, n),
        "QLinearMatMul" => quantised::matmul(b, n),
        "QuantizeLinear" => quantised::quantize(b, n),
        "RMSNormalization" => norms::rms_norm(b, n),
        "Range" => shapes::range(b, n),
        "Reciprocal" => elementwise::unary(b, n, Unary::Reciprocal),
        "ReduceL1" => reduce::l1(b, n),
        "ReduceL2" => reduce::l2(b, n),
        "ReduceLogSum" => reduce::log_sum(b, n),
        "ReduceLogSumExp" => reduce::log_sum_exp(b, n),
        "ReduceMax" => reduce::extreme(b, n, Reduction::Max),
        "ReduceMean" => reduce::plain(b, n, Reduction::Mean),
        "ReduceMin" => reduce::extreme(b, n, Reduction::Min),
        "ReduceProd" => reduce::plain(b, n, Reduction::Product),
        "ReduceSum" => reduce::plain(b, n, Reduction::Sum),
        "ReduceSumSquare" => reduce::sum_square(b, n),
        "Relu" => elementwise::unary(b, n, Unary::Relu),
        "Reshape" => movement::reshape(b, n),
        "Resize" => conv::resize(b, n),
        "RotaryEmbedding" => rotary::standard(b, n),
        "Round" => elementwise::unary(b, n, Unary::Round),
        "ScatterElements" => indexing::scatter_elements(b, n),
        "ScatterND" => indexing::scatter_nd(b, n),
        "Selu" => activation::selu(b, n),
        "Shape" => shapes::shape(b, n),
        "Shrink" => activation::shrink(b, n),
        "Sigmoid" => elementwise::unary(b, n, Unary::Sigmoid),
        "Sign" => elementwise::unary(b, n, Unary::Sign),
        "SimplifiedLayerNormalization" => norms::rms_norm(b, n),
        "Sin" => elementwise::unary(b, n, Unary::Sin),
        "Size" => shapes::size(b, n),
        "Slice" => pieces::slice(b, n),
        "Softmax" => norms::softmax(b, n),
        "Softplus" => elementwise::unary(b, n, Unary::Softplus),
        "Softsign" => activation::softsign(b, n),
        "SpaceToDepth" => movement::space_to_depth(b, n),
        "Sqrt" => elementwise::unary(b, n, Unary::Sqrt),
        "Squeeze" => movement::squeeze(b, n),
        "Sub" => elementwise::binary(b, n, Binary::Sub),
        "Sum" => elementwise::joined(b, n, Binary::Add),
        "Swish" => activation::swish(b, n),
        "Tan" => activation::tan(b, n),
        "Tanh" => elementwise::unary(b, n, Unary::Tanh),
        "TensorScatter" => indexing::tensor_scatter(b, n),
        "ThresholdedRelu" => activation::thresholded_relu(b, n),
        "Tile" => pieces::tile(b, n),
        "Transpose" => movement::transpose(b, n),
        "Trilu" => indexing::triangle(b, n),
        "Unsqueeze" => movement::unsqueeze(b, n),
        "Where" => elementwise::choose(b, n),
        "Xor" => elementwise::binary(b, n, Binary::Xor),
        _ => return standard_several(b, n),
    };
    only(n, result?)
}

fn standard_several(b: &mut Builder, n: &OnnxNode) -> Outputs {
    match n.op_type {
        "Attention" => attention::attention(b, n),
        "BatchNormalization" => norms::batch_norm(b, n),
        "CausalConvWithState" => causal_conv::conv(b, n),
        "Dropout" => norms::dropout(b, n),
        "DynamicQuantizeLinear" => {
            let results = quantised::dynamic(b, n.input(0)?)?;
            outputs(n, results.map(Some))
        }
        "LayerNormalization" => norms::layer_norm(b, n),
        "LinearAttention" => linear_attention::attention(b, n),
        "MaxPool" => conv::max_pool(b, n),
        "SoftmaxCrossEntropyLoss" => loss::softmax_cross_entropy(b, n),
        "Split" => pieces::split(b, n),
        "TopK" => reduce::top_k(b, n),
        _ => Err(n.unsupported("the operator")),
    }
}

fn microsoft(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let result = match n.op_type {
        "BiasAdd" => contrib::bias_add(b, n),
        "BiasGelu" => contrib::bias_gelu(b, n),
        "BiasSplitGelu" => contrib::bias_split_gelu(b, n),
        "DequantizeLinear" => quantised::dequantize(b, n),
        "DynamicQuantizeMatMul" => quantised::dynamic_matmul(b, n),
        "FastGelu" => contrib::fast_gelu(b, n),
        "FusedMatMul" => linear::fused_matmul(b, n),
        "Gelu" => elementwise::unary(b, n, Unary::Gelu),
        "MatMulIntegerToFloat" => quantised::matmul_to_float(b, n),
        "MatMulNBits" => linear::matmul_quantised(b, n),
        "MoE" => experts::mixture(b, n),
        "QuantizeLinear" => quantised::quantize(b, n),
        "QuickGelu" => contrib::quick_gelu(b, n),
        "RotaryEmbedding" => rotary::microsoft(b, n),
        "SimplifiedLayerNormalization" => norms::rms_norm(b, n),
        "Attention" => return fused_attention::attention(b, n),
        "CausalConvWithState" => return causal_conv::conv(b, n),
        "EmbedLayerNormalization" => return contrib::embed_layer_norm(b, n),
        "GroupQueryAttention" => return grouped_attention::attention(b, n),
        "LinearAttention" => return linear_attention::attention(b, n),
        "MultiHeadAttention" => return fused_attention::multi_head_attention(b, n),
        "SkipLayerNormalization" => return contrib::skip_layer_norm(b, n),
        "SkipSimplifiedLayerNormalization" => return contrib::skip_rms_norm(b, n),
        _ => return Err(n.unsupported("the operator")),
    };
    only(n, result?)
}

/// The outputs of a node with one result.
fn only(n: &OnnxNode, result: ValueId) -> Outputs {
    outputs(n, [Some(result)])
}

/// The outputs in order, as many as are declared.
fn outputs(n: &OnnxNode, results: impl IntoIterator<Item = Option<ValueId>>) -> Outputs {
    let mut outputs: Vec<_> = results.into_iter().take(n.outputs.len()).collect();
    outputs.resize(n.outputs.len(), None);
    Ok(outputs)
}

/// The dimension that an axis names; negative ones count from the end.
fn dimension(n: &OnnxNode, axis: i64, rank: usize) -> Result<usize> {
    let from_end = if axis < 0 { axis.checked_add_unsigned(extent(rank)) } else { Some(axis) };
    from_end
        .and_then(|axis| usize::try_from(axis).ok())
        .filter(|&dim| dim < rank)
        .ok_or_else(|| n.wrong(format!("axis {axis} of {rank} dimensions")))
}

/// The dimensions that axes name, ascending, each once.
fn dimensions(n: &OnnxNode, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut dims = axes.iter().map(|&axis| dimension(n, axis, rank)).collect::<Result<Vec<_>>>()?;
    dims.sort_unstable();
    if dims.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(n.wrong(format!("axes {axes:?} name a dimension twice")));
    }
    Ok(dims)
}

/// An attribute that is a number.
fn float(n: &OnnxNode, name: &str, default: f64) -> f64 {
    n.float(name).map_or(default, f64::from)
}

/// Whether an attribute is there and not 0.
fn is_set(n: &OnnxNode, name: &str) -> bool {
    n.int(name).is_some_and(|value| value != 0)
}

/// Whether an attribute is there and 0.
fn is_cleared(n: &OnnxNode, name: &str) -> bool {
    n.int(name) == Some(0)
}

/// The element type of a number of the format.
fn element_type(n: &OnnxNode, number: i64) -> Result<DType> {
    let number = i32::try_from(number).unwrap_or(0);
    tensor::dtype(number).map_err(|message| n.unsupported(message))
}

/// An extent as a signed number.
fn signed(extent: u64) -> i64 {
    i64::try_from(extent).unwrap_or(i64::MAX)
}

/// A count as an extent.
fn extent(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// An integer as a number.
#[expect(clippy::cast_precision_loss, reason = "extents and indices are below 2^53")]
fn real(integer: i64) -> f64 {
    integer as f64
}

#[cfg(test)]
mod tests;
