//! The sum of the squares of all elements of several values: the norm of gradients.
//!
//! A launch reads several values, in parts of which each is a block's, and one more adds up the parts in their
//! order.

use planner_ir::DType;

use super::indexing::launch;
use super::launch::{Argument, Launch, Work};
use super::number::stored;
use super::strides::{Arguments, signed};
use super::text::filled;
use crate::number::computed_as;

const SQUARES: &str = include_str!("templates/squares.cu");
const PARTS: &str = include_str!("templates/squares_parts.cu");

/// How many values one launch reads at most: each is three arguments.
const TOGETHER: usize = 16;

/// Parts that keep a device busy, and what a part has at least (elements): as many as a block loads at once, for
/// the narrowest elements.
const BUSY: u64 = 2048;
const LEAST: u64 = 2048;

/// What a block of 256 threads needs to add numbers (bytes).
const SHARED: u32 = 8 * 4;

/// The sum of the squares of values of that many elements each, which operands are in their order; none if there is
/// no kernel for their elements.
pub fn squares(values: &[(DType, u64)], made: DType) -> Option<Work> {
    let is_covered = values.iter().all(|&(dtype, _)| dtype.is_float() && computed_as(dtype) == DType::F32);
    if !is_covered || computed_as(made) != DType::F32 {
        return None;
    }
    let total: u64 = values.iter().map(|it| it.1).sum();
    let part = total.div_ceil(BUSY).next_multiple_of(LEAST).max(LEAST);
    let (mut launches, mut parts) = (Vec::new(), 0);
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let own: Vec<usize> =
            (0..values.len()).filter(|&it| values[it].0 == dtype && values[it].1 > 0).collect();
        for some in own.chunks(TOGETHER) {
            launches.push(one(dtype, some, values, part, &mut parts));
        }
    }
    let mut arguments = Arguments::default();
    arguments.pointer("const float *parts", Argument::Room(0));
    arguments.writes("y", made, Argument::Result(0));
    arguments.integer("count", signed(parts));
    let parameters = arguments.text();
    let source = filled(PARTS, &[("PARAMETERS", &parameters), ("F", made.name())]);
    launches.push(launch("squares", &source, arguments, 1, SHARED));
    Some(Work { launches, room: 4 * parts.max(1) })
}

/// The launch that reads some values, whose parts follow those of others.
fn one(dtype: DType, some: &[usize], values: &[(DType, u64)], part: u64, parts: &mut u64) -> Launch {
    let mut arguments = Arguments::default();
    for (place, &operand) in some.iter().enumerate() {
        arguments.reads(&format!("x{place}"), dtype, Argument::Operand(operand));
    }
    arguments.pointer("float *parts", Argument::Room(0));
    arguments.integer("before", signed(*parts));
    arguments.integer("part", signed(part));
    let (mut end, mut found) = (0, String::new());
    for (place, &operand) in some.iter().enumerate() {
        let length = values[operand].1;
        arguments.integer(&format!("length{place}"), signed(length));
        if place > 0 {
            arguments.integer(&format!("end{}", place - 1), signed(end));
            found += &format!(
                "    if (t_block() >= end{0}) {{ x = x{place}; length = length{place}; first = end{0}; }}\n",
                place - 1
            );
        }
        end += length.div_ceil(part);
    }
    *parts += end;
    let parameters = arguments.text();
    let together = (16 / dtype.bytes()).to_string();
    let texts = [
        ("PARAMETERS", parameters.as_str()),
        ("C", stored(dtype)),
        ("D", dtype.name()),
        ("V", &together),
        ("FOUND", &found),
    ];
    launch("squares", &filled(SQUARES, &texts), arguments, end, SHARED)
}
