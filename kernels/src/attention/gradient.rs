//! The gradients of attention.
//!
//! As in attention, queries are done a few rows at a time. Their weights are made again from the
//! scores and the statistics, so that the keys of a block are enough.
//!
//! Source: Dao, "FlashAttention-2", 2023, algorithm 2.

use std::ops::Range;

use planner_ir::{Attention, Blind};

use super::mask::Mask;
use super::{ROWS, Shape, blind_score, bound_row};
use crate::array::{Tensor, TensorMut, expect_dtype};
use crate::error::KernelError;
use crate::norm::dot;
use crate::number::{Float, with_float};
use crate::product::{Extents, Matrix, add_product, product};
use crate::wide::wide;

/// The gradients towards q, k, v and, if there is a fourth result, the mask; operands q, k, v, y,
/// statistics, dy, and the mask and documents if there are some.
pub(crate) fn attention_gradient(
    attention: &Attention,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let [q, k, v, y, statistics, dy, rest @ ..] = operands else {
        return Err(KernelError::Count { of: "operands", found: operands.len(), expected: "6 to 9" });
    };
    let (dq, dk, dv, dmask) = match results {
        [dq, dk, dv] => (dq, dk, dv, None),
        [dq, dk, dv, dmask] if attention.masks(rest).0.is_some() => (dq, dk, dv, Some(dmask)),
        _ => return Err(KernelError::Count { of: "results", found: results.len(), expected: "3 or 4" }),
    };
    for x in [k, v, y, dy] {
        expect_dtype(x.dtype, q.dtype)?;
    }
    let shape = Shape::new(q, k, v, y.shape)?;
    shape.check_statistics(statistics.shape, q.shape)?;
    let pairs = [(dy.shape, y.shape), (dq.shape, q.shape), (dk.shape, k.shape), (dv.shape, v.shape)];
    let masks = dmask.as_ref().zip(rest.first()).map(|(dmask, mask)| (dmask.shape, mask.shape));
    for (found, expected) in pairs.into_iter().chain(masks) {
        if found != expected {
            let (found, expected) = (found.to_vec(), expected.to_vec());
            return Err(KernelError::Shape { of: "the gradient of attention", found, expected });
        }
    }
    with_float!(q.dtype, "the gradient of attention", T => {
        let run = Run {
            attention,
            mask: Mask::<T>::new(rest, shape.scores())?,
            shape,
            q: q.elements()?,
            k: k.elements()?,
            v: v.elements()?,
            y: y.elements()?,
            statistics: statistics.elements()?,
            dy: dy.elements()?,
        };
        let dmask = match dmask {
            Some(dmask) => Some(dmask.elements_mut()?),
            None => None,
        };
        run.compute(Gradients { q: dq.elements_mut()?, k: dk.elements_mut()?, v: dv.elements_mut()?, dmask });
        Ok(())
    })
}

/// What is computed.
struct Gradients<'a, T> {
    q: &'a mut [T],
    k: &'a mut [T],
    v: &'a mut [T],
    dmask: Option<&'a mut [T]>,
}

/// What one computation needs throughout.
struct Run<'a, T> {
    attention: &'a Attention,
    shape: Shape,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    y: &'a [T],
    statistics: &'a [T],
    dy: &'a [T],
    mask: Mask<'a, T>,
}

/// Numbers for a few rows of scores.
struct Room<T> {
    /// Scores, then weights.
    weights: Vec<T>,
    /// The gradient of weights, then of scores.
    gradients: Vec<T>,
    /// The derivative of the bound.
    slopes: Vec<T>,
}

