//! Scaled dot-product attention and its parts, the rotary embedding of its operands, and their
//! gradients.
//!
//! Queries are done a few rows at a time: their scores with the keys that any of them sees by
//! one matrix product, softmax of each row over the keys that it sees, and the weighted sum of
//! the values by another product.

use std::ops::Range;

use planner_ir::{Attention, Blind, Pairing};

use crate::array::{Span, Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::nest::{Level, Nest, repeated, row_major};
use crate::norm::softmax_row;
use crate::number::{Float, with_float};
use crate::product::{Extents, Matrix, product};
use crate::wide::wide;

mod gradient;
mod mask;
mod merge;

pub(crate) use gradient::attention_gradient;
pub(crate) use mask::with_low;
use mask::{Mask, add_row};
pub(crate) use merge::attention_merge;

/// How many queries are done at a time.
const ROWS: usize = 64;

/// `y[b,h,s,:] = sum_t softmax_t(bound(scale * q·k) + mask) v`, and the statistics of rows if there
/// is a second result.
pub(crate) fn attention(
    attention: &Attention,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let (y, statistics) = match results {
        [y] if !attention.statistics => (y, None),
        [y, statistics] if attention.statistics => (y, Some(statistics)),
        _ => {
            let expected = if attention.statistics { "2" } else { "1" };
            return Err(KernelError::Count { of: "results", found: results.len(), expected });
        }
    };
    let [q, k, v, rest @ ..] = operands else {
        return Err(KernelError::Count { of: "operands", found: operands.len(), expected: "3 to 7" });
    };
    let masking = attention.masking(rest);
    let sinks = rest.get(masking.len());
    for x in [k, v].into_iter().chain(sinks) {
        expect_dtype(x.dtype, q.dtype)?;
    }
    let shape = Shape::new(q, k, v, y.shape)?;
    if let Some(statistics) = &statistics {
        shape.check_statistics(statistics.shape, q.shape)?;
    }
    with_float!(q.dtype, "attention", T => {
        let statistics = match statistics {
            Some(statistics) => Some(statistics.elements_mut()?),
            None => None,
        };
        let mask = Mask::<T>::new(masking, shape.scores())?;
        let sinks = match sinks {
            Some(sinks) => Some(Sinks::new(sinks, &shape)?),
            None => None,
        };
        let (q, k, v) = (q.elements()?, k.elements()?, v.elements()?);
        let run = Run { attention, shape, q, k, v, mask, sinks };
        run.compute(y.elements_mut()?, statistics)
    })
}

/// The extents of the blocks and where they lie.
#[derive(Clone, Debug)]
struct Shape {
    batch: usize,
    heads: usize,
    groups: usize,
    queries: usize,
    keys: usize,
    /// The extents of a query and of a value.
    size: usize,
    value_size: usize,
    /// For each head of the block, the group of keys of the block.
    group: Vec<usize>,
    query_span: Span,
    key_span: Span,
}

impl Shape {
    fn new(q: &Tensor, k: &Tensor, v: &Tensor, y: &[u64]) -> Result<Self, KernelError> {
        let four = |shape: &[u64]| {
            let rank = shape.len();
            let four: Result<[usize; 4], _> = extents(shape)?.try_into();
            four.map_err(|_| KernelError::Dimension { dim: 3, rank })
        };
        let [batch, heads, queries, size] = four(q.shape)?;
        let [_, groups, keys, _] = four(k.shape)?;
        let [_, _, _, value_size] = four(v.shape)?;
        let [b, h, s, d] = [0, 1, 2, 3].map(|dim| q.shape[dim]);
        let [_, g, t, _] = [0, 1, 2, 3].map(|dim| k.shape[dim]);
        let e = v.shape[3];
        for (of, found, expected) in [
            ("the keys", k.shape, [b, g, t, d]),
            ("the values", v.shape, [b, g, t, e]),
            ("the result", y, [b, h, s, e]),
        ] {
            if found != expected {
                let expected = expected.to_vec();
                return Err(KernelError::Shape { of, found: found.to_vec(), expected });
            }
        }
        // A block has as many heads of each of its groups, wherever those lie.
        if g == 0 || !h.is_multiple_of(g) {
            return Err(KernelError::Shape { of: "heads", found: vec![h], expected: vec![g] });
        }
        let each = heads / groups;
        let group = (0..heads).map(|head| head / each.max(1)).collect();
        let (query_span, key_span) = (q.span(2), k.span(2));
        Ok(Self { batch, heads, groups, queries, keys, size, value_size, group, query_span, key_span })
    }

    /// Refuses statistics that are not a pair for each query.
    fn check_statistics(&self, found: &[u64], q: &[u64]) -> Result<(), KernelError> {
        let expected = vec![q[0], q[1], q[2], 2];
        if found == expected {
            return Ok(());
        }
        Err(KernelError::Shape { of: "statistics", found: found.to_vec(), expected })
    }

    /// The extents of the scores.
    fn scores(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.keys]
    }

    /// The keys of the block that a query of the block may see.
    fn seen(&self, attention: &Attention, query: usize) -> Range<usize> {
        if !attention.causal && attention.window.is_none() {
            return 0..self.keys;
        }
        // Positions are aligned at the ends of both sequences.
        let position = self.query_span.position(u64::try_from(query).unwrap_or(u64::MAX));
        let own =
            i128::from(position) + i128::from(self.key_span.extent) - i128::from(self.query_span.extent);
        let first = attention.window.map_or(0, |window| own + 1 - i128::from(window));
        let place = |key: i128| {
            let before = self.key_span.before(u64::try_from(key.max(0)).unwrap_or(u64::MAX));
            usize::try_from(before).unwrap_or(self.keys).min(self.keys)
        };
        let end = place(own + 1);
        place(first).min(end)..end
    }

    /// Whether a key of a query that sees none is hidden by the mask and because of where it is, and so
    /// has no part in a mean of what is hidden once.
    fn hides_twice<T: Float>(&self, attention: &Attention, mask: &Mask<T>, score: [usize; 4]) -> bool {
        attention.blind == Blind::Once
            && !self.seen(attention, score[2]).contains(&score[3])
            && mask.hides(score)
    }
}

