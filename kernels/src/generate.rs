//! Values made of nothing, and by chance: constants, ranges, random masks, random rounding.

use half::bf16;
use planner_ir::{Real, Type};

use crate::array::{Array, Tensor, TensorMut, element_count, expect_dtype, extents};
use crate::cast::cast;
use crate::error::KernelError;
use crate::nest::{Level, Nest, row_major};
use crate::number::{Float, Number, with_float};
use crate::random::mixed;
use crate::widen::indices;

/// The block of a constant that the result is.
pub(crate) fn constant(type_: &Type, data: &[u8], y: &mut TensorMut) -> Result<(), KernelError> {
    let expected = type_.bytes();
    if u64::try_from(data.len()) != Ok(expected) {
        return Err(KernelError::Bytes { found: data.len(), expected });
    }
    if y.spans.is_empty() {
        let whole = Array::from_bytes(type_.clone(), data)?;
        return crate::movement::reshape(&whole.tensor(), y);
    }
    // A block is a slice that starts at 0: the spans of the result say where.
    let whole = Array::from_bytes(type_.clone(), data)?;
    let rank = type_.shape.len();
    crate::movement::slice(&vec![0; rank], &vec![1; rank], &whole.tensor(), y)
}

/// `y[i] = start + step * i`.
pub(crate) fn iota(start: Real, step: Real, y: &mut TensorMut) -> Result<(), KernelError> {
    let [length] = *y.shape else {
        return Err(KernelError::Dimension { dim: 0, rank: y.shape.len() });
    };
    let first = y.span(0).start;
    let mut numbers = Array::zeros(Type::new(planner_ir::DType::F64, vec![length]))?;
    let mut target = numbers.tensor_mut();
    for (index, number) in (first..).zip(target.elements_mut::<f64>()?) {
        *number = start.0 + step.0 * Number::to_f64(index);
    }
    cast(&numbers.tensor(), y)
}

/// Each element kept with probability 1 − ratio and divided by that, else 0; and the mask.
///
/// If a number is given, other elements are kept than for other numbers.
pub(crate) fn dropout(
    ratio: Real,
    seed: u64,
    (x, number): (&Tensor, Option<&Tensor>),
    [y, mask]: [&mut TensorMut; 2],
) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    if x.shape != y.shape || x.shape != mask.shape {
        return Err(KernelError::Shape {
            of: "a mask",
            found: mask.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    let seed = seed_of(seed, number)?;
    let kept = mask.truths_mut()?;
    for_each_place(x, |place, position| {
        kept[place] = u8::from(random(seed, position) >= ratio.0);
    })?;
    with_float!(x.dtype, "dropout", T => {
        let scale = 1.0 / (1.0 - ratio.0);
        keep(x.elements::<T>()?, kept, T::of_f64(scale), y.elements_mut::<T>()?);
        Ok(())
    })
}

/// Each f32 as one of the two bf16 next to it, up with a probability of how much of the way it is.
///
/// If a number is given, other elements go up than for other numbers.
pub(crate) fn round_stochastically(
    seed: u64,
    (x, number): (&Tensor, Option<&Tensor>),
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    if x.shape != y.shape {
        return Err(KernelError::Shape {
            of: "what is rounded",
            found: y.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    let seed = seed_of(seed, number)?;
    let (from, to) = (x.elements::<f32>()?, y.elements_mut::<bf16>()?);
    for_each_place(x, |place, position| to[place] = rounded(from[place], bits(seed, position)))
}

/// A number as one of the two bf16 next to it, by random bits: what it has beyond a bf16 is so many
/// 65536ths of the way to the next one away from zero, and as many of the numbers that 16 bits may be
/// carry into it.
fn rounded(x: f32, random: u64) -> bf16 {
    if !x.is_finite() {
        return bf16::from_f32(x);
    }
    let carried = u64::from(x.abs().to_bits()) + (random & 0xffff);
    let size = bf16::from_bits(u16::try_from(carried >> 16).unwrap_or(u16::MAX)).min(bf16::MAX);
    if x.is_sign_negative() { -size } else { size }
}

/// Where randomness starts: another place for each number, if one is given.
pub(crate) fn seed_of(seed: u64, number: Option<&Tensor>) -> Result<u64, KernelError> {
    match number.map(|number| indices(number)).transpose()?.as_deref() {
        None => Ok(seed),
        Some(&[number]) => Ok(mixed(seed).wrapping_add(number.cast_unsigned())),
        Some(numbers) => {
            let found = numbers.len();
            Err(KernelError::Count { of: "numbers that randomness starts from", found, expected: "1" })
        }
    }
}

/// Does something for each element of a block: its place there, and its position in the whole value,
/// row-major.
pub(crate) fn for_each_place(x: &Tensor, mut each: impl FnMut(usize, u64)) -> Result<(), KernelError> {
    let spans: Vec<_> = (0..x.shape.len()).map(|dim| x.span(dim)).collect();
    let whole: Vec<u64> = spans.iter().map(|span| span.extent).collect();
    element_count(&whole)?;
    let start = extents(&spans.iter().map(|span| span.start).collect::<Vec<_>>())?;
    let (global, local) = (row_major(&extents(&whole)?), extents(x.shape)?);
    let strides = row_major(&local);
    let first = start.iter().zip(&global).map(|(start, stride)| start * stride).sum();
    let nest = Nest::<2>::new(
        (0..local.len()).map(|dim| Level { extent: local[dim], strides: [strides[dim], global[dim]] }),
    );
    let row = nest.row();
    nest.for_each_row([0, first], |[place, position]| {
        for index in 0..row.extent {
            let position = position + index * row.strides[1];
            each(place + index, u64::try_from(position).unwrap_or(u64::MAX));
        }
    });
    Ok(())
}

fn keep<T: Float>(x: &[T], kept: &[u8], scale: T, y: &mut [T]) {
    for ((y, &x), &kept) in y.iter_mut().zip(x).zip(kept) {
        *y = if kept == 0 { T::ZERO } else { x.times(scale) };
    }
}

/// A number from 0 to below 1 that depends on the seed and the position alone.
fn random(seed: u64, position: u64) -> f64 {
    /// Bits of an f64's mantissa, and what one of them is worth.
    const BITS: u32 = 53;
    const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;
    Number::to_f64(bits(seed, position) >> (u64::BITS - BITS)) * UNIT
}

/// Bits that depend on the seed and the position alone.
pub(crate) fn bits(seed: u64, position: u64) -> u64 {
    mixed(mixed(seed).wrapping_add(position))
}

#[cfg(test)]
mod tests;
