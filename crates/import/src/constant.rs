//! Known values as operations.

use kernels::Array;
use planner_ir::{DType, Op, Real, Triangle, Type};

/// Integers up to this are exact in an f64.
const EXACT: u64 = 1 << 53;

/// The shortest operation that is a value: a number repeated, a range, or its bytes.
pub(crate) fn op(array: &Array) -> Op {
    let result = array.type_().clone();
    if let Some(value) = first_if_equal(array).and_then(|one| exact(&one)) {
        return Op::Fill { result, value: Real(value) };
    }
    range(array).unwrap_or_else(|| Op::Constant { result, data: array.bytes().to_vec() })
}

/// The first element, with as many dimensions, if all others are equal to it.
pub(crate) fn first_if_equal(array: &Array) -> Option<Array> {
    let size = usize::try_from(array.dtype().bytes()).ok()?;
    let first = array.bytes().get(..size)?;
    if array.bytes().chunks_exact(size).any(|element| element != first) {
        return None;
    }
    Array::from_bytes(Type::new(array.dtype(), vec![1; array.shape().len()]), first).ok()
}

/// The first element, if an f64 is exactly that.
pub(crate) fn exact(array: &Array) -> Option<f64> {
    let value = *array.to_floats().ok()?.first()?;
    if array.dtype().is_float() || array.dtype() == DType::Bool {
        return Some(value);
    }
    let whole = *array.to_integers().ok()?.first()?;
    (whole.unsigned_abs() <= EXACT).then_some(value)
}

/// The value of that type whose elements are all that of `one`.
pub(crate) fn repeated(one: &Array, type_: &Type) -> Option<Array> {
    let count = usize::try_from(type_.elements()).ok()?;
    Array::from_bytes(type_.clone(), &one.bytes().repeat(count)).ok()
}

/// The side of a diagonal on which the bytes of a value, one for each element, are 1, if they are 0 on the
/// other side and both sides have some.
pub(crate) fn triangle(type_: &Type, bytes: &[u8]) -> Option<Op> {
    let [.., rows, columns] = type_.shape[..] else { return None };
    let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
    let first = bytes.get(..columns)?;
    let ones = |row: &[u8], one: u8| row.iter().take_while(|it| **it == one).count();
    // In the first row so many elements are alike, and one more (or less) in each row that follows.
    let one = *first.first()?;
    let count = ones(first, one);
    let alike = |(index, row): (usize, &[u8])| {
        let end = (count + index % rows.max(1)).min(columns);
        row[..end].iter().all(|it| *it == one) && row[end..].iter().all(|it| *it == 1 - one)
    };
    if one > 1 || count == columns || !bytes.chunks_exact(columns).enumerate().all(alike) {
        return None;
    }
    let count = i64::try_from(count).ok()?;
    Some(match one {
        1 => Op::Triangle { triangle: Triangle::Lower, diagonal: count - 1 },
        _ => Op::Triangle { triangle: Triangle::Upper, diagonal: count },
    })
}

/// Integers that rise or fall evenly.
fn range(array: &Array) -> Option<Op> {
    if !matches!(array.dtype(), DType::I64 | DType::I32) || array.shape().len() != 1 {
        return None;
    }
    let elements = array.to_integers().ok()?;
    let (&first, &second, &last) = (elements.first()?, elements.get(1)?, elements.last()?);
    let step = second.checked_sub(first)?;
    let even = elements.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step));
    let small = first.unsigned_abs() <= EXACT && last.unsigned_abs() <= EXACT;
    (even && small).then(|| Op::Iota {
        dtype: array.dtype(),
        length: array.shape()[0],
        start: real(first),
        step: real(step),
    })
}

#[expect(clippy::cast_precision_loss, reason = "callers checked that it is exact")]
fn real(number: i64) -> Real {
    Real(number as f64)
}

#[cfg(test)]
mod tests;
