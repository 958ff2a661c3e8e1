//! Running sums and extremes.

use planner_ir::{DType, Extreme};

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::{computed, stored, suffix};
use super::strides::{Arguments, index_type, signed};
use super::text::filled;

const EXTREMES: &str = include_str!("templates/extremes.cu");
const RUNNING: &str = include_str!("templates/running.cu");

/// The rows that a block has: one to each warp.
const WARPS: u64 = 8;

/// The lines that a block has: one to each thread.
const THREADS: u64 = 256;

/// How many rows there are along a dimension, how long, and how far apart their elements are.
fn along(shape: &[u64], dim: usize) -> [u64; 3] {
    let inner = shape[dim + 1..].iter().product();
    [shape[..dim].iter().product::<u64>() * inner, shape[dim], inner]
}

/// The extreme elements along a dimension, if they are asked for, and where they were.
pub(super) fn extremes(
    extreme: Extreme,
    dim: usize,
    x: &Piece,
    results: &[Piece],
) -> Result<Work, Uncovered> {
    let dtype = x.type_.dtype;
    let (values, positions) = match results {
        [positions] => (None, positions),
        [values, positions] => (Some(values), positions),
        _ => return Err(Uncovered::Missing(format!("extremes with {} results", results.len()))),
    };
    if dtype == DType::Bool || positions.type_.dtype != DType::I64 {
        return Err(Uncovered::Missing(format!("extremes of {dtype} at {}", positions.type_.dtype)));
    }
    let [rows, length, inner] = along(&x.type_.shape, dim);
    let count = positions.type_.shape[dim];
    if rows * count == 0 {
        return Ok(Work::default());
    }
    let mut arguments = Arguments::default();
    arguments.reads("x", dtype, Argument::Operand(0));
    if let Some(values) = values {
        arguments.writes("values", values.type_.dtype, Argument::Result(0));
    }
    arguments.writes("positions", DType::I64, Argument::Result(results.len() - 1));
    for (name, number) in [("rows", rows), ("length", length), ("inner", inner), ("count", count)] {
        arguments.integer(name, signed(number));
    }
    arguments.integer("first", signed(x.span(dim).start));
    let value = values.map_or(String::new(), |values| {
        format!("            t_store_{}_1(values + to + rank * inner, &best);\n", values.type_.dtype.name())
    });
    let (doc, order) = match extreme {
        Extreme::Smallest => ("smallest", ["a", "b"]),
        Extreme::Largest => ("largest", ["b", "a"]),
    };
    let source = filled(
        EXTREMES,
        &[
            ("DOC", doc),
            ("T", computed(dtype)),
            ("I", index_type(x.type_.elements())),
            ("D", dtype.name()),
            ("S", suffix(dtype)),
            ("FIRST", order[0]),
            ("BEFORE", "$NAME_before"),
            ("SECOND", order[1]),
            ("PARAMETERS", &arguments.text()),
            ("VALUE", &value),
        ],
    );
    let launch = Launch {
        kernel: Kernel::new("extremes", &source, arguments.parameters),
        blocks: rows.div_ceil(WARPS),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    };
    Ok(Work { launches: vec![launch], room: 0 })
}

/// A running sum: where it begins, and whether it has its own element.
pub(super) fn running(dim: usize, [exclusive, reverse]: [bool; 2], x: &Piece, y: &Piece) -> Work {
    let dtype = x.type_.dtype;
    let [lines, length, inner] = along(&x.type_.shape, dim);
    if lines * length == 0 {
        return Work::default();
    }
    let mut arguments = Arguments::default();
    arguments.reads("x", dtype, Argument::Operand(0));
    arguments.writes("y", y.type_.dtype, Argument::Result(0));
    for (name, number) in [("lines", lines), ("length", length), ("inner", inner)] {
        arguments.integer(name, signed(number));
    }
    let source = filled(
        RUNNING,
        &[
            ("C", stored(dtype)),
            ("E", stored(y.type_.dtype)),
            ("T", computed(dtype)),
            ("D", dtype.name()),
            ("F", y.type_.dtype.name()),
            ("AT", if reverse { "length - 1 - step" } else { "step" }),
            ("KEPT", if exclusive { "before" } else { "sum" }),
        ],
    );
    let launch = Launch {
        kernel: Kernel::new("running", &source, arguments.parameters),
        blocks: lines.div_ceil(THREADS),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    };
    Work { launches: vec![launch], room: 0 }
}