/// What one computation needs throughout.
struct Run<'a, T> {
    attention: &'a Attention,
    shape: Shape,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    mask: Mask<'a, T>,
    sinks: Option<Sinks<'a, T>>,
}

/// A score that each row has besides those of its keys.
struct Sinks<'a, T> {
    elements: &'a [T],
    /// How far apart they lie along each dimension of the scores.
    strides: Vec<usize>,
    /// The logarithm of the part of the keys that the block has.
    share: T,
}

impl<'a, T: Float> Sinks<'a, T> {
    fn new(sinks: &Tensor<'a>, shape: &Shape) -> Result<Self, KernelError> {
        let strides = repeated(&extents(sinks.shape)?, &shape.scores())?;
        let share = shape.key_span.share(u64::try_from(shape.keys).unwrap_or(u64::MAX));
        Ok(Self { elements: sinks.elements()?, strides, share: T::of_f64(share.ln()) })
    }

    /// The weights of a row of scores beside this one, and its statistics, of those without it.
    fn join(&self, [batch, head, query]: [usize; 3], row: &mut [T], [largest, sum]: [T; 2]) -> [T; 2] {
        let sink = self.elements[mask::place([batch, head, query, 0], &self.strides)].plus(self.share);
        let highest = largest.larger(sink);
        if highest == T::LOWEST {
            return [largest, sum];
        }
        let seen = sum.times(largest.minus(highest).exp());
        let all = seen.plus(sink.minus(highest).exp());
        for weight in row {
            *weight = weight.times(seen).over(all);
        }
        [highest, all]
    }
}

