//! Rotary embedding and its gradient.

use planner_ir::Pairing;

use super::launch::{Argument, Kernel, Launch, Piece, Uncovered, Work};
use super::number::computed;
use super::strides::{Arguments, Levels, own_strides, repeated_strides, signed};
use super::text::filled;

const TEMPLATE: &str = include_str!("templates/rotary.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// Which way pairs are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// `x * cos + rotate(x) * sin`.
    Forward,
    /// `x * cos + rotateᵀ(x * sin)`.
    Back,
}

/// Pairs of the elements of rows, rotated; operands x, cos, sin.
pub(super) fn rotary(pairing: Pairing, turn: Turn, operands: &[Piece], y: &Piece) -> Result<Work, Uncovered> {
    let ordered = operands.iter().chain([y]).any(|it| !it.is_row_major());
    if ordered {
        let rank = y.type_.shape.len();
        let order = if y.order.is_empty() { (0..rank).collect() } else { y.order.clone() };
        let lying = || operands.iter().chain([y]).map(|it| it.lying(&order)).collect::<Option<Vec<_>>>();
        let pieces = lying().filter(|_| order.last() == rank.checked_sub(1).as_ref());
        let missing = || Uncovered::Missing(format!("a rotation in the order {order:?}"));
        let mut operands = pieces.ok_or_else(missing)?;
        let made = operands.pop().ok_or_else(missing)?;
        return rotary(pairing, turn, &operands, &made);
    }
    let (x, dtype) = (&operands[0], operands[0].type_.dtype);
    let shape = &x.type_.shape;
    let misfit = || Uncovered::Missing(format!("a rotation of {}", x.type_));
    let (&size, around) = shape.split_last().ok_or_else(misfit)?;
    if x.type_.elements() == 0 {
        return Ok(Work::default());
    }
    let strides = |factor: &Piece| -> Result<Vec<i64>, Uncovered> {
        let mut strides = repeated_strides(&factor.type_.shape, shape).ok_or_else(misfit)?;
        match strides.pop() {
            Some(last) if last == 1 || size == 1 => Ok(strides),
            _ => Err(misfit()),
        }
    };
    let own = own_strides(around);
    let levels = Levels::new(around, &[own, strides(&operands[1])?, strides(&operands[2])?]);
    let half = size / 2;
    // Both halves of four pairs, or four neighbouring pairs, are loaded at once.
    let width = [4, 2, 1].into_iter().find(|&it| half.is_multiple_of(it)).unwrap_or(1);
    let mut arguments = Arguments::default();
    arguments.reads("x", dtype, Argument::Operand(0));
    arguments.reads("cosine", operands[1].type_.dtype, Argument::Operand(1));
    arguments.reads("sine", operands[2].type_.dtype, Argument::Operand(2));
    arguments.writes("y", y.type_.dtype, Argument::Result(0));
    let count = x.type_.elements() / 2 / width;
    arguments.integer("count", signed(count));
    arguments.integer("pairs", signed(half / width));
    arguments.integer("size", signed(size));
    levels.declare_extents("", &mut arguments);
    levels.declare_strides(1, "c", &mut arguments);
    levels.declare_strides(2, "s", &mut arguments);
    let moved = |verb: &str, dtype: planner_ir::DType, pointer: &str, array: &str| match pairing {
        Pairing::Halves => {
            let name = format!("t_{verb}_{}_{width}", dtype.name());
            format!(
                "{name}({pointer} + own, {array}); {name}({pointer} + size / 2 + own, {array} + {width});"
            )
        }
        Pairing::Neighbours => {
            format!("t_{verb}_{}_{}({pointer} + 2 * own, {array});", dtype.name(), 2 * width)
        }
    };
    let loads = [
        moved("load", dtype, "x", "a"),
        moved("load", operands[1].type_.dtype, "cosine", "c"),
        moved("load", operands[2].type_.dtype, "sine", "s"),
    ];
    let (low, high) = match pairing {
        Pairing::Halves => ("k".to_owned(), format!("k + {width}")),
        Pairing::Neighbours => ("2 * k".to_owned(), "2 * k + 1".to_owned()),
    };
    let signs = match turn {
        Turn::Forward => [("MINUS", "-"), ("PLUS", "+"), ("CROSS", "low"), ("OTHER", "high")],
        Turn::Back => [("MINUS", "+"), ("PLUS", "-"), ("CROSS", "high"), ("OTHER", "low")],
    };
    let offset = |place: usize, name: &str| levels.offset("t_i64", place, name, "");
    let (cosine, sine, width_text) = (offset(1, "c"), offset(2, "s"), width.to_string());
    let (parameters, loads, stores) =
        (arguments.text(), loads.join("\n    "), moved("store", y.type_.dtype, "y", "b"));
    let apart = levels.taken_apart("t_i64", "at", "");
    let mut texts = vec![
        ("V", width_text.as_str()),
        ("PARAMETERS", &parameters),
        ("APART", &apart),
        ("COSINE", &cosine),
        ("SINE", &sine),
        ("T", computed(dtype)),
        ("LOADS", &loads),
        ("LOW", &low),
        ("HIGH", &high),
        ("STORES", &stores),
    ];
    texts.extend(signs);
    let source = filled(TEMPLATE, &texts);
    let launch = Launch {
        kernel: Kernel::new("rotary", &source, arguments.parameters),
        blocks: count.div_ceil(THREADS),
        threads: 256,
        shared: 0,
        arguments: arguments.given,
    };
    Ok(Work { launches: vec![launch], room: 0 })
}
