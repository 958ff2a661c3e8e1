//! Which elements are the largest or smallest.

use std::cmp::Ordering;

use planner_ir::Extreme;

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::number::{Number, with_number};

/// The position of the extreme along a dimension; the first of equals.
pub(crate) fn arg_extreme(
    extreme: Extreme,
    dim: usize,
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let rank = x.shape.len();
    if dim >= rank {
        return Err(KernelError::Dimension { dim, rank });
    }
    let mut expected = x.shape.to_vec();
    expected[dim] = 1;
    check_shape(y, &expected)?;
    if x.shape[dim] == 0 {
        return Err(KernelError::Number { of: "the extent of what has an extreme", found: 0 });
    }
    let first = i64::try_from(x.span(dim).start).map_err(|_| KernelError::Size)?;
    let shape = extents(x.shape)?;
    let inner: usize = shape[dim + 1..].iter().product();
    let positions = y.elements_mut::<i64>()?;
    with_number!(x.dtype, "an extreme", T => {
        let x = x.elements::<T>()?;
        for (row, position) in positions.iter_mut().enumerate() {
            let start = row / inner * shape[dim] * inner + row % inner;
            let element = |at: usize| x[start + at * inner];
            let mut best = 0;
            for at in 1..shape[dim] {
                if compare(extreme, element(at), element(best)) == Ordering::Less {
                    best = at;
                }
            }
            *position = first + i64::try_from(best).map_err(|_| KernelError::Size)?;
        }
        Ok(())
    })
}

/// The extreme elements along a dimension, as many as fit, in order, and where they were; equal
/// ones by lower index.
pub(crate) fn top(
    extreme: Extreme,
    dim: usize,
    x: &Tensor,
    [values, positions]: [&mut TensorMut; 2],
) -> Result<(), KernelError> {
    expect_dtype(x.dtype, values.dtype)?;
    let rank = x.shape.len();
    if dim >= rank || values.shape.len() != rank {
        return Err(KernelError::Dimension { dim, rank });
    }
    let mut expected = x.shape.to_vec();
    expected[dim] = values.shape[dim].min(x.shape[dim]);
    check_shape(values, &expected)?;
    check_shape(positions, &expected)?;
    let first = i64::try_from(x.span(dim).start).map_err(|_| KernelError::Size)?;
    let shape = extents(x.shape)?;
    let count = extents(values.shape)?[dim];
    let inner: usize = shape[dim + 1..].iter().product();
    let outer: usize = shape[..dim].iter().product();
    let positions = positions.elements_mut::<i64>()?;
    with_number!(x.dtype, "an order", T => {
        let (x, values) = (x.elements::<T>()?, values.elements_mut::<T>()?);
        for row in 0..outer * inner {
            let (block, offset) = (row / inner, row % inner);
            let element = |at: usize| x[(block * shape[dim] + at) * inner + offset];
            let mut order: Vec<usize> = (0..shape[dim]).collect();
            order.sort_by(|&a, &b| compare(extreme, element(a), element(b)));
            for (rank, &at) in order.iter().take(count).enumerate() {
                let place = (block * count + rank) * inner + offset;
                values[place] = element(at);
                positions[place] = first + i64::try_from(at).map_err(|_| KernelError::Size)?;
            }
        }
        Ok(())
    })
}

/// Whether a comes before b; what is not a number is larger than any.
fn compare<T: Number>(extreme: Extreme, a: T, b: T) -> Ordering {
    let ascending = a.partial_cmp(&b).unwrap_or_else(|| a.is_not_a_number().cmp(&b.is_not_a_number()));
    match extreme {
        Extreme::Smallest => ascending,
        Extreme::Largest => ascending.reverse(),
    }
}

fn check_shape(y: &TensorMut, expected: &[u64]) -> Result<(), KernelError> {
    if y.shape == expected {
        return Ok(());
    }
    Err(KernelError::Shape { of: "extremes", found: y.shape.to_vec(), expected: expected.to_vec() })
}

#[cfg(test)]
mod tests;
