//! Gradients of functions of elements.

use super::{Emit, Gradients, NoGradient, Site};
use crate::data::Real;
use crate::graph::ValueId;
use crate::op::{Binary, Op, Reduction, Unary};

pub(super) fn unary(unary: Unary, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    if !unary.is_smooth() {
        let name = Op::Unary(unary).name();
        return NoGradient::new(format!("`{name}` is a step function: its gradient is zero or undefined"));
    }
    site.each(emit, |emit, _, dy| {
        let gradient = match unary {
            Unary::Neg => emit.one(Op::Unary(Unary::Neg), &[dy]),
            _ => emit.one(Op::UnaryGradient(unary), &[site.operands[0], dy]),
        };
        Ok(Some(gradient))
    })
}

pub(super) fn binary(binary: Binary, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let (a, b, y) = (site.operands[0], site.operands[1], site.results[0]);
    let apply = |emit: &mut Emit<'_>, binary: Binary, a, b| emit.one(Op::Binary(binary), &[a, b]);
    let negated = |emit: &mut Emit<'_>, it| emit.one(Op::Unary(Unary::Neg), &[it]);
    site.each(emit, |emit, operand, dy| {
        let raw = match (binary, operand) {
            (Binary::Add, _) | (Binary::Sub | Binary::Fmod | Binary::Mod, 0) => dy,
            (Binary::Sub, _) => negated(emit, dy),
            (Binary::Mul, 0) => apply(emit, Binary::Mul, dy, b),
            (Binary::Mul, _) => apply(emit, Binary::Mul, dy, a),
            (Binary::Div, 0) => apply(emit, Binary::Div, dy, b),
            (Binary::Div, _) => {
                // y = a / b: dy/db = -y / b.
                let product = apply(emit, Binary::Mul, dy, y);
                let quotient = apply(emit, Binary::Div, product, b);
                negated(emit, quotient)
            }
            (Binary::Pow, 0) => {
                // dy/da = b a^(b - 1), and 0 where b = 0, whatever a is.
                let dtype = emit.type_of(a).dtype;
                let b = emit.one(Op::Cast(dtype), &[b]);
                let [one, zero] = [1.0, 0.0].map(|number| emit.number(dtype, number));
                let less = apply(emit, Binary::Sub, b, one);
                let power = apply(emit, Binary::Pow, a, less);
                let slope = apply(emit, Binary::Mul, b, power);
                let constant = apply(emit, Binary::Equal, b, zero);
                let slope = emit.one(Op::Select, &[constant, zero, slope]);
                apply(emit, Binary::Mul, dy, slope)
            }
            (Binary::Pow, _) => {
                // dy/db = y log a, and 0 where a = 0 and b ≥ 0: y stays what it is.
                let base = emit.type_of(a).dtype;
                let [one, zero] = [1.0, 0.0].map(|number| emit.number(base, number));
                let power = emit.one(Op::Cast(base), &[b]);
                let is_zero = apply(emit, Binary::Equal, a, zero);
                let at_least = apply(emit, Binary::GreaterOrEqual, power, zero);
                let flat = apply(emit, Binary::And, is_zero, at_least);
                let inner = emit.one(Op::Select, &[flat, one, a]);
                let log = emit.one(Op::Unary(Unary::Log), &[inner]);
                let slope = apply(emit, Binary::Mul, y, log);
                let product = apply(emit, Binary::Mul, dy, slope);
                let dtype = emit.type_of(b).dtype;
                emit.one(Op::Cast(dtype), &[product])
            }
            (Binary::Max, 0) | (Binary::Min, 1) => share(emit, a, b, dy),
            (Binary::Max, _) | (Binary::Min, _) => share(emit, b, a, dy),
            _ => {
                let name = Op::Binary(binary).name();
                return NoGradient::new(format!("`{name}` has no gradient towards operand {operand}"));
            }
        };
        let shape = emit.type_of(site.operands[operand]).shape;
        Ok(Some(emit.gathered(raw, &shape)))
    })
}

/// The gradient where `it` is greater than `other`, and half of it where they are equal (so that
/// both together get all of it).
fn share(emit: &mut Emit<'_>, it: ValueId, other: ValueId, dy: ValueId) -> ValueId {
    let dtype = emit.type_of(dy).dtype;
    let [all, half, zero] = [1.0, 0.5, 0.0].map(|number| emit.number(dtype, number));
    let greater = emit.one(Op::Binary(Binary::Greater), &[it, other]);
    let equal = emit.one(Op::Binary(Binary::Equal), &[it, other]);
    let otherwise = emit.one(Op::Select, &[equal, half, zero]);
    let part = emit.one(Op::Select, &[greater, all, otherwise]);
    emit.one(Op::Binary(Binary::Mul), &[dy, part])
}

