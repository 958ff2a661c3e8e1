//! The one matrix product.

use std::any::TypeId;

use gemm::Parallelism;

use crate::number::Number;

/// Below this many multiplications a plain loop is as fast.
const FEW: usize = 512;

/// A matrix in strided memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    /// Where its first element is (elements).
    pub(crate) start: usize,
    /// How far apart rows are (elements).
    pub(crate) row_stride: usize,
    /// How far apart columns are (elements).
    pub(crate) column_stride: usize,
}

/// The extents of a product: `[rows, summed] x [summed, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) summed: usize,
}

/// What becomes of what stood in a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Forgotten,
    Kept,
}

/// `y = factor * a b`.
///
/// # Panics
///
/// If a matrix is not inside its slice.
pub(crate) fn product<T: Number>(
    extents: Extents,
    factor: T,
    a: (&[T], Matrix),
    b: (&[T], Matrix),
    y: (&mut [T], Matrix),
) {
    multiply(extents, factor, a, b, y, Before::Forgotten);
}

/// `y += factor * a b`.
///
/// # Panics
///
/// If a matrix is not inside its slice.
pub(crate) fn add_product<T: Number>(
    extents: Extents,
    factor: T,
    a: (&[T], Matrix),
    b: (&[T], Matrix),
    y: (&mut [T], Matrix),
) {
    multiply(extents, factor, a, b, y, Before::Kept);
}

fn multiply<T: Number>(
    extents: Extents,
    factor: T,
    (a, a_at): (&[T], Matrix),
    (b, b_at): (&[T], Matrix),
    (y, y_at): (&mut [T], Matrix),
    before: Before,
) {
    let Extents { rows, columns, summed } = extents;
    if rows == 0 || columns == 0 || (summed == 0 && before == Before::Kept) {
        return;
    }
    let is_float = [TypeId::of::<f32>(), TypeId::of::<f64>()].contains(&TypeId::of::<T>());
    if !is_float || summed == 0 || rows * columns * summed <= FEW {
        return by_loops(extents, factor, (a, a_at), (b, b_at), (y, y_at), before);
    }
    assert!(last(a_at, rows, summed) < a.len(), "the left matrix is inside its slice");
    assert!(last(b_at, summed, columns) < b.len(), "the right matrix is inside its slice");
    assert!(last(y_at, rows, columns) < y.len(), "the result is inside its slice");
    #[expect(unsafe_code, reason = "the library takes pointers")]
    // SAFETY: all three matrices are inside their slices, as was asserted; T is f32 or f64, which
    // the library knows; y is borrowed alone.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            summed,
            y.as_mut_ptr().add(y_at.start),
            y_at.column_stride.cast_signed(),
            y_at.row_stride.cast_signed(),
            before == Before::Kept,
            a.as_ptr().add(a_at.start),
            a_at.column_stride.cast_signed(),
            a_at.row_stride.cast_signed(),
            b.as_ptr().add(b_at.start),
            b_at.column_stride.cast_signed(),
            b_at.row_stride.cast_signed(),
            if before == Before::Kept { T::ONE } else { T::ZERO },
            factor,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Where the last element of a matrix is that has elements.
fn last(matrix: Matrix, rows: usize, columns: usize) -> usize {
    let place = |count: usize, stride: usize| (count - 1).checked_mul(stride);
    place(rows, matrix.row_stride)
        .zip(place(columns, matrix.column_stride))
        .and_then(|(row, column)| row.checked_add(column)?.checked_add(matrix.start))
        .expect("places in memory are numbers")
}

fn by_loops<T: Number>(
    Extents { rows, columns, summed }: Extents,
    factor: T,
    (a, a_at): (&[T], Matrix),
    (b, b_at): (&[T], Matrix),
    (y, y_at): (&mut [T], Matrix),
    before: Before,
) {
    for row in 0..rows {
        for column in 0..columns {
            let mut sum = T::ZERO;
            let mut a_place = a_at.start + row * a_at.row_stride;
            let mut b_place = b_at.start + column * b_at.column_stride;
            for _ in 0..summed {
                sum = sum.plus(a[a_place].times(b[b_place]));
                a_place += a_at.column_stride;
                b_place += b_at.row_stride;
            }
            let y = &mut y[y_at.start + row * y_at.row_stride + column * y_at.column_stride];
            let sum = sum.times(factor);
            *y = if before == Before::Kept { y.plus(sum) } else { sum };
        }
    }
}
