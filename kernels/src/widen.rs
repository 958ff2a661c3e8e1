//! Stored elements as the numbers that kernels compute with, and back.

use std::borrow::Cow;

use planner_ir::{DType, Type};

use crate::array::{Array, Tensor, TensorMut};
use crate::cast::cast;
use crate::error::KernelError;
use crate::number::computed_as;

/// The value with other elements.
pub(crate) fn converted(x: &Tensor, dtype: DType) -> Result<Array, KernelError> {
    let mut wide = Array::zeros(Type::new(dtype, x.shape))?;
    cast(x, &mut wide.tensor_mut())?;
    Ok(wide)
}

/// Computes with widened operands and results.
///
/// Elements that kernels do not compute with are converted before and after; the others stay
/// where they are.
pub(crate) fn widened(
    operands: &[Tensor],
    results: &mut [TensorMut],
    compute: impl FnOnce(&[Tensor], &mut [TensorMut]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let is_wide = |dtype: DType| computed_as(dtype) == dtype;
    if operands.iter().all(|x| is_wide(x.dtype)) && results.iter().all(|y| is_wide(y.dtype)) {
        return compute(operands, results);
    }
    let wide_operands: Vec<Option<Array>> = operands
        .iter()
        .map(|x| match computed_as(x.dtype) {
            dtype if dtype == x.dtype => Ok(None),
            dtype => converted(x, dtype).map(Some),
        })
        .collect::<Result<_, _>>()?;
    let operands: Vec<Tensor> = operands
        .iter()
        .zip(&wide_operands)
        .map(|(&x, wide)| wide.as_ref().map_or(x, |wide| Tensor { spans: x.spans, ..wide.tensor() }))
        .collect();
    let mut wide_results: Vec<Option<Array>> = results
        .iter()
        .map(|y| match computed_as(y.dtype) {
            dtype if dtype == y.dtype => Ok(None),
            dtype => Array::zeros(Type::new(dtype, y.shape)).map(Some),
        })
        .collect::<Result<_, _>>()?;
    let mut targets: Vec<TensorMut> = results
        .iter_mut()
        .zip(&mut wide_results)
        .map(|(y, wide)| match wide {
            Some(wide) => TensorMut { spans: y.spans, ..wide.tensor_mut() },
            None => y.reborrow(),
        })
        .collect();
    compute(&operands, &mut targets)?;
    for (y, wide) in results.iter_mut().zip(&wide_results) {
        if let Some(wide) = wide {
            cast(&wide.tensor(), y)?;
        }
    }
    Ok(())
}

/// The elements, if they are integers or truth values, as indices; copied if they must be.
pub(crate) fn indices<'a>(x: &Tensor<'a>) -> Result<Cow<'a, [i64]>, KernelError> {
    match x.dtype {
        DType::I64 => Ok(Cow::Borrowed(x.elements()?)),
        DType::U64 => {
            let numbers = x.elements::<u64>()?.iter();
            numbers.map(|&number| i64::try_from(number).map_err(|_| KernelError::Size)).collect()
        }
        found if found.is_float() => Err(KernelError::Elements { of: "an index", found }),
        _ => Ok(Cow::Owned(converted(x, DType::I64)?.elements()?.to_vec())),
    }
}

/// The elements, if they are integers or truth values, as indices.
pub(crate) fn integers(x: &Tensor) -> Result<Vec<i64>, KernelError> {
    Ok(indices(x)?.into_owned())
}

/// The elements as f64, to the nearest.
pub(crate) fn floats(x: &Tensor) -> Result<Vec<f64>, KernelError> {
    Ok(converted(x, DType::F64)?.elements()?.to_vec())
}

impl Array {
    /// Its elements, if they are integers or truth values that an i64 can hold.
    pub fn to_integers(&self) -> Result<Vec<i64>, KernelError> {
        integers(&self.tensor())
    }

    /// Its elements as f64, to the nearest.
    pub fn to_floats(&self) -> Result<Vec<f64>, KernelError> {
        floats(&self.tensor())
    }
}
