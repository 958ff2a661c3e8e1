//! What is asked of operands.

use super::{Result, TypeError};
use crate::data::{DType, Type};

pub(super) fn expect(operands: &[Type], index: usize, right: bool, expected: &str) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(TypeError::Operand(index, operands[index].clone(), expected.to_owned()))
}

pub(super) fn same_dtype(operands: &[Type], first: usize, second: usize) -> Result<()> {
    let right = operands[first].dtype == operands[second].dtype;
    expect(operands, second, right, &format!("elements {}", operands[first].dtype))
}

pub(super) fn is_index(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32)
}

pub(super) fn indices(operands: &[Type]) -> Result<()> {
    expect(operands, 1, is_index(operands[1].dtype), "indices (i64 or i32)")
}

pub(super) fn within(dim: usize, rank: usize) -> Result<()> {
    if dim < rank { Ok(()) } else { Err(TypeError::Attribute(format!("dimension {dim} of {rank}"))) }
}

pub(super) fn ascending(dims: &[usize], rank: usize) -> Result<()> {
    let rising = dims.windows(2).all(|pair| pair[0] < pair[1]);
    if rising && dims.iter().all(|&dim| dim < rank) {
        return Ok(());
    }
    Err(TypeError::Attribute(format!("dimensions {dims:?}, expected ascending ones below {rank}")))
}

/// What is defined on some elements only: not on none.
pub(super) fn not_empty(operands: &[Type], dims: &[usize]) -> Result<()> {
    let right = dims.iter().all(|&dim| operands[0].shape[dim] > 0);
    expect(operands, 0, right, &format!("some elements along dimensions {dims:?}"))
}

pub(super) fn kept(shape: &[u64], dims: &[usize]) -> Vec<u64> {
    let mut shape = shape.to_vec();
    for &dim in dims {
        shape[dim] = 1;
    }
    shape
}

pub(super) fn checked_elements(shape: &[u64]) -> Result<u64> {
    // An extent of 0 makes any product 0, but the others must still be sane.
    let product = shape.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent.max(1)));
    let sane = product.filter(|&product| product <= 1 << 56);
    sane.map(|_| shape.iter().product())
        .ok_or_else(|| TypeError::Attribute(format!("shape {shape:?} has too many elements")))
}

pub(super) fn checked_bytes(result: &Type) -> Result<u64> {
    Ok(checked_elements(&result.shape)? * result.dtype.bytes())
}

/// The shape that `first` and the operands in the range broadcast to.
pub(super) fn broadcast(first: &[u64], operands: &[Type], range: std::ops::Range<usize>) -> Result<Vec<u64>> {
    let mut shape = first.to_vec();
    for index in range {
        let other = &operands[index].shape;
        while shape.len() < other.len() {
            shape.insert(0, 1);
        }
        let offset = shape.len() - other.len();
        for (dim, &extent) in other.iter().enumerate() {
            let target = &mut shape[offset + dim];
            if *target == 1 {
                *target = extent;
            } else {
                let right = extent == 1 || extent == *target;
                expect(operands, index, right, &format!("extent 1 or {target} in dimension {dim}"))?;
            }
        }
    }
    Ok(shape)
}

/// Operands of the range broadcast to operand 0 without growing it.
pub(super) fn fits_into(operands: &[Type], range: std::ops::Range<usize>) -> Result<()> {
    for index in range {
        same_dtype(operands, 0, index)?;
        let joined = broadcast(&operands[0].shape, operands, index..index + 1)?;
        expect(operands, index, joined == operands[0].shape, "what broadcasts to operand 0")?;
    }
    Ok(())
}
