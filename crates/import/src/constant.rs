//! Known values as operations.

use kernels::Array;
use planner_ir::{DType, Op, Real, Triangle, Type};

/// Integers up to this are exact in an f64.
const EXACT: u64 = 1 << 53;

/// What hides a key where it is added to its score is at most this: -10000 as a bf16.
const HIDING: f64 = -9984.0;

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

/// Where one number stands in a value of rows and columns, by how far a column is from its row; elsewhere is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Banded {
    /// On one side of a diagonal.
    Side(Triangle, i64),
    /// From the first diagonal to the second.
    Within(i64, i64),
    /// Up to the first diagonal, and from the second on.
    Outside(i64, i64),
}

/// The number that all elements of a value are which are not 0, and where it stands: along diagonals, in some
/// elements and not in all.
pub(crate) fn banded(type_: &Type, bytes: &[u8]) -> Option<(f64, Banded)> {
    let [.., rows, columns] = type_.shape[..] else { return None };
    let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
    let size = usize::try_from(type_.dtype.bytes()).ok().filter(|&it| it > 0)?;
    let is_zero = |element: &[u8]| element.iter().all(|&it| it == 0);
    let mut number: Option<&[u8]> = None;
    // For each distance, from the last row's first column on, whether the number stands there.
    let mut known: Vec<Option<bool>> = vec![None; (rows + columns).saturating_sub(1)];
    for (place, element) in bytes.chunks_exact(size).enumerate() {
        let stands = !is_zero(element);
        if stands && *number.get_or_insert(element) != element {
            return None;
        }
        let (row, column) = (place / columns % rows, place % columns);
        if *known[column + rows - 1 - row].get_or_insert(stands) != stands {
            return None;
        }
    }
    let stands = known.into_iter().collect::<Option<Vec<bool>>>()?;
    let changes: Vec<i64> = (1..stands.len())
        .filter(|&at| stands[at] != stands[at - 1])
        .map(|at| Some(i64::try_from(at).ok()? - i64::try_from(rows - 1).ok()?))
        .collect::<Option<_>>()?;
    let banded = match (changes[..].first(), changes.get(1), changes.len(), stands[0]) {
        (Some(&at), None, _, true) => Banded::Side(Triangle::Lower, at - 1),
        (Some(&at), None, _, false) => Banded::Side(Triangle::Upper, at),
        (Some(&from), Some(&to), 2, false) => Banded::Within(from, to - 1),
        (Some(&from), Some(&to), 2, true) => Banded::Outside(from - 1, to),
        _ => return None,
    };
    let one = Array::from_bytes(Type::new(type_.dtype, [1]), number?).ok()?;
    Some((exact(&one)?, banded))
}

/// Whether a value that is one number along diagonals is a mask, and no weight: its number hides, or it shows the keys on
/// one side of a diagonal, or stands for truths. A weight may start as the identity, or as ones in a band.
pub(crate) fn is_mask(type_: &Type, number: f64, banded: Banded) -> bool {
    // Ones are weights where they differ from example to example.
    let is_one = type_.shape.iter().rev().skip(2).all(|&it| it == 1) || type_.dtype.bytes() == 1;
    let shows = !type_.dtype.is_float() || matches!(banded, Banded::Side(..));
    number <= HIDING || number >= 1.0 && is_one && shows
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
