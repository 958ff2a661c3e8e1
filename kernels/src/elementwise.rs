//! Functions of one, two and three elements, broadcast.

use planner_ir::{Binary, Type, Unary};

use crate::array::{Array, Tensor, TensorMut, element_count, expect_dtype, extents};
use crate::error::KernelError;
use crate::nest::{Level, broadcast};
use crate::number::{Number, with_number};
use crate::wide::wide;

mod binary;
mod gradient;
mod unary;

pub(crate) use binary::binary;
pub(crate) use gradient::{Differentiated, derivative, gated_gradient, unary_gradient};
pub(crate) use unary::{Activated, activate, unary};

/// How many elements are done at a time, so that they stay in the nearest cache.
const CHUNK: usize = 2048;

/// `y[..] = condition[..] ? a[..] : b[..]`.
pub(crate) fn select([condition, a, b]: [&Tensor; 3], y: &mut TensorMut) -> Result<(), KernelError> {
    expect_dtype(a.dtype, y.dtype)?;
    expect_dtype(b.dtype, y.dtype)?;
    match y.dtype.bytes() {
        1 => select_as::<u8>([condition, a, b], y),
        2 => select_as::<u16>([condition, a, b], y),
        4 => select_as::<u32>([condition, a, b], y),
        _ => select_as::<u64>([condition, a, b], y),
    }
}

/// `select` of elements that are as large as T.
fn select_as<T: bytemuck::Pod>(
    [condition, a, b]: [&Tensor; 3],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let shapes = [extents(condition.shape)?, extents(a.shape)?, extents(b.shape)?];
    let nest = broadcast::<4>(&extents(y.shape)?, &[&shapes[0], &shapes[1], &shapes[2]])?;
    let condition = condition.truths()?;
    let a: &[T] = a.units()?;
    let b: &[T] = b.units()?;
    let y: &mut [T] = y.units_mut()?;
    let Level { extent, strides: [_, condition_stride, a_stride, b_stride] } = nest.row();
    nest.for_each_row([0; 4], |[y_start, condition_start, a_start, b_start]| {
        for (index, y) in y[y_start..y_start + extent].iter_mut().enumerate() {
            let is_true = condition[condition_start + index * condition_stride] != 0;
            *y = if is_true { a[a_start + index * a_stride] } else { b[b_start + index * b_stride] };
        }
    });
    Ok(())
}

/// `y[..] = activation(a[..]) * b[..]`.
pub(crate) fn gated(activation: Unary, [a, b]: [&Tensor; 2], y: &mut TensorMut) -> Result<(), KernelError> {
    if a.shape != y.shape || b.shape != y.shape {
        let mut activated = Array::zeros(Type::new(a.dtype, a.shape))?;
        unary(activation, a, &mut activated.tensor_mut())?;
        return binary(Binary::Mul, [&activated.tensor(), b], y);
    }
    with_number!(y.dtype, "a gated unit", T => {
        let count = element_count(y.shape)?;
        let (a, b, y) = (a.elements::<T>()?, b.elements::<T>()?, y.elements_mut::<T>()?);
        for start in (0..count).step_by(CHUNK) {
            let range = start..count.min(start + CHUNK);
            let y = &mut y[range.clone()];
            activate(activation, &a[range.clone()], y)?;
            wide!(multiply, (y, &b[range]));
        }
        Ok(())
    })
}

/// `y *= b`.
#[inline(always)]
fn multiply<T: Number>((y, b): (&mut [T], &[T])) {
    for (y, &b) in y.iter_mut().zip(b) {
        *y = y.times(b);
    }
}

#[cfg(test)]
mod tests;
