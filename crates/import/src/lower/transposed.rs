//! Transposed convolution: each element times its window, added where the window lies, which is the
//! gradient of a convolution towards its input.

use planner_ir::{Conv, Edge, Op, Real, ValueId};

use super::{Result, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The largest number that says how windows lie.
const LARGEST: i64 = 1 << 30;

/// How the windows of one spatial dimension lie, and what of them is kept.
struct Span {
    stride: i64,
    dilation: i64,
    /// What is cut off before and after; negative where zeros are added.
    cut: [i64; 2],
    /// From the start of the first window to the end of the last (elements).
    whole: i64,
}

/// x `[n, c, spatial..]`, windows `[c, m / groups, window..]`, optionally a bias `[m]`.
pub(super) fn conv(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let (shape, windows) = (b.shape(x)?, b.shape(w)?);
    if shape.len() < 3 || windows.len() != shape.len() {
        return Err(n.wrong(format!("windows {windows:?} over {shape:?}")));
    }
    let groups = n.int("group").unwrap_or(1);
    let groups = u64::try_from(groups).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| n.wrong("attribute `group` is not positive"))?;
    let spans = spans(n, &shape[2..], &windows[2..])?;
    let taken = |cut: i64| u64::try_from(cut).unwrap_or(0);
    let list = |number: &dyn Fn(&Span) -> u64| spans.iter().map(number).collect::<Vec<u64>>();
    let conv = Conv {
        strides: list(&|it| taken(it.stride)),
        dilations: list(&|it| taken(it.dilation)),
        before: list(&|it| taken(it.cut[0])),
        after: list(&|it| taken(it.cut[1])),
        groups,
    };
    let spatial = list(&|it| taken(it.whole - it.cut[0].max(0) - it.cut[1].max(0)));
    let mut y = b.emit1(Op::ConvInputGradient { conv, spatial }, &[w, x])?;
    let added = |end: usize| [0, 0].into_iter().chain(spans.iter().map(|it| -it.cut[end].min(0))).collect();
    let (before, after): (Vec<i64>, Vec<i64>) = (added(0), added(1));
    if before.iter().chain(&after).any(|&count| count > 0) {
        y = b.emit1(Op::Pad { before, after, edge: Edge::Constant(Real(0.0)) }, &[y])?;
    }
    let Some(bias) = n.optional(2) else { return Ok(y) };
    let mut channels = vec![1; shape.len()];
    channels[1] = b.elements(bias)?;
    let bias = b.reshape(bias, &channels)?;
    b.add(y, bias)
}

/// How windows lie over these extents.
///
/// Source: the operator's documentation, "ConvTranspose", for pads that follow from an extent.
fn spans(n: &OnnxNode, extents: &[u64], windows: &[u64]) -> Result<Vec<Span>> {
    let dims = extents.len();
    let list = |name: &str, count: usize, default: i64| {
        let Some(list) = n.ints(name) else { return Ok(vec![default; count]) };
        let sane = list.len() == count && list.iter().all(|it| (0..=LARGEST).contains(it));
        if sane { Ok(list.to_vec()) } else { Err(n.wrong(format!("{name} {list:?} for {dims} dimensions"))) }
    };
    let (strides, dilations) = (list("strides", dims, 1)?, list("dilations", dims, 1)?);
    let (more, pads) = (list("output_padding", dims, 0)?, list("pads", 2 * dims, 0)?);
    let wanted = n.ints("output_shape").map(|_| list("output_shape", dims, 0)).transpose()?;
    let mode = n.string("auto_pad").unwrap_or("NOTSET");
    let mut spans = Vec::new();
    for dim in 0..dims {
        let (stride, dilation) = (strides[dim], dilations[dim]);
        let (extent, window) = (signed(extents[dim]), signed(windows[dim]));
        let sane =
            stride > 0 && dilation > 0 && (1..=LARGEST).contains(&window) && (1..=LARGEST).contains(&extent);
        if !sane {
            return Err(n.wrong(format!("windows {windows:?} over {extents:?}")));
        }
        let whole = stride * (extent - 1) + dilation * (window - 1) + 1;
        let result = match (&wanted, mode) {
            (Some(wanted), _) => Some(wanted[dim]),
            (None, "SAME_UPPER" | "SAME_LOWER") => Some(extent * stride),
            _ => None,
        };
        let cut = match (result, mode) {
            (Some(result), _) => {
                let total = whole + more[dim] - result;
                let (added, total) = (total.min(0), total.max(0));
                let half = total / 2;
                let [start, end] =
                    if mode == "SAME_UPPER" { [half, total - half] } else { [total - half, half] };
                [start, end + added - more[dim]]
            }
            (None, "NOTSET") => [pads[dim], pads[dims + dim] - more[dim]],
            (None, "VALID") => [0, -more[dim]],
            (None, mode) => return Err(n.unsupported(format!("padding `{mode}`"))),
        };
        if whole - cut[0].max(0) - cut[1].max(0) < 1 {
            return Err(n.wrong(format!("pads {cut:?} of {whole} elements")));
        }
        spans.push(Span { stride, dilation, cut, whole });
    }
    Ok(spans)
}
