//! Convolution and its gradients, each result by itself.

use std::fmt::Write as _;

use planner_ir::Conv;

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{computed, suffix};
use super::strides::{Arguments, index_type, signed};
use super::text::filled;

const FORWARD: &str = include_str!("templates/conv.cu");
const INPUT: &str = include_str!("templates/conv_input.cu");
const WEIGHT: &str = include_str!("templates/conv_weight.cu");

/// The threads of a block, and its warps.
const THREADS: u64 = 256;
const WARPS: u64 = 8;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// The result; operands x, w, and perhaps a bias.
    Result,
    /// The gradient towards x; operands w, dy.
    Input,
    /// The gradient towards w; operands x, dy.
    Weight,
}

/// The kernel of a convolution or of a gradient of one.
pub(super) fn conv(conv: &Conv, made: Made, operands: &[Piece], result: &Piece) -> Result<Work, Uncovered> {
    let (x, w, y) = match made {
        Made::Result => (&operands[0], &operands[1], result),
        Made::Input => (result, &operands[0], &operands[1]),
        Made::Weight => (&operands[0], result, &operands[1]),
    };
    let dtype = operands[0].type_.dtype;
    let (from, window, to) = (&x.type_.shape, &w.type_.shape, &y.type_.shape);
    let spatial = conv.strides.len();
    let count = result.type_.elements();
    let fits = dtype.is_float() && from.len() == spatial + 2 && window.len() == from.len() && window[1] > 0;
    if !fits {
        return Err(Uncovered::Missing(format!("a convolution of {} by {}", x.type_, w.type_)));
    }
    if count == 0 {
        return Ok(Work::default());
    }
    let mut arguments = Arguments::default();
    let names = match made {
        Made::Result => ["x", "w"],
        Made::Input => ["w", "dy"],
        Made::Weight => ["x", "dy"],
    };
    for (number, name) in names.into_iter().enumerate() {
        arguments.reads(name, operands[number].type_.dtype, Argument::Operand(number));
    }
    let bias = operands.get(2).filter(|_| made == Made::Result);
    if let Some(bias) = bias {
        arguments.reads("bias", bias.type_.dtype, Argument::Operand(2));
    }
    arguments.writes("y", result.type_.dtype, Argument::Result(0));
    let product = |shape: &[u64]| shape[2..].iter().product::<u64>();
    for (name, number) in [
        ("count", count),
        ("samples", from[0]),
        ("groups", from[1] / window[1]),
        ("channels", window[1]),
        ("results", to[1]),
        ("pixels", product(from)),
        ("taps", product(window)),
        ("points", product(to)),
    ] {
        arguments.integer(name, signed(number));
    }
    for dim in 0..spatial {
        for (name, number) in [("in", from), ("win", window), ("out", to)] {
            arguments.integer(&format!("{name}{dim}"), signed(number[dim + 2]));
        }
        for (name, number) in
            [("stride", &conv.strides), ("dilation", &conv.dilations), ("before", &conv.before)]
        {
            arguments.integer(&format!("{name}{dim}"), signed(number[dim]));
        }
    }
    // Of what loops divide: places of all samples, and places beside a sample.
    let beside =
        |dim: usize| conv.dilations[dim].saturating_mul(window[dim + 2]) + conv.before[dim] + from[dim + 2];
    let places = (from[0] * product(to)).max((0..spatial).map(beside).max().unwrap_or(0));
    let index = index_type(places);
    let loops = match made {
        Made::Result | Made::Input => taps(spatial, made, index),
        Made::Weight => points(spatial, index),
    };
    let extent = match made {
        Made::Result => "out",
        Made::Input => "in",
        Made::Weight => "win",
    };
    let channels = match made {
        Made::Result => "results",
        Made::Input => "groups * channels",
        Made::Weight => "channels",
    };
    let bias = match bias {
        Some(bias) => {
            let load = format!("t_load_{}_1(bias + channel, &added);", bias.type_.dtype.name());
            (format!("    {} added; {load}\n", computed(dtype)), "added")
        }
        None => (String::new(), "0"),
    };
    let template = match made {
        Made::Result => FORWARD,
        Made::Input => INPUT,
        Made::Weight => WEIGHT,
    };
    let source = filled(
        template,
        &[
            ("PARAMETERS", &arguments.text()),
            ("APART", &(apart(spatial, extent, channels) + &bias.0)),
            ("BIAS", bias.1),
            ("LOOPS", &loops),
            ("CLOSE", &"        }\n".repeat(spatial)),
            ("I", index),
            ("T", computed(dtype)),
            ("S", suffix(dtype)),
            ("D", dtype.name()),
            ("F", result.type_.dtype.name()),
        ],
    );
    let each = if made == Made::Weight { WARPS } else { THREADS };
    let launch = Launch {
        kernel: Kernel::new("conv", &source, arguments.parameters),
        blocks: count.div_ceil(each),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    };
    Ok(Work { launches: vec![launch], room: 0 })
}

/// Statements that take `at` apart into an index along each spatial dimension, `channel` and, before
/// it, `sample`.
fn apart(spatial: usize, extent: &str, channels: &str) -> String {
    let mut text = "    t_i64 left = at;\n".to_owned();
    // Writing to a string does not fail.
    for dim in (0..spatial).rev() {
        let _ = writeln!(text, "    const t_i64 o{dim} = left % {extent}{dim}; left /= {extent}{dim};");
    }
    let _ = writeln!(text, "    const t_i64 channel = left % ({channels}), sample = left / ({channels});");
    text
}

/// Loops over the taps of a window, and the pixel or point that each meets.
fn taps(spatial: usize, made: Made, index: &str) -> String {
    let mut text = String::new();
    let (mut tap, mut met) = ("0".to_owned(), "0".to_owned());
    for dim in 0..spatial {
        let _ = writeln!(text, "        for (t_i64 t{dim} = 0; t{dim} < win{dim}; t{dim}++) {{");
        let _ = match made {
            Made::Input => writeln!(
                text,
                "            const t_i64 a{dim} = o{dim} + before{dim} - t{dim} * dilation{dim};\n            \
                 if (a{dim} < 0) continue;\n            \
                 const t_i64 p{dim} = ({index})a{dim} / ({index})stride{dim};\n            \
                 if (p{dim} * stride{dim} != a{dim} || p{dim} >= out{dim}) continue;"
            ),
            _ => writeln!(
                text,
                "            const t_i64 p{dim} = o{dim} * stride{dim} + t{dim} * dilation{dim} - before{dim};\n            \
                 if (p{dim} < 0 || p{dim} >= in{dim}) continue;"
            ),
        };
        let extent = if made == Made::Input { "out" } else { "in" };
        tap = format!("({tap}) * win{dim} + t{dim}");
        met = format!("({met}) * {extent}{dim} + p{dim}");
    }
    let name = if made == Made::Input { "point" } else { "pixel" };
    let _ = writeln!(text, "            const t_i64 tap = {tap}, {name} = {met};");
    text
}

/// Statements that say which pixel the tap of a result meets at a point, and whether there is one.
fn points(spatial: usize, index: &str) -> String {
    let mut text = String::new();
    for dim in (0..spatial).rev() {
        let _ = writeln!(
            text,
            "        const t_i64 p{dim} = (t_i64)(rest % ({index})out{dim}) * stride{dim} + o{dim} * dilation{dim} - before{dim};\n        \
             rest /= ({index})out{dim};\n        inside &= p{dim} >= 0 && p{dim} < in{dim};\n        \
             pixel += p{dim} * scale;\n        scale *= in{dim};"
        );
    }
    text
}
