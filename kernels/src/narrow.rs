//! Numbers of 8 and 4 bits with scales: magnitudes, quantisation, and sums of products of them.

mod nvfp4; // numbers of 4 bits

use planner_ir::{Contract, DType, Type};

use crate::array::{Array, Tensor, TensorMut, extents};
use crate::cast::cast;
use crate::contract::contract;
use crate::error::KernelError;
use crate::float8::Format;
use crate::number::Number;
use crate::widen::converted;
pub(crate) use nvfp4::quantize_nvfp4;

/// What an exponent of a block's scale is above the scale's.
const BIAS: i32 = 127;

/// The exponent of a block that has what is not finite.
const NOT_FINITE: u8 = 255;

/// `y[p..] = the largest of |x|` in each part, after a random Hadamard transform along a dimension, if one is
/// said.
pub(crate) fn amax(turned: Option<usize>, x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    let wide = converted(x, DType::F32)?;
    let turned = turned.map(|dim| nvfp4::rotated(dim, x)).transpose()?;
    let numbers = match &turned {
        Some(turned) => turned,
        None => wide.elements::<f32>()?,
    };
    let (shape, parts) = (extents(x.shape)?, extents(y.shape)?);
    let misfit =
        || KernelError::Shape { of: "parts of a value", found: y.shape.to_vec(), expected: x.shape.to_vec() };
    let falls = parts.len() == shape.len()
        && shape.iter().zip(&parts).all(|(size, parts)| *parts > 0 && *size > 0 && size % parts == 0);
    if !falls {
        return Err(misfit());
    }
    let found = y.elements_mut::<f32>()?;
    found.fill(0.0);
    let (run, of_row) = match (shape.last(), parts.last()) {
        (Some(size), Some(parts)) => (size / parts, *parts),
        _ => (1, 1),
    };
    for (row, run) in numbers.chunks_exact(run * of_row).enumerate().flat_map(|(row, numbers)| {
        numbers.chunks_exact(run).enumerate().map(move |(part, run)| ((row, part), run))
    }) {
        let (mut rest, mut place, mut stride) = (row.0, row.1, of_row);
        let outer = shape.len().saturating_sub(1);
        for (size, parts) in shape[..outer].iter().zip(&parts[..outer]).rev() {
            place += rest % size / (size / parts) * stride;
            (rest, stride) = (rest / size, stride * parts);
        }
        found[place] = run.iter().fold(found[place], |most, number| number.abs().larger(most));
    }
    Ok(())
}

