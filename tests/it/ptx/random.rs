//! Operands of operations: random, and such as the operation is defined on.

use files::inputs::Random;
use kernels::{Array, Span, evaluate};
use planner_ir::{Binary, DType, Op, Recurrence, Type, Unary};

/// The type of an operand, and where it lies in the whole.
pub(super) type Placed<'a> = (&'a Type, &'a [Span]);

/// What an operand may be.
#[derive(Clone, Copy)]
enum Numbers {
    /// Between -1 and 1.
    Any,
    /// Between 0.1 and 1.1.
    Positive,
    /// The same below zero.
    Negative,
    /// Whole, from 0 to below that.
    Below(u64),
    /// For each row so many positive ones, the others zero.
    Chosen(u64),
}

/// How large whole numbers are that name no place.
const SMALL: u64 = 5;

/// The operand of that number of an operation.
pub(super) fn operand(op: &Op, number: usize, operands: &[Placed<'_>], seed: u64) -> Array {
    let type_ = operands[number].0;
    let numbers = match numbers(op, number, operands) {
        Numbers::Any | Numbers::Positive if !type_.dtype.is_float() => {
            Numbers::Below(if type_.dtype == DType::Bool { 2 } else { SMALL })
        }
        numbers => numbers,
    };
    let mut random = Random::new(seed, "ptx");
    let row = type_.shape.last().copied().unwrap_or(1).max(1);
    let mut number = |place: u64| {
        let number = random.number();
        match numbers {
            Numbers::Any => number,
            Numbers::Positive => number * number + 0.1,
            Numbers::Negative => -number * number - 0.1,
            Numbers::Below(bound) => {
                let bound = f64::from(u32::try_from(bound).unwrap());
                ((number + 1.0) / 2.0 * bound).floor().min(bound - 1.0)
            }
            Numbers::Chosen(active) => {
                let is_chosen = (place % row + 3 * (place / row)) % row < active;
                if is_chosen { number * number + 0.1 } else { 0.0 }
            }
        }
    };
    let all: Vec<f64> = (0..type_.elements()).map(&mut number).collect();
    let wide = Array::of::<f64>(&type_.shape[..], &all).unwrap();
    evaluate(&Op::Cast(type_.dtype), &[&wide]).unwrap().remove(0)
}

/// How long a dimension of the whole is of which an operand is a block.
fn extent((type_, spans): Placed<'_>, dim: usize) -> u64 {
    spans.get(dim).map_or(type_.shape[dim], |it| it.extent)
}

/// The shortest of the first dimensions of an operand, as many as the last one of another is long.
fn least(of: Placed<'_>, from: usize, indices: Placed<'_>) -> u64 {
    let count = usize::try_from(*indices.0.shape.last().unwrap()).unwrap();
    (from..from + count).map(|dim| extent(of, dim)).min().unwrap_or(1)
}

fn numbers(op: &Op, number: usize, operands: &[Placed<'_>]) -> Numbers {
    let first = operands[0];
    match (op, number) {
        (Op::Gather { dim } | Op::GatherElements { dim } | Op::ScatterElements { dim, .. }, 1) => {
            Numbers::Below(extent(first, *dim))
        }
        (Op::GatherGradient { extent, .. }, 0) => Numbers::Below(*extent),
        (Op::GatherNd { batch_dims }, 1) => Numbers::Below(least(first, *batch_dims, operands[1])),
        (Op::ScatterNd { .. }, 1) => Numbers::Below(least(first, 0, operands[1])),
        (Op::CrossEntropy { .. } | Op::CrossEntropyGradient { .. }, 1) => {
            Numbers::Below(extent(first, first.0.shape.len() - 1))
        }
        // Statistics are the largest score and a sum of exponentials; second moments are no squares of
        // anything if they are negative.
        (Op::AttentionGradient { .. }, 4) | (Op::AttentionMerge, 1 | 3) => Numbers::Positive,
        (Op::Update(_), 2..) => Numbers::Positive,
        (Op::Recurrence(_), 3) => Numbers::Negative,
        (Op::Recurrence(Recurrence::GatedDelta), 4) => Numbers::Positive,
        (Op::Experts { active, .. } | Op::ExpertsGradient { active, .. }, 1) => Numbers::Chosen(*active),
        (
            Op::Unary(Unary::Sqrt | Unary::Log | Unary::Reciprocal) | Op::Binary(Binary::Div | Binary::Pow),
            _,
        ) => Numbers::Positive,
        _ => Numbers::Any,
    }
}
