//! Sums, extremes and other numbers along dimensions.

use planner_ir::{Binary, DType, Extreme, Op, Reduction, Unary, ValueId};

use super::{Outputs, Result, dimension, dimensions, is_cleared, is_set, outputs, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The dimensions that are reduced: axes as an input, or as an attribute in older operator sets;
/// none given means all, or none at all where the node says so.
fn reduced(b: &Builder, n: &OnnxNode) -> Result<Vec<usize>> {
    let rank = b.rank(n.input(0)?);
    let axes = match n.optional(1) {
        Some(axes) => b.integers(axes)?,
        None => n.ints("axes").unwrap_or(&[]).to_vec(),
    };
    if axes.is_empty() {
        let noop = is_set(n, "noop_with_empty_axes");
        return Ok(if noop { Vec::new() } else { (0..rank).collect() });
    }
    dimensions(n, &axes, rank)
}

/// Without the reduced dimensions, unless they are kept.
fn shaped(b: &mut Builder, n: &OnnxNode, y: ValueId, dims: &[usize]) -> Result<ValueId> {
    if is_cleared(n, "keepdims") { b.squeeze(y, dims) } else { Ok(y) }
}

pub(super) fn plain(b: &mut Builder, n: &OnnxNode, reduction: Reduction) -> Result<ValueId> {
    let dims = reduced(b, n)?;
    let y = b.reduce(reduction, n.input(0)?, &dims)?;
    shaped(b, n, y, &dims)
}

/// An extreme; of truth values too.
pub(super) fn extreme(b: &mut Builder, n: &OnnxNode, reduction: Reduction) -> Result<ValueId> {
    let x = n.input(0)?;
    if b.dtype(x) != DType::Bool {
        return plain(b, n, reduction);
    }
    let dims = reduced(b, n)?;
    let x = b.cast(x, DType::U8)?;
    let y = b.reduce(reduction, x, &dims)?;
    let y = shaped(b, n, y, &dims)?;
    b.cast(y, DType::Bool)
}

/// The sum of what a function makes of the elements.
fn sum_of(b: &mut Builder, n: &OnnxNode, x: ValueId) -> Result<ValueId> {
    let dims = reduced(b, n)?;
    let y = b.reduce(Reduction::Sum, x, &dims)?;
    shaped(b, n, y, &dims)
}

pub(super) fn l1(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let size = b.unary(Unary::Abs, n.input(0)?)?;
    sum_of(b, n, size)
}

pub(super) fn sum_square(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let square = b.mul(x, x)?;
    sum_of(b, n, square)
}

pub(super) fn l2(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let sum = sum_square(b, n)?;
    as_float(b, sum, Unary::Sqrt)
}

pub(super) fn log_sum(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let sum = sum_of(b, n, n.input(0)?)?;
    as_float(b, sum, Unary::Log)
}

/// A function that is computed on floating-point numbers only.
fn as_float(b: &mut Builder, x: ValueId, unary: Unary) -> Result<ValueId> {
    let dtype = b.dtype(x);
    let float = if dtype.is_float() { dtype } else { DType::F64 };
    let y = b.cast(x, float)?;
    let y = b.unary(unary, y)?;
    b.cast(y, dtype)
}

/// `log sum exp(x - max) + max`, with a maximum that is finite.
pub(super) fn log_sum_exp(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let dims = reduced(b, n)?;
    let (x, dtype) = (n.input(0)?, b.dtype(n.input(0)?));
    let x = if dtype.is_float() { x } else { b.cast(x, DType::F64)? };
    let max = b.reduce(Reduction::Max, x, &dims)?;
    let infinite = b.unary(Unary::IsInf, max)?;
    let zero = b.number(x, 0.0)?;
    let max = b.select(infinite, zero, max)?;
    let shifted = b.sub(x, max)?;
    let powers = b.unary(Unary::Exp, shifted)?;
    let sum = b.reduce(Reduction::Sum, powers, &dims)?;
    let y = b.unary(Unary::Log, sum)?;
    let y = b.add(y, max)?;
    let y = b.cast(y, dtype)?;
    shaped(b, n, y, &dims)
}

/// The place of the extreme; of equal ones the first, or the last where the node says so.
pub(super) fn arg_extreme(b: &mut Builder, n: &OnnxNode, extreme: Extreme) -> Result<ValueId> {
    let x = n.input(0)?;
    let dim = dimension(n, n.int("axis").unwrap_or(0), b.rank(x))?;
    let place = if is_set(n, "select_last_index") {
        let shape = b.shape(x)?;
        let backward = reversed(b, x, dim)?;
        let place = b.emit1(Op::ArgExtreme { extreme, dim }, &[backward])?;
        let last = b.number(place, real(signed(shape[dim]) - 1))?;
        b.sub(last, place)?
    } else {
        b.emit1(Op::ArgExtreme { extreme, dim }, &[x])?
    };
    shaped(b, n, place, &[dim])
}

/// The elements along a dimension from the last to the first.
fn reversed(b: &mut Builder, x: ValueId, dim: usize) -> Result<ValueId> {
    let sizes = b.shape(x)?;
    let (mut starts, mut steps) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    (starts[dim], steps[dim]) = (sizes[dim].saturating_sub(1), -1);
    b.emit1(Op::Slice { starts, steps, sizes }, &[x])
}

/// 1 at the first of the largest elements along a dimension, else 0.
pub(super) fn hardmax(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    if n.opset < 13 {
        return Err(n.unsupported("the form of opset 13"));
    }
    let shape = b.shape(x)?;
    let dim = dimension(n, n.int("axis").unwrap_or(-1), shape.len())?;
    let place = b.emit1(Op::ArgExtreme { extreme: Extreme::Largest, dim }, &[x])?;
    let iota = b.iota(DType::I64, shape[dim])?;
    let mut along = vec![1; shape.len()];
    along[dim] = shape[dim];
    let iota = b.reshape(iota, &along)?;
    let equal = b.binary(Binary::Equal, place, iota)?;
    b.cast(equal, b.dtype(x))
}

/// Running sums; the axis is an input.
pub(super) fn running_sum(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let dim = dimension(n, b.integer(n.input(1)?)?, b.rank(x))?;
    let op = Op::CumSum { dim, exclusive: is_set(n, "exclusive"), reverse: is_set(n, "reverse") };
    b.emit1(op, &[x])
}

pub(super) fn top_k(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let x = n.input(0)?;
    let dim = dimension(n, n.int("axis").unwrap_or(-1), b.rank(x))?;
    let k = match n.optional(1) {
        Some(k) => b.integer(k)?,
        None => n.required_int("k")?,
    };
    let k = u64::try_from(k).map_err(|_| n.wrong(format!("k is {k}")))?;
    let extreme = if is_cleared(n, "largest") { Extreme::Smallest } else { Extreme::Largest };
    let results = b.emit(Op::TopK { dim, k, extreme }, &[x])?;
    outputs(n, results.into_iter().map(Some))
}
