//! The same elements in another shape or order.

use planner_ir::ValueId;

use super::{Result, dimension, dimensions, extent, is_set, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The largest extent of a block of pixels.
const LARGEST_BLOCK: u64 = 1024;

/// To a shape in which -1 is inferred, and 0 copies an extent unless `allowzero` is set.
pub(super) fn reshape(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let target = match n.optional(1) {
        Some(target) => b.integers(target)?,
        None => n.required_ints("shape")?.to_vec(),
    };
    let shape = b.shape(x)?;
    let copies = !is_set(n, "allowzero");
    let mut result = Vec::with_capacity(target.len());
    let mut open = None;
    for (dim, &size) in target.iter().enumerate() {
        result.push(match size {
            0 if copies => *shape.get(dim).ok_or_else(|| n.wrong(format!("no extent {dim} to copy")))?,
            -1 if open.is_none() => {
                open = Some(dim);
                1
            }
            size => u64::try_from(size).map_err(|_| n.wrong(format!("shape {target:?}")))?,
        });
    }
    if let Some(open) = open {
        let rest = result.iter().try_fold(1u64, |rest, &size| rest.checked_mul(size)).unwrap_or(0);
        let elements: u64 = shape.iter().product();
        if rest == 0 || !elements.is_multiple_of(rest) {
            return Err(n.wrong(format!("shape {shape:?} does not fit {target:?}")));
        }
        result[open] = elements / rest;
    }
    b.reshape(x, &result)
}

/// To a matrix: the dimensions before the axis, and the others.
pub(super) fn flatten(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let shape = b.shape(x)?;
    let axis = n.int("axis").unwrap_or(1);
    let rank = shape.len();
    let split = if axis == signed(extent(rank)) { rank } else { dimension(n, axis, rank)? };
    let (before, after) = shape.split_at(split);
    b.reshape(x, &[before.iter().product(), after.iter().product()])
}

/// Axes as an input, or as an attribute before opset 13.
fn axes(b: &Builder, n: &OnnxNode) -> Result<Option<Vec<i64>>> {
    match n.optional(1) {
        Some(axes) => Ok(Some(b.integers(axes)?)),
        None => Ok(n.ints("axes").map(<[i64]>::to_vec)),
    }
}

pub(super) fn squeeze(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let shape = b.shape(x)?;
    let dims = match axes(b, n)? {
        Some(axes) => dimensions(n, &axes, shape.len())?,
        None => (0..shape.len()).filter(|&dim| shape[dim] == 1).collect(),
    };
    if dims.iter().any(|&dim| shape[dim] != 1) {
        return Err(n.wrong(format!("dimensions {dims:?} of shape {shape:?} are not all 1")));
    }
    b.squeeze(x, &dims)
}

pub(super) fn unsqueeze(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let axes = axes(b, n)?.ok_or_else(|| n.wrong("no axes"))?;
    let dims = dimensions(n, &axes, b.rank(x) + axes.len())?;
    b.unsqueeze(x, &dims)
}

pub(super) fn transpose(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let rank = b.rank(x);
    let permutation = match n.ints("perm") {
        Some(axes) => axes.iter().map(|&axis| dimension(n, axis, rank)).collect::<Result<_>>()?,
        None => (0..rank).rev().collect::<Vec<_>>(),
    };
    b.transpose(x, &permutation)
}

/// To the shape that x and the given one broadcast to.
pub(super) fn expand(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let target = b.integers(n.input(1)?)?;
    let target = target.iter().map(|&size| u64::try_from(size)).collect::<std::result::Result<Vec<_>, _>>();
    let mut target = target.map_err(|_| n.wrong("a negative extent"))?;
    let shape = b.shape(x)?;
    while target.len() < shape.len() {
        target.insert(0, 1);
    }
    let offset = target.len() - shape.len();
    for (dim, &size) in shape.iter().enumerate() {
        if target[offset + dim] == 1 {
            target[offset + dim] = size;
        }
    }
    b.expand(x, &target)
}

/// Blocks of channels become blocks of pixels.
pub(super) fn depth_to_space(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let block = block_size(n)?;
    let [batch, channels, height, width] = b.extents(x)?;
    let depth = channels / (block * block);
    let (blocks, permutation) = match n.string("mode").unwrap_or("DCR") {
        "DCR" => ([batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]),
        mode => return Err(n.unsupported(format!("mode `{mode}`"))),
    };
    let y = b.reshape(x, &blocks)?;
    let y = b.transpose(y, &permutation)?;
    b.reshape(y, &[batch, depth, height * block, width * block])
}

/// Blocks of pixels become blocks of channels.
pub(super) fn space_to_depth(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let block = block_size(n)?;
    let [batch, channels, height, width] = b.extents(x)?;
    let permutation = match n.string("mode").unwrap_or("DCR") {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        mode => return Err(n.unsupported(format!("mode `{mode}`"))),
    };
    let (rows, columns) = (height / block, width / block);
    let y = b.reshape(x, &[batch, channels, rows, block, columns, block])?;
    let y = b.transpose(y, &permutation)?;
    b.reshape(y, &[batch, channels * block * block, rows, columns])
}

fn block_size(n: &OnnxNode) -> Result<u64> {
    let block = n.required_int("blocksize")?;
    let sane = u64::try_from(block).ok().filter(|block| (1..=LARGEST_BLOCK).contains(block));
    sane.ok_or_else(|| n.wrong(format!("blocks of {block}, expected 1 to {LARGEST_BLOCK}")))
}
