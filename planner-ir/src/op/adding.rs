//! Operations that add results to operands, or write them where operands are.

use std::borrow::Cow;

use super::{Op, Scatter};
use crate::data::DType;

impl Op {
    /// Which of so many operands sums of products are added to, each with the number of the result. They are the
    /// last ones, in order.
    pub fn addends(&self, operands: usize) -> Vec<(usize, usize)> {
        match self {
            Self::Contract(_) if operands == 3 => vec![(2, 0)],
            Self::ScaledContract { .. } if operands == 5 || operands == 7 => vec![(operands - 1, 0)],
            Self::ExpertsGradient { adds, .. } if adds.len() <= operands => {
                (operands - adds.len()..).zip(adds.iter().copied()).collect()
            }
            _ => vec![],
        }
    }

    /// Which operand the first result takes the place of: nothing else uses it, and of the result only what the
    /// operation changes is written.
    pub fn written(&self) -> Option<usize> {
        match self {
            Self::ScatterElements { scatter: Scatter::Write, .. }
            | Self::ScatterNd { scatter: Scatter::Write } => Some(0),
            _ => None,
        }
    }

    /// The operation without what its results are added to, which is the last of its operands.
    pub fn alone(&self) -> Cow<'_, Self> {
        match self {
            Self::ExpertsGradient { activation, limit, active, adds } if !adds.is_empty() => {
                let (activation, limit, active) = (*activation, *limit, *active);
                Cow::Owned(Self::ExpertsGradient { activation, limit, active, adds: vec![] })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// The operation that adds that result besides to one operand more, the sum being of these elements; nothing if
    /// none does.
    #[must_use]
    pub fn adding(&self, result: usize, elements: DType) -> Option<Self> {
        match self {
            Self::Contract(_) => Some(self.clone()),
            Self::ScaledContract { contract, .. } => {
                Some(Self::ScaledContract { contract: contract.clone(), to: elements })
            }
            Self::ExpertsGradient { activation, limit, active, adds } => {
                let (activation, limit, active) = (*activation, *limit, *active);
                let mut adds = adds.clone();
                adds.push(result);
                adds.sort_unstable();
                Some(Self::ExpertsGradient { activation, limit, active, adds })
            }
            _ => None,
        }
    }
}
