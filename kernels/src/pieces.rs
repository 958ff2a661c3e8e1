//! A result computed in pieces of a few rows.
//!
//! Where elements have to be widened first, the widened copies of a piece stay in the cache.

use planner_ir::Op;

use crate::array::{Tensor, TensorMut, element_count, extents};
use crate::error::KernelError;
use crate::number::computed_as;

/// About how many elements a piece has.
const PIECE: usize = 16_384;

/// Computes the one result of an operation in pieces, if its rows are independent and widened;
/// else everything at once.
pub(crate) fn in_pieces(
    op: &Op,
    operands: &[Tensor],
    results: &mut [TensorMut],
    compute: impl Fn(&[Tensor], &mut [TensorMut]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let [y] = results else { return compute(operands, results) };
    let is_wide = computed_as(y.dtype) == y.dtype && operands.iter().all(|x| computed_as(x.dtype) == x.dtype);
    let Some(dim) = split(op, y.shape).filter(|_| !is_wide) else {
        return compute(operands, results);
    };
    let rows = extents(y.shape)?[dim];
    let row = element_count(&y.shape[dim + 1..])?;
    let step = (PIECE / row.max(1)).max(1);
    if rows <= step {
        return compute(operands, results);
    }
    for start in (0..rows).step_by(step) {
        let count = step.min(rows - start);
        let shapes = operands
            .iter()
            .map(|x| piece_shape(x.shape, y.shape, dim, count))
            .collect::<Result<Vec<_>, _>>()?;
        let pieces: Vec<Tensor> = operands
            .iter()
            .zip(&shapes)
            .map(|(x, shape)| match shape {
                Some(shape) => {
                    let pitch = x.bytes.len() / rows;
                    let bytes = &x.bytes[start * pitch..(start + count) * pitch];
                    Tensor { dtype: x.dtype, shape, bytes, spans: &[] }
                }
                None => *x,
            })
            .collect();
        let shape = piece_shape(y.shape, y.shape, dim, count)?.ok_or(KernelError::Size)?;
        let pitch = y.bytes.len() / rows;
        let bytes = &mut y.bytes[start * pitch..(start + count) * pitch];
        compute(&pieces, &mut [TensorMut { dtype: y.dtype, shape: &shape, bytes, spans: &[] }])?;
    }
    Ok(())
}

/// The outermost dimension that has rows, if they do not depend on each other.
fn split(op: &Op, shape: &[u64]) -> Option<usize> {
    let dim = shape.iter().position(|&extent| extent > 1)?;
    let independent = match op {
        Op::Unary(_) | Op::Binary(_) | Op::Gated(_) => shape.len(),
        Op::Softmax { dim } | Op::LogSoftmax { dim } => *dim,
        Op::LayerNorm { dims, .. } | Op::RmsNorm { dims, .. } => shape.len().checked_sub(*dims)?,
        _ => 0,
    };
    (dim < independent).then_some(dim)
}

/// The shape of so many rows of an operand, or nothing if it is repeated for each row.
fn piece_shape(
    shape: &[u64],
    result: &[u64],
    dim: usize,
    count: usize,
) -> Result<Option<Vec<u64>>, KernelError> {
    let Some(own) = (dim + shape.len()).checked_sub(result.len()) else { return Ok(None) };
    let has_rows = shape.get(own) == Some(&result[dim]) && shape[..own].iter().all(|&extent| extent == 1);
    if !has_rows {
        return Ok(None);
    }
    let mut piece = shape.to_vec();
    piece[own] = u64::try_from(count).map_err(|_| KernelError::Size)?;
    Ok(Some(piece))
}
