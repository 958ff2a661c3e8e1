//! Values in memory: owned, borrowed, and blocks of larger ones.

use bytemuck::Pod;
use half::{bf16, f16};
use planner_ir::{DType, Type};

use crate::error::KernelError;

/// Every array starts at a multiple of this (bytes): a cache line.
const ALIGNMENT: usize = 64;

/// The bytes of the words that arrays are made of.
const WORD: usize = 8;

/// Where a block lies in the value that it is a block of, along one dimension: in stripes of `run`
/// elements, which start `stride` apart. Where both are 1 it is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The extent of the whole value (elements).
    pub extent: u64,
    /// Where the block starts in it (elements).
    pub start: u64,
    /// How long a stripe is (elements, at least 1).
    pub run: u64,
    /// How far apart stripes start (elements, at least a stripe).
    pub stride: u64,
}

impl Span {
    /// That of a block without gaps.
    #[must_use]
    pub fn contiguous(extent: u64, start: u64) -> Self {
        Self { extent, start, run: 1, stride: 1 }
    }

    /// Where an element of the block lies in the whole.
    #[must_use]
    pub fn position(&self, place: u64) -> u64 {
        self.start + place / self.run * self.stride + place % self.run
    }

    /// How many elements of the block lie before a position, if it had no end.
    #[must_use]
    pub fn before(&self, position: u64) -> u64 {
        let distance = position.saturating_sub(self.start);
        distance / self.stride * self.run + (distance % self.stride).min(self.run)
    }

    /// Which part of the whole a block of so many elements is.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no extent reaches 2^53")]
    pub fn share(&self, count: u64) -> f64 {
        count as f64 / self.extent as f64
    }
}

/// A value, row-major, or a block of one.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its elements.
    pub dtype: DType,
    /// The extent of each dimension of the block (elements).
    pub shape: &'a [u64],
    /// Its elements' bytes, little-endian.
    pub bytes: &'a [u8],
    /// Where the block lies, for each dimension; empty if it is everything.
    pub spans: &'a [Span],
}

/// A value to be computed, row-major, or a block of one.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// Its elements.
    pub dtype: DType,
    /// The extent of each dimension of the block (elements).
    pub shape: &'a [u64],
    /// Its elements' bytes, little-endian.
    pub bytes: &'a mut [u8],
    /// Where the block lies, for each dimension; empty if it is everything.
    pub spans: &'a [Span],
}

/// A whole value that owns its bytes, which start at a multiple of 64.
#[derive(Debug)]
pub struct Array {
    type_: Type,
    /// The bytes, with room to start at a cache line.
    words: Vec<u64>,
    /// Where the bytes start in the words (bytes).
    start: usize,
    /// How many bytes there are.
    length: usize,
}

/// A number as it is stored.
pub trait Element: Pod {
    /// The type of such an element.
    const DTYPE: DType;
}

impl Element for f64 {
    const DTYPE: DType = DType::F64;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
}

impl Element for bf16 {
    const DTYPE: DType = DType::BF16;
}

impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

impl Element for i16 {
    const DTYPE: DType = DType::I16;
}

impl Element for i8 {
    const DTYPE: DType = DType::I8;
}

impl Element for u64 {
    const DTYPE: DType = DType::U64;
}

impl Element for u32 {
    const DTYPE: DType = DType::U32;
}

impl Element for u16 {
    const DTYPE: DType = DType::U16;
}

impl Element for u8 {
    const DTYPE: DType = DType::U8;
}

impl Array {
    /// The value of that type whose elements are all 0.
    pub fn zeros(type_: Type) -> Result<Self, KernelError> {
        let length = byte_count(type_.dtype, &type_.shape)?;
        let count = length.div_ceil(WORD) + ALIGNMENT / WORD;
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| KernelError::Size)?;
        words.resize(count, 0_u64);
        let start = first_line(&words);
        Ok(Self { type_, words, start, length })
    }

    /// The value of that type with those bytes (little-endian, row-major).
    pub fn from_bytes(type_: Type, bytes: &[u8]) -> Result<Self, KernelError> {
        let expected = byte_count(type_.dtype, &type_.shape)?;
        if bytes.len() != expected {
            let expected = u64::try_from(expected).map_err(|_| KernelError::Size)?;
            return Err(KernelError::Bytes { found: bytes.len(), expected });
        }
        let mut array = Self::zeros(type_)?;
        array.bytes_mut().copy_from_slice(bytes);
        Ok(array)
    }

    /// The value of that shape with those elements.
    pub fn of<T: Element>(shape: impl Into<Vec<u64>>, elements: &[T]) -> Result<Self, KernelError> {
        Self::from_bytes(Type::new(T::DTYPE, shape), bytemuck::cast_slice(elements))
    }

    /// The value of that shape with those truth values.
    pub fn of_truths(shape: impl Into<Vec<u64>>, elements: &[bool]) -> Result<Self, KernelError> {
        let bytes: Vec<u8> = elements.iter().copied().map(u8::from).collect();
        Self::from_bytes(Type::new(DType::Bool, shape), &bytes)
    }

    /// Its type.
    pub fn type_(&self) -> &Type {
        &self.type_
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.type_.dtype
    }

    /// The extent of each dimension (elements).
    pub fn shape(&self) -> &[u64] {
        &self.type_.shape
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.start..self.start + self.length]
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.start..self.start + self.length;
        &mut bytemuck::cast_slice_mut(&mut self.words)[range]
    }

    /// The same bytes with another type of the same size.
    pub fn retyped(mut self, type_: Type) -> Result<Self, KernelError> {
        let expected = byte_count(type_.dtype, &type_.shape)?;
        if self.length != expected {
            let expected = u64::try_from(expected).map_err(|_| KernelError::Size)?;
            return Err(KernelError::Bytes { found: self.length, expected });
        }
        self.type_ = type_;
        Ok(self)
    }

    /// It as an operand.
    pub fn tensor(&self) -> Tensor<'_> {
        Tensor { dtype: self.type_.dtype, shape: &self.type_.shape, bytes: self.bytes(), spans: &[] }
    }

    /// It as a result.
    pub fn tensor_mut(&mut self) -> TensorMut<'_> {
        let range = self.start..self.start + self.length;
        TensorMut {
            dtype: self.type_.dtype,
            shape: &self.type_.shape,
            bytes: &mut bytemuck::cast_slice_mut(&mut self.words)[range],
            spans: &[],
        }
    }

    /// Its elements, if that is what they are.
    pub fn elements<T: Element>(&self) -> Result<&[T], KernelError> {
        self.tensor().elements()
    }

    /// Its elements, if they are truth values.
    pub fn to_truths(&self) -> Result<Vec<bool>, KernelError> {
        Ok(self.tensor().truths()?.iter().map(|&byte| byte != 0).collect())
    }
}

