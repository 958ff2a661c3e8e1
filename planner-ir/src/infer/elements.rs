//! The elements of results.

use super::Result;
use super::checks::{expect, same_dtype};
use crate::data::{DType, Type};
use crate::op::{Binary, Unary};

pub(super) fn unary_dtype(unary: Unary, operands: &[Type]) -> Result<DType> {
    let dtype = operands[0].dtype;
    match unary {
        Unary::Not => {
            expect(operands, 0, dtype == DType::Bool, "truth values")?;
            Ok(DType::Bool)
        }
        Unary::IsNan | Unary::IsInf => Ok(DType::Bool),
        Unary::Abs | Unary::Neg | Unary::Sign | Unary::Relu => {
            expect(operands, 0, dtype != DType::Bool, "numbers")?;
            Ok(dtype)
        }
        _ => {
            expect(operands, 0, dtype.is_float(), "floating-point numbers")?;
            Ok(dtype)
        }
    }
}

pub(super) fn binary_dtype(binary: Binary, operands: &[Type]) -> Result<DType> {
    let dtype = operands[0].dtype;
    if binary == Binary::Pow {
        return Ok(dtype);
    }
    same_dtype(operands, 0, 1)?;
    match binary {
        Binary::And | Binary::Or | Binary::Xor => {
            expect(operands, 0, dtype == DType::Bool, "truth values")?;
            Ok(DType::Bool)
        }
        Binary::Equal => Ok(DType::Bool),
        Binary::Greater | Binary::GreaterOrEqual | Binary::Less | Binary::LessOrEqual => Ok(DType::Bool),
        _ => {
            expect(operands, 0, dtype != DType::Bool, "numbers")?;
            Ok(dtype)
        }
    }
}
