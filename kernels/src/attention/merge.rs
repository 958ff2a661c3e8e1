//! Attention to some keys and to others, made attention to all of them.
//!
//! Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, section 3.1.

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::number::{Float, with_float};
use crate::wide::wide;

/// The rows of two parts to those of both: operands y1, s1, y2, s2, results y and s. Statistics are
/// the largest score of each row and the sum of the exponentials of the differences to it.
pub(crate) fn attention_merge(
    operands: [&Tensor; 4],
    [y, statistics]: [&mut TensorMut; 2],
) -> Result<(), KernelError> {
    let [y1, s1, y2, s2] = operands;
    let Some((_, rows)) = y.shape.split_last() else {
        return Err(KernelError::Dimension { dim: 0, rank: 0 });
    };
    let pairs = [rows, &[2]].concat();
    let parts = [(y1, y.shape), (s1, &pairs), (y2, y.shape), (s2, &pairs), (&statistics.tensor(), &pairs)];
    for (x, expected) in parts {
        if x.shape != expected {
            let (found, expected) = (x.shape.to_vec(), expected.to_vec());
            return Err(KernelError::Shape { of: "a part of attention", found, expected });
        }
        expect_dtype(x.dtype, y.dtype)?;
    }
    let size = extents(y.shape)?[rows.len()];
    with_float!(y.dtype, "merged attention", T => {
        let [s1, s2] = [s1.elements::<T>()?.as_chunks().0, s2.elements::<T>()?.as_chunks().0];
        let (y1, y2) = (y1.elements::<T>()?, y2.elements::<T>()?);
        let (y, statistics) = (y.elements_mut::<T>()?, statistics.elements_mut::<T>()?);
        for (row, (pair, (&first, &second))) in
            statistics.as_chunks_mut().0.iter_mut().zip(s1.iter().zip(s2)).enumerate()
        {
            let own = row * size..(row + 1) * size;
            let (made, weights) = weigh([first, second]);
            *pair = made;
            wide!(add_weighed, (weights, [&y1[own.clone()], &y2[own.clone()]], &mut y[own]));
        }
        Ok(())
    })
}

/// The statistics of a row from those of its parts, and what the parts weigh.
fn weigh<T: Float>(parts: [[T; 2]; 2]) -> ([T; 2], [T; 2]) {
    let largest = parts[0][0].larger(parts[1][0]);
    if largest == T::LOWEST {
        // The query sees no key of either part.
        return ([largest, T::ZERO], [T::ZERO; 2]);
    }
    let weights = parts.map(|[most, sum]| most.minus(largest).exp().times(sum));
    let sum = weights[0].plus(weights[1]);
    ([largest, sum], weights.map(|it| it.over(sum)))
}

/// `y = weights[0] * x[0] + weights[1] * x[1]`.
#[inline(always)]
fn add_weighed<T: Float>((weights, x, y): ([T; 2], [&[T]; 2], &mut [T])) {
    for (y, (&first, &second)) in y.iter_mut().zip(x[0].iter().zip(x[1])) {
        *y = weights[0].times(first).plus(weights[1].times(second));
    }
}

#[cfg(test)]
mod tests;