impl Clone for Array {
    fn clone(&self) -> Self {
        let mut words = vec![0; self.words.len()];
        let start = first_line(&words);
        bytemuck::cast_slice_mut(&mut words)[start..start + self.length].copy_from_slice(self.bytes());
        Self { type_: self.type_.clone(), words, start, length: self.length }
    }
}

impl PartialEq for Array {
    /// Whether types and bytes are equal.
    fn eq(&self, other: &Self) -> bool {
        self.type_ == other.type_ && self.bytes() == other.bytes()
    }
}

impl<'a> Tensor<'a> {
    /// Its elements, if that is what they are.
    pub fn elements<T: Element>(&self) -> Result<&'a [T], KernelError> {
        expect_dtype(self.dtype, T::DTYPE)?;
        self.units()
    }

    /// Its bytes as units of some size.
    pub(crate) fn units<T: Pod>(&self) -> Result<&'a [T], KernelError> {
        // No bytes lie anywhere.
        if self.bytes.is_empty() {
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(self.bytes).map_err(|_| KernelError::Alignment)
    }

    /// Its bytes, if they are truth values.
    pub fn truths(&self) -> Result<&'a [u8], KernelError> {
        expect_dtype(self.dtype, DType::Bool)?;
        Ok(self.bytes)
    }

    /// The span of a dimension.
    pub fn span(&self, dim: usize) -> Span {
        span(self.shape, self.spans, dim)
    }
}

impl TensorMut<'_> {
    /// What is there so far.
    pub(crate) fn there(&self) -> Tensor<'_> {
        Tensor { dtype: self.dtype, shape: self.shape, bytes: self.bytes, spans: self.spans }
    }

    /// Its elements, if that is what they are, to be set.
    pub fn elements_mut<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        expect_dtype(self.dtype, T::DTYPE)?;
        self.units_mut()
    }

    /// Its bytes as units of some size, to be set.
    pub(crate) fn units_mut<T: Pod>(&mut self) -> Result<&mut [T], KernelError> {
        if self.bytes.is_empty() {
            return Ok(&mut []);
        }
        bytemuck::try_cast_slice_mut(self.bytes).map_err(|_| KernelError::Alignment)
    }

    /// Its bytes, if they are truth values, to be set.
    pub fn truths_mut(&mut self) -> Result<&mut [u8], KernelError> {
        expect_dtype(self.dtype, DType::Bool)?;
        Ok(self.bytes)
    }

    /// It as an operand of what is computed next.
    pub fn tensor(&self) -> Tensor<'_> {
        Tensor { dtype: self.dtype, shape: self.shape, bytes: self.bytes, spans: self.spans }
    }

    /// It again, for a shorter time.
    pub fn reborrow(&mut self) -> TensorMut<'_> {
        TensorMut { dtype: self.dtype, shape: self.shape, bytes: self.bytes, spans: self.spans }
    }

    /// The span of a dimension.
    pub fn span(&self, dim: usize) -> Span {
        span(self.shape, self.spans, dim)
    }
}

/// The extents as they index memory.
pub(crate) fn extents(shape: &[u64]) -> Result<Vec<usize>, KernelError> {
    shape.iter().map(|&extent| usize::try_from(extent).map_err(|_| KernelError::Size)).collect()
}

/// How many elements a shape has.
pub(crate) fn element_count(shape: &[u64]) -> Result<usize, KernelError> {
    let count =
        shape.iter().try_fold(1_u64, |count, &extent| count.checked_mul(extent)).ok_or(KernelError::Size)?;
    usize::try_from(count).map_err(|_| KernelError::Size)
}

/// How many bytes a value has.
pub(crate) fn byte_count(dtype: DType, shape: &[u64]) -> Result<usize, KernelError> {
    let size = usize::try_from(dtype.bytes()).map_err(|_| KernelError::Size)?;
    element_count(shape)?.checked_mul(size).ok_or(KernelError::Size)
}

/// Refuses another element type.
pub(crate) fn expect_dtype(found: DType, expected: DType) -> Result<(), KernelError> {
    if found == expected { Ok(()) } else { Err(KernelError::Mixed { found, expected }) }
}

fn span(shape: &[u64], spans: &[Span], dim: usize) -> Span {
    spans.get(dim).copied().unwrap_or(Span::contiguous(shape[dim], 0))
}

/// Where the first whole cache line starts in the words (bytes).
fn first_line(words: &[u64]) -> usize {
    let offset = words.as_ptr().cast::<u8>().align_offset(ALIGNMENT);
    if offset < ALIGNMENT { offset } else { 0 }
}

#[cfg(test)]
mod tests;
