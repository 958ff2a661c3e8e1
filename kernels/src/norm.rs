//! Rows made comparable: softmax and the normalisations.

use planner_ir::{Binary, Real, Type};

use crate::array::{Array, Tensor, TensorMut, expect_dtype, extents};
use crate::elementwise::binary;
use crate::error::KernelError;
use crate::number::{Float, Number, with_float};
use crate::reduce::{fold_row, rows_along};
use crate::wide::wide;

mod gradient;

pub(crate) use gradient::{dot, normalise_gradient, softmax_gradient};

/// What softmax gives of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
}

/// `exp(x - max) / sum(exp(x - max))` along a dimension, or its logarithm.
pub(crate) fn softmax(scale: Scale, dim: usize, x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    let (_, extent, inner) = rows_along(dim, x, y)?;
    let length = (extent * inner).max(1);
    with_float!(x.dtype, "softmax", T => {
        let (x, y) = (x.elements::<T>()?, y.elements_mut::<T>()?);
        for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
            match (inner, scale) {
                (1, Scale::Linear) => {
                    y.copy_from_slice(x);
                    wide!(softmax_row, y);
                }
                (1, Scale::Logarithmic) => wide!(log_softmax_row, (x, y)),
                _ => wide!(softmax_columns, (scale, inner, x, y)),
            }
        }
        Ok(())
    })
}

/// Softmax of a row, in its place; returns the largest element it had, and the sum of the
/// exponentials of the differences to it.
#[inline(always)]
pub(crate) fn softmax_row<T: Float>(row: &mut [T]) -> (T, T) {
    let largest = fold_row((row, T::LOWEST, T::larger));
    for x in row.iter_mut() {
        *x = x.minus(largest).exp();
    }
    let sum = fold_row((row, T::ZERO, T::plus));
    for x in row.iter_mut() {
        *x = x.over(sum);
    }
    (largest, sum)
}

/// The logarithm of softmax of a row.
#[inline(always)]
fn log_softmax_row<T: Float>((x, y): (&[T], &mut [T])) {
    let (largest, logarithm) = log_sum(x, y);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x.minus(largest).minus(logarithm);
    }
}

/// The largest element of a row, and the logarithm of the sum of the exponentials of the
/// differences to it, which are left in the room.
#[inline(always)]
pub(crate) fn log_sum<T: Float>(x: &[T], room: &mut [T]) -> (T, T) {
    let largest = fold_row((x, T::LOWEST, T::larger));
    for (room, &x) in room.iter_mut().zip(x) {
        *room = x.minus(largest).exp();
    }
    (largest, fold_row((room, T::ZERO, T::plus)).ln())
}

/// Softmax of columns that are `inner` wide, or its logarithm.
#[inline(always)]
fn softmax_columns<T: Float>((scale, inner, x, y): (Scale, usize, &[T], &mut [T])) {
    let mut largest = vec![T::LOWEST; inner];
    for row in x.chunks_exact(inner) {
        for (largest, &x) in largest.iter_mut().zip(row) {
            *largest = largest.larger(x);
        }
    }
    let mut sums = vec![T::ZERO; inner];
    for (row, target) in x.chunks_exact(inner).zip(y.chunks_exact_mut(inner)) {
        for (((y, &x), &largest), sum) in target.iter_mut().zip(row).zip(&largest).zip(&mut sums) {
            *y = x.minus(largest).exp();
            *sum = sum.plus(*y);
        }
    }
    match scale {
        Scale::Linear => {
            for target in y.chunks_exact_mut(inner) {
                for (y, &sum) in target.iter_mut().zip(&sums) {
                    *y = y.over(sum);
                }
            }
        }
        Scale::Logarithmic => {
            let shifts = largest.iter().zip(&sums).map(|(largest, sum)| (*largest, sum.ln()));
            let shifts: Vec<(T, T)> = shifts.collect();
            for (row, target) in x.chunks_exact(inner).zip(y.chunks_exact_mut(inner)) {
                for ((y, &x), &(largest, logarithm)) in target.iter_mut().zip(row).zip(&shifts) {
                    *y = x.minus(largest).minus(logarithm);
                }
            }
        }
    }
}

/// What is subtracted from a row before it is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Centre {
    Mean,
    Zero,
}

