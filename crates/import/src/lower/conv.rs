//! Convolution, pooling and resampling.

use planner_ir::{Binary, Conv, Edge, Interpolation, Op, Real, Reduction, Resize, ValueId};

use super::{Outputs, Result, dimension, dimensions, extent, is_set, only, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The largest number that says how windows lie.
const LARGEST: u64 = 1 << 30;

/// The largest window of a pool (elements): each is a slice of the operand.
const LARGEST_WINDOW: u64 = 1024;

/// Where windows lie, for each spatial dimension.
struct Windows {
    sizes: Vec<u64>,
    strides: Vec<u64>,
    dilations: Vec<u64>,
    before: Vec<u64>,
    after: Vec<u64>,
}

impl Windows {
    /// The windows of a node over these spatial extents.
    fn of(n: &OnnxNode, spatial: &[u64], sizes: Vec<u64>) -> Result<Self> {
        let dims = spatial.len();
        let list = |name: &str, count: usize, default: u64| {
            let Some(list) = n.ints(name) else { return Ok(vec![default; count]) };
            let sane = |it: i64| u64::try_from(it).ok().filter(|&it| it <= LARGEST);
            let numbers: Option<Vec<_>> = list.iter().map(|&it| sane(it)).collect();
            let numbers = numbers.filter(|numbers| numbers.len() == count);
            numbers.ok_or_else(|| n.wrong(format!("{name} {list:?} for {dims} dimensions")))
        };
        let strides = list("strides", dims, 1)?;
        let dilations = list("dilations", dims, 1)?;
        if sizes.len() != dims
            || strides.contains(&0)
            || dilations.contains(&0)
            || sizes.iter().any(|size| !(1..=LARGEST).contains(size))
        {
            return Err(n.wrong(format!("windows {sizes:?} over {dims} dimensions")));
        }
        let mut pads = list("pads", 2 * dims, 0)?;
        let mode = n.string("auto_pad").unwrap_or("NOTSET");
        for dim in 0..dims {
            let span = dilations[dim] * (sizes[dim] - 1) + 1;
            let wanted = spatial[dim].div_ceil(strides[dim]).saturating_sub(1) * strides[dim] + span;
            let total = wanted.saturating_sub(spatial[dim]);
            (pads[dim], pads[dims + dim]) = match mode {
                "NOTSET" => (pads[dim], pads[dims + dim]),
                "VALID" => (0, 0),
                "SAME_UPPER" => (total / 2, total - total / 2),
                "SAME_LOWER" => (total - total / 2, total / 2),
                mode => return Err(n.unsupported(format!("padding `{mode}`"))),
            };
            if pads[dim] + spatial[dim] + pads[dims + dim] < span {
                return Err(n.wrong(format!("a window of {span} over {}", spatial[dim])));
            }
        }
        let after = pads.split_off(dims);
        Ok(Self { sizes, strides, dilations, before: pads, after })
    }

    /// How many windows there are along a spatial dimension.
    fn count(&self, dim: usize, size: u64) -> u64 {
        let span = self.dilations[dim] * (self.sizes[dim] - 1) + 1;
        (self.before[dim] + size + self.after[dim] - span) / self.strides[dim] + 1
    }
}

/// The extents after the batch and the channels.
fn spatial(b: &Builder, n: &OnnxNode, x: ValueId) -> Result<Vec<u64>> {
    let shape = b.shape(x)?;
    match shape.get(2..) {
        Some(spatial) if !spatial.is_empty() => Ok(spatial.to_vec()),
        _ => Err(n.wrong(format!("shape {shape:?}, expected spatial dimensions"))),
    }
}

pub(super) fn conv(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let conv = attributes(b, n, x, w)?;
    let mut operands = vec![x, w];
    operands.extend(n.optional(2));
    b.emit1(Op::Conv(conv), &operands)
}

/// How the windows w lie over x.
pub(super) fn attributes(b: &Builder, n: &OnnxNode, x: ValueId, w: ValueId) -> Result<Conv> {
    let windows = Windows::of(n, &spatial(b, n, x)?, spatial(b, n, w)?)?;
    let groups = u64::try_from(n.int("group").unwrap_or(1)).unwrap_or(0);
    Ok(Conv {
        strides: windows.strides,
        dilations: windows.dilations,
        before: windows.before,
        after: windows.after,
        groups,
    })
}

/// One number for all pixels of a channel.
pub(super) fn global_pool(b: &mut Builder, n: &OnnxNode, reduction: Reduction) -> Result<ValueId> {
    let x = n.input(0)?;
    let dims: Vec<_> = (2..b.rank(x)).collect();
    b.reduce(reduction, x, &dims)
}

/// What a node's windows join into, element by element of the window.
fn pooled(b: &mut Builder, n: &OnnxNode, x: ValueId, around: f64, binary: Binary) -> Result<ValueId> {
    if is_set(n, "ceil_mode") {
        return Err(n.unsupported("windows that are not whole"));
    }
    let spatial = spatial(b, n, x)?;
    let sizes = n.required_ints("kernel_shape")?.iter().map(|&size| u64::try_from(size).unwrap_or(0));
    let windows = Windows::of(n, &spatial, sizes.collect())?;
    let size = windows.sizes.iter().try_fold(1u64, |size, &extent| size.checked_mul(extent));
    let size = size.filter(|&size| size <= LARGEST_WINDOW);
    let size = size.ok_or_else(|| n.unsupported(format!("windows of {:?}", windows.sizes)))?;
    let shape = b.shape(x)?;
    let padding = |counts: &[u64]| {
        [0, 0].into_iter().chain(counts.iter().map(|&count| signed(count))).collect::<Vec<_>>()
    };
    let edge = Edge::Constant(Real(around));
    let (before, after) = (padding(&windows.before), padding(&windows.after));
    let padded = if windows.before.iter().chain(&windows.after).all(|&count| count == 0) {
        x
    } else {
        b.emit1(Op::Pad { before, after, edge }, &[x])?
    };
    let counts = (0..spatial.len()).map(|dim| windows.count(dim, spatial[dim]));
    let result: Vec<_> = shape[..2].iter().copied().chain(counts).collect();
    let strides = windows.strides.iter().map(|&stride| signed(stride));
    let steps: Vec<_> = [1, 1].into_iter().chain(strides).collect();
    let mut joined = None;
    for place in 0..size {
        let mut rest = place;
        let mut starts = vec![0; shape.len()];
        for dim in (0..spatial.len()).rev() {
            starts[dim + 2] = rest % windows.sizes[dim] * windows.dilations[dim];
            rest /= windows.sizes[dim];
        }
        let op = Op::Slice { starts, steps: steps.clone(), sizes: result.clone() };
        let one = b.emit1(op, &[padded])?;
        joined = Some(match joined {
            Some(joined) => b.binary(binary, joined, one)?,
            None => one,
        });
    }
    joined.ok_or_else(|| n.wrong("an empty window"))
}

pub(super) fn max_pool(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let x = n.input(0)?;
    if !b.dtype(x).is_float() {
        return Err(n.unsupported("a maximum of integers"));
    }
    let y = pooled(b, n, x, f64::NEG_INFINITY, Binary::Max)?;
    only(n, y)
}

/// The mean of each window; what surrounds the operand counts where the node says so.
pub(super) fn average_pool(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let sum = pooled(b, n, x, 0.0, Binary::Add)?;
    let mut around = b.shape(x)?;
    around[..2].fill(1);
    let one = b.filled(b.dtype(x), around, 1.0)?;
    let outside = f64::from(u8::from(is_set(n, "count_include_pad")));
    let count = pooled(b, n, one, outside, Binary::Add)?;
    b.div(sum, count)
}

/// The scales or the sizes of the axes say how each dimension is resampled.
pub(super) fn resize(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let mut x = n.input(0)?;
    let shape = b.shape(x)?;
    let rank = shape.len();
    let coordinates = n.string("coordinate_transformation_mode").unwrap_or("half_pixel");
    let half_pixel = match coordinates {
        "half_pixel" | "pytorch_half_pixel" => true,
        "asymmetric" => false,
        mode => return Err(n.unsupported(format!("coordinates `{mode}`"))),
    };
    let nearest = n.string("nearest_mode").unwrap_or("round_prefer_floor");
    let interpolation = match (n.string("mode").unwrap_or("nearest"), nearest) {
        ("nearest", "floor") => Interpolation::NearestFloor,
        ("nearest", "round_prefer_floor") => Interpolation::NearestPreferFloor,
        ("linear", _) => Interpolation::Linear,
        (mode, nearest) => return Err(n.unsupported(format!("mode `{mode}`, `{nearest}`"))),
    };
    if is_set(n, "antialias") || is_set(n, "exclude_outside") {
        return Err(n.unsupported("smoothing"));
    }
    let keep = n.string("keep_aspect_ratio_policy").unwrap_or("stretch");
    if keep != "stretch" {
        return Err(n.unsupported(format!("aspect ratio policy `{keep}`")));
    }
    let all: Vec<_> = (0..signed(extent(rank))).collect();
    let axes = n.ints("axes").unwrap_or(&all);
    // Scales and sizes stand in the order of the axes.
    dimensions(n, axes, rank)?;
    let dims = axes.iter().map(|&axis| dimension(n, axis, rank)).collect::<Result<Vec<_>>>()?;
    let mut scales = vec![Real(1.0); rank];
    let mut result = shape.clone();
    let given = n.optional(2).filter(|&scales| b.type_of(scales).elements() > 0);
    if let Some(given) = given {
        for (&dim, scale) in dims.iter().zip(b.reals(given)?) {
            scales[dim] = Real(scale);
            let size = (real(signed(shape[dim])) * scale).floor().max(0.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an extent")]
            let size = size as u64;
            result[dim] = size;
        }
    } else {
        for (&dim, size) in dims.iter().zip(b.integers(n.input(3)?)?) {
            scales[dim] = Real(real(size) / real(signed(shape[dim])));
            result[dim] = u64::try_from(size).map_err(|_| n.wrong(format!("size {size}")))?;
        }
    }
    // Of one element this spelling takes the first.
    for dim in (0..rank).filter(|&dim| coordinates == "pytorch_half_pixel" && result[dim] == 1) {
        x = b.slice(x, dim, 0, 1)?;
        scales[dim] = Real(1.0);
    }
    b.emit1(Op::Resize(Resize { shape: result, scales, half_pixel, interpolation }), &[x])
}
