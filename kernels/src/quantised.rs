//! Block-quantised weights made whole.

use planner_ir::{DType, Type};

use crate::array::{Array, Tensor, TensorMut, extents};
use crate::cast::cast;
use crate::error::KernelError;
use crate::widen::converted;

/// Bits of a byte.
const BYTE: usize = 8;

/// `y[n,k] = (q[n,k] - zero[n,b]) * scale[n,b]`, b = k / block.
///
/// Without zero points, zero is the middle of the numbers that fit into the bits.
pub(crate) fn dequantise(
    bits: u64,
    block: u64,
    [packed, scales]: [&Tensor; 2],
    zeros: Option<&Tensor>,
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let (&[n, blocks, bytes], &[rows, columns]) = (packed.shape, y.shape) else {
        return Err(misfit("packed numbers", packed.shape, y.shape));
    };
    if !matches!(bits, 2 | 4 | 8) {
        let found = i64::try_from(bits).unwrap_or(i64::MAX);
        return Err(KernelError::Number { of: "the bits of a number", found });
    }
    let holds = block.checked_mul(bits) == bytes.checked_mul(8);
    if !holds || block == 0 || n != rows || blocks.saturating_mul(block) < columns {
        return Err(misfit("packed numbers", packed.shape, y.shape));
    }
    if scales.shape != [n, blocks] {
        return Err(misfit("scales", scales.shape, &[n, blocks]));
    }
    let sizes = extents(&[rows, columns, blocks, bytes, block, bits])?;
    let [rows, columns, blocks, bytes, block, bits] = [0, 1, 2, 3, 4, 5].map(|i: usize| sizes[i]);
    let data = packed.elements::<u8>()?;
    let wide_scales = converted(scales, DType::F32)?;
    let wide_scales = wide_scales.elements::<f32>()?;
    let zeros = zeros.map(|zeros| ZeroPoints::new(zeros, packed, bits)).transpose()?;
    let middle = f32::from(1_u8 << (bits - 1));
    let mut result = Array::zeros(Type::new(DType::F32, y.shape))?;
    let mut target = result.tensor_mut();
    let target = target.elements_mut::<f32>()?;
    for (row, target) in target.chunks_exact_mut(columns.max(1)).enumerate().take(rows) {
        for (at, target) in target.chunks_mut(block).enumerate() {
            let place = row * blocks + at;
            let numbers = &data[place * bytes..(place + 1) * bytes];
            let zero = zeros.as_ref().map_or(middle, |zeros| zeros.get(row, at));
            for (index, y) in target.iter_mut().enumerate() {
                *y = (unpack(numbers, index, bits) - zero) * wide_scales[place];
            }
        }
    }
    cast(&result.tensor(), y)
}

/// One of the numbers that bytes are made of, low bits first.
fn unpack(bytes: &[u8], index: usize, bits: usize) -> f32 {
    let bit = index * bits;
    let mask = u8::MAX >> (BYTE - bits);
    f32::from((bytes[bit / BYTE] >> (bit % BYTE)) & mask)
}

/// Packed zero points, of the same rows and blocks as the packed numbers.
struct ZeroPoints<'a> {
    bytes: &'a [u8],
    pitch: usize,
    /// The first zero point of a row (zero points).
    first: usize,
    bits: usize,
}

impl<'a> ZeroPoints<'a> {
    fn new(zeros: &Tensor<'a>, packed: &Tensor, bits: usize) -> Result<Self, KernelError> {
        let shape = extents(zeros.shape)?;
        let sizes = extents(packed.shape)?;
        let &[rows, pitch] = shape.as_slice() else {
            return Err(misfit("zero points", zeros.shape, packed.shape));
        };
        // The block's first byte may be shared with the block before it.
        let starts = extents(&[packed.span(1).start, zeros.span(1).start])?;
        let first = (starts[0] * bits)
            .checked_sub(starts[1] * BYTE)
            .ok_or_else(|| misfit("zero points", zeros.shape, packed.shape))?
            / bits;
        if rows != sizes[0] || pitch * BYTE < (first + sizes[1]) * bits {
            return Err(misfit("zero points", zeros.shape, packed.shape));
        }
        Ok(Self { bytes: zeros.elements()?, pitch, first, bits })
    }

    fn get(&self, row: usize, block: usize) -> f32 {
        unpack(&self.bytes[row * self.pitch..], self.first + block, self.bits)
    }
}

fn misfit(of: &'static str, found: &[u64], expected: &[u64]) -> KernelError {
    KernelError::Shape { of, found: found.to_vec(), expected: expected.to_vec() }
}

#[cfg(test)]
mod tests;
