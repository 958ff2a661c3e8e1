//! Numbers of 4 bits with a scale for each block of 16, and one for all.

use planner_ir::{DType, Nvfp4, Type, numbers, packed_dim};

use super::place_of_block;
use crate::array::{Array, Tensor, TensorMut, extents};
use crate::error::KernelError;
use crate::float8::Format;
use crate::generate::{bits, for_each_place, seed_of};
use crate::number::Number;
use crate::widen::converted;

/// How many numbers a block has along a dimension.
const BLOCK: usize = 16;

/// The magnitudes of E2M1, by their codes.
///
/// Source: Open Compute Project, "Microscaling Formats (MX) Specification", version 1.0, table 5.
const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The largest of them.
const MOST: f32 = 6.0;

/// The bit of a code that says that its number is negative.
const NEGATIVE: u8 = 8;

/// The signs of a random Hadamard transform: fixed, so that every rank and every step has the same.
///
/// Source: NVIDIA Transformer Engine, `transformer_engine/pytorch/tensor/nvfp4_tensor.py`, signs of the
/// transform of weights' gradients.
const SIGNS: [f32; BLOCK] =
    [1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0];

/// The value in f32 with a random Hadamard transform of each 16 elements along a dimension:
///
/// ```text
/// y[j] = 1/4 · sum over i of (−1)^popcount(i & j) · sign[i] · x[i]
/// ```
///
/// Source: NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149, section 4.2.
pub(super) fn rotated(dim: usize, x: &Tensor) -> Result<Vec<f32>, KernelError> {
    let wide = converted(x, DType::F32)?;
    let mut numbers = wide.elements::<f32>()?.to_vec();
    let shape = extents(x.shape)?;
    let size = *shape.get(dim).ok_or(KernelError::Dimension { dim, rank: shape.len() })?;
    if size % BLOCK != 0 {
        return Err(KernelError::Shape {
            of: "blocks of 16",
            found: x.shape.to_vec(),
            expected: vec![Nvfp4::BLOCK],
        });
    }
    let inner: usize = shape[dim + 1..].iter().product();
    for of in 0..numbers.len() / BLOCK {
        let first = of / inner.max(1) * BLOCK * inner + of % inner.max(1);
        let mut block: [f32; BLOCK] = std::array::from_fn(|it| SIGNS[it] * numbers[first + it * inner]);
        for half in [1, 2, 4, 8] {
            for at in (0..BLOCK).filter(|at| at & half == 0) {
                (block[at], block[at + half]) = (block[at] + block[at + half], block[at] - block[at + half]);
            }
        }
        for (it, number) in block.into_iter().enumerate() {
            numbers[first + it * inner] = number / 4.0;
        }
    }
    Ok(numbers)
}

