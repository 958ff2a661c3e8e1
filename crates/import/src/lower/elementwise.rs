//! Functions of elements.

use planner_ir::{Binary, Unary, ValueId};

use super::{Result, extent, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

pub(super) fn unary(b: &mut Builder, n: &OnnxNode, unary: Unary) -> Result<ValueId> {
    b.unary(unary, n.input(0)?)
}

pub(super) fn binary(b: &mut Builder, n: &OnnxNode, binary: Binary) -> Result<ValueId> {
    b.binary(binary, n.input(0)?, n.input(1)?)
}

/// The floor or the fraction, by attribute.
pub(super) fn remainder(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let kind = if n.int("fmod").unwrap_or(0) == 0 { Binary::Mod } else { Binary::Fmod };
    binary(b, n, kind)
}

/// A power; the exponent may have any element type.
pub(super) fn power(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    binary(b, n, Binary::Pow)
}

/// All operands, one after another.
pub(super) fn joined(b: &mut Builder, n: &OnnxNode, binary: Binary) -> Result<ValueId> {
    let mut result = n.input(0)?;
    for place in 1..n.inputs.len() {
        result = b.binary(binary, result, n.input(place)?)?;
    }
    Ok(result)
}

pub(super) fn mean(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let sum = joined(b, n, Binary::Add)?;
    b.with_number(Binary::Div, sum, real(signed(extent(n.inputs.len()))))
}

/// Not below the second input and then not above the third; attributes before opset 11.
pub(super) fn clip(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let mut bound = |place: usize, name: &str| match (n.optional(place), n.float(name)) {
        (None, Some(bound)) => b.number(x, bound.into()).map(Some),
        (bound, _) => Ok(bound),
    };
    let (low, high) = (bound(1, "min")?, bound(2, "max")?);
    let raised = match low {
        Some(low) => scalar_bound(b, Binary::Max, x, low)?,
        None => x,
    };
    match high {
        Some(high) => scalar_bound(b, Binary::Min, raised, high),
        None => Ok(raised),
    }
}

/// Bounds are scalars, and some exporters write them as `[1]`.
fn scalar_bound(b: &mut Builder, binary: Binary, x: ValueId, bound: ValueId) -> Result<ValueId> {
    let bound = b.reshape(bound, &[])?;
    b.binary(binary, x, bound)
}

pub(super) fn choose(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    b.select(n.input(0)?, n.input(1)?, n.input(2)?)
}

/// Infinities of the signs that the attributes name.
pub(super) fn is_inf(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let infinite = b.unary(Unary::IsInf, x)?;
    let positive = n.int("detect_positive").unwrap_or(1) != 0;
    let negative = n.int("detect_negative").unwrap_or(1) != 0;
    let sign = match (positive, negative) {
        (true, true) => return Ok(infinite),
        (true, false) => b.with_number(Binary::Greater, x, 0.0)?,
        (false, true) => b.with_number(Binary::Less, x, 0.0)?,
        (false, false) => b.binary(Binary::Xor, infinite, infinite)?,
    };
    b.binary(Binary::And, infinite, sign)
}
