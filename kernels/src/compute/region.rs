//! Programs whose shapes or control flow depend on data, interpreted.

use planner_ir::{Region, Type};

use super::evaluate_tensors;
use crate::array::{Array, Tensor, TensorMut};
use crate::error::KernelError;

mod dynamic;

pub(crate) use dynamic::dynamic;

/// The results of a region, of whatever shape they turn out to have.
pub(crate) fn interpret(region: &Region, operands: &[Tensor]) -> Result<Vec<Array>, KernelError> {
    if operands.len() != region.operands {
        let found = operands.len();
        return Err(KernelError::Count { of: "operands", found, expected: "the region's" });
    }
    let mut values: Vec<Array> = Vec::new();
    for node in &region.nodes {
        let inputs = node
            .operands
            .iter()
            .map(|&number| value(number, operands, &values))
            .collect::<Result<Vec<_>, _>>()?;
        let results = evaluate_tensors(&node.op, &inputs)?;
        if results.len() != node.results {
            let found = results.len();
            return Err(KernelError::Count { of: "results", found, expected: "the node's" });
        }
        values.extend(results);
    }
    let results = region.results.iter().map(|&number| {
        let value = value(number, operands, &values)?;
        Array::from_bytes(Type::new(value.dtype, value.shape), value.bytes)
    });
    results.collect()
}

/// The results of a region, which have to be of the types that it promised.
pub(crate) fn compute(
    region: &Region,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let found = interpret(region, operands).map_err(of_numbers)?;
    if found.len() != results.len() {
        let found = found.len();
        return Err(KernelError::Count { of: "results", found, expected: "the region's" });
    }
    for (found, y) in found.iter().zip(results) {
        if found.dtype() != y.dtype {
            return Err(KernelError::Mixed { found: found.dtype(), expected: y.dtype });
        }
        if found.shape() != y.shape {
            let (found, expected) = (found.shape().to_vec(), y.shape.to_vec());
            return Err(of_numbers(KernelError::Shape { of: "a region's result", found, expected }));
        }
        y.bytes.copy_from_slice(found.bytes());
    }
    Ok(())
}

/// The error with what is to blame: types of a region's values are known when it is imported, and shapes are
/// what numbers say that it is given.
fn of_numbers(error: KernelError) -> KernelError {
    match error {
        KernelError::Shape { .. }
        | KernelError::Dimension { .. }
        | KernelError::Size
        | KernelError::Count { .. }
        | KernelError::Type(_) => KernelError::Given(Box::new(error)),
        error => error,
    }
}

/// The value of that number: the operands come first.
fn value<'a>(number: usize, operands: &[Tensor<'a>], values: &'a [Array]) -> Result<Tensor<'a>, KernelError> {
    let value = match number.checked_sub(operands.len()) {
        None => operands.get(number).copied(),
        Some(number) => values.get(number).map(Array::tensor),
    };
    value.ok_or(KernelError::Count { of: "values", found: number, expected: "a value's number" })
}

#[cfg(test)]
mod tests;
