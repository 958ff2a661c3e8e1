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

/// Products whose right matrices lie beyond a processor's own cache, as weights do.
pub(super) const BEYOND: [[u64; 3]; 2] = [[512, 2048, 512], [64, 16000, 768]];

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

/// The time of a product of matrices `[m, k]` and `[k, n]` (seconds).
pub(super) fn time(dtype: DType, shape: [u64; 3], lying: Lying) -> Result<f64, KernelError> {
    with_product(dtype, shape, lying, |call| shortest(call))
}

/// The same of 32-bit numbers, on average over a moment (seconds).
pub(super) fn average(shape: [u64; 3]) -> Result<f64, KernelError> {
    with_product(DType::F32, shape, Lying::AsRead, |call| timing::average(call))
}

/// Measures a product.
fn with_product(
    dtype: DType,
    [m, n, k]: [u64; 3],
    lying: Lying,
    measure: impl FnOnce(&mut dyn FnMut() -> Result<(), KernelError>) -> Result<f64, KernelError>,
) -> Result<f64, KernelError> {
    let [row, column, inner] = [0, 1, 2].map(Label);
    let (shape, labels) = match lying {
        Lying::AsRead => (vec![k, n], vec![inner, column]),
        Lying::Turned => (vec![n, k], vec![column, inner]),
    };
    let [left, right] = [filled(dtype, vec![m, k])?, filled(dtype, shape)?];
    let mut result = Array::zeros(Type::new(dtype, [m, n]))?;
    let op = Op::Contract(Contract { left: vec![row, inner], right: labels, result: vec![row, column] });
    measure(&mut || kernels::compute(&op, &[left.tensor(), right.tensor()], &mut [result.tensor_mut()]))
}
