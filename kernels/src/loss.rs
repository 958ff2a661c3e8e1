//! Cross entropy of scores and labels, and its gradient.

use crate::array::{Span, Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::norm::{log_sum, softmax_row};
use crate::number::{Float, Number, with_float};
use crate::wide::wide;
use crate::widen::indices;

/// For each row of scores, `-log softmax(scores)[label]`, and 0 where the label is ignored.
pub(crate) fn cross_entropy(
    ignored: i64,
    [scores, labels]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let rows = Rows::new(scores, [labels, &y.tensor()])?;
    let classes = rows.classes;
    let labels = indices(labels)?;
    with_float!(scores.dtype, "cross entropy", T => {
        let scores = scores.elements::<T>()?;
        let mut room = vec![T::ZERO; classes];
        for (row, (y, &label)) in y.elements_mut::<T>()?.iter_mut().zip(labels.iter()).enumerate() {
            *y = T::ZERO;
            if label != ignored {
                let scores = &scores[row * classes..(row + 1) * classes];
                *y = wide!(loss, (scores, rows.place(label)?, &mut room));
            }
        }
        Ok(())
    })
}

/// `dscores = dloss * (softmax(scores) - onehot(label))`, and 0 where the label is ignored.
pub(crate) fn cross_entropy_gradient(
    ignored: i64,
    [scores, labels, dloss]: [&Tensor; 3],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let rows = Rows::new(scores, [labels, dloss])?;
    expect_dtype(y.dtype, scores.dtype)?;
    if y.shape != scores.shape {
        let (found, expected) = (y.shape.to_vec(), scores.shape.to_vec());
        return Err(KernelError::Shape { of: "the gradient of scores", found, expected });
    }
    let labels = indices(labels)?;
    with_float!(scores.dtype, "the gradient of cross entropy", T => {
        let (scores, dloss) = (scores.elements::<T>()?, dloss.elements::<T>()?);
        let y = y.elements_mut::<T>()?;
        for (row, (&label, &factor)) in labels.iter().zip(dloss).enumerate() {
            let range = row * rows.classes..(row + 1) * rows.classes;
            let y = &mut y[range.clone()];
            if label == ignored {
                y.fill(T::ZERO);
            } else {
                wide!(loss_gradient, (&scores[range], rows.place(label)?, factor, y));
            }
        }
        Ok(())
    })
}

/// Rows of scores.
struct Rows {
    /// How many scores of a row the block has.
    classes: usize,
    span: Span,
}

impl Rows {
    /// Of scores with values that have a number for each row.
    fn new(scores: &Tensor, others: [&Tensor; 2]) -> Result<Self, KernelError> {
        let Some((_, rows)) = scores.shape.split_last() else {
            return Err(KernelError::Dimension { dim: 0, rank: 0 });
        };
        if let Some(other) = others.iter().find(|other| other.shape != rows) {
            return Err(KernelError::Shape {
                of: "a number for each row",
                found: other.shape.to_vec(),
                expected: rows.to_vec(),
            });
        }
        Ok(Self { classes: extents(scores.shape)?[rows.len()], span: scores.span(rows.len()) })
    }

    /// The place of a label in a row of the block.
    fn place(&self, label: i64) -> Result<usize, KernelError> {
        let Span { extent, start, .. } = self.span;
        let position = u64::try_from(label).ok().filter(|&position| position < extent);
        let position = position.ok_or(KernelError::Index { index: label, extent })?;
        let place = position.checked_sub(start).and_then(|it| usize::try_from(it).ok());
        place.filter(|&place| place < self.classes).ok_or_else(|| {
            let extent = u64::try_from(self.classes).unwrap_or(u64::MAX);
            KernelError::Block { position, start, extent }
        })
    }
}

#[inline(always)]
fn loss_gradient<T: Float>((scores, label, factor, y): (&[T], usize, T, &mut [T])) {
    y.copy_from_slice(scores);
    softmax_row(y);
    y[label] = y[label].minus(T::ONE);
    for y in y {
        *y = y.times(factor);
    }
}

#[inline(always)]
fn loss<T: Float>((scores, label, room): (&[T], usize, &mut Vec<T>)) -> T {
    let (largest, logarithm) = log_sum(scores, room);
    logarithm.minus(scores[label].minus(largest))
}

#[cfg(test)]
mod tests;
