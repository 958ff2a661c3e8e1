//! Times of matrix products.

use kernels::{Array, KernelError};
use planner_ir::{Contract, DType, Label, Op, Type};

use super::filled;
use super::timing::{self, shortest};

/// Rows, columns and lengths of sums of the products that rates are fitted to: of the sizes that
/// layers and heads of attention have, from small to large.
pub(super) const SHAPES: [[u64; 3]; 15] = [
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
    [256, 256, 1024],
    [256, 1000, 256],
];

/// The product whose rate is a first guess of that of all.
pub(super) const LARGE: [u64; 3] = [512, 512, 512];

/// The time of a product of matrices `[m, k]` and `[k, n]` (seconds).
pub(super) fn time(dtype: DType, shape: [u64; 3]) -> Result<f64, KernelError> {
    with_product(dtype, shape, |call| shortest(call))
}

/// The same of 32-bit numbers, on average over a moment (seconds).
pub(super) fn average(shape: [u64; 3]) -> Result<f64, KernelError> {
    with_product(DType::F32, shape, |call| timing::average(call))
}

/// Measures a product.
fn with_product(
    dtype: DType,
    [m, n, k]: [u64; 3],
    measure: impl FnOnce(&mut dyn FnMut() -> Result<(), KernelError>) -> Result<f64, KernelError>,
) -> Result<f64, KernelError> {
    let [left, right] = [filled(dtype, vec![m, k])?, filled(dtype, vec![k, n])?];
    let mut result = Array::zeros(Type::new(dtype, [m, n]))?;
    let [row, column, inner] = [0, 1, 2].map(Label);
    let op = Op::Contract(Contract {
        left: vec![row, inner],
        right: vec![inner, column],
        result: vec![row, column],
    });
    measure(&mut || kernels::compute(&op, &[left.tensor(), right.tensor()], &mut [result.tensor_mut()]))
}