impl<T: Float> Run<'_, T> {
    fn compute(&self, mut made: Gradients<T>) {
        let shape = &self.shape;
        let room = ROWS.min(shape.queries) * shape.keys;
        let zeros = || vec![T::ZERO; room];
        let slopes = if self.attention.softcap.0 == 0.0 { vec![] } else { zeros() };
        let mut room = Room { weights: zeros(), gradients: zeros(), slopes };
        made.k.fill(T::ZERO);
        made.v.fill(T::ZERO);
        if let Some(mask) = &mut made.dmask {
            mask.fill(T::ZERO);
        }
        for batch in 0..shape.batch {
            for head in 0..shape.heads {
                for start in (0..shape.queries).step_by(ROWS) {
                    let queries = start..shape.queries.min(start + ROWS);
                    self.compute_rows(batch, head, queries, &mut room, &mut made);
                }
            }
        }
    }

    fn compute_rows(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        room: &mut Room<T>,
        made: &mut Gradients<T>,
    ) {
        let shape = &self.shape;
        let first_row = (batch * shape.heads + head) * shape.queries + queries.start;
        let seen = |(row, query): (usize, usize)| {
            if self.is_blind(first_row + row) { 0..shape.keys } else { shape.seen(self.attention, query) }
        };
        let seen: Vec<Range<usize>> = queries.clone().enumerate().map(seen).collect();
        let first = seen.iter().map(|seen| seen.start).min().unwrap_or(0);
        let end = seen.iter().map(|seen| seen.end).max().unwrap_or(0);
        let (rows, keys) = (queries.len(), end.saturating_sub(first));
        let first_key = (batch * shape.groups + shape.group[head]) * shape.keys + first;
        let (size, value_size) = (shape.size, shape.value_size);
        let scale = T::of_f64(self.attention.scale.0);
        let (query_rows, key_rows) = (rows_of(first_row, size), rows_of(first_key, size));
        let (made_rows, value_rows) = (rows_of(first_row, value_size), rows_of(first_key, value_size));
        let scores = rows_of(0, keys);
        let extents = |rows, columns, summed| Extents { rows, columns, summed };
        product(
            extents(rows, keys, size),
            scale,
            (self.q, query_rows),
            (self.k, turned(key_rows)),
            (&mut room.weights, scores),
        );
        product(
            extents(rows, keys, value_size),
            T::ONE,
            (self.dy, made_rows),
            (self.v, turned(value_rows)),
            (&mut room.gradients, scores),
        );
        for (row, (query, seen)) in queries.zip(seen).enumerate() {
            let own = row * keys..(row + 1) * keys;
            let seen_here = seen.start - first..seen.end - first;
            self.weigh([batch, head, query, seen.start], first_row + row, own, seen_here, room, made);
        }
        let (weights, gradients) = (&room.weights[..rows * keys], &room.gradients[..rows * keys]);
        let into_values = extents(keys, value_size, rows);
        add_product(
            into_values,
            T::ONE,
            (weights, turned(scores)),
            (self.dy, made_rows),
            (made.v, value_rows),
        );
        let into_queries = extents(rows, size, keys);
        product(into_queries, scale, (gradients, scores), (self.k, key_rows), (made.q, query_rows));
        let into_keys = extents(keys, size, rows);
        add_product(into_keys, scale, (gradients, turned(scores)), (self.q, query_rows), (made.k, key_rows));
    }

    /// Whether the query of a row sees no key and has the mean of all values.
    fn is_blind(&self, row: usize) -> bool {
        self.attention.blind != Blind::Zero && self.statistics[2 * row] == blind_score()
    }

    /// The weights and the gradients of the scores of one query, whose row of the room is `own`
    /// and which sees a range of it.
    fn weigh(
        &self,
        place: [usize; 4],
        row: usize,
        own: Range<usize>,
        seen: Range<usize>,
        room: &mut Room<T>,
        made: &mut Gradients<T>,
    ) {
        let (weights, gradients) = (&mut room.weights[own.clone()], &mut room.gradients[own.clone()]);
        for hidden in [0..seen.start, seen.end..weights.len()] {
            weights[hidden.clone()].fill(T::ZERO);
            gradients[hidden].fill(T::ZERO);
        }
        let (largest, sum) = (self.statistics[2 * row], self.statistics[2 * row + 1]);
        let (weights, gradients) = (&mut weights[seen.clone()], &mut gradients[seen.clone()]);
        if largest == T::LOWEST {
            // The query sees no key.
            weights.fill(T::ZERO);
            gradients.fill(T::ZERO);
            return;
        }
        let softcap = self.attention.softcap.0;
        let slopes = room.slopes.get_mut(own).map(|slopes| &mut slopes[seen]);
        if softcap != 0.0 {
            wide!(bound_row, (&mut *weights, T::of_f64(softcap)));
        }
        let slopes = slopes.map(|slopes| {
            wide!(slope_row, (&*weights, T::of_f64(softcap), &mut *slopes));
            &*slopes
        });
        if self.is_blind(row) {
            for (key, weight) in weights.iter_mut().enumerate() {
                let [batch, head, query, _] = place;
                let is_out = self.shape.hides_twice(self.attention, &self.mask, [batch, head, query, key]);
                *weight = if is_out { T::LOWEST } else { largest };
            }
        } else {
            self.mask.apply(place, weights);
        }
        let size = self.shape.value_size;
        let made_row = row * size..(row + 1) * size;
        let own = wide!(dot, (&self.dy[made_row.clone()], &self.y[made_row]));
        wide!(weigh_row, ([largest, sum], own, &mut *weights, &mut *gradients));
        if let Some(dmask) = &mut made.dmask {
            let (start, stride) = (self.mask.place(place), self.mask.stride());
            for (index, &gradient) in gradients.iter().enumerate() {
                let dmask = &mut dmask[start + index * stride];
                *dmask = dmask.plus(gradient);
            }
        }
        if let Some(slopes) = slopes {
            wide!(multiply_row, (gradients, slopes));
        }
    }
}

/// The rows of that length from one on.
fn rows_of(first: usize, length: usize) -> Matrix {
    Matrix { start: first * length, row_stride: length, column_stride: 1 }
}

/// The transpose.
fn turned(matrix: Matrix) -> Matrix {
    Matrix { row_stride: matrix.column_stride, column_stride: matrix.row_stride, ..matrix }
}

/// The derivative of `cap * tanh(x / cap)` where it has these values.
#[inline(always)]
fn slope_row<T: Float>((row, cap, slopes): (&[T], T, &mut [T])) {
    for (slope, &bounded) in slopes.iter_mut().zip(row) {
        let tanh = bounded.over(cap);
        *slope = T::ONE.minus(tanh.times(tanh));
    }
}

/// Scores to weights, and gradients of weights to those of scores.
#[inline(always)]
fn weigh_row<T: Float>(([largest, sum], own, weights, gradients): ([T; 2], T, &mut [T], &mut [T])) {
    for (weight, gradient) in weights.iter_mut().zip(gradients) {
        *weight = weight.minus(largest).exp().over(sum);
        *gradient = gradient.minus(own).times(*weight);
    }
}

#[inline(always)]
fn multiply_row<T: Float>((row, factors): (&mut [T], &[T])) {
    for (x, &factor) in row.iter_mut().zip(factors) {
        *x = x.times(factor);
    }
}

#[cfg(test)]
mod tests;
