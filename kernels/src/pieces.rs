//! A result computed in pieces of a few rows.
//!
//! Where elements have to be widened first, the widened copies of a piece stay in the cache.

use planner_ir::Op;

use crate::array::{Tensor, TensorMut, element_count, extents};
use crate::error::KernelError;
use crate::number::computed_as;

/// About how many elements a piece has.
const PIECE: usize = 16_384;

/// Computes the results of an operation, all of one shape, in pieces, if their rows are independent
/// and widened; else everything at once.
pub(crate) fn in_pieces(
    op: &Op,
    operands: &[Tensor],
    results: &mut [TensorMut],
    compute: impl Fn(&[Tensor], &mut [TensorMut]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let Some(whole) = results.first().map(|y| y.shape) else { return compute(operands, results) };
    let dtypes = operands.iter().map(|x| x.dtype).chain(results.iter().map(|y| y.dtype));
    let is_wide = dtypes.into_iter().all(|dtype| computed_as(dtype) == dtype);
    let is_one_shape = results.iter().all(|y| y.shape == whole);
    let Some(dim) = split(op, whole).filter(|_| !is_wide && is_one_shape) else {
        return compute(operands, results);
    };
    let rows = extents(whole)?[dim];
    let row = element_count(&whole[dim + 1..])?;
    let step = (PIECE / row.max(1)).max(1);
    if rows <= step {
        return compute(operands, results);
    }
    for start in (0..rows).step_by(step) {
        let count = step.min(rows - start);
        let shapes = operands
            .iter()
            .map(|x| piece_shape(x.shape, whole, dim, count))
            .collect::<Result<Vec<_>, _>>()?;
        let piece = |length: usize| start * (length / rows)..(start + count) * (length / rows);
        let pieces: Vec<Tensor> = operands
            .iter()
            .zip(&shapes)
            .map(|(x, shape)| match shape {
                Some(shape) => {
                    Tensor { dtype: x.dtype, shape, bytes: &x.bytes[piece(x.bytes.len())], spans: &[] }
                }
                None => *x,
            })
            .collect();
        let shape = piece_shape(whole, whole, dim, count)?.ok_or(KernelError::Size)?;
        let mut made: Vec<TensorMut> = results
            .iter_mut()
            .map(|y| {
                let range = piece(y.bytes.len());
                TensorMut { dtype: y.dtype, shape: &shape, bytes: &mut y.bytes[range], spans: &[] }
            })
            .collect();
        compute(&pieces, &mut made)?;
    }
    Ok(())
}

/// The outermost dimension that has rows, if they do not depend on each other.
fn split(op: &Op, shape: &[u64]) -> Option<usize> {
    let dim = shape.iter().position(|&extent| extent > 1)?;
    let independent = match op {
        Op::Unary(_) | Op::Binary(_) | Op::Gated(_) => shape.len(),
        Op::UnaryGradient(_) | Op::GatedGradient(_) => shape.len(),
        Op::Softmax { dim } | Op::LogSoftmax { dim } | Op::SoftmaxGradient { dim } => *dim,
        Op::LayerNorm { dims, .. }
        | Op::RmsNorm { dims, .. }
        | Op::LayerNormGradient { dims, .. }
        | Op::RmsNormGradient { dims, .. } => shape.len().checked_sub(*dims)?,
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
