//! Steps of optimisers, as ONNX defines them.

use planner_ir::{Binary, Unary, ValueId};

use super::{Outputs, Result, float, outputs};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The new values of all variables, then of each kind of state.
///
/// Operands are the rate, the number of the step, all variables, all gradients, and all of each
/// kind of state.
pub(super) fn step(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let kinds = match n.op_type {
        "Adagrad" | "Momentum" => 3,
        "Adam" => 4,
        _ => return Err(n.unsupported("the operator")),
    };
    let given = n.inputs.len().saturating_sub(2);
    if given == 0 || !given.is_multiple_of(kinds) {
        return Err(n.wrong(format!("{given} operands, expected a multiple of {kinds}")));
    }
    let variables = given / kinds;
    let mut results = vec![Vec::new(); kinds - 1];
    for variable in 0..variables {
        let operand = |kind: usize| n.input(2 + kind * variables + variable);
        let (x, gradient) = (operand(0)?, operand(1)?);
        let decay = b.with_number(Binary::Mul, x, float(n, "norm_coefficient", 0.0))?;
        let gradient = b.add(decay, gradient)?;
        let new = match n.op_type {
            "Adagrad" => adagrad(b, n, x, gradient, operand(2)?)?,
            "Momentum" => momentum(b, n, x, gradient, operand(2)?)?,
            _ => adam(b, n, x, gradient, [operand(2)?, operand(3)?])?,
        };
        for (kind, value) in results.iter_mut().zip(new) {
            kind.push(Some(value));
        }
    }
    outputs(n, results.into_iter().flatten())
}

/// The rate and the number of the step, as numbers of the variable's type.
fn rate_and_step(b: &mut Builder, n: &OnnxNode, x: ValueId) -> Result<(ValueId, ValueId)> {
    let mut number = |place: usize| -> Result<ValueId> {
        let number = b.cast(n.input(place)?, b.dtype(x))?;
        b.reshape(number, &[])
    };
    Ok((number(0)?, number(1)?))
}

/// `x - r g / (sqrt(h) + epsilon)` with `h` the sum of squares so far and `r` the decayed rate.
fn adagrad(
    b: &mut Builder,
    n: &OnnxNode,
    x: ValueId,
    gradient: ValueId,
    squares: ValueId,
) -> Result<Vec<ValueId>> {
    let (rate, step) = rate_and_step(b, n, x)?;
    let decay = b.with_number(Binary::Mul, step, float(n, "decay_factor", 0.0))?;
    let decay = b.with_number(Binary::Add, decay, 1.0)?;
    let rate = b.div(rate, decay)?;
    let square = b.mul(gradient, gradient)?;
    let squares = b.add(squares, square)?;
    let moved = b.mul(rate, gradient)?;
    Ok(vec![towards(b, n, x, moved, squares)?, squares])
}

/// `x - moved / (sqrt(squares) + epsilon)`.
fn towards(b: &mut Builder, n: &OnnxNode, x: ValueId, moved: ValueId, squares: ValueId) -> Result<ValueId> {
    let root = b.unary(Unary::Sqrt, squares)?;
    let root = b.with_number(Binary::Add, root, float(n, "epsilon", 1e-6))?;
    let moved = b.div(moved, root)?;
    b.sub(x, moved)
}

/// `x - rate v` with `v = alpha v + beta g`, or `x - rate (g + alpha v)` by Nesterov; beta is 1 in
/// the first step.
fn momentum(
    b: &mut Builder,
    n: &OnnxNode,
    x: ValueId,
    gradient: ValueId,
    velocity: ValueId,
) -> Result<Vec<ValueId>> {
    let (rate, step) = rate_and_step(b, n, x)?;
    let alpha = float(n, "alpha", 0.0);
    let later = b.with_number(Binary::Greater, step, 0.0)?;
    let (beta, one) = (b.number(x, float(n, "beta", 1.0))?, b.number(x, 1.0)?);
    let beta = b.select(later, beta, one)?;
    let kept = b.with_number(Binary::Mul, velocity, alpha)?;
    let new = b.mul(beta, gradient)?;
    let velocity = b.add(kept, new)?;
    let direction = match n.required_string("mode")? {
        "standard" => velocity,
        "nesterov" => {
            let ahead = b.with_number(Binary::Mul, velocity, alpha)?;
            b.add(gradient, ahead)?
        }
        mode => return Err(n.unsupported(format!("mode `{mode}`"))),
    };
    let moved = b.mul(rate, direction)?;
    Ok(vec![b.sub(x, moved)?, velocity])
}

/// `x - r v / (sqrt(h) + epsilon)`, then decayed, with running means v of the gradient and h of
/// its square; `r = rate sqrt(1 - beta^t) / (1 - alpha^t)` after the first step.
fn adam(
    b: &mut Builder,
    n: &OnnxNode,
    x: ValueId,
    gradient: ValueId,
    state: [ValueId; 2],
) -> Result<Vec<ValueId>> {
    let (rate, step) = rate_and_step(b, n, x)?;
    let (alpha, beta) = (float(n, "alpha", 0.9), float(n, "beta", 0.999));
    let square = b.mul(gradient, gradient)?;
    let velocity = running(b, state[0], gradient, alpha)?;
    let squares = running(b, state[1], square, beta)?;
    let mut rest = |factor: f64| -> Result<ValueId> {
        let (one, factor) = (b.number(x, 1.0)?, b.number(x, factor)?);
        let power = b.binary(Binary::Pow, factor, step)?;
        b.sub(one, power)
    };
    let (first, second) = (rest(alpha)?, rest(beta)?);
    let second = b.unary(Unary::Sqrt, second)?;
    let adjusted = b.mul(rate, second)?;
    let adjusted = b.div(adjusted, first)?;
    let later = b.with_number(Binary::Greater, step, 0.0)?;
    let rate = b.select(later, adjusted, rate)?;
    let moved = b.mul(rate, velocity)?;
    let x = towards(b, n, x, moved, squares)?;
    let x = b.with_number(Binary::Mul, x, 1.0 - float(n, "norm_coefficient_post", 0.0))?;
    Ok(vec![x, velocity, squares])
}

/// `factor old + (1 - factor) new`.
fn running(b: &mut Builder, old: ValueId, new: ValueId, factor: f64) -> Result<ValueId> {
    let old = b.with_number(Binary::Mul, old, factor)?;
    let new = b.with_number(Binary::Mul, new, 1.0 - factor)?;
    b.add(old, new)
}
