//! The results of operations that move elements.

use super::checks::{checked_elements, expect, indices, same_dtype, within};
use super::{Result, TypeError};
use crate::data::Type;

pub(super) fn concat_type(dim: usize, operands: &[Type]) -> Result<Vec<Type>> {
    within(dim, operands[0].rank())?;
    let mut result = operands[0].clone();
    for index in 1..operands.len() {
        same_dtype(operands, 0, index)?;
        let other = &operands[index].shape;
        let same_rank = other.len() == result.rank();
        let right = same_rank && (0..other.len()).all(|it| it == dim || other[it] == result.shape[it]);
        expect(operands, index, right, &format!("the extents of operand 0 outside dimension {dim}"))?;
        result.shape[dim] = result.shape[dim].saturating_add(other[dim]);
    }
    checked_elements(&result.shape)?;
    Ok(vec![result])
}

pub(super) fn slice_type(starts: &[u64], steps: &[i64], sizes: &[u64], operand: &Type) -> Result<Vec<Type>> {
    let rank = operand.rank();
    if starts.len() != rank || steps.len() != rank || sizes.len() != rank {
        return Err(TypeError::Attribute(format!("a slice of {} dimensions, expected {rank}", starts.len())));
    }
    for dim in 0..rank {
        if sizes[dim] == 0 {
            continue;
        }
        let last = i128::from(starts[dim]) + i128::from(steps[dim]) * i128::from(sizes[dim] - 1);
        let extent = i128::from(operand.shape[dim]);
        if i128::from(starts[dim]) >= extent || last < 0 || last >= extent {
            return Err(TypeError::Attribute(format!(
                "a slice from {} to {last} in dimension {dim} of extent {extent}",
                starts[dim]
            )));
        }
    }
    Ok(vec![Type::new(operand.dtype, sizes.to_vec())])
}

pub(super) fn pad_type(before: &[i64], after: &[i64], operand: &Type) -> Result<Vec<Type>> {
    let rank = operand.rank();
    if before.len() != rank || after.len() != rank {
        return Err(TypeError::Attribute(format!("padding of {} dimensions, expected {rank}", before.len())));
    }
    let mut shape = Vec::new();
    for dim in 0..rank {
        let extent = i128::from(operand.shape[dim]) + i128::from(before[dim]) + i128::from(after[dim]);
        let extent = u64::try_from(extent)
            .map_err(|_| TypeError::Attribute(format!("extent {extent} after padding dimension {dim}")))?;
        shape.push(extent);
    }
    checked_elements(&shape)?;
    Ok(vec![Type::new(operand.dtype, shape)])
}

pub(super) fn elements_indexed(dim: usize, operands: &[Type]) -> Result<()> {
    within(dim, operands[0].rank())?;
    indices(operands)?;
    let (data, index) = (&operands[0].shape, &operands[1].shape);
    let right = data.len() == index.len() && (0..data.len()).all(|it| it == dim || index[it] <= data[it]);
    expect(operands, 1, right, "extents within those of operand 0")
}

pub(super) fn gather_nd_type(batch_dims: usize, operands: &[Type]) -> Result<Vec<Type>> {
    indices(operands)?;
    let (data, index) = (&operands[0].shape, &operands[1].shape);
    expect(operands, 1, index.len() > batch_dims, "a dimension of indices")?;
    let depth = usize::try_from(index[index.len() - 1]).unwrap_or(usize::MAX);
    let fits = depth.checked_add(batch_dims).is_some_and(|used| used <= data.len());
    expect(operands, 1, fits, &format!("at most {} indices in its last dimension", data.len()))?;
    expect(operands, 1, index[..batch_dims] == data[..batch_dims], "the batch dimensions of operand 0")?;
    let mut shape = index[..index.len() - 1].to_vec();
    shape.extend_from_slice(&data[batch_dims + depth..]);
    checked_elements(&shape)?;
    Ok(vec![Type::new(operands[0].dtype, shape)])
}
