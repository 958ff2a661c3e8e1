//! Losses: the classes are dimension 1 of the scores.

use planner_ir::{Binary, Op, Reduction, Unary, ValueId};

use super::{Outputs, Result, outputs, real};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// A label that no position has.
const NEVER: i64 = i64::MIN;

pub(super) fn softmax_cross_entropy(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let (scores, labels) = (n.input(0)?, n.input(1)?);
    let rank = b.rank(scores);
    if rank < 2 {
        return Err(n.wrong("scores without classes"));
    }
    let mut classes_last: Vec<_> = (0..rank).collect();
    classes_last[1..].rotate_left(1);
    let rows = b.transpose(scores, &classes_last)?;
    let ignored = n.int("ignore_index").unwrap_or(NEVER);
    let loss = b.emit1(Op::CrossEntropy { ignored }, &[rows, labels])?;
    let loss = reduced(b, n, loss, labels)?;
    let logarithms = match n.wants(1) {
        true => Some(b.emit1(Op::LogSoftmax { dim: 1 }, &[scores])?),
        false => None,
    };
    outputs(n, [Some(loss), logarithms])
}

/// The score of each label, negated.
pub(super) fn negative_log_likelihood(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (scores, labels) = (n.input(0)?, n.input(1)?);
    let (counted, safe) = counted(b, n, labels)?;
    let indices = b.unsqueeze(safe, &[1])?;
    let picked = b.emit1(Op::GatherElements { dim: 1 }, &[scores, indices])?;
    let picked = b.squeeze(picked, &[1])?;
    let mut loss = b.unary(Unary::Neg, picked)?;
    if let Some(counted) = counted {
        let zero = b.number(loss, 0.0)?;
        loss = b.select(counted, loss, zero)?;
    }
    reduced(b, n, loss, labels)
}

/// Whether each label counts, if some may not, and the labels with 0 in place of those.
fn counted(b: &mut Builder, n: &OnnxNode, labels: ValueId) -> Result<(Option<ValueId>, ValueId)> {
    let Some(ignored) = n.int("ignore_index") else { return Ok((None, labels)) };
    let ignored = b.with_number(Binary::Equal, labels, real(ignored))?;
    let counted = b.unary(Unary::Not, ignored)?;
    let zero = b.number(labels, 0.0)?;
    Ok((Some(counted), b.select(counted, labels, zero)?))
}

/// The loss of all positions, each times the weight of its label: as it is, its sum, or its sum
/// divided by that of the weights.
fn reduced(b: &mut Builder, n: &OnnxNode, loss: ValueId, labels: ValueId) -> Result<ValueId> {
    let dtype = b.dtype(loss);
    let (counted, safe) = counted(b, n, labels)?;
    let mut weights = match n.optional(2) {
        Some(weights) => Some(b.gather(weights, safe, 0)?),
        None => None,
    };
    if let (Some(all), Some(counted)) = (weights, counted) {
        let zero = b.number(all, 0.0)?;
        weights = Some(b.select(counted, all, zero)?);
    }
    let weighted = match weights {
        Some(weights) => b.mul(loss, weights)?,
        None => loss,
    };
    match n.string("reduction").unwrap_or("mean") {
        "none" => Ok(weighted),
        "sum" => total(b, weighted, Reduction::Sum),
        "mean" => {
            let number = match (weights, counted) {
                (Some(weights), _) => weights,
                (None, Some(counted)) => b.cast(counted, dtype)?,
                (None, None) => return total(b, weighted, Reduction::Mean),
            };
            let sum = total(b, weighted, Reduction::Sum)?;
            let number = total(b, number, Reduction::Sum)?;
            b.div(sum, number)
        }
        reduction => Err(n.unsupported(format!("reduction `{reduction}`"))),
    }
}

/// One number for all elements, without dimensions.
fn total(b: &mut Builder, x: ValueId, reduction: Reduction) -> Result<ValueId> {
    let dims: Vec<_> = (0..b.rank(x)).collect();
    let y = b.reduce(reduction, x, &dims)?;
    b.reshape(y, &[])
}