/// `(x - centre) / sqrt(mean((x - centre)^2) + epsilon) * scale [+ bias]` over the last
/// dimensions.
pub(crate) fn normalise(
    centre: Centre,
    dims: usize,
    epsilon: Real,
    [x, scale]: [&Tensor; 2],
    bias: Option<&Tensor>,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let rank = x.shape.len();
    let first = rank.checked_sub(dims).filter(|_| dims > 0);
    let first = first.ok_or(KernelError::Dimension { dim: dims, rank })?;
    rows_along(first, x, y)?;
    let sample = &x.shape[first..];
    let length = extents(sample)?.iter().product::<usize>().max(1);
    let is_row = |operand: &Tensor| operand.shape == sample;
    if is_row(scale) && bias.is_none_or(is_row) {
        return with_float!(x.dtype, "normalisation", T => {
            let scale = scale.elements::<T>()?;
            let bias = bias.map(Tensor::elements::<T>).transpose()?;
            let (x, y) = (x.elements::<T>()?, y.elements_mut::<T>()?);
            for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
                wide!(normalise_row, (centre, T::of_f64(epsilon.0), x, &mut *y));
                wide!(scale_row, (y, scale, bias));
            }
            Ok(())
        });
    }
    let mut plain = Array::zeros(Type::new(x.dtype, x.shape))?;
    with_float!(x.dtype, "normalisation", T => {
        let mut plain = plain.tensor_mut();
        let (x, y) = (x.elements::<T>()?, plain.elements_mut::<T>()?);
        for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
            wide!(normalise_row, (centre, T::of_f64(epsilon.0), x, y));
        }
        Ok(())
    })?;
    binary(Binary::Mul, [&plain.tensor(), scale], y)?;
    let Some(bias) = bias else { return Ok(()) };
    plain.bytes_mut().copy_from_slice(y.bytes);
    binary(Binary::Add, [&plain.tensor(), bias], y)
}

/// Each sample and channel of `x: [n, c, ...]` normalised, times `scale: [c]` plus `bias: [c]`.
pub(crate) fn normalise_instances(
    epsilon: Real,
    [x, scale, bias]: [&Tensor; 3],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    rows_along(1, x, y)?;
    for operand in [scale, bias] {
        expect_dtype(operand.dtype, x.dtype)?;
        if operand.shape != &x.shape[1..2] {
            return Err(KernelError::Shape {
                of: "a number for each channel",
                found: operand.shape.to_vec(),
                expected: x.shape[1..2].to_vec(),
            });
        }
    }
    let shape = extents(x.shape)?;
    let length = shape[2..].iter().product::<usize>().max(1);
    with_float!(x.dtype, "normalisation", T => {
        let (scale, bias) = (scale.elements::<T>()?, bias.elements::<T>()?);
        let (x, y) = (x.elements::<T>()?, y.elements_mut::<T>()?);
        let rows = x.chunks_exact(length).zip(y.chunks_exact_mut(length));
        for (row, (x, y)) in rows.enumerate() {
            wide!(normalise_row, (Centre::Mean, T::of_f64(epsilon.0), x, &mut *y));
            let channel = row % shape[1];
            for y in y {
                *y = y.times(scale[channel]).plus(bias[channel]);
            }
        }
        Ok(())
    })
}

/// A row less its centre, divided by its deviation from it.
#[inline(always)]
fn normalise_row<T: Float>((centre, epsilon, x, y): (Centre, T, &[T], &mut [T])) {
    let count = T::of_f64(Number::to_f64(u64::try_from(x.len()).unwrap_or(u64::MAX)));
    let middle = match centre {
        Centre::Mean => fold_row((x, T::ZERO, T::plus)).over(count),
        Centre::Zero => T::ZERO,
    };
    for (y, &x) in y.iter_mut().zip(x) {
        let difference = x.minus(middle);
        *y = difference.times(difference);
    }
    let variance = fold_row((y, T::ZERO, T::plus)).over(count);
    let factor = T::ONE.over(variance.plus(epsilon).root());
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x.minus(middle).times(factor);
    }
}

/// `y = y * scale [+ bias]`.
#[inline(always)]
fn scale_row<T: Float>((y, scale, bias): (&mut [T], &[T], Option<&[T]>)) {
    match bias {
        Some(bias) => {
            for ((y, &scale), &bias) in y.iter_mut().zip(scale).zip(bias) {
                *y = y.times(scale).plus(bias);
            }
        }
        None => {
            for (y, &scale) in y.iter_mut().zip(scale) {
                *y = y.times(scale);
            }
        }
    }
}

#[cfg(test)]
mod tests;
