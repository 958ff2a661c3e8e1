//! Each operation by name, with attributes that a text sets.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::attribute::Named;
use crate::data::{DType, Real, Type};
use crate::op::{
    Attention, Binary, Blind, Contract, Conv, Dynamic, Edge, Extreme, Interpolation, Nvfp4, Op, Optimizer,
    Pairing, Recurrence, Reduction, Region, Resize, Scatter, Triangle, Unary,
};

/// Each operation by name, its attributes to be set.
pub(super) static BLANK: LazyLock<BTreeMap<&'static str, Op>> = LazyLock::new(|| {
    let ops = blank_ops().into_iter().chain(blank_dynamic().map(Op::Dynamic));
    let unaries = Unary::NAMES.iter().map(|&(_, it)| Op::Unary(it));
    let binaries = Binary::NAMES.iter().map(|&(_, it)| Op::Binary(it));
    let reductions = Reduction::NAMES.iter().map(|&(_, reduction)| Op::Reduce { reduction, dims: vec![] });
    let recurrences = Recurrence::NAMES.iter().map(|&(_, it)| Op::Recurrence(it));
    ops.chain(recurrences)
        .chain(unaries)
        .chain(binaries)
        .chain(reductions)
        .map(|op| (op.name(), op))
        .collect()
});

fn blank_ops() -> Vec<Op> {
    let dtype = DType::F32;
    let result = || Type::new(dtype, []);
    let zero = Real(0.0);
    let contract = Contract { left: vec![], right: vec![], result: vec![] };
    let attention = Attention {
        scale: zero,
        causal: false,
        softcap: zero,
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let conv = Conv { strides: vec![], dilations: vec![], before: vec![], after: vec![], groups: 1 };
    let interpolation = Interpolation::Linear;
    let resize = Resize { shape: vec![], scales: vec![], half_pixel: false, interpolation };
    vec![
        Op::Constant { result: result(), data: vec![] },
        Op::Fill { result: result(), value: zero },
        Op::Iota { dtype, length: 0, start: zero, step: zero },
        Op::Select,
        Op::Cast(dtype),
        Op::Gated(Unary::Silu),
        Op::Contract(contract.clone()),
        Op::Amax { parts: vec![], rotated: None },
        Op::Quantize { to: dtype, parts: None },
        Op::Remember,
        Op::QuantizeBlocks { to: dtype, dim: 0, block: 0 },
        Op::QuantizeNvfp4(Nvfp4::default()),
        Op::ScaledContract { contract, to: dtype },
        Op::ArgExtreme { extreme: Extreme::Largest, dim: 0 },
        Op::Softmax { dim: 0 },
        Op::LogSoftmax { dim: 0 },
        Op::LayerNorm { dims: 0, epsilon: zero },
        Op::RmsNorm { dims: 0, epsilon: zero },
        Op::InstanceNorm { epsilon: zero },
        Op::Attention(attention),
        Op::AttentionMerge,
        Op::Rotary(Pairing::Halves),
        Op::Reshape { shape: vec![] },
        Op::Transpose { permutation: vec![] },
        Op::Expand { shape: vec![] },
        Op::Concat { dim: 0 },
        Op::Slice { starts: vec![], steps: vec![], sizes: vec![] },
        Op::Pad { before: vec![], after: vec![], edge: Edge::Wrap },
        Op::Gather { dim: 0 },
        Op::GatherElements { dim: 0 },
        Op::GatherNd { batch_dims: 0 },
        Op::ScatterElements { dim: 0, scatter: Scatter::Add },
        Op::ScatterNd { scatter: Scatter::Add },
        Op::Triangle { triangle: Triangle::Lower, diagonal: 0 },
        Op::CumSum { dim: 0, exclusive: false, reverse: false },
        Op::TopK { dim: 0, k: 0, extreme: Extreme::Largest },
        Op::Conv(conv.clone()),
        Op::ConvInputGradient { conv: conv.clone(), spatial: vec![] },
        Op::ConvWeightGradient { conv, window: vec![] },
        Op::Resize(resize),
        Op::CrossEntropy { ignored: 0 },
        Op::Experts { activation: Unary::Silu, limit: None, active: 0 },
        Op::Dequantize { bits: 0, block: 0, columns: 0 },
        Op::Dropout { ratio: zero, seed: 0 },
        Op::RoundStochastically { seed: 0 },
        Op::UnaryGradient(Unary::Silu),
        Op::GatedGradient(Unary::Silu),
        Op::SoftmaxGradient { dim: 0 },
        Op::LayerNormGradient { dims: 0, epsilon: zero },
        Op::RmsNormGradient { dims: 0, epsilon: zero },
        Op::AttentionGradient { attention, mask: false },
        Op::RotaryGradient(Pairing::Halves),
        Op::GatherGradient { dim: 0, extent: 0 },
        Op::CrossEntropyGradient { ignored: 0 },
        Op::ExpertsGradient { activation: Unary::Silu, limit: None, active: 0, adds: vec![] },
        Op::Update(Optimizer::Sgd { decay: zero }),
        Op::Update(Optimizer::Momentum { momentum: zero, decay: zero }),
        Op::Update(Optimizer::AdamW { beta1: zero, beta2: zero, epsilon: zero, decay: zero }),
        Op::Region(Box::new(blank_region())),
    ]
}

fn blank_dynamic() -> impl Iterator<Item = Dynamic> {
    let region = || Box::new(blank_region());
    [
        Dynamic::Shape,
        Dynamic::NonZero,
        Dynamic::Reshape { zero_is_zero: false },
        Dynamic::Expand,
        Dynamic::Slice,
        Dynamic::Range,
        Dynamic::Fill { dtype: DType::F32, value: Real(0.0) },
        Dynamic::Split { dim: 0 },
        Dynamic::TopK { dim: 0, extreme: Extreme::Largest },
        Dynamic::Tile,
        Dynamic::Unsqueeze { dims: vec![] },
        Dynamic::Squeeze { dims: vec![] },
        Dynamic::If { yes: region(), no: region() },
        Dynamic::Loop { states: 0, body: region() },
    ]
    .into_iter()
}

fn blank_region() -> Region {
    Region { operands: 0, nodes: vec![], results: vec![], types: vec![] }
}
