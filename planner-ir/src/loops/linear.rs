//! Which operands may be addends of a sum owed.

use crate::data::{DType, Type};
use crate::op::{Attention, Binary, Edge, Interpolation, Op, Reduction, Resize, Scatter, Unary};

impl Op {
    /// The sets of operands in which the results are jointly linear.
    pub(super) fn linear(&self, operands: &[Type], results: &[Type]) -> Vec<Vec<usize>> {
        let float = results.iter().all(|it| it.dtype.is_float());
        if operands.is_empty() || results.iter().any(|it| !it.dtype.has_sums()) {
            return vec![];
        }
        match self {
            Self::Unary(Unary::Neg)
            | Self::Reshape { .. }
            | Self::Transpose { .. }
            | Self::Expand { .. }
            | Self::Slice { .. }
            | Self::Gather { .. }
            | Self::GatherElements { .. }
            | Self::GatherNd { .. }
            | Self::Triangle { .. }
            | Self::CumSum { .. } => vec![vec![0]],
            Self::Cast(_) if float && operands[0].dtype.is_float() => vec![vec![0]],
            Self::Cast(to) if narrows(&operands[0], &Type::new(*to, [])) => vec![vec![0]],
            Self::Resize(Resize { interpolation: Interpolation::Linear, .. }) if !float => vec![],
            Self::Resize(_) => vec![vec![0]],
            Self::Pad { before, after, edge: Edge::Constant(value) } => {
                let cuts = before.iter().chain(after).all(|&count| count <= 0);
                if cuts || value.0.to_bits() == 0 { vec![vec![0]] } else { vec![] }
            }
            Self::Pad { .. } => vec![vec![0]],
            Self::Binary(Binary::Add | Binary::Sub) => vec![vec![0, 1]],
            Self::Binary(Binary::Mul) => vec![vec![0], vec![1]],
            Self::Contract(_) if operands.len() == 3 => vec![vec![0, 2], vec![1, 2]],
            Self::Contract(_) => vec![vec![0], vec![1]],
            Self::Binary(Binary::Div) if float => vec![vec![0]],
            // Exponents say powers; the sum of numbers of 8 bits is none.
            Self::ScaledContract { .. } => {
                let (one, addends) =
                    (|it: &usize| operands[*it].dtype == DType::F32, self.addends(operands.len()));
                let scales = (2..operands.len() / 2 * 2).filter(one);
                scales.map(|it| [it].into_iter().chain(addends.iter().map(|it| it.0)).collect()).collect()
            }
            Self::Select => vec![vec![1, 2]],
            Self::Gated(_) => vec![vec![1]],
            Self::Reduce { reduction: Reduction::Sum, .. } => vec![vec![0]],
            Self::Reduce { reduction: Reduction::Mean, .. } if float => vec![vec![0]],
            Self::LayerNorm { .. } | Self::InstanceNorm { .. } => vec![(1..operands.len()).collect()],
            Self::RmsNorm { .. } => vec![vec![1]],
            Self::Rotary(_) => vec![vec![0], vec![1, 2]],
            Self::Concat { .. } => vec![(0..operands.len()).collect()],
            Self::ScatterElements { scatter, .. } | Self::ScatterNd { scatter } => match scatter {
                Scatter::Add | Scatter::Replace | Scatter::Write => vec![vec![0, 2]],
                Scatter::Mul => vec![vec![0]],
                Scatter::Max | Scatter::Min => vec![],
            },
            Self::Attention(Attention { statistics: false, .. }) => vec![vec![2]],
            Self::Conv(_) if operands.len() == 2 => vec![vec![0], vec![1]],
            Self::Conv(_) => vec![vec![0, 2], vec![1, 2]],
            // The gates, the last product, and the ungated half of gated units if nothing else is done to it.
            Self::Experts { limit: None, .. } if operands.len() < 7 => {
                (1..operands.len()).filter(|&it| it != 2).map(|it| vec![it]).collect()
            }
            Self::Experts { .. } => vec![vec![1], vec![4]],
            // Values with the state before; without a delta rule, keys with it too.
            Self::Recurrence(it) if it.gradient().is_some() => {
                let state = it.operands() - 1;
                if it.replaces() { vec![vec![2, state]] } else { vec![vec![1, state], vec![2, state]] }
            }
            Self::Recurrence(it) => vec![vec![it.operands(), it.operands() + 1]],
            Self::Dequantize { .. } => vec![vec![1]],
            Self::UnaryGradient(_) | Self::SoftmaxGradient { .. } | Self::GatherGradient { .. } => {
                vec![vec![1]]
            }
            Self::GatedGradient(_) | Self::CrossEntropyGradient { .. } => vec![vec![2]],
            Self::LayerNormGradient { .. } | Self::RmsNormGradient { .. } => vec![vec![1], vec![2]],
            Self::AttentionGradient { .. } => vec![vec![5]],
            Self::RotaryGradient(_) => vec![vec![0], vec![1, 2]],
            Self::ConvInputGradient { .. } | Self::ConvWeightGradient { .. } => vec![vec![0], vec![1]],
            // The gradient of what they made, and what is added to.
            Self::ExpertsGradient { adds, .. } => {
                vec![(operands.len() - adds.len() - 1..operands.len()).collect()]
            }
            _ => vec![],
        }
    }

    /// The operands that are added to a sum once, each with the number of the result.
    pub(super) fn added(&self, operands: &[Type]) -> Vec<(usize, usize)> {
        match self {
            Self::Conv(_) if operands.len() == 3 => vec![(2, 0)],
            Self::ScatterElements { scatter: Scatter::Add, .. }
            | Self::ScatterNd { scatter: Scatter::Add } => vec![(0, 0)],
            _ => self.addends(operands.len()),
        }
    }
}

/// Whether a conversion keeps the low bits of integers, and with them sums.
fn narrows(from: &Type, to: &Type) -> bool {
    let integer = |it: &Type| !it.dtype.is_float() && it.dtype.has_sums();
    integer(from) && integer(to) && to.dtype.bytes() <= from.dtype.bytes()
}
