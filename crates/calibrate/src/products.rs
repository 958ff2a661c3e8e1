//! Times of matrix products.

use kernels::{Array, KernelError};
use planner_ir::{Contract, DType, Label, Op, Type};

use super::filled;
use super::timing::{self, Effort};

/// Rows, columns and lengths of sums of the products that rates are fitted to: of the sizes that
/// layers and heads of attention have, from small to large.
pub(super) const SHAPES: [[u64; 3]; 14] = [
    [8, 8, 8],
    [16, 16, 16],
    [32, 32, 32],
    [64, 64, 64],
    [128, 128, 128],
    [256, 256, 256],
    LARGE,
    [64, 128, 32],
    [64, 32, 128],
    [64, 512, 64],
    [128, 512, 128],
    [512, 128, 128],
    [256, 768, 256],
    [256, 1000, 256],
];

/// Products whose right matrices are measured both ways: with rows that lie a multiple of 4 KiB apart where
/// they are turned, and with such as do not.
pub(super) const TURNED: [[u64; 3]; 4] =
    [[64, 16000, 768], [256, 1000, 320], [256, 256, 1024], [384, 1536, 1024]];

/// How the right matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lying {
    /// Row by row, as it is read.
    AsRead,
    /// Column by column.
    Turned,
}

/// The product whose rate is a first guess of that of all.
pub(super) const LARGE: [u64; 3] = [512, 512, 512];

/// The time of a product of matrices `[m, k]` and `[k, n]` that are where a step finds them (seconds).
pub(super) fn time(effort: Effort, dtype: DType, shape: [u64; 3], lying: Lying) -> Result<f64, KernelError> {
    let [m, n, k] = shape;
    let bytes = dtype.bytes() * (m * k + k * n + m * n);
    let mut copies = timing::copies(bytes, || Product::new(dtype, shape, lying))?;
    timing::in_turn(effort, &mut copies, Product::compute)
}

/// The time of a product of 32-bit numbers that are in a cache, on average over a moment (seconds).
pub(super) fn average(shape: [u64; 3]) -> Result<f64, KernelError> {
    let mut product = Product::new(DType::F32, shape, Lying::AsRead)?;
    timing::average(|| product.compute())
}

/// A product and its matrices.
struct Product {
    op: Op,
    operands: [Array; 2],
    result: Array,
}

impl Product {
    fn new(dtype: DType, [m, n, k]: [u64; 3], lying: Lying) -> Result<Self, KernelError> {
        let [row, column, inner] = [0, 1, 2].map(Label);
        let (shape, right) = match lying {
            Lying::AsRead => (vec![k, n], vec![inner, column]),
            Lying::Turned => (vec![n, k], vec![column, inner]),
        };
        let op = Op::Contract(Contract { left: vec![row, inner], right, result: vec![row, column] });
        let operands = [filled(dtype, vec![m, k])?, filled(dtype, shape)?];
        Ok(Self { op, operands, result: Array::zeros(Type::new(dtype, [m, n]))? })
    }

    fn compute(&mut self) -> Result<(), KernelError> {
        let [left, right] = &self.operands;
        kernels::compute(&self.op, &[left.tensor(), right.tensor()], &mut [self.result.tensor_mut()])
    }
}
