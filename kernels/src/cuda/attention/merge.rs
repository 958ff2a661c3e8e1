//! Attention to some keys and to others, made attention to all of them.

use super::super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::super::number::{computed, suffix};
use super::super::strides::{Arguments, signed};
use super::super::vectors::WIDTHS;
use super::fill;

const TEMPLATE: &str = include_str!("../templates/attention_merge.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// What a thread reads of a part at once at most (bytes).
const LOAD: u64 = 16;

/// The result and its statistics; operands y1, s1, y2, s2. Results lie where no operand does.
pub(in super::super) fn attention_merge(operands: &[Piece], results: &[Piece]) -> Result<Work, Uncovered> {
    let ([y1, s1, y2, s2], [y, s]) = (operands, results) else {
        return Err(Uncovered::Missing(format!("parts of attention in {} operands", operands.len())));
    };
    let dtype = y1.type_.dtype;
    let (elements, size) = (y.type_.elements(), y.type_.shape.last().copied().unwrap_or(0));
    if !dtype.is_float() {
        return Err(Uncovered::Missing(format!("parts of attention of {dtype}")));
    }
    if elements == 0 {
        return Ok(Work::default());
    }
    let bytes = [y1, y2, y].map(|it| it.type_.dtype.bytes()).into_iter().max().unwrap_or(1);
    let fits = |width: &u64| size.is_multiple_of(*width) && (*width == 1 || width * bytes <= LOAD);
    let width = WIDTHS.into_iter().filter(fits).max().unwrap_or(1);
    let mut arguments = Arguments::default();
    for (number, (name, piece)) in [("y1", y1), ("s1", s1), ("y2", y2), ("s2", s2)].into_iter().enumerate() {
        arguments.reads(name, piece.type_.dtype, Argument::Operand(number));
    }
    arguments.writes("y", y.type_.dtype, Argument::Result(0));
    arguments.writes("s", s.type_.dtype, Argument::Result(1));
    arguments.integer("count", signed(elements / width));
    arguments.integer("size", signed(size / width));
    let name = |piece: &Piece| piece.type_.dtype.name().to_owned();
    let texts = [
        ("PARAMETERS", arguments.text()),
        ("V", width.to_string()),
        ("T", computed(dtype).to_owned()),
        ("U", suffix(dtype).to_uppercase()),
        ("S", suffix(dtype).to_owned()),
        ("ONE", name(y1)),
        ("TWO", name(y2)),
        ("P", name(s1)),
        ("Q", name(s2)),
        ("MADE", name(y)),
        ("PAIR", name(s)),
    ];
    let launch = Launch {
        kernel: Kernel::new("attention_merge", &fill(TEMPLATE, &texts), arguments.parameters),
        blocks: (elements / width).div_ceil(THREADS),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    };
    Ok(Work { launches: vec![launch], room: 0 })
}
