//! Cross entropy of scores and labels.

use crate::array::{Tensor, TensorMut, extents};
use crate::error::KernelError;
use crate::norm::log_sum;
use crate::number::{Float, Number, with_float};
use crate::wide::wide;
use crate::widen::indices;

/// For each row of scores, `-log softmax(scores)[label]`, and 0 where the label is ignored.
pub(crate) fn cross_entropy(
    ignored: i64,
    [scores, labels]: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let Some((_, rows)) = scores.shape.split_last() else {
        return Err(KernelError::Dimension { dim: 0, rank: 0 });
    };
    for found in [labels.shape, y.shape] {
        if found != rows {
            return Err(KernelError::Shape {
                of: "a number for each row",
                found: found.to_vec(),
                expected: rows.to_vec(),
            });
        }
    }
    let classes = extents(scores.shape)?[rows.len()];
    let span = scores.span(rows.len());
    let place = |label: i64| {
        let outside = KernelError::Index { index: label, extent: span.extent };
        let position = u64::try_from(label).ok().filter(|&position| position < span.extent);
        let position = position.ok_or(outside)?;
        let misfit = KernelError::Block { position, start: span.start, extent: scores.shape[rows.len()] };
        let place = position.checked_sub(span.start).and_then(|it| usize::try_from(it).ok());
        place.filter(|&place| place < classes).ok_or(misfit)
    };
    let labels = indices(labels)?;
    with_float!(scores.dtype, "cross entropy", T => {
        let scores = scores.elements::<T>()?;
        let mut room = vec![T::ZERO; classes];
        for (row, (y, &label)) in y.elements_mut::<T>()?.iter_mut().zip(labels.iter()).enumerate() {
            *y = T::ZERO;
            if label != ignored {
                let scores = &scores[row * classes..(row + 1) * classes];
                *y = wide!(loss, (scores, place(label)?, &mut room));
            }
        }
        Ok(())
    })
}

#[inline(always)]
fn loss<T: Float>((scores, label, room): (&[T], usize, &mut Vec<T>)) -> T {
    let (largest, logarithm) = log_sum(scores, room);
    logarithm.minus(scores[label].minus(largest))
}

#[cfg(test)]
mod tests;