impl<T: Float> Run<'_, T> {
    fn compute(&self, y: &mut [T], mut statistics: Option<&mut [T]>) -> Result<(), KernelError> {
        let shape = &self.shape;
        let mut scores = vec![T::ZERO; ROWS.min(shape.queries) * shape.keys];
        for batch in 0..shape.batch {
            for head in 0..shape.heads {
                for start in (0..shape.queries).step_by(ROWS) {
                    let queries = start..shape.queries.min(start + ROWS);
                    let pairs = self.compute_rows(batch, head, queries, &mut scores, y);
                    if let Some(statistics) = &mut statistics {
                        let first = (batch * shape.heads + head) * shape.queries + start;
                        let to = &mut statistics[2 * first..2 * (first + pairs.len())];
                        to.copy_from_slice(pairs.as_flattened());
                    }
                }
            }
        }
        Ok(())
    }

    /// A few rows of the result; returns their statistics.
    fn compute_rows(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        scores: &mut [T],
        y: &mut [T],
    ) -> Vec<[T; 2]> {
        let shape = &self.shape;
        let seen: Vec<Range<usize>> =
            queries.clone().map(|query| shape.seen(self.attention, query)).collect();
        let first = seen.iter().map(|seen| seen.start).min().unwrap_or(0);
        let end = seen.iter().map(|seen| seen.end).max().unwrap_or(0);
        let (rows, keys) = (queries.len(), end.saturating_sub(first));
        let group = batch * shape.groups + shape.group[head];
        let group_values = group * shape.keys * shape.value_size;
        let first_query = queries.start;
        let matrix = |start: usize, row_stride: usize| Matrix {
            start: start * row_stride,
            row_stride,
            column_stride: 1,
        };
        let first_row = (batch * shape.heads + head) * shape.queries + queries.start;
        let k_at = matrix(group * shape.keys + first, shape.size);
        product(
            Extents { rows, columns: keys, summed: shape.size },
            T::of_f64(self.attention.scale.0),
            (self.q, matrix(first_row, shape.size)),
            (self.k, Matrix { row_stride: 1, column_stride: shape.size, ..k_at }),
            (scores, matrix(0, keys)),
        );
        let mut pairs = Vec::with_capacity(rows);
        for (row, (query, seen)) in queries.zip(&seen).enumerate() {
            let scores = &mut scores[row * keys..(row + 1) * keys];
            let (before, rest) = scores.split_at_mut(seen.start - first);
            let (scores, after) = rest.split_at_mut(seen.len());
            before.fill(T::ZERO);
            after.fill(T::ZERO);
            pairs.push(self.weigh([batch, head, query, seen.start], scores));
        }
        product(
            Extents { rows, columns: shape.value_size, summed: keys },
            T::ONE,
            (scores, matrix(0, keys)),
            (self.v, matrix(group * shape.keys + first, shape.value_size)),
            (y, matrix(first_row, shape.value_size)),
        );
        if self.attention.blind != Blind::Zero {
            let values = &self.v[group_values..group_values + shape.keys * shape.value_size];
            let mut all: Option<(usize, [T; 2])> = None;
            for (row, pair) in pairs.iter_mut().enumerate().filter(|(_, pair)| pair[0] == T::LOWEST) {
                let start = (first_row + row) * shape.value_size;
                let made = start..start + shape.value_size;
                match all {
                    Some((of, mean)) => {
                        y.copy_within(of..of + shape.value_size, start);
                        *pair = mean;
                    }
                    None => *pair = self.mean([batch, head, first_query + row], values, &mut y[made]),
                }
                // The mean of all is that of every such query.
                all = Some((start, *pair)).filter(|_| self.attention.blind == Blind::Mean);
            }
        }
        pairs
    }

    /// What a query that sees no key gets, by its batch, head and place; returns the statistics.
    fn mean(&self, [batch, head, query]: [usize; 3], values: &[T], made: &mut [T]) -> [T; 2] {
        let shape = &self.shape;
        made.fill(T::ZERO);
        let mut count = T::ZERO;
        for key in 0..shape.keys {
            if !shape.hides_twice(self.attention, &self.mask, [batch, head, query, key]) {
                let value = &values[key * shape.value_size..(key + 1) * shape.value_size];
                wide!(add_row, (&mut *made, value));
                count = count.plus(T::ONE);
            }
        }
        if count == T::ZERO {
            return [T::LOWEST, T::ZERO];
        }
        for it in made {
            *it = it.over(count);
        }
        [blind_score(), count]
    }

    /// Scores of the keys that a query sees, the first of which is given, to weights; returns the
    /// largest score and the sum of the exponentials of the differences to it.
    fn weigh(&self, first: [usize; 4], row: &mut [T]) -> [T; 2] {
        let softcap = self.attention.softcap.0;
        if softcap != 0.0 {
            wide!(bound_row, (&mut *row, T::of_f64(softcap)));
        }
        self.mask.apply(first, row);
        let (largest, sum) = wide!(softmax_row, &mut *row);
        let mut pair = [largest, sum];
        if largest == T::LOWEST {
            // The query sees no key.
            row.fill(T::ZERO);
            pair = [T::LOWEST, T::ZERO];
        }
        match &self.sinks {
            Some(sinks) => sinks.join([first[0], first[1], first[2]], row, pair),
            None => pair,
        }
    }
}

/// The score of keys that a query has the mean of.
fn blind_score<T: Float>() -> T {
    T::of_f64(f64::from(Attention::BLIND))
}

/// `cap * tanh(row / cap)`.
#[inline(always)]
fn bound_row<T: Float>((row, cap): (&mut [T], T)) {
    for score in row {
        *score = cap.times(score.over(cap).tanh());
    }
}

/// Which way pairs are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// `x * cos + rotate(x) * sin`.
    Forward,
    /// `x * cos + rotateᵀ(x * sin)`: the gradient.
    Back,
}

