//! Functions of one value that ONNX names and that are spelled out in simpler ones.

use planner_ir::{Binary, Unary, ValueId};

use super::{Result, float};
use crate::builder::Builder;
use crate::node::OnnxNode;

pub(super) fn gelu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let unary = match n.string("approximate").unwrap_or("none") {
        "none" => Unary::Gelu,
        "tanh" => Unary::GeluTanh,
        other => return Err(n.unsupported(format!("approximation `{other}`"))),
    };
    b.unary(unary, n.input(0)?)
}

/// `x sigmoid(alpha x)`.
pub(super) fn swish(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    sigmoid_weighted(b, x, float(n, "alpha", 1.0))
}

/// `x sigmoid(alpha x)`, by name where it has one.
pub(super) fn sigmoid_weighted(b: &mut Builder, x: ValueId, alpha: f64) -> Result<ValueId> {
    const ONE: f64 = 1.0;
    const QUICK: f64 = 1.702;
    // Attributes are rounded to f32.
    if (alpha - ONE).abs() < 1e-6 {
        return b.unary(Unary::Silu, x);
    }
    if (alpha - QUICK).abs() < 1e-6 {
        return b.unary(Unary::GeluQuick, x);
    }
    let scaled = b.with_number(Binary::Mul, x, alpha)?;
    let weight = b.unary(Unary::Sigmoid, scaled)?;
    b.mul(x, weight)
}

/// `max(0, min(1, alpha x + beta))`.
pub(super) fn hard_sigmoid(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let alpha = float(n, "alpha", 0.2);
    let beta = float(n, "beta", 0.5);
    clamped_line(b, n.input(0)?, alpha, beta)
}

/// `x max(0, min(1, x / 6 + 1 / 2))`.
pub(super) fn hard_swish(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let weight = clamped_line(b, x, 1.0 / 6.0, 0.5)?;
    b.mul(x, weight)
}

fn clamped_line(b: &mut Builder, x: ValueId, alpha: f64, beta: f64) -> Result<ValueId> {
    let x = b.with_number(Binary::Mul, x, alpha)?;
    let x = b.with_number(Binary::Add, x, beta)?;
    let x = b.with_number(Binary::Min, x, 1.0)?;
    b.with_number(Binary::Max, x, 0.0)
}

/// `x tanh(softplus(x))`.
pub(super) fn mish(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let y = b.unary(Unary::Softplus, x)?;
    let y = b.unary(Unary::Tanh, y)?;
    b.mul(x, y)
}

/// `x / (1 + |x|)`.
pub(super) fn softsign(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let y = b.unary(Unary::Abs, x)?;
    let y = b.with_number(Binary::Add, y, 1.0)?;
    b.div(x, y)
}

/// `sin(x) / cos(x)`.
pub(super) fn tan(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let sine = b.unary(Unary::Sin, x)?;
    let cosine = b.unary(Unary::Cos, x)?;
    b.div(sine, cosine)
}

pub(super) fn leaky_relu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let scaled = b.with_number(Binary::Mul, x, float(n, "alpha", 0.01))?;
    below_zero(b, x, scaled, x)
}

pub(super) fn parametric_relu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let scaled = b.mul(x, n.input(1)?)?;
    below_zero(b, x, scaled, x)
}

/// `alpha (exp(x) - 1)` below zero, else x.
pub(super) fn elu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let below = exponential(b, x, 1.0, float(n, "alpha", 1.0))?;
    below_zero(b, x, below, x)
}

/// `alpha (exp(x / alpha) - 1)` below zero, else x.
pub(super) fn celu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let alpha = float(n, "alpha", 1.0);
    let below = exponential(b, x, alpha, alpha)?;
    below_zero(b, x, below, x)
}

pub(super) fn selu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let alpha = float(n, "alpha", 1.673_263_192_176_818_8);
    let gamma = float(n, "gamma", 1.050_701_022_148_132_3);
    let x = n.input(0)?;
    let below = exponential(b, x, 1.0, alpha)?;
    let y = below_zero(b, x, below, x)?;
    b.with_number(Binary::Mul, y, gamma)
}

/// x above alpha, else 0.
pub(super) fn thresholded_relu(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let above = b.with_number(Binary::Greater, x, float(n, "alpha", 1.0))?;
    let zero = b.number(x, 0.0)?;
    b.select(above, x, zero)
}

/// `x + bias` below `-lambda`, `x - bias` above `lambda`, 0 between.
pub(super) fn shrink(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let bias = float(n, "bias", 0.0);
    let lambda = float(n, "lambd", 0.5);
    let low = b.with_number(Binary::Less, x, -lambda)?;
    let high = b.with_number(Binary::Greater, x, lambda)?;
    let raised = b.with_number(Binary::Add, x, bias)?;
    let lowered = b.with_number(Binary::Sub, x, bias)?;
    let zero = b.number(x, 0.0)?;
    let rest = b.select(high, lowered, zero)?;
    b.select(low, raised, rest)
}

/// `factor (exp(x / divisor) - 1)`.
fn exponential(b: &mut Builder, x: ValueId, divisor: f64, factor: f64) -> Result<ValueId> {
    let x = b.with_number(Binary::Div, x, divisor)?;
    // What is above zero is not used; it must not overflow in gradients.
    let x = b.with_number(Binary::Min, x, 0.0)?;
    let x = b.unary(Unary::Exp, x)?;
    let x = b.with_number(Binary::Sub, x, 1.0)?;
    b.with_number(Binary::Mul, x, factor)
}

fn below_zero(b: &mut Builder, x: ValueId, below: ValueId, above: ValueId) -> Result<ValueId> {
    let negative = b.with_number(Binary::Less, x, 0.0)?;
    b.select(negative, below, above)
}
