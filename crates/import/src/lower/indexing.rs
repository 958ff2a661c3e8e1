//! Reading and writing at indices.

use planner_ir::{Binary, DType, Op, Scatter, Triangle, ValueId};

use super::{Result, dimension, extent, is_cleared, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

pub(super) fn gather(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let dim = dimension(n, n.int("axis").unwrap_or(0), b.rank(x))?;
    b.gather(x, n.input(1)?, dim)
}

pub(super) fn gather_elements(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let dim = dimension(n, n.int("axis").unwrap_or(0), b.rank(x))?;
    b.emit1(Op::GatherElements { dim }, &[x, n.input(1)?])
}

pub(super) fn gather_nd(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let batch_dims = usize::try_from(n.int("batch_dims").unwrap_or(0));
    let batch_dims = batch_dims.map_err(|_| n.wrong("a negative number of batch dimensions"))?;
    b.emit1(Op::GatherNd { batch_dims }, &[n.input(0)?, n.input(1)?])
}

fn scatter(n: &OnnxNode) -> Result<Scatter> {
    Ok(match n.string("reduction").unwrap_or("none") {
        "none" => Scatter::Replace,
        "add" => Scatter::Add,
        "mul" => Scatter::Mul,
        "max" => Scatter::Max,
        "min" => Scatter::Min,
        reduction => return Err(n.unsupported(format!("reduction `{reduction}`"))),
    })
}

pub(super) fn scatter_elements(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let dim = dimension(n, n.int("axis").unwrap_or(0), b.rank(x))?;
    let op = Op::ScatterElements { dim, scatter: scatter(n)? };
    b.emit1(op, &[x, n.input(1)?, n.input(2)?])
}

pub(super) fn scatter_nd(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let op = Op::ScatterNd { scatter: scatter(n)? };
    b.emit1(op, &[n.input(0)?, n.input(1)?, n.input(2)?])
}

/// The places of elements that are not zero, if the elements are known: `[rank, count]`.
pub(super) fn non_zero(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let elements = b.reals(x)?;
    let shape = b.shape(x)?;
    let there: Vec<_> =
        (0..).zip(&elements).filter(|(_, element)| element.abs() > 0.0 || element.is_nan()).collect();
    let mut places = Vec::new();
    for dim in 0..shape.len() {
        let stride: u64 = shape[dim + 1..].iter().product();
        places.extend(there.iter().map(|(place, _)| signed(place / stride % shape[dim])));
    }
    let list = b.list(&places)?;
    b.reshape(list, &[extent(shape.len()), extent(there.len())])
}

/// The second of two values where an index is met along a new dimension, else the first.
pub(super) fn one_hot(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (indices, depth, values) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let rank = b.rank(indices) + 1;
    let dim = dimension(n, n.int("axis").unwrap_or(-1), rank)?;
    let depth = b.cast(depth, DType::I64)?;
    let depth = b.integer(depth)?;
    let length = u64::try_from(depth).map_err(|_| n.wrong(format!("depth {depth}")))?;
    let indices = b.cast(indices, DType::I64)?;
    let negative = b.with_number(Binary::Less, indices, 0.0)?;
    let from_end = b.with_number(Binary::Add, indices, real(depth))?;
    let indices = b.select(negative, from_end, indices)?;
    let indices = b.unsqueeze(indices, &[dim])?;
    let iota = b.iota(DType::I64, length)?;
    let mut along = vec![1; rank];
    along[dim] = length;
    let iota = b.reshape(iota, &along)?;
    let met = b.binary(Binary::Equal, indices, iota)?;
    let mut value = |start: u64| {
        let one = b.slice(values, 0, start, 1)?;
        b.reshape(one, &[])
    };
    let (off, on) = (value(0)?, value(1)?);
    b.select(met, on, off)
}

pub(super) fn triangle(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let triangle = if is_cleared(n, "upper") { Triangle::Lower } else { Triangle::Upper };
    let diagonal = match n.optional(1) {
        Some(diagonal) => b.integer(diagonal)?,
        None => 0,
    };
    b.emit1(Op::Triangle { triangle, diagonal }, &[n.input(0)?])
}

/// A cache with an update written into it, from an index of each batch element on.
pub(super) fn tensor_scatter(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (cache, update) = (n.input(0)?, n.input(1)?);
    let shape = b.shape(cache)?;
    let dim = dimension(n, n.int("axis").unwrap_or(-2), shape.len())?;
    if dim == 0 {
        return Err(n.wrong("the batch as axis"));
    }
    let starts = match n.optional(2) {
        Some(starts) => b.cast(starts, DType::I64)?,
        None => b.filled(DType::I64, [shape[0]], 0.0)?,
    };
    let wrap = match n.string("mode").unwrap_or("linear") {
        "linear" => None,
        "circular" => Some(shape[dim]),
        mode => return Err(n.unsupported(format!("mode `{mode}`"))),
    };
    write_from(b, cache, update, starts, dim, wrap)
}

/// `cache` with `update` written from index `starts[batch]` on along a dimension; indices are
/// taken modulo `wrap` if it is given.
pub(super) fn write_from(
    b: &mut Builder,
    cache: ValueId,
    update: ValueId,
    starts: ValueId,
    dim: usize,
    wrap: Option<u64>,
) -> Result<ValueId> {
    let shape = b.shape(update)?;
    if shape.len() != b.rank(cache) {
        return Err(b.wrong(format!("an update of {} dimensions, of {}", shape.len(), b.rank(cache))));
    }
    let (mut batch, mut along) = (vec![1; shape.len()], vec![1; shape.len()]);
    (batch[0], along[dim]) = (shape[0], shape[dim]);
    let iota = b.iota(DType::I64, shape[dim])?;
    let iota = b.reshape(iota, &along)?;
    let starts = b.reshape(starts, &batch)?;
    let mut indices = b.add(starts, iota)?;
    if let Some(wrap) = wrap {
        indices = b.with_number(Binary::Mod, indices, real(signed(wrap)))?;
    }
    let indices = b.expand(indices, &shape)?;
    b.emit1(Op::ScatterElements { dim, scatter: Scatter::Replace }, &[cache, indices, update])
}
