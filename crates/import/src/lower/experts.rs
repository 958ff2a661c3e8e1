//! ONNX Runtime's mixture of experts.

use planner_ir::{Extreme, Op, Reduction, Scatter, Unary, ValueId};

use super::{Result, is_set};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// Tokens, scores of the experts, and for each of up to three linear layers weights and a bias.
pub(super) fn mixture(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    if [3, 5, 7].iter().any(|&place| n.optional(place).is_some()) {
        return Err(n.unsupported("biases of experts"));
    }
    if n.int("swiglu_fusion").unwrap_or(0) != 0 {
        return Err(n.unsupported("gates and units in one weight"));
    }
    let activation = match n.string("activation_type").unwrap_or("relu") {
        "relu" => Unary::Relu,
        // ONNX Runtime's experts approximate it.
        "gelu" => Unary::GeluTanh,
        "silu" => Unary::Silu,
        other => return Err(n.unsupported(format!("activation `{other}`"))),
    };
    let (x, scores) = (n.input(0)?, n.input(1)?);
    let shape = b.shape(x)?;
    let Some((&width, tokens)) = shape.split_last() else {
        return Err(n.wrong("a scalar"));
    };
    let tokens = tokens.iter().product();
    let x = b.reshape(x, &[tokens, width])?;
    let active = u64::try_from(n.int("k").unwrap_or(1)).map_err(|_| n.wrong("a negative k"))?;
    let gates = gates(b, n, scores, active)?;

    let down = n.input(4)?;
    let mut operands = vec![x, gates, units_first(b, n, n.input(2)?, down, width)?];
    if let Some(gate) = n.optional(6) {
        operands.push(units_first(b, n, gate, down, width)?);
    }
    operands.push(down_last(b, down, width)?);
    let y = b.emit1(Op::Experts { activation, limit: None, active }, &operands)?;
    b.reshape(y, &shape)
}

/// For each token the weights of its best experts, and 0 for the others.
fn gates(b: &mut Builder, n: &OnnxNode, scores: ValueId, active: u64) -> Result<ValueId> {
    let shares = b.softmax(scores, 1)?;
    let best = b.emit(Op::TopK { dim: 1, k: active, extreme: Extreme::Largest }, &[shares])?;
    let &[mut weights, places] = best.as_slice() else {
        return Err(n.wrong("no best experts"));
    };
    if is_set(n, "normalize_routing_weights") {
        let sum = b.reduce(Reduction::Sum, weights, &[1])?;
        weights = b.div(weights, sum)?;
    }
    let none = b.filled(b.dtype(scores), b.shape(scores)?, 0.0)?;
    let op = Op::ScatterElements { dim: 1, scatter: Scatter::Replace };
    b.emit1(op, &[none, places, weights])
}

/// Weights as `[experts, units, width]`. Older files have `[experts, width, units]`.
fn units_first(
    b: &mut Builder,
    n: &OnnxNode,
    weights: ValueId,
    down: ValueId,
    width: u64,
) -> Result<ValueId> {
    let [_, rows, columns] = b.extents(weights)?;
    let [_, down_rows, down_columns] = b.extents(down)?;
    if columns == width && down_rows == width {
        return Ok(weights);
    }
    if rows == width && down_columns == width {
        return b.transpose(weights, &[0, 2, 1]);
    }
    Err(n.unsupported(format!("experts of {rows} by {columns} and {down_rows} by {down_columns}")))
}

/// Weights as `[experts, width, units]`.
fn down_last(b: &mut Builder, down: ValueId, width: u64) -> Result<ValueId> {
    let [_, rows, _] = b.extents(down)?;
    if rows == width { Ok(down) } else { b.transpose(down, &[0, 2, 1]) }
}
