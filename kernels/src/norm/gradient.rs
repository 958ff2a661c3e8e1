//! Gradients of softmax and of the normalisations.

use planner_ir::{Binary, Real};

use super::Centre;
use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::elementwise::binary;
use crate::error::KernelError;
use crate::number::{Float, Number, with_float};
use crate::reduce::{fold_row, rows_along};
use crate::wide::wide;

/// How many partial sums a row is reduced to first.
const LANES: usize = 16;

/// `dx = y * (dy - sum(y * dy))` along a dimension.
pub(crate) fn softmax_gradient(
    dim: usize,
    [y, dy]: [&Tensor; 2],
    dx: &mut TensorMut,
) -> Result<(), KernelError> {
    like(y, dy)?;
    let (_, extent, inner) = rows_along(dim, y, dx)?;
    let length = (extent * inner).max(1);
    with_float!(y.dtype, "the gradient of softmax", T => {
        let (y, dy, dx) = (y.elements::<T>()?, dy.elements::<T>()?, dx.elements_mut::<T>()?);
        let rows = y.chunks_exact(length).zip(dy.chunks_exact(length)).zip(dx.chunks_exact_mut(length));
        for ((y, dy), dx) in rows {
            if inner == 1 {
                wide!(softmax_gradient_row, (y, dy, dx));
            } else {
                wide!(softmax_gradient_columns, (inner, y, dy, dx));
            }
        }
        Ok(())
    })
}

#[inline(always)]
fn softmax_gradient_row<T: Number>((y, dy, dx): (&[T], &[T], &mut [T])) {
    let sum = dot((y, dy));
    for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
        *dx = y.times(dy.minus(sum));
    }
}

/// The same of columns that are `inner` wide.
#[inline(always)]
fn softmax_gradient_columns<T: Number>((inner, y, dy, dx): (usize, &[T], &[T], &mut [T])) {
    let mut sums = vec![T::ZERO; inner];
    for (y, dy) in y.chunks_exact(inner).zip(dy.chunks_exact(inner)) {
        for ((sum, &y), &dy) in sums.iter_mut().zip(y).zip(dy) {
            *sum = sum.plus(y.times(dy));
        }
    }
    let rows = y.chunks_exact(inner).zip(dy.chunks_exact(inner)).zip(dx.chunks_exact_mut(inner));
    for ((y, dy), dx) in rows {
        for (((dx, &y), &dy), &sum) in dx.iter_mut().zip(y).zip(dy).zip(&sums) {
            *dx = y.times(dy.minus(sum));
        }
    }
}

/// The gradient of a normalisation over the last dimensions towards what is normalised.
pub(crate) fn normalise_gradient(
    centre: Centre,
    dims: usize,
    epsilon: Real,
    [x, scale, dy]: [&Tensor; 3],
    dx: &mut TensorMut,
) -> Result<(), KernelError> {
    like(x, dy)?;
    let rank = x.shape.len();
    let first = rank.checked_sub(dims).filter(|_| dims > 0);
    let first = first.ok_or(KernelError::Dimension { dim: dims, rank })?;
    rows_along(first, x, dx)?;
    let length = extents(&x.shape[first..])?.iter().product::<usize>().max(1);
    // The gradient of what is scaled.
    binary(Binary::Mul, [dy, scale], dx)?;
    with_float!(x.dtype, "the gradient of a normalisation", T => {
        let (x, dx) = (x.elements::<T>()?, dx.elements_mut::<T>()?);
        for (x, dx) in x.chunks_exact(length).zip(dx.chunks_exact_mut(length)) {
            wide!(normalise_gradient_row, (centre, T::of_f64(epsilon.0), x, dx));
        }
        Ok(())
    })
}

/// With n the normalised row and g the gradient towards it: `(g - mean(g) - n mean(g n)) /
/// deviation`, in the place of g; the first mean is 0 if nothing is subtracted from rows.
#[inline(always)]
fn normalise_gradient_row<T: Float>((centre, epsilon, x, g): (Centre, T, &[T], &mut [T])) {
    let count = T::of_f64(Number::to_f64(u64::try_from(x.len()).unwrap_or(u64::MAX)));
    let (middle, mean) = match centre {
        Centre::Mean => {
            (fold_row((x, T::ZERO, T::plus)).over(count), fold_row((g, T::ZERO, T::plus)).over(count))
        }
        Centre::Zero => (T::ZERO, T::ZERO),
    };
    let (square, product) = moments((middle, x, g));
    let factor = T::ONE.over(square.over(count).plus(epsilon).root());
    // n is the difference times the factor, in both of its places.
    let bend = product.over(count).times(factor).times(factor);
    for (g, &x) in g.iter_mut().zip(x) {
        *g = g.minus(mean).minus(x.minus(middle).times(bend)).times(factor);
    }
}

/// `sum((x - middle)²)` and `sum((x - middle) g)`.
#[inline(always)]
fn moments<T: Number>((middle, x, g): (T, &[T], &[T])) -> (T, T) {
    let (mut squares, mut products) = ([T::ZERO; LANES], [T::ZERO; LANES]);
    let (mut rows, mut gradients) = (x.chunks_exact(LANES), g.chunks_exact(LANES));
    let mut add = |x: &[T], g: &[T]| {
        for (((square, product), &x), &g) in squares.iter_mut().zip(&mut products).zip(x).zip(g) {
            let difference = x.minus(middle);
            *square = square.plus(difference.times(difference));
            *product = product.plus(difference.times(g));
        }
    };
    for (x, g) in (&mut rows).zip(&mut gradients) {
        add(x, g);
    }
    add(rows.remainder(), gradients.remainder());
    (fold_row((&squares, T::ZERO, T::plus)), fold_row((&products, T::ZERO, T::plus)))
}

/// `sum(a * b)`.
#[inline(always)]
pub(crate) fn dot<T: Number>((a, b): (&[T], &[T])) -> T {
    let mut sums = [T::ZERO; LANES];
    let (mut left, mut right) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a, b) in (&mut left).zip(&mut right) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum = sum.plus(a.times(b));
        }
    }
    for ((sum, &a), &b) in sums.iter_mut().zip(left.remainder()).zip(right.remainder()) {
        *sum = sum.plus(a.times(b));
    }
    fold_row((&sums, T::ZERO, T::plus))
}

/// Refuses a gradient of another type than its value's.
fn like(x: &Tensor, dy: &Tensor) -> Result<(), KernelError> {
    expect_dtype(dy.dtype, x.dtype)?;
    if x.shape == dy.shape {
        return Ok(());
    }
    Err(KernelError::Shape { of: "a gradient", found: dy.shape.to_vec(), expected: x.shape.to_vec() })
}

#[cfg(test)]
mod tests;
