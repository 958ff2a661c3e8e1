//! Operators of ONNX Runtime that are several standard ones.

use planner_ir::{DType, Reduction, Unary, ValueId};

use super::{Outputs, Result, activation, float, norms, outputs};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The norm of a sum; the sum itself is the fourth output.
pub(super) fn skip_layer_norm(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let sum = skipped(b, n, n.optional(4))?;
    let epsilon = float(n, "epsilon", 1e-12);
    let y = norms::scaled_norm(b, sum, (n.input(2)?, n.optional(3)), 1, epsilon)?;
    let (mut mean, mut deviation) = (None, None);
    if n.wants(1) || n.wants(2) {
        let moments = norms::moments(b, sum, 1, epsilon)?;
        (mean, deviation) = (Some(moments.0), Some(moments.1));
    }
    outputs(n, [Some(y), mean, deviation, Some(sum)])
}

/// The norm by the root of the mean square of a sum; the sum itself is the fourth output.
pub(super) fn skip_rms_norm(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let sum = skipped(b, n, n.optional(3))?;
    let epsilon = float(n, "epsilon", 1e-12);
    let y = norms::scaled_rms(b, sum, n.input(2)?, 1, epsilon)?;
    let (mut mean, mut deviation) = (None, None);
    if n.wants(1) || n.wants(2) {
        let moments = norms::moments(b, sum, 1, epsilon)?;
        (mean, deviation) = (Some(moments.0), Some(moments.1));
    }
    outputs(n, [Some(y), mean, deviation, Some(sum)])
}

/// x and what skipped a layer, with a bias.
fn skipped(b: &mut Builder, n: &OnnxNode, bias: Option<ValueId>) -> Result<ValueId> {
    let sum = b.add(n.input(0)?, n.input(1)?)?;
    match bias {
        Some(bias) => b.add(sum, bias),
        None => Ok(sum),
    }
}

pub(super) fn bias_gelu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let sum = b.add(n.input(0)?, n.input(1)?)?;
    b.unary(Unary::Gelu, sum)
}

/// The approximation by a hyperbolic tangent; a bias may be added before.
pub(super) fn fast_gelu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let x = match n.optional(1) {
        Some(bias) => b.add(x, bias)?,
        None => x,
    };
    b.unary(Unary::GeluTanh, x)
}

pub(super) fn quick_gelu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    activation::sigmoid_weighted(b, n.input(0)?, float(n, "alpha", 1.702))
}

/// x, a bias for its last dimension, and what skipped a layer.
pub(super) fn bias_add(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let sum = b.add(n.input(0)?, n.input(1)?)?;
    b.add(sum, n.input(2)?)
}

/// The first half of the last dimension times the gelu of the second, after a bias.
pub(super) fn bias_split_gelu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let sum = b.add(n.input(0)?, n.input(1)?)?;
    let shape = b.shape(sum)?;
    let half = shape.last().map_or(0, |&width| width / 2);
    let last = shape.len().saturating_sub(1);
    let parts = b.split(sum, last, &[half, half])?;
    let gate = b.unary(Unary::Gelu, parts[1])?;
    b.mul(parts[0], gate)
}

/// The norm of the sum of the embeddings of words, positions and segments; the lengths of the
/// sequences; and the sum itself.
pub(super) fn embed_layer_norm(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let ids = n.input(0)?;
    let [batch, length] = b.extents(ids)?;
    let words = b.gather(n.input(2)?, ids, 0)?;
    let positions = match n.optional(8) {
        Some(positions) => b.gather(n.input(3)?, positions, 0)?,
        None => b.slice(n.input(3)?, 0, 0, length)?,
    };
    let mut sum = b.add(words, positions)?;
    if let (Some(segments), Some(table)) = (n.optional(1), n.optional(4)) {
        let segments = b.gather(table, segments, 0)?;
        sum = b.add(sum, segments)?;
    }
    let epsilon = float(n, "epsilon", 1e-12);
    let y = norms::scaled_norm(b, sum, (n.input(5)?, Some(n.input(6)?)), 1, epsilon)?;
    let lengths = match n.optional(7) {
        Some(mask) => {
            let mask = b.cast(mask, DType::I32)?;
            let lengths = b.reduce(Reduction::Sum, mask, &[1])?;
            b.squeeze(lengths, &[1])?
        }
        None => b.filled(DType::I32, [batch], 0.0)?,
    };
    outputs(n, [Some(y), Some(lengths), Some(sum)])
}
