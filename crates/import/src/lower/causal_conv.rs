//! A convolution of each channel with itself over what came before, and the state that it leaves.
//!
//! Source: the documentation of `CausalConvWithState` in ONNX (opset 27), and of ONNX Runtime's operator
//! of that name, which has more attributes.

use planner_ir::{Conv, Op, Unary};

use super::{Outputs, is_set, outputs};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The largest distance between the elements of a window.
const LARGEST: u64 = 1 << 30;

/// Attributes of ONNX Runtime that only its kernels for GPUs take, and their values without effect.
const OTHERS: [(&str, i64); 6] = [
    ("state_window", 0),
    ("state_update_capacity", 0),
    ("state_channels_last", -1),
    ("state_length", 0),
    ("input_channel_offset", 0),
    ("input_channels", 0),
];

/// x `[n, c, l]`, windows `[c, 1, k]`, optionally a bias `[c]` and what came before `[n, c, (k - 1) d]`.
pub(super) fn conv(b: &mut Builder, n: &OnnxNode) -> Outputs {
    if let Some((name, _)) = OTHERS.into_iter().find(|&(name, none)| n.int(name).is_some_and(|it| it != none))
    {
        return Err(n.unsupported(format!("attribute `{name}`")));
    }
    if n.int("ndim").is_some_and(|dims| dims != 1) || n.wants(2) {
        return Err(n.unsupported("more than one dimension, or updates of the state"));
    }
    let dilation = n.int("dilation").unwrap_or(1);
    let dilation = u64::try_from(dilation).ok().filter(|it| (1..=LARGEST).contains(it));
    let dilation = dilation.ok_or_else(|| n.wrong("attribute `dilation` is not positive"))?;
    let last = is_set(n, "channels_last");
    let turned = |b: &mut Builder, x| if last { b.transpose(x, &[0, 2, 1]) } else { Ok(x) };
    if b.rank(n.input(0)?) != 3 {
        return Err(n.unsupported("channels of several dimensions"));
    }
    let x = turned(b, n.input(0)?)?;
    let [batch, channels, _] = b.extents(x)?;
    let [_, _, window] = b.extents(n.input(1)?)?;
    let before = window.saturating_sub(1).saturating_mul(dilation);
    let past = match n.optional(3) {
        Some(past) => turned(b, past)?,
        None => b.filled(b.dtype(x), [batch, channels, before], 0.0)?,
    };
    if b.extents(past)? != [batch, channels, before] {
        return Err(n.wrong(format!("a state of shape {:?}, expected {before} positions", b.shape(past)?)));
    }
    let all = if before == 0 { x } else { b.concat(&[past, x], 2)? };
    let (strides, dilations) = (vec![1], vec![dilation]);
    let conv = Conv { strides, dilations, before: vec![0], after: vec![0], groups: channels };
    let mut operands = vec![all, n.input(1)?];
    operands.extend(n.optional(2));
    let y = b.emit1(Op::Conv(conv), &operands)?;
    let y = match n.string("activation").unwrap_or("none") {
        "none" | "" => y,
        "silu" | "swish" => b.unary(Unary::Silu, y)?,
        other => return Err(n.unsupported(format!("the function `{other}`"))),
    };
    let there = b.shape(all)?[2];
    let state = b.slice(all, 2, there - before, before)?;
    let (y, state) = (turned(b, y)?, turned(b, state)?);
    outputs(n, [Some(y), Some(state)])
}
