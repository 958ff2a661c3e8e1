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

/// The side of a diagonal on which all elements of a value are one number, and that number, if they are 0 on
/// the other side and both sides have some.
pub(crate) fn triangle(type_: &Type, bytes: &[u8]) -> Option<(f64, Op)> {
    let [.., rows, columns] = type_.shape[..] else { return None };
    let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
    let size = usize::try_from(type_.dtype.bytes()).ok()?;
    let mut lines = bytes.chunks_exact(columns.checked_mul(size).filter(|&it| it > 0)?);
    let elements =
        |line: &[u8], element: &[u8]| line.chunks_exact(size).take_while(|it| *it == element).count();
    // In the first row so many elements are alike, and one more in each row that follows.
    let line = lines.clone().next()?;
    let first = &line[..size];
    let count = elements(line, first);
    let last = line.chunks_exact(size).nth(count)?;
    let alike = |(index, line): (usize, &[u8])| {
        let end = (count + index % rows.max(1)).min(columns);
        elements(line, first) >= end && elements(&line[end * size..], last) == columns - end
    };
    let is_zero = |element: &[u8]| element.iter().all(|&it| it == 0);
    let (triangle, number) = match (is_zero(first), is_zero(last)) {
        (true, false) => (Triangle::Upper, last),
        (false, true) => (Triangle::Lower, first),
        _ => return None,
    };
    lines.by_ref().enumerate().all(alike).then_some(())?;
    let one = Array::from_bytes(Type::new(type_.dtype, [1]), number).ok()?;
    let count = i64::try_from(count).ok()?;
    let diagonal = if triangle == Triangle::Lower { count - 1 } else { count };
    Some((exact(&one)?, Op::Triangle { triangle, diagonal }))
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