/// Pairs of the elements of rows, rotated.
pub(crate) fn rotary(
    pairing: Pairing,
    turn: Turn,
    [x, cos, sin]: [&Tensor; 3],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    expect_dtype(x.dtype, y.dtype)?;
    let misfit = |found: &[u64]| KernelError::Shape {
        of: "a rotated value",
        found: found.to_vec(),
        expected: x.shape.to_vec(),
    };
    let shape = extents(x.shape)?;
    let (&size, around) = shape.split_last().ok_or_else(|| misfit(x.shape))?;
    for operand in [cos, sin] {
        if operand.shape.last() != x.shape.last() {
            return Err(misfit(operand.shape));
        }
    }
    if x.shape != y.shape || !size.is_multiple_of(2) {
        return Err(misfit(y.shape));
    }
    let own = row_major(&shape);
    let strides = [repeated(&extents(cos.shape)?, &shape)?, repeated(&extents(sin.shape)?, &shape)?];
    let nest = Nest::<3>::new(
        around
            .iter()
            .enumerate()
            .map(|(dim, &extent)| Level { extent, strides: [own[dim], strides[0][dim], strides[1][dim]] }),
    );
    let row = nest.row();
    with_float!(x.dtype, "a rotation", T => {
        let (x, cos, sin) = (x.elements::<T>()?, cos.elements::<T>()?, sin.elements::<T>()?);
        let y = y.elements_mut::<T>()?;
        nest.for_each_row([0; 3], |starts| {
            for index in 0..row.extent {
                let [own, cos_at, sin_at] =
                    [0, 1, 2].map(|place: usize| starts[place] + index * row.strides[place]);
                let (cos, sin) = (&cos[cos_at..cos_at + size], &sin[sin_at..sin_at + size]);
                let (x, y) = (&x[own..own + size], &mut y[own..own + size]);
                match (pairing, turn) {
                    (Pairing::Halves, Turn::Forward) => wide!(rotate_halves, (x, cos, sin, y)),
                    (Pairing::Halves, Turn::Back) => wide!(rotate_halves_back, (x, cos, sin, y)),
                    (Pairing::Neighbours, Turn::Forward) => wide!(rotate_neighbours, (x, cos, sin, y)),
                    (Pairing::Neighbours, Turn::Back) => wide!(rotate_neighbours_back, (x, cos, sin, y)),
                }
            }
        });
        Ok(())
    })
}

#[inline(always)]
fn rotate_halves<T: Float>((x, cos, sin, y): (&[T], &[T], &[T], &mut [T])) {
    let half = x.len() / 2;
    let (low, high) = x.split_at(half);
    let (y_low, y_high) = y.split_at_mut(half);
    let (low_cos, high_cos) = cos.split_at(half);
    let (low_sin, high_sin) = sin.split_at(half);
    let pairs = low.iter().zip(high);
    for (((y, (&own, &other)), &cos), &sin) in y_low.iter_mut().zip(pairs).zip(low_cos).zip(low_sin) {
        *y = own.times(cos).minus(other.times(sin));
    }
    let pairs = high.iter().zip(low);
    for (((y, (&own, &other)), &cos), &sin) in y_high.iter_mut().zip(pairs).zip(high_cos).zip(high_sin) {
        *y = own.times(cos).plus(other.times(sin));
    }
}

#[inline(always)]
fn rotate_neighbours<T: Float>((x, cos, sin, y): (&[T], &[T], &[T], &mut [T])) {
    let pairs = x.chunks_exact(2).zip(cos.chunks_exact(2)).zip(sin.chunks_exact(2));
    for (y, ((x, cos), sin)) in y.chunks_exact_mut(2).zip(pairs) {
        y[0] = x[0].times(cos[0]).minus(x[1].times(sin[0]));
        y[1] = x[1].times(cos[1]).plus(x[0].times(sin[1]));
    }
}

#[inline(always)]
fn rotate_halves_back<T: Float>((x, cos, sin, y): (&[T], &[T], &[T], &mut [T])) {
    let half = x.len() / 2;
    let ((low, high), (y_low, y_high)) = (x.split_at(half), y.split_at_mut(half));
    let ((low_cos, high_cos), (low_sin, high_sin)) = (cos.split_at(half), sin.split_at(half));
    let (low, high) = (low.iter().zip(low_cos).zip(low_sin), high.iter().zip(high_cos).zip(high_sin));
    for ((y_low, y_high), (low, high)) in y_low.iter_mut().zip(y_high).zip(low.zip(high)) {
        let (((&x_low, &low_cos), &low_sin), ((&x_high, &high_cos), &high_sin)) = (low, high);
        *y_low = x_low.times(low_cos).plus(x_high.times(high_sin));
        *y_high = x_high.times(high_cos).minus(x_low.times(low_sin));
    }
}

#[inline(always)]
fn rotate_neighbours_back<T: Float>((x, cos, sin, y): (&[T], &[T], &[T], &mut [T])) {
    let pairs = x.chunks_exact(2).zip(cos.chunks_exact(2)).zip(sin.chunks_exact(2));
    for (y, ((x, cos), sin)) in y.chunks_exact_mut(2).zip(pairs) {
        y[0] = x[0].times(cos[0]).plus(x[1].times(sin[1]));
        y[1] = x[1].times(cos[1]).minus(x[0].times(sin[0]));
    }
}

#[cfg(test)]
mod tests;