/// `y = x / (scale · all)`, the scales of blocks, and that of all.
pub(crate) fn quantize_nvfp4(
    how: &Nvfp4,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let ([x, amax, number @ ..], [codes, scales, all]) = (operands, results) else {
        return Err(KernelError::Count {
            of: "operands",
            found: operands.len(),
            expected: "2, or 3 with a seed",
        });
    };
    let blocks = how.blocks(x.shape).filter(|it| it == scales.shape && how.bytes(x.shape) == codes.shape);
    let Some(blocks) = blocks else {
        return Err(KernelError::Shape {
            of: "blocks of 16",
            found: scales.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    };
    let wide = converted(x, DType::F32)?;
    let turned = if how.rotated { Some(rotated(how.dim, x)?) } else { None };
    let numbers = match &turned {
        Some(turned) => turned,
        None => wide.elements::<f32>()?,
    };
    let (shape, blocks) = (extents(x.shape)?, extents(&blocks)?);
    let of_block = |at: usize| place_of_block(at, &shape, &blocks);

    let most = amax.elements::<f32>()?.iter().fold(0.0, |most: f32, it| it.larger(most));
    let (encode, decode) = scale_of_all(most);
    let mut largest = vec![0.0_f32; scales.bytes.len()];
    for (at, number) in numbers.iter().enumerate() {
        let block = of_block(at);
        largest[block] = number.abs().larger(largest[block]);
    }
    for (scale, largest) in scales.bytes.iter_mut().zip(&largest) {
        let wanted = largest / MOST * encode;
        *scale = Format::E4M3FN.encoded(wanted.min(Format::E4M3FN.most()));
    }
    let factors: Vec<f32> =
        scales.bytes.iter().map(|&it| (1.0 / (Format::E4M3FN.decoded(it) * decode)).min(f32::MAX)).collect();

    codes.bytes.fill(0);
    let inner: usize = shape[how.dim + 1..].iter().product();
    let mut put = |at: usize, code: u8| {
        // Two that are neighbours along the dimension share a byte.
        let (row, column) = (at / inner.max(1), at % inner.max(1));
        let half = if row % 2 == 0 { code } else { code << 4 };
        codes.bytes[row / 2 * inner + column] |= half;
    };
    match how.seed {
        None => numbers.iter().enumerate().for_each(|(at, &it)| put(at, nearest(it * factors[of_block(at)]))),
        Some(seed) => {
            let seed = seed_of(seed, number.first())?;
            for_each_place(x, |at, position| {
                let chance = bits(seed, position);
                put(at, by_chance(numbers[at] * factors[of_block(at)], chance));
            })?;
        }
    }
    all.elements_mut::<f32>()?.fill(decode);
    Ok(())
}

/// What the scales of blocks are multiplied by so that they are numbers of E4M3, and the inverse.
///
/// Source: NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149, appendix B.1.
fn scale_of_all(most: f32) -> (f32, f32) {
    if !most.is_finite() {
        return (f32::NAN, f32::NAN);
    }
    let encode = (Format::E4M3FN.most() * MOST / most).min(f32::MAX);
    (encode, 1.0 / encode)
}

/// The code nearest to a number; of two, the even one.
fn nearest(number: f32) -> u8 {
    let size = number.abs().min(MOST);
    let above = MAGNITUDES.iter().position(|it| *it >= size).unwrap_or(0);
    let below = above.saturating_sub(1);
    let middle = f32::midpoint(MAGNITUDES[below], MAGNITUDES[above]);
    let up = size > middle || size >= middle && above % 2 == 0;
    code(number, if up { above } else { below })
}

/// The code of one of the two numbers next to a number: of the larger one with a probability of how much of the
/// way it is.
fn by_chance(number: f32, random: u64) -> u8 {
    /// Bits of a chance, and what one of them is worth.
    const BITS: u32 = 24;
    const UNIT: f64 = 1.0 / 16_777_216.0;
    let size = number.abs().min(MOST);
    let above = MAGNITUDES.iter().position(|it| *it >= size).unwrap_or(0);
    let below = above.saturating_sub(1);
    let way = (size - MAGNITUDES[below]) / (MAGNITUDES[above] - MAGNITUDES[below]).max(0.5);
    let chance = Number::to_f64(random >> (u64::BITS - BITS)) * UNIT;
    code(number, if chance < f64::from(way) { above } else { below })
}

/// The code of that magnitude with the sign of a number.
fn code(number: f32, magnitude: usize) -> u8 {
    let sign = if number.is_sign_negative() { NEGATIVE } else { 0 };
    sign | u8::try_from(magnitude).unwrap_or(0)
}

/// The number of a code.
fn decoded(code: u8) -> f32 {
    let size = MAGNITUDES[usize::from(code & (NEGATIVE - 1))];
    if code & NEGATIVE == 0 { size } else { -size }
}

/// The numbers times the scales of their blocks, in f32.
pub(super) fn unpacked(codes: &Tensor, scales: &Tensor) -> Result<Array, KernelError> {
    let types = [codes, scales].map(|it| Type::new(it.dtype, it.shape));
    let misfit = || KernelError::Shape {
        of: "scales of blocks",
        found: scales.shape.to_vec(),
        expected: codes.shape.to_vec(),
    };
    let dim = packed_dim(&types[0], &types[1]).ok_or_else(misfit)?;
    let of = numbers(&types[0], &types[1]).shape;
    let mut wide = Array::zeros(Type::new(DType::F32, &of[..]))?;
    let (shape, blocks) = (extents(&of)?, extents(scales.shape)?);
    if shape.iter().zip(&blocks).any(|(size, blocks)| *blocks == 0 || size % blocks != 0) {
        return Err(misfit());
    }
    let inner: usize = shape[dim + 1..].iter().product();
    let mut target = wide.tensor_mut();
    for (at, y) in target.elements_mut::<f32>()?.iter_mut().enumerate() {
        let (row, column) = (at / inner, at % inner);
        let both = codes.bytes[row / 2 * inner + column];
        let code = if row % 2 == 0 { both & 0xf } else { both >> 4 };
        let scale = scales.bytes[place_of_block(at, &shape, &blocks)];
        *y = decoded(code) * Format::E4M3FN.decoded(scale);
    }
    Ok(wide)
}

#[cfg(test)]
mod tests;