pub(super) fn select(site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, operand, dy| {
        if operand == 0 {
            return Ok(None);
        }
        let dtype = emit.type_of(dy).dtype;
        let zero = emit.number(dtype, 0.0);
        let condition = site.operands[0];
        let chosen = if operand == 1 { [condition, dy, zero] } else { [condition, zero, dy] };
        let raw = emit.one(Op::Select, &chosen);
        let shape = emit.type_of(site.operands[operand]).shape;
        Ok(Some(emit.gathered(raw, &shape)))
    })
}

pub(super) fn cast(site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, _, dy| {
        let dtype = emit.type_of(site.operands[0]).dtype;
        Ok(dtype.is_float().then(|| emit.one(Op::Cast(dtype), &[dy])))
    })
}

pub(super) fn gated(unary: Unary, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let (a, b) = (site.operands[0], site.operands[1]);
    if emit.type_of(a) == emit.type_of(b) {
        let Some(dy) = site.gradient() else { return Ok(vec![None, None]) };
        emit.phase = site.joint_phase();
        let both = emit.all(Op::GatedGradient(unary), &[a, b, dy]);
        return Ok(site.among(&[0, 1], &both));
    }
    site.each(emit, |emit, operand, dy| {
        let raw = if operand == 0 {
            let dy = emit.one(Op::Binary(Binary::Mul), &[dy, b]);
            let shape = emit.type_of(dy).shape;
            let a = emit.expanded(a, &shape);
            emit.one(Op::UnaryGradient(unary), &[a, dy])
        } else {
            let a = emit.one(Op::Unary(unary), &[a]);
            emit.one(Op::Binary(Binary::Mul), &[a, dy])
        };
        let shape = emit.type_of(site.operands[operand]).shape;
        Ok(Some(emit.gathered(raw, &shape)))
    })
}

pub(super) fn dropout(ratio: Real, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, operand, dy| {
        if operand != 0 {
            return Ok(None);
        }
        let dtype = emit.type_of(dy).dtype;
        let scale = emit.number(dtype, 1.0 / (1.0 - ratio.0));
        let zero = emit.number(dtype, 0.0);
        let scaled = emit.one(Op::Binary(Binary::Mul), &[dy, scale]);
        Ok(Some(emit.one(Op::Select, &[site.results[1], scaled, zero])))
    })
}

pub(super) fn reduce(
    reduction: Reduction,
    dims: &[usize],
    site: &Site<'_>,
    emit: &mut Emit<'_>,
) -> Gradients {
    let (x, y) = (site.operands[0], site.results[0]);
    site.each(emit, |emit, _, dy| {
        let type_ = emit.type_of(x);
        let mul = |emit: &mut Emit<'_>, a, b| emit.one(Op::Binary(Binary::Mul), &[a, b]);
        let gradient = match reduction {
            Reduction::Sum => emit.expanded(dy, &type_.shape),
            Reduction::Mean => {
                let count: u64 = dims.iter().map(|&dim| type_.shape[dim]).product();
                let share = emit.number(type_.dtype, 1.0 / count_as_real(count));
                let each = mul(emit, dy, share);
                emit.expanded(each, &type_.shape)
            }
            Reduction::Product => {
                // The product of all the others: 0 if one of them is, else that of all that are
                // not 0, without the element itself.
                let [one, zero] = [1.0, 0.0].map(|number| emit.number(type_.dtype, number));
                let is_zero = emit.one(Op::Binary(Binary::Equal), &[x, zero]);
                let nonzero = emit.one(Op::Select, &[is_zero, one, x]);
                let over = |reduction| Op::Reduce { reduction, dims: dims.to_vec() };
                let product = emit.one(over(Reduction::Product), &[nonzero]);
                let is_zero = emit.one(Op::Cast(type_.dtype), &[is_zero]);
                let zeros = emit.one(over(Reduction::Sum), &[is_zero]);
                let others = emit.one(Op::Binary(Binary::Sub), &[zeros, is_zero]);
                let none = emit.one(Op::Binary(Binary::Equal), &[others, zero]);
                let without = emit.one(Op::Binary(Binary::Div), &[product, nonzero]);
                let slope = emit.one(Op::Select, &[none, without, zero]);
                mul(emit, dy, slope)
            }
            Reduction::Max | Reduction::Min => {
                // Equal extremes share it.
                let is = emit.one(Op::Binary(Binary::Equal), &[x, y]);
                let is = emit.one(Op::Cast(type_.dtype), &[is]);
                let sum = Op::Reduce { reduction: Reduction::Sum, dims: dims.to_vec() };
                let count = emit.one(sum, &[is]);
                let each = emit.one(Op::Binary(Binary::Div), &[dy, count]);
                mul(emit, is, each)
            }
        };
        Ok(Some(gradient))
    })
}

#[expect(clippy::cast_precision_loss, reason = "no extent reaches 2^53")]
fn count_as_real(count: u64) -> f64 {
    count as f64
}
