//! Pieces of values, and values of pieces: concatenation, slices, padding, tiles.

use planner_ir::{Edge, Op, Real, ValueId};

use super::{Outputs, Result, dimension, extent, outputs, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

pub(super) fn concat(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let parts = (0..n.inputs.len()).map(|place| n.input(place)).collect::<Result<Vec<_>>>()?;
    let rank = parts.first().map_or(0, |&first| b.rank(first));
    let dim = dimension(n, n.required_int("axis")?, rank)?;
    b.concat(&parts, dim)
}

/// Starts, ends, axes and steps as inputs, or as attributes before opset 10.
pub(super) fn slice(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let list = |place: usize, name: &str| match n.optional(place) {
        Some(list) => b.integers(list).map(Some),
        None => Ok(n.ints(name).map(<[i64]>::to_vec)),
    };
    let missing = || n.wrong("no starts or ends");
    let froms = list(1, "starts")?.ok_or_else(missing)?;
    let tos = list(2, "ends")?.ok_or_else(missing)?;
    let all = (0..signed(extent(froms.len()))).collect();
    let axes = list(3, "axes")?.unwrap_or(all);
    let strides = list(4, "steps")?.unwrap_or_else(|| vec![1; froms.len()]);
    if tos.len() != froms.len() || axes.len() != froms.len() || strides.len() != froms.len() {
        return Err(n.wrong("lists of different lengths"));
    }
    let mut sizes = b.shape(x)?;
    let mut starts = vec![0; sizes.len()];
    let mut steps = vec![1; sizes.len()];
    for (place, &axis) in axes.iter().enumerate() {
        let dim = dimension(n, axis, sizes.len())?;
        // A longer step takes one element, as one of the extent does.
        let longest = signed(sizes[dim]).max(1);
        steps[dim] = strides[place].clamp(-longest, longest);
        (starts[dim], sizes[dim]) =
            taken(sizes[dim], froms[place], tos[place], steps[dim]).ok_or_else(|| n.wrong("a step of 0"))?;
    }
    b.emit1(Op::Slice { starts, steps, sizes }, &[x])
}

/// The first index and the number of indices of `from..to` by `step`, clamped to an extent.
fn taken(size: u64, from: i64, to: i64, step: i64) -> Option<(u64, u64)> {
    let size = signed(size);
    let from_end = |index: i64| if index < 0 { index.saturating_add(size) } else { index };
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let from = from_end(from).clamp(high.min(0), high);
    let to = from_end(to).clamp(low, high);
    let distance = if step > 0 { to - from } else { from - to };
    if step == 0 {
        return None;
    }
    let count = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    let start = if count == 0 { 0 } else { from };
    Some((u64::try_from(start).ok()?, u64::try_from(count).ok()?))
}

/// The sizes as an input, as an attribute before opset 13, or equal ones of which the last may
/// be smaller.
pub(super) fn split(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let x = n.input(0)?;
    let shape = b.shape(x)?;
    let dim = dimension(n, n.int("axis").unwrap_or(0), shape.len())?;
    let sizes = match n.optional(1) {
        Some(sizes) => Some(b.integers(sizes)?),
        None => n.ints("split").map(<[i64]>::to_vec),
    };
    let sizes = match sizes {
        Some(sizes) => sizes.iter().map(|&size| u64::try_from(size).unwrap_or(u64::MAX)).collect(),
        None => {
            let parts = n.int("num_outputs").and_then(|parts| u64::try_from(parts).ok());
            let parts = parts.unwrap_or(extent(n.outputs.len())).max(1);
            let chunk = shape[dim].div_ceil(parts);
            (0..parts).map(|part| chunk.min(shape[dim].saturating_sub(part * chunk))).collect::<Vec<_>>()
        }
    };
    let total = sizes.iter().try_fold(0u64, |sum, &size| sum.checked_add(size));
    if total != Some(shape[dim]) || sizes.len() < n.outputs.len() {
        return Err(n.wrong(format!("parts {sizes:?} of extent {}", shape[dim])));
    }
    let parts = b.split(x, dim, &sizes)?;
    outputs(n, parts.into_iter().map(Some))
}

/// Counts, the number and the axes as inputs, or as attributes before opset 11.
pub(super) fn pad(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let rank = b.rank(x);
    let pads = match n.optional(1) {
        Some(pads) => b.integers(pads)?,
        None => n.required_ints("pads")?.to_vec(),
    };
    let axes = match n.optional(3) {
        Some(axes) => b.integers(axes)?,
        None => (0..signed(extent(rank))).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(n.wrong(format!("{} counts for {} axes", pads.len(), axes.len())));
    }
    let edge = match n.string("mode").unwrap_or("constant") {
        "constant" => {
            let number = match n.optional(2) {
                Some(number) => b.real(number)?,
                None => super::float(n, "value", 0.0),
            };
            Edge::Constant(Real(number))
        }
        "reflect" => Edge::Reflect,
        "edge" => Edge::Repeat,
        "wrap" => Edge::Wrap,
        mode => return Err(n.unsupported(format!("mode `{mode}`"))),
    };
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (place, &axis) in axes.iter().enumerate() {
        let dim = dimension(n, axis, rank)?;
        before[dim] = pads[place];
        after[dim] = pads[axes.len() + place];
    }
    b.emit1(Op::Pad { before, after, edge }, &[x])
}

/// x repeated along each dimension: a new dimension before each, repeated, and joined with it.
pub(super) fn tile(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let shape = b.shape(x)?;
    let repeats = b.integers(n.input(1)?)?;
    let repeats =
        repeats.iter().map(|&count| u64::try_from(count)).collect::<std::result::Result<Vec<_>, _>>();
    let repeats = repeats.map_err(|_| n.wrong("a negative number of repeats"))?;
    if repeats.len() != shape.len() {
        return Err(n.wrong(format!("{} repeats of {} dimensions", repeats.len(), shape.len())));
    }
    let (mut apart, mut repeated, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for (&size, &count) in shape.iter().zip(&repeats) {
        if count != 1 {
            apart.push(1);
            repeated.push(count);
        }
        apart.push(size);
        repeated.push(size);
        joined.push(size.checked_mul(count).ok_or_else(|| n.wrong("too many repeats"))?);
    }
    let y = b.reshape(x, &apart)?;
    let y = b.expand(y, &repeated)?;
    b.reshape(y, &joined)
}