/// `y = x / scale`, and the scale.
pub(crate) fn quantize([x, amax]: [&Tensor; 2], results: &mut [TensorMut]) -> Result<(), KernelError> {
    let [y, scale, magnitudes @ ..] = results else {
        let found = results.len();
        return Err(KernelError::Count { of: "results", found, expected: "2 or 3" });
    };
    if x.shape != y.shape {
        return Err(KernelError::Shape {
            of: "a quantised value",
            found: y.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    let format = format(y.dtype)?;
    let amax = amax.elements::<f32>()?.iter().fold(0.0, |most: f32, it| it.larger(most));
    let step = amax / format.most();
    let step = if step.is_finite() && step >= f32::MIN_POSITIVE { step } else { 1.0 };
    let wide = converted(x, DType::F32)?;
    for (code, number) in y.bytes.iter_mut().zip(wide.elements::<f32>()?) {
        let over = number / step;
        let most = format.most();
        *code = format.encoded(if number.is_finite() { over.clamp(-most, most) } else { over });
    }
    scale.elements_mut::<f32>()?.fill(step);
    magnitudes.iter_mut().try_for_each(|it| self::amax(None, x, it))
}

/// `y = the history without its oldest, and the largest of all magnitudes`.
pub(crate) fn remember([history, magnitudes]: [&Tensor; 2], y: &mut TensorMut) -> Result<(), KernelError> {
    let largest = magnitudes.elements::<f32>()?.iter().fold(0.0, |most: f32, it| it.larger(most));
    let later = history.elements::<f32>()?.iter().skip(1).chain([&largest]);
    for (y, it) in y.elements_mut::<f32>()?.iter_mut().zip(later) {
        *y = *it;
    }
    Ok(())
}

/// `y = x / scale` with a scale for each block along a dimension, and the exponents of the scales.
pub(crate) fn quantize_blocks(
    dim: usize,
    block: u64,
    x: &Tensor,
    [y, exponents]: [&mut TensorMut; 2],
) -> Result<(), KernelError> {
    let format = format(y.dtype)?;
    let shape = extents(x.shape)?;
    let [block] = extents(&[block])?[..] else { return Err(KernelError::Size) };
    let size = *shape.get(dim).ok_or(KernelError::Dimension { dim, rank: shape.len() })?;
    let fits = y.shape == x.shape && exponents.bytes.len() * block == y.bytes.len();
    if block == 0 || size % block != 0 || !fits {
        return Err(KernelError::Shape {
            of: "blocks of a value",
            found: x.shape.to_vec(),
            expected: exponents.shape.to_vec(),
        });
    }
    let inner: usize = shape[dim + 1..].iter().product();
    let wide = converted(x, DType::F32)?;
    let numbers = wide.elements::<f32>()?;
    // The numbers of a block lie `inner` apart.
    let places = |of: usize| (0..block).map(move |it| (of / inner.max(1) * block + it) * inner + of % inner);
    for (of, exponent) in exponents.bytes.iter_mut().enumerate() {
        let amax = places(of).fold(0.0, |most: f32, it| numbers[it].abs().larger(most));
        *exponent = if amax.is_finite() { scale_of(amax, format) } else { NOT_FINITE };
        let scale = scaled(*exponent);
        for it in places(of) {
            y.bytes[it] = format.encoded((numbers[it] / scale).clamp(-format.most(), format.most()));
        }
    }
    Ok(())
}

/// The exponent, plus the bias, of the scale of a block with that largest magnitude: the largest power of two
/// that is not above it, by the largest that is a number of the format.
fn scale_of(amax: f32, format: Format) -> u8 {
    let power = |number: f32| match number.to_bits() >> 23 {
        // Below the normal numbers.
        0 => -BIAS,
        exponent => exponent.cast_signed() - BIAS,
    };
    let exponent = (power(amax) - power(format.most())).clamp(-BIAS, BIAS) + BIAS;
    u8::try_from(exponent).unwrap_or(NOT_FINITE)
}

/// The scale of that exponent.
fn scaled(exponent: u8) -> f32 {
    match exponent {
        0 => f32::MIN_POSITIVE / 2.0,
        NOT_FINITE => f32::NAN,
        _ => f32::from_bits(u32::from(exponent) << 23),
    }
}

/// `y = sum of a · scale · b · scale`.
pub(crate) fn scaled_contract(
    labels: &Contract,
    operands: &[Tensor],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let (a, b, all) = match operands {
        [a, b, of_a, of_b] => (dequantised(a, of_a)?, dequantised(b, of_b)?, 1.0),
        [a, b, of_a, of_b, all_a, all_b] => {
            let one = |it: &Tensor| it.elements::<f32>()?.first().copied().ok_or(KernelError::Size);
            (nvfp4::unpacked(a, of_a)?, nvfp4::unpacked(b, of_b)?, one(all_a)? * one(all_b)?)
        }
        _ => {
            let found = operands.len();
            return Err(KernelError::Count { of: "operands", found, expected: "4 or 6" });
        }
    };
    let mut wide = Array::zeros(Type::new(DType::F32, y.shape))?;
    contract(labels, [&a.tensor(), &b.tensor()], &mut wide.tensor_mut())?;
    if operands.len() > 4 {
        wide.tensor_mut().elements_mut::<f32>()?.iter_mut().for_each(|it| *it *= all);
    }
    cast(&wide.tensor(), y)
}

/// The numbers times their scales.
fn dequantised(x: &Tensor, scales: &Tensor) -> Result<Array, KernelError> {
    let format = format(x.dtype)?;
    let numbers: Vec<f32> = (0..=u8::MAX).map(|code| format.decoded(code)).collect();
    let mut wide = Array::zeros(Type::new(DType::F32, x.shape))?;
    let mut target = wide.tensor_mut();
    let target = target.elements_mut::<f32>()?;
    if scales.dtype == DType::F32 {
        let scale = *scales.elements::<f32>()?.first().ok_or(KernelError::Size)?;
        for (y, &code) in target.iter_mut().zip(x.bytes) {
            *y = numbers[usize::from(code)] * scale;
        }
        return Ok(wide);
    }
    let (shape, blocks) = (extents(x.shape)?, extents(scales.shape)?);
    let falls = blocks.len() == shape.len()
        && shape.iter().zip(&blocks).all(|(size, blocks)| *blocks > 0 && size % blocks == 0);
    if !falls {
        return Err(KernelError::Shape {
            of: "scales of blocks",
            found: scales.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    for (at, (y, &code)) in target.iter_mut().zip(x.bytes).enumerate() {
        *y = numbers[usize::from(code)] * scaled(scales.bytes[place_of_block(at, &shape, &blocks)]);
    }
    Ok(wide)
}

/// The place of an element's block among blocks, row-major.
fn place_of_block(at: usize, shape: &[usize], blocks: &[usize]) -> usize {
    let (mut rest, mut place, mut stride) = (at, 0, 1);
    for (size, blocks) in shape.iter().zip(blocks).rev() {
        place += rest % size / (size / blocks) * stride;
        (rest, stride) = (rest / size, stride * blocks);
    }
    place
}

fn format(dtype: DType) -> Result<Format, KernelError> {
    Format::of(dtype).ok_or(KernelError::Elements { of: "a quantised number", found: dtype })
}

#[cfg(test)]
mod tests;
