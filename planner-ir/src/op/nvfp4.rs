//! Numbers of 4 bits with a scale for each block of 16 of them, and one for all.
//!
//! Two numbers stand in a byte (u8), the first in its lower half, so that a value has half as many bytes along
//! the dimension of its blocks as it has numbers. A block is never cut: what is moved is whole bytes.
//!
//! Source: NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149, sections 2 and 4;
//! NVIDIA Transformer Engine, recipe `NVFP4BlockScaling`.

use crate::data::{DType, Type};

/// How a value is quantised to 4 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nvfp4 {
    /// The dimension that blocks of 16 lie along, and that two numbers of a byte lie along.
    pub dim: usize,
    /// Another dimension of which each block has 16 too: a weight is quantised alike for both products that
    /// read it.
    pub across: Option<usize>,
    /// Whether a random Hadamard transform is done to each block first.
    pub rotated: bool,
    /// What stochastic rounding starts from; without, each number becomes the nearest.
    pub seed: Option<u64>,
}

impl Nvfp4 {
    /// How many numbers along a dimension share a scale.
    pub const BLOCK: u64 = 16;

    /// How many blocks there are of a shape along each dimension; `None` if it does not fall into blocks.
    pub fn blocks(&self, shape: &[u64]) -> Option<Vec<u64>> {
        let mut blocks = shape.to_vec();
        for dim in [Some(self.dim), self.across].into_iter().flatten() {
            let size = blocks.get_mut(dim).filter(|it| it.is_multiple_of(Self::BLOCK))?;
            *size /= Self::BLOCK;
        }
        (self.across != Some(self.dim)).then_some(blocks)
    }

    /// The shape of the bytes of a shape's numbers.
    pub fn bytes(&self, shape: &[u64]) -> Vec<u64> {
        let mut bytes = shape.to_vec();
        bytes[self.dim] /= 2;
        bytes
    }
}

/// The dimension along which each byte of a quantised value has two numbers, by its scales: a block has 8 bytes
/// along it, and 1 or 16 along others. `None` if numbers have 8 bits.
pub fn packed_dim(codes: &Type, scales: &Type) -> Option<usize> {
    let along = |(&bytes, &blocks): (&u64, &u64)| 2 * bytes == Nvfp4::BLOCK * blocks && bytes > 0;
    (codes.dtype == DType::U8 && codes.rank() == scales.rank())
        .then(|| codes.shape.iter().zip(&scales.shape).position(along))
        .flatten()
}

/// The shape of the numbers of a quantised value.
pub fn numbers(codes: &Type, scales: &Type) -> Type {
    let mut numbers = codes.clone();
    if let Some(dim) = packed_dim(codes, scales) {
        numbers.shape[dim] *= 2;
    }
    numbers
}
