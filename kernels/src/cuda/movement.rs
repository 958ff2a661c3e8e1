//! Operations that leave elements as they are, in other places: copies.

use planner_ir::{Op, Real};

use super::copying::Copying;
use super::launch::{Argument, Piece, Uncovered, Work};
use super::single::single;
use super::strides::{own_strides, signed};

/// Loops over a shape with these strides of what is read and written.
fn loops(shape: &[u64], from: &[i64], to: &[i64]) -> Vec<(u64, [i64; 2])> {
    shape.iter().zip(from.iter().zip(to)).map(|(&extent, (&from, &to))| (extent, [from, to])).collect()
}

/// The kernel of an operation that moves elements, of operands of one type.
pub(super) fn transpose(permutation: &[usize], x: &Piece, y: &Piece) -> Work {
    let strides = own_strides(&x.type_.shape);
    let from: Vec<i64> = permutation.iter().map(|&dim| strides[dim]).collect();
    let shape = &y.type_.shape;
    let copying = Copying {
        bytes: y.type_.dtype.bytes(),
        starts: [0, 0],
        loops: loops(shape, &from, &own_strides(shape)),
    };
    copying.work(Argument::Operand(0), Argument::Result(0))
}

/// The operands one after another along a dimension.
pub(super) fn concat(dim: usize, operands: &[Piece], y: &Piece) -> Work {
    let to = own_strides(&y.type_.shape);
    let mut work = Work::default();
    let mut start = 0;
    for (number, x) in operands.iter().enumerate() {
        let shape = &x.type_.shape;
        let copying = Copying {
            bytes: y.type_.dtype.bytes(),
            starts: [0, start],
            loops: loops(shape, &own_strides(shape), &to),
        };
        work.launches.extend(copying.work(Argument::Operand(number), Argument::Result(0)).launches);
        start += signed(shape[dim]) * to[dim];
    }
    work
}

/// `y[i..] = x[starts + i * steps ..]`, for every dimension.
pub(super) fn slice(starts: &[u64], steps: &[i64], x: &Piece, y: &Piece) -> Work {
    let (own, shape) = (own_strides(&x.type_.shape), &y.type_.shape);
    let mut first = 0;
    let mut from = Vec::new();
    for dim in 0..shape.len() {
        let (whole, held) = (x.span(dim), y.span(dim));
        // A block of a value that consists of runs has a part of each run.
        let step = steps[dim].unsigned_abs().max(1);
        let runs = starts[dim] / step * x.type_.shape[dim] / whole.extent.max(1);
        let start = signed(runs * step + starts[dim] % step);
        first += (start + steps[dim] * signed(held.start) - signed(whole.start)) * own[dim];
        from.push(steps[dim] * own[dim]);
    }
    let copying = Copying {
        bytes: y.type_.dtype.bytes(),
        starts: [first, 0],
        loops: loops(shape, &from, &own_strides(shape)),
    };
    copying.work(Argument::Operand(0), Argument::Result(0))
}

/// All elements of operand 0, of the type and shape of y.
pub(super) fn whole(y: &Piece) -> Work {
    let loops = vec![(y.type_.elements(), [1, 1])];
    let copying = Copying { bytes: y.type_.dtype.bytes(), starts: [0, 0], loops };
    copying.work(Argument::Operand(0), Argument::Result(0))
}

/// One number around x, or elements cut off.
pub(super) fn pad(before: &[i64], value: Real, x: &Piece, y: &Piece) -> Result<Work, Uncovered> {
    let fill = Op::Fill { result: y.type_.clone(), value };
    let mut work = single(&fill, &[], std::slice::from_ref(y))?;
    let (from, to) = (own_strides(&x.type_.shape), own_strides(&y.type_.shape));
    let (mut starts, mut shape) = ([0, 0], Vec::new());
    for dim in 0..before.len() {
        let (whole, held) = (x.span(dim), y.span(dim));
        // Places of the result from the first to the last that has an element of the block.
        let shift = signed(whole.start) + before[dim] - signed(held.start);
        let first = shift.max(0);
        let end = (shift + signed(x.type_.shape[dim])).min(signed(y.type_.shape[dim]));
        shape.push((end - first).max(0).unsigned_abs());
        starts[0] += (first - shift) * from[dim];
        starts[1] += first * to[dim];
    }
    let copying = Copying { bytes: y.type_.dtype.bytes(), starts, loops: loops(&shape, &from, &to) };
    work.launches.extend(copying.work(Argument::Operand(0), Argument::Result(0)).launches);
    Ok(work)
}
