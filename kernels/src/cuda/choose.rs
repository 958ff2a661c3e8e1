//! Which kernels compute an operation.

use planner_ir::{Edge, Op};

use super::chain::is_pointwise;
use super::conv::Made;
use super::copying::Copying;
use super::launch::{Argument, Piece, Uncovered, Work};
use super::norm::is_norm;
use super::number::is_covered;
use super::rotary::Turn;
use super::rows::Scale;
use super::single::{named, single};
use super::{
    attention, contract, conv, experts, indexing, movement, order, places, recurrence, reduce, resample,
    rotary, rows,
};

/// The kernels that compute a block of an operation's results from blocks of its operands.
///
/// Results may lie where operands do only if the operation is computed element by element.
pub fn kernels(op: &Op, operands: &[Piece], results: &[Piece]) -> Result<Work, Uncovered> {
    let moves = matches!(
        op,
        Op::Constant { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
    );
    if let Some(piece) = operands.iter().chain(results).find(|it| !moves && !is_covered(it.type_.dtype)) {
        return Err(Uncovered::Missing(format!("{op:?} of elements of {}", piece.type_.dtype)));
    }
    if operands.iter().chain(results).any(|it| !it.is_row_major()) && !takes_orders(op) {
        return Err(Uncovered::Missing(format!("{} of elements in another order", named(op))));
    }
    match op {
        Op::Constant { .. } => Err(Uncovered::Known),
        Op::Reshape { .. } => Err(Uncovered::Nothing),
        Op::Region(_) => Err(Uncovered::Host("its shapes or control flow depend on data")),
        Op::Dynamic(_) => Err(Uncovered::Host("its shapes depend on data")),
        _ if is_pointwise(op) || is_norm(op) => single(op, operands, results),
        Op::TopK { dim, extreme, .. } => order::extremes(*extreme, *dim, &operands[0], results),
        Op::Concat { dim } if same_types(operands, results) => {
            Ok(movement::concat(*dim, operands, &results[0]))
        }
        Op::Attention(attributes) => attention::attention(attributes, operands, results),
        Op::AttentionGradient { attention, .. } => {
            attention::attention_gradient(attention, operands, results)
        }
        Op::ExpertsGradient { activation, limit, active, .. } => {
            let addends = op.addends(operands.len());
            experts::experts_gradient((*activation, *limit, *active), &addends, operands, results)
        }
        Op::Recurrence(it) => recurrence::recurrence(*it, operands, results),
        Op::AttentionMerge => attention::attention_merge(operands, results),
        _ => match results {
            [y] => one_result(op, operands, y),
            _ => Err(Uncovered::Missing(format!("{op:?}"))),
        },
    }
}

/// Whether the dimensions of what an operation reads and makes may lie in other orders in memory.
pub fn takes_orders(op: &Op) -> bool {
    is_pointwise(op)
        || matches!(
            op,
            Op::Contract(_)
                | Op::Reduce { .. }
                | Op::Attention(_)
                | Op::AttentionGradient { .. }
                | Op::Rotary(_)
                | Op::RotaryGradient(_)
        )
}

/// The kernels of operations of one result.
fn one_result(op: &Op, operands: &[Piece], y: &Piece) -> Result<Work, Uncovered> {
    let missing = || Uncovered::Missing(format!("{op:?} of {} operands", operands.len()));
    let moves = same_types(operands, std::slice::from_ref(y));
    match (op, operands) {
        (Op::Reduce { reduction, dims }, [x]) => reduce::reduce(*reduction, dims, x, y),
        (Op::ArgExtreme { extreme, dim }, [x]) => order::extremes(*extreme, *dim, x, std::slice::from_ref(y)),
        (Op::CumSum { dim, exclusive, reverse }, [x]) => {
            Ok(order::running(*dim, [*exclusive, *reverse], x, y))
        }
        (Op::Softmax { dim }, [x]) => rows::softmax(Scale::Linear, *dim, x, y),
        (Op::LogSoftmax { dim }, [x]) => rows::softmax(Scale::Logarithmic, *dim, x, y),
        (Op::SoftmaxGradient { dim }, [made, _]) => rows::softmax_gradient(*dim, made, y),
        (Op::CrossEntropy { ignored }, [_, _]) => rows::cross_entropy(*ignored, operands, y),
        (Op::CrossEntropyGradient { ignored }, [_, _, _]) => {
            rows::cross_entropy_gradient(*ignored, operands, y)
        }
        (Op::Rotary(pairing), [_, _, _]) => rotary::rotary(*pairing, Turn::Forward, operands, y),
        (Op::RotaryGradient(pairing), [_, _, _]) => rotary::rotary(*pairing, Turn::Back, operands, y),
        (Op::Transpose { permutation }, [x]) if moves => Ok(movement::transpose(permutation, x, y)),
        (Op::Slice { starts, steps, .. }, [x]) if moves => Ok(movement::slice(starts, steps, x, y)),
        (Op::Pad { before, edge: Edge::Constant(value), .. }, [x]) if moves => {
            movement::pad(before, *value, x, y)
        }
        (Op::Pad { before, edge, .. }, [x]) if moves => places::pad(before, *edge, x, y),
        (Op::Conv(attributes), [_, _] | [_, _, _]) => conv::conv(attributes, Made::Result, operands, y),
        (Op::ConvInputGradient { conv: attributes, .. }, [_, _]) => {
            conv::conv(attributes, Made::Input, operands, y)
        }
        (Op::ConvWeightGradient { conv: attributes, .. }, [_, _]) => {
            conv::conv(attributes, Made::Weight, operands, y)
        }
        (Op::GatherElements { dim }, [data, indices]) if data.type_.dtype == y.type_.dtype => {
            places::gather_elements(*dim, [data, indices], y)
        }
        (Op::GatherNd { batch_dims }, [data, indices]) if data.type_.dtype == y.type_.dtype => {
            places::gather_nd(*batch_dims, [data, indices], y)
        }
        (Op::ScatterElements { dim, scatter }, [data, indices, updates]) if moved(data, updates, y) => {
            places::scatter_elements(*dim, *scatter, [data, indices, updates], y, movement::whole(y))
        }
        (Op::ScatterNd { scatter }, [data, indices, updates]) if moved(data, updates, y) => {
            places::scatter_nd(*scatter, [data, indices, updates], y, movement::whole(y))
        }
        (Op::Resize(attributes), [x]) if moves => resample::resize(attributes, x, y),
        (Op::Experts { activation, limit, active }, _) => {
            experts::experts(*activation, *limit, *active, operands, y)
        }
        (Op::Contract(labels), [a, b]) => contract::contract(labels, [a, b], None, y),
        (Op::Contract(labels), [a, b, addend]) if addend.strides() == y.strides() => {
            contract::contract(labels, [a, b], Some(addend), y)
        }
        (Op::Gather { dim }, [_, _]) => indexing::gather(*dim, operands, y),
        (Op::GatherGradient { dim, .. }, [_, _]) => indexing::gather_gradient(*dim, operands, y),
        _ => Err(missing()),
    }
}

/// The kernels of an operation that writes its result over an operand, which lies where the result does: of the
/// result only what it changes is written.
pub fn write(op: &Op, operands: &[Piece], results: &[Piece]) -> Result<Work, Uncovered> {
    match (op, operands, results) {
        (Op::ScatterElements { dim, scatter }, [data, indices, updates], [y]) if moved(data, updates, y) => {
            places::scatter_elements(*dim, *scatter, [data, indices, updates], y, Work::default())
        }
        (Op::ScatterNd { scatter }, [data, indices, updates], [y]) if moved(data, updates, y) => {
            places::scatter_nd(*scatter, [data, indices, updates], y, Work::default())
        }
        _ => Err(Uncovered::Missing(format!("{} over an operand", named(op)))),
    }
}

/// Whether what is scattered is of the type of the result.
fn moved(data: &Piece, updates: &Piece, y: &Piece) -> bool {
    data.type_.dtype == y.type_.dtype && updates.type_.dtype == y.type_.dtype
}

fn same_types(operands: &[Piece], results: &[Piece]) -> bool {
    operands.iter().chain(results).all(|it| it.type_.dtype == results[0].type_.dtype)
}

/// The kernel of a copy, whose source is operand 0 and whose target is result 0.
pub fn copied(copying: &Copying) -> Work {
    copying.work(Argument::Operand(0), Argument::Result(0))
}
