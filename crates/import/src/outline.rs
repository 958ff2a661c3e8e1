//! Types some of whose extents depend on data, and what operations make of them.

use planner_ir::{Binary, DType, Op, Type, Unary};

/// A type whose number of dimensions is known, and some extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) dtype: DType,
    /// The extent of each dimension, where it does not depend on data.
    pub(crate) extents: Vec<Option<u64>>,
}

impl From<&Type> for Outline {
    fn from(type_: &Type) -> Self {
        Self { dtype: type_.dtype, extents: type_.shape.iter().copied().map(Some).collect() }
    }
}

impl Outline {
    pub(crate) fn new(dtype: DType, extents: Vec<Option<u64>>) -> Self {
        Self { dtype, extents }
    }

    pub(crate) fn rank(&self) -> usize {
        self.extents.len()
    }
}

/// The results of an operation whose attributes say no extents; `None` for the other operations,
/// and for operands that cannot fit.
pub(crate) fn infer(op: &Op, operands: &[Outline]) -> Option<Vec<Outline>> {
    let first = operands.first()?;
    let second = operands.get(1);
    let like = |dtype: DType, extents: &[Option<u64>]| Some(vec![Outline::new(dtype, extents.to_vec())]);
    match op {
        Op::Unary(Unary::IsNan | Unary::IsInf | Unary::Not) => like(DType::Bool, &first.extents),
        Op::Unary(_) | Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::CumSum { .. } => {
            like(first.dtype, &first.extents)
        }
        Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::Triangle { .. } => like(first.dtype, &first.extents),
        Op::Cast(dtype) => like(*dtype, &first.extents),
        Op::Binary(binary) => like(result_dtype(*binary, first.dtype), &broadcast(operands)?),
        Op::Gated(_) => like(first.dtype, &broadcast(operands)?),
        Op::Select => like(second?.dtype, &broadcast(operands)?),
        Op::Transpose { permutation } => {
            let extents: Option<Vec<_>> =
                permutation.iter().map(|&dim| first.extents.get(dim).copied()).collect();
            like(first.dtype, &extents?)
        }
        Op::Reduce { dims, .. } => like(first.dtype, &kept(&first.extents, dims)?),
        Op::ArgExtreme { dim, .. } => like(DType::I64, &kept(&first.extents, &[*dim])?),
        Op::Concat { dim } => like(first.dtype, &concat(*dim, operands)?),
        Op::Gather { dim } => {
            let mut extents = first.extents.clone();
            if *dim >= extents.len() {
                return None;
            }
            extents.splice(*dim..=*dim, second?.extents.iter().copied());
            like(first.dtype, &extents)
        }
        Op::GatherElements { .. } => like(first.dtype, &second?.extents),
        Op::GatherNd { batch_dims } => {
            let indices = &second?.extents;
            let depth = usize::try_from((*indices.last()?)?).ok()?;
            let mut extents = indices[..indices.len() - 1].to_vec();
            extents.extend_from_slice(first.extents.get(batch_dims.checked_add(depth)?..)?);
            like(first.dtype, &extents)
        }
        Op::ScatterElements { .. } | Op::ScatterNd { .. } => like(first.dtype, &first.extents),
        Op::Contract(contract) => {
            let right = second?;
            let extent = |label| {
                let from = |labels: &[_], outline: &Outline| {
                    let dim = labels.iter().position(|it| *it == label)?;
                    outline.extents.get(dim).copied()
                };
                let (a, b) = (from(&contract.left, first), from(&contract.right, right));
                Some(a.flatten().or(b.flatten())).filter(|_| a.is_some() || b.is_some())
            };
            let extents: Option<Vec<_>> = contract.result.iter().map(|&label| extent(label)).collect();
            like(first.dtype, &extents?)
        }
        Op::CrossEntropy { .. } => like(first.dtype, &second?.extents),
        Op::TopK { dim, k, .. } => {
            let mut extents = first.extents.clone();
            *extents.get_mut(*dim)? = Some(*k);
            Some(vec![Outline::new(first.dtype, extents.clone()), Outline::new(DType::I64, extents)])
        }
        // Results by attributes, or operations that import does not make of what depends on data.
        Op::Constant { .. }
        | Op::Fill { .. }
        | Op::Iota { .. }
        | Op::InstanceNorm { .. }
        | Op::Attention(_)
        | Op::AttentionMerge
        | Op::Recurrence(_)
        | Op::Rotary(_)
        | Op::Reshape { .. }
        | Op::Expand { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Conv(_)
        | Op::Resize(_)
        | Op::Experts { .. }
        | Op::Dequantize { .. }
        | Op::Dropout { .. }
        | Op::RoundStochastically { .. }
        | Op::Amax { .. }
        | Op::Quantize { .. }
        | Op::QuantizeBlocks { .. }
        | Op::QuantizeNvfp4(_)
        | Op::Remember
        | Op::ScaledContract { .. }
        | Op::UnaryGradient(_)
        | Op::GatedGradient(_)
        | Op::SoftmaxGradient { .. }
        | Op::LayerNormGradient { .. }
        | Op::RmsNormGradient { .. }
        | Op::AttentionGradient { .. }
        | Op::RotaryGradient(_)
        | Op::GatherGradient { .. }
        | Op::ConvInputGradient { .. }
        | Op::ConvWeightGradient { .. }
        | Op::CrossEntropyGradient { .. }
        | Op::ExpertsGradient { .. }
        | Op::Update(_)
        | Op::Region(_)
        | Op::Dynamic(_) => None,
    }
}

/// What shapes broadcast to. An unknown extent beside one that is not 1 must be that or 1.
pub(crate) fn broadcast(operands: &[Outline]) -> Option<Vec<Option<u64>>> {
    let rank = operands.iter().map(Outline::rank).max()?;
    let mut extents = vec![Some(1); rank];
    for operand in operands {
        let offset = rank - operand.rank();
        for (dim, &extent) in operand.extents.iter().enumerate() {
            let target = &mut extents[offset + dim];
            *target = match (*target, extent) {
                (Some(1), other) | (other, Some(1)) => other,
                (None, other) | (other, None) => other,
                (Some(a), Some(b)) if a == b => Some(a),
                _ => return None,
            };
        }
    }
    Some(extents)
}

fn result_dtype(binary: Binary, dtype: DType) -> DType {
    match binary {
        Binary::Equal | Binary::Greater | Binary::GreaterOrEqual | Binary::Less | Binary::LessOrEqual => {
            DType::Bool
        }
        Binary::Add
        | Binary::And
        | Binary::Div
        | Binary::Max
        | Binary::Min
        | Binary::Mod
        | Binary::Fmod
        | Binary::Mul
        | Binary::Or
        | Binary::Pow
        | Binary::Sub
        | Binary::Xor => dtype,
    }
}

fn kept(extents: &[Option<u64>], dims: &[usize]) -> Option<Vec<Option<u64>>> {
    let mut extents = extents.to_vec();
    for &dim in dims {
        *extents.get_mut(dim)? = Some(1);
    }
    Some(extents)
}

fn concat(dim: usize, operands: &[Outline]) -> Option<Vec<Option<u64>>> {
    let mut extents = operands.first()?.extents.clone();
    for operand in &operands[1..] {
        if operand.rank() != extents.len() {
            return None;
        }
        for (index, &extent) in operand.extents.iter().enumerate() {
            extents[index] = if index == dim {
                extents[index].zip(extent).and_then(|(a, b)| a.checked_add(b))
            } else {
                extents[index].or(extent)
            };
        }
    }
    (dim < extents.len()).then_some(extents)
}

#[cfg(test)]
mod tests;
