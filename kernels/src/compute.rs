//! Which kernel computes an operation, on blocks and on whole values.

use planner_ir::{Op, Scatter, Type};

use crate::array::{Array, Tensor, TensorMut, byte_count};
use crate::error::KernelError;
use crate::widen::widened;
use crate::{cast, elementwise, generate, indexing, movement};

/// Computes blocks of an operation's results from blocks of its operands.
///
/// Shapes are those of the blocks, whatever the operation says of whole values; spans say where
/// the blocks lie. Every element of the results is set.
pub fn compute(
    op: &Op,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    for x in operands {
        check_bytes(x.bytes.len(), byte_count(x.dtype, x.shape)?)?;
        check_spans(x.shape.len(), x.spans.len())?;
    }
    for y in results.iter() {
        check_bytes(y.bytes.len(), byte_count(y.dtype, y.shape)?)?;
        check_spans(y.shape.len(), y.spans.len())?;
    }
    if moves_bytes(op) {
        return dispatch(op, operands, results);
    }
    widened(operands, results, |operands, results| dispatch(op, operands, results))
}

/// Computes an operation's whole results from whole operands.
pub fn evaluate(op: &Op, operands: &[&Array]) -> Result<Vec<Array>, KernelError> {
    let types: Vec<Type> = operands.iter().map(|x| x.type_().clone()).collect();
    let types = op.infer(&types).map_err(|error| KernelError::Type(error.to_string()))?;
    let mut results = types.into_iter().map(Array::zeros).collect::<Result<Vec<_>, _>>()?;
    let operands: Vec<Tensor> = operands.iter().map(|x| x.tensor()).collect();
    let mut targets: Vec<TensorMut> = results.iter_mut().map(Array::tensor_mut).collect();
    compute(op, &operands, &mut targets)?;
    Ok(results)
}

/// Whether an operation's kernel takes elements of every type.
fn moves_bytes(op: &Op) -> bool {
    match op {
        Op::Constant { .. }
        | Op::Fill { .. }
        | Op::Iota { .. }
        | Op::Select
        | Op::Cast(_)
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Concat { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::Triangle { .. }
        | Op::Region(_) => true,
        Op::ScatterElements { scatter, .. } | Op::ScatterNd { scatter } => {
            *scatter == Scatter::Replace
        }
        _ => false,
    }
}

fn dispatch(op: &Op, operands: &[Tensor], results: &mut [TensorMut]) -> Result<(), KernelError> {
    match op {
        Op::Constant { result, data } => generate::constant(result, data, single(results)?),
        Op::Fill { value, .. } => generate::fill(*value, single(results)?),
        Op::Iota { start, step, .. } => generate::iota(*start, *step, single(results)?),
        Op::Unary(function) => {
            let [x] = these(operands, "1")?;
            elementwise::unary(*function, x, single(results)?)
        }
        Op::Binary(function) => {
            elementwise::binary(*function, these(operands, "2")?, single(results)?)
        }
        Op::Select => elementwise::select(these(operands, "3")?, single(results)?),
        Op::Cast(_) => {
            let [x] = these(operands, "1")?;
            cast::cast(x, single(results)?)
        }
        Op::Gated(activation) => {
            elementwise::gated(*activation, these(operands, "2")?, single(results)?)
        }
        Op::Reshape { .. } => {
            let [x] = these(operands, "1")?;
            movement::reshape(x, single(results)?)
        }
        Op::Transpose { permutation } => {
            let [x] = these(operands, "1")?;
            movement::transpose(permutation, x, single(results)?)
        }
        Op::Expand { .. } => {
            let [x] = these(operands, "1")?;
            movement::expand(x, single(results)?)
        }
        Op::Concat { dim } => movement::concat(*dim, operands, single(results)?),
        Op::Slice { starts, steps, .. } => {
            let [x] = these(operands, "1")?;
            movement::slice(starts, steps, x, single(results)?)
        }
        Op::Pad { before, edge, .. } => {
            let [x] = these(operands, "1")?;
            movement::pad(before, *edge, x, single(results)?)
        }
        Op::Gather { dim } => indexing::gather(*dim, these(operands, "2")?, single(results)?),
        Op::GatherElements { dim } => {
            indexing::gather_elements(*dim, these(operands, "2")?, single(results)?)
        }
        Op::GatherNd { batch_dims } => {
            indexing::gather_nd(*batch_dims, these(operands, "2")?, single(results)?)
        }
        Op::ScatterElements { dim, scatter } => {
            let operands = these(operands, "3")?;
            indexing::scatter_elements(*dim, *scatter, operands, single(results)?)
        }
        Op::ScatterNd { scatter } => {
            indexing::scatter_nd(*scatter, these(operands, "3")?, single(results)?)
        }
        Op::Triangle { triangle, diagonal } => {
            let [x] = these(operands, "1")?;
            movement::triangle(*triangle, *diagonal, x, single(results)?)
        }
        Op::Dropout { ratio, seed } => {
            let [x] = these(operands, "1")?;
            generate::dropout(*ratio, *seed, x, pair(results)?)
        }
        _ => Err(KernelError::Type("this operation has no kernel so far".to_owned())),
    }
}

/// The operands, if there are just so many.
fn these<'a, 'b, const N: usize>(
    operands: &'a [Tensor<'b>],
    expected: &'static str,
) -> Result<[&'a Tensor<'b>; N], KernelError> {
    let found = operands.len();
    operands
        .iter()
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| KernelError::Count { of: "operands", found, expected })
}

/// The result, if there is one.
fn single<'a, 'b>(results: &'a mut [TensorMut<'b>]) -> Result<&'a mut TensorMut<'b>, KernelError> {
    match results {
        [y] => Ok(y),
        _ => Err(KernelError::Count { of: "results", found: results.len(), expected: "1" }),
    }
}

/// The results, if there are two.
fn pair<'a, 'b>(
    results: &'a mut [TensorMut<'b>],
) -> Result<[&'a mut TensorMut<'b>; 2], KernelError> {
    match results {
        [first, second] => Ok([first, second]),
        _ => Err(KernelError::Count { of: "results", found: results.len(), expected: "2" }),
    }
}

fn check_bytes(found: usize, expected: usize) -> Result<(), KernelError> {
    if found == expected {
        return Ok(());
    }
    let expected = u64::try_from(expected).map_err(|_| KernelError::Size)?;
    Err(KernelError::Bytes { found, expected })
}

fn check_spans(rank: usize, found: usize) -> Result<(), KernelError> {
    if found == 0 || found == rank {
        return Ok(());
    }
    Err(KernelError::Count { of: "spans", found, expected: "one for each dimension" })
}

#[cfg(test)]
mod tests;
