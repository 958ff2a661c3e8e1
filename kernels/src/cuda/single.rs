//! The kernels of chains, and of operations that are chains of one: element by element, or row by row.

use planner_ir::{DType, Op};

use super::chain::{Chain, Input, Step};
use super::launch::{Piece, Uncovered, Work};
use super::norm::{self, is_norm};
use super::number::is_covered;
use super::pointwise;

/// The kernel that computes operations together: element by element, or row by row if one is a norm.
pub fn chained(chain: &Chain) -> Result<Work, Uncovered> {
    let read = chain.operands.iter().map(|it| it.type_.dtype);
    let mut elements = read.chain(chain.steps.iter().flat_map(|it| it.results.iter().copied()));
    if let Some(dtype) = elements.find(|&dtype| !is_covered(dtype)) {
        return Err(Uncovered::Missing(format!("elements of {dtype}")));
    }
    if let Some(lying) = chain.lying()? {
        return chained(&lying);
    }
    let names: Vec<String> = chain.steps.iter().map(|step| named(&step.op)).collect();
    if chain.steps.iter().any(|step| is_norm(&step.op)) {
        return norm::normalised(chain, &names.join(", "));
    }
    pointwise::pointwise(chain, &names.join(", "))
}

/// The kernels of an operation that is computed as a chain.
pub(super) fn single(op: &Op, operands: &[Piece], results: &[Piece]) -> Result<Work, Uncovered> {
    chained(&chain(op, operands, results)?)
}

/// What an operation is called in a source: without numbers that are arguments.
pub(super) fn named(op: &Op) -> String {
    match op {
        Op::Dropout { ratio, .. } => format!("Dropout({ratio})"),
        Op::RoundStochastically { .. } => "RoundStochastically".to_owned(),
        Op::Iota { start, step, .. } => format!("Iota({start}, {step})"),
        Op::Fill { value, .. } => format!("Fill({value})"),
        Op::Expand { .. } => "Expand".to_owned(),
        _ if is_norm(op) => format!("{op:?}").chars().take_while(char::is_ascii_alphanumeric).collect(),
        _ => format!("{op:?}"),
    }
}

/// One operation as a chain.
fn chain(op: &Op, operands: &[Piece], results: &[Piece]) -> Result<Chain, Uncovered> {
    let first =
        results.first().ok_or_else(|| Uncovered::Missing("an operation without results".to_owned()))?;
    let dtypes: Vec<DType> = results.iter().map(|it| it.type_.dtype).collect();
    if results.iter().any(|it| it.type_.shape != first.type_.shape || it.order != first.order) {
        return Err(Uncovered::Missing(format!("{op:?} with results of different shapes")));
    }
    // Which elements are kept, or go up, depends on where the operand lies.
    let by_chance = matches!(op, Op::Dropout { .. } | Op::RoundStochastically { .. });
    let placed = if by_chance { operands.first().unwrap_or(first) } else { first };
    Ok(Chain {
        shape: first.type_.shape.clone(),
        spans: placed.spans.clone(),
        order: first.order.clone(),
        operands: operands.to_vec(),
        steps: vec![Step {
            op: op.clone(),
            inputs: (0..operands.len()).map(Input::Operand).collect(),
            results: dtypes,
        }],
        results: (0..results.len()).map(|result| (0, result)).collect(),
    })
}
