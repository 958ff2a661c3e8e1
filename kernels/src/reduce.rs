//! Many elements to one.

use planner_ir::Reduction;

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::nest::{Level, Nest, row_major};
use crate::number::{Number, with_number};
use crate::wide::wide;

/// How many partial results a row is reduced to first.
const LANES: usize = 16;

/// One number for all the elements along some dimensions, whose extent becomes 1.
///
/// The mean of a block is its sum divided by how many elements the whole value has.
pub(crate) fn reduce(
    reduction: Reduction,
    dims: &[usize],
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    let rank = x.shape.len();
    if let Some(&dim) = dims.iter().find(|&&dim| dim >= rank) {
        return Err(KernelError::Dimension { dim, rank });
    }
    let kept = |dim: usize| if dims.contains(&dim) { 1 } else { x.shape[dim] };
    let expected: Vec<u64> = (0..rank).map(kept).collect();
    if expected != y.shape {
        return Err(KernelError::Shape { of: "a reduction", found: y.shape.to_vec(), expected });
    }
    let source = extents(x.shape)?;
    let (strides, targets) = (row_major(&source), row_major(&extents(y.shape)?));
    let nest = Nest::new((0..rank).map(|dim| {
        let target = if dims.contains(&dim) { 0 } else { targets[dim] };
        Level { extent: source[dim], strides: [target, strides[dim]] }
    }));
    let count = dims.iter().map(|&dim| x.span(dim).extent).product::<u64>();
    let dtype = x.dtype;
    with_number!(x.dtype, "a reduction", T => {
        let (x, y) = (x.elements::<T>()?, y.elements_mut::<T>()?);
        match reduction {
            Reduction::Sum => fold(&nest, T::ZERO, T::plus, x, y),
            Reduction::Product => fold(&nest, T::ONE, T::times, x, y),
            Reduction::Max => fold(&nest, T::LOWEST, T::larger, x, y),
            Reduction::Min => fold(&nest, T::HIGHEST, T::smaller, x, y),
            Reduction::Mean => {
                fold(&nest, T::ZERO, T::plus, x, y);
                let count = T::of_f64(Number::to_f64(count));
                if count == T::ZERO && !dtype.is_float() {
                    return Err(KernelError::DivisionByZero);
                }
                y.iter_mut().for_each(|y| *y = y.over(count));
            }
        }
        Ok(())
    })
}

/// Combines elements of x (place 1) into elements of y (place 0).
fn fold<T: Number>(nest: &Nest<2>, identity: T, combine: impl Fn(T, T) -> T + Copy, x: &[T], y: &mut [T]) {
    y.fill(identity);
    let Level { extent, strides } = nest.row();
    nest.for_each_row([0, 0], |[y_start, x_start]| {
        let x = &x[x_start..x_start + extent];
        if strides[0] == 0 || extent == 1 {
            y[y_start] = combine(y[y_start], wide!(fold_row, (x, identity, combine)));
        } else {
            wide!(fold_rows, (&mut y[y_start..y_start + extent], x, combine));
        }
    });
}

/// The elements of a row combined.
#[inline(always)]
pub(crate) fn fold_row<T: Number, F: Fn(T, T) -> T>((row, identity, combine): (&[T], T, F)) -> T {
    let mut lanes = [identity; LANES];
    let mut blocks = row.chunks_exact(LANES);
    for block in &mut blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane = combine(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(blocks.remainder()) {
        *lane = combine(*lane, x);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// A row combined with another, element by element.
#[inline(always)]
fn fold_rows<T: Number, F: Fn(T, T) -> T>((y, x, combine): (&mut [T], &[T], F)) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = combine(*y, x);
    }
}

/// Whether a running sum has its own element in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Included,
    LeftOut,
}

/// Where a running sum begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Start,
    End,
}

/// Running sums along a dimension.
pub(crate) fn cumulative_sum(
    dim: usize,
    own: Own,
    from: From,
    x: &Tensor,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let (_, extent, inner) = rows_along(dim, x, y)?;
    with_number!(x.dtype, "a running sum", T => {
        let (x, y) = (x.elements::<T>()?, y.elements_mut::<T>()?);
        let length = (extent * inner).max(1);
        for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
            let mut sums = vec![T::ZERO; inner];
            for at in 0..extent {
                let at = if from == From::End { extent - 1 - at } else { at };
                for (index, sum) in sums.iter_mut().enumerate() {
                    let place = at * inner + index;
                    let next = sum.plus(x[place]);
                    y[place] = if own == Own::Included { next } else { *sum };
                    *sum = next;
                }
            }
        }
        Ok(())
    })
}

/// How many elements are before, along and after a dimension of an operand and a result of the
/// same type.
pub(crate) fn rows_along(
    dim: usize,
    x: &Tensor,
    y: &TensorMut,
) -> Result<(usize, usize, usize), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    let rank = x.shape.len();
    if dim >= rank {
        return Err(KernelError::Dimension { dim, rank });
    }
    if x.shape != y.shape {
        return Err(KernelError::Shape {
            of: "a result",
            found: y.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    let shape = extents(x.shape)?;
    Ok((shape[..dim].iter().product(), shape[dim], shape[dim + 1..].iter().product()))
}

#[cfg(test)]
mod tests;
