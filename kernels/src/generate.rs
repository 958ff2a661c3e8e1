//! Values made of nothing: constants, ranges, random masks.

use planner_ir::{Real, Type};

use crate::array::{Array, Tensor, TensorMut, element_count, expect_dtype, extents};
use crate::cast::cast;
use crate::error::KernelError;
use crate::nest::{Level, Nest, row_major};
use crate::number::{Float, Number, with_float};
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

/// One number, repeated.
pub(crate) fn fill(number: Real, y: &mut TensorMut) -> Result<(), KernelError> {
    let one = Array::of(Vec::new(), &[number.0])?;
    let mut element = Array::zeros(Type::new(y.dtype, Vec::new()))?;
    cast(&one.tensor(), &mut element.tensor_mut())?;
    for bytes in y.bytes.chunks_exact_mut(element.bytes().len()) {
        bytes.copy_from_slice(element.bytes());
    }
    Ok(())
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
    let seed = match number.map(|number| indices(number)).transpose()?.as_deref() {
        None => seed,
        Some(&[number]) => mixed(seed).wrapping_add(number.cast_unsigned()),
        Some(numbers) => {
            return Err(KernelError::Count { of: "numbers of a mask", found: numbers.len(), expected: "1" });
        }
    };
    let spans: Vec<_> = (0..x.shape.len()).map(|dim| x.span(dim)).collect();
    let whole = extents(&spans.iter().map(|span| span.extent).collect::<Vec<_>>())?;
    element_count(&spans.iter().map(|span| span.extent).collect::<Vec<_>>())?;
    let start = extents(&spans.iter().map(|span| span.start).collect::<Vec<_>>())?;
    let (global, local) = (row_major(&whole), extents(x.shape)?);
    let strides = row_major(&local);
    let first = start.iter().zip(&global).map(|(start, stride)| start * stride).sum();
    let nest = Nest::<2>::new(
        (0..local.len()).map(|dim| Level { extent: local[dim], strides: [strides[dim], global[dim]] }),
    );
    let row = nest.row();
    let kept = mask.truths_mut()?;
    nest.for_each_row([0, first], |[place, position]| {
        for index in 0..row.extent {
            let position = position + index * row.strides[1];
            let number = random(seed, u64::try_from(position).unwrap_or(u64::MAX));
            kept[place + index] = u8::from(number >= ratio.0);
        }
    });
    with_float!(x.dtype, "dropout", T => {
        let scale = 1.0 / (1.0 - ratio.0);
        keep(x.elements::<T>()?, kept, T::of_f64(scale), y.elements_mut::<T>()?);
        Ok(())
    })
}

fn keep<T: Float>(x: &[T], kept: &[u8], scale: T, y: &mut [T]) {
    for ((y, &x), &kept) in y.iter_mut().zip(x).zip(kept) {
        *y = if kept == 0 { T::ZERO } else { x.times(scale) };
    }
}

/// A number from 0 to below 1 that depends on the seed and the position alone: the output
/// function of `SplitMix64`, twice.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
fn random(seed: u64, position: u64) -> f64 {
    /// Bits of an f64's mantissa, and what one of them is worth.
    const BITS: u32 = 53;
    const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;
    let bits = mixed(mixed(seed).wrapping_add(position)) >> (u64::BITS - BITS);
    Number::to_f64(bits) * UNIT
}

fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests;
