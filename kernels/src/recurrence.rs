//! States that go from token to token: selective scans, gated delta rules, and their gradients.
//!
//! A head's state stays where it is made, and each token passes over it row by row, so that vectors run
//! along its columns.

use planner_ir::Recurrence;

use crate::array::{Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::norm::dot;
use crate::number::{Float, with_float};
use crate::wide::wide;

mod gradient; // of both

/// What [`Recurrence`] says.
pub(crate) fn recurrence(
    it: Recurrence,
    operands: &[Tensor],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let (given, more) = operands.split_at_checked(it.operands()).unwrap_or((operands, &[]));
    let sizes = Sizes::of(it, given)?;
    let dtype = operands[0].dtype;
    with_float!(dtype, "a recurrence", T => {
        let run = Run::<T>::new(sizes, given)?;
        match (it.gradient(), more, results) {
            (Some(_), [], [y, state]) => {
                run.check([(y.tensor(), given[2].shape), (state.tensor(), given[given.len() - 1].shape)])?;
                run.compute(y.elements_mut()?, state.elements_mut()?)
            }
            (None, [dy, dstate], results) if results.len() == given.len() => {
                run.check([(*dy, given[2].shape), (*dstate, given[given.len() - 1].shape)])?;
                for (result, given) in results.iter().zip(given) {
                    run.check([(result.tensor(), given.shape)])?;
                }
                gradient::compute(&run, [dy.elements()?, dstate.elements()?], results)?;
            }
            (_, more, _) => {
                let found = given.len() + more.len();
                return Err(KernelError::Count { of: "operands", found, expected: "what a recurrence takes" });
            }
        }
        Ok(())
    })
}

/// How many there are of what.
#[derive(Clone, Copy)]
struct Sizes {
    tokens: usize,
    groups: usize,
    heads: usize,
    /// Rows of a state: the size of a key.
    rows: usize,
    /// Columns of a state: the size of a value.
    columns: usize,
    /// By how many numbers a state decays: one, or one for each row.
    decays: usize,
}

impl Sizes {
    fn of(it: Recurrence, given: &[Tensor]) -> Result<Self, KernelError> {
        let wanted = it.operands();
        let (Some([q, k, v, g]), true) = (given.first_chunk(), given.len() == wanted) else {
            let expected = if wanted == 6 { "6 at least" } else { "5 at least" };
            return Err(KernelError::Count { of: "operands", found: given.len(), expected });
        };
        let (&[b, s, n, d], &[_, _, h, e], &[_, _, _, decays]) = (k.shape, v.shape, g.shape) else {
            return Err(KernelError::Dimension { dim: 3, rank: k.shape.len() });
        };
        let mut shapes = vec![
            ("queries", q, vec![b, s, n, d]),
            ("values", v, vec![b, s, h, e]),
            ("a decay", g, vec![b, s, h, if decays == 1 { 1 } else { d }]),
        ];
        if it.replaces() {
            shapes.push(("a rate", &given[4], vec![b, s, h]));
        }
        shapes.push(("a state", &given[wanted - 1], vec![b, h, d, e]));
        for (of, found, expected) in shapes {
            expect_dtype(found.dtype, q.dtype)?;
            if found.shape != expected {
                return Err(KernelError::Shape { of, found: found.shape.to_vec(), expected });
            }
        }
        if n == 0 || !h.is_multiple_of(n) {
            return Err(KernelError::Shape {
                of: "values",
                found: v.shape.to_vec(),
                expected: vec![b, s, n, e],
            });
        }
        let sizes = extents(&[s, n, h, d, e, decays])?;
        let [tokens, groups, heads, rows, columns, decays] = [0, 1, 2, 3, 4, 5].map(|it| sizes[it]);
        Ok(Self { tokens, groups, heads, rows, columns, decays })
    }
}

/// What one computation needs throughout.
struct Run<'a, T> {
    sizes: Sizes,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    g: &'a [T],
    /// Of a delta rule only.
    rate: Option<&'a [T]>,
    state: &'a [T],
}

/// What a token is for a head.
#[derive(Clone, Copy)]
struct Token<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    g: &'a [T],
    rate: Option<T>,
}

impl<'a, T: Float> Run<'a, T> {
    fn new(sizes: Sizes, given: &[Tensor<'a>]) -> Result<Self, KernelError> {
        let elements = |it: usize| given[it].elements::<T>();
        let last = given.len() - 1;
        let rate = if last == 5 { Some(elements(4)?) } else { None };
        Ok(Self {
            sizes,
            q: elements(0)?,
            k: elements(1)?,
            v: elements(2)?,
            g: elements(3)?,
            rate,
            state: elements(last)?,
        })
    }

    fn check<const N: usize>(&self, shapes: [(Tensor, &[u64]); N]) -> Result<(), KernelError> {
        for (found, expected) in shapes {
            expect_dtype(found.dtype, T::DTYPE)?;
            if found.shape != expected {
                let (found, expected) = (found.shape.to_vec(), expected.to_vec());
                return Err(KernelError::Shape { of: "what a recurrence is of or makes", found, expected });
            }
        }
        Ok(())
    }

    fn compute(&self, y: &mut [T], state: &mut [T]) {
        state.copy_from_slice(self.state);
        y.fill(T::ZERO);
        let size = self.sizes.rows * self.sizes.columns;
        if size == 0 {
            return;
        }
        for (head, state) in state.chunks_exact_mut(size).enumerate() {
            wide!(scan, (self, [head / self.sizes.heads, head % self.sizes.heads], state, &mut *y));
        }
    }

    /// The number of a token for a head, as values are numbered.
    #[inline(always)]
    fn place(&self, [batch, head]: [usize; 2], token: usize) -> usize {
        (batch * self.sizes.tokens + token) * self.sizes.heads + head
    }

    /// The number of a token for a head, as keys are numbered.
    #[inline(always)]
    fn key_place(&self, [batch, head]: [usize; 2], token: usize) -> usize {
        let group = head / (self.sizes.heads / self.sizes.groups);
        (batch * self.sizes.tokens + token) * self.sizes.groups + group
    }

    #[inline(always)]
    fn token(&self, head: [usize; 2], token: usize) -> Token<'a, T> {
        let Sizes { rows, columns, decays, .. } = self.sizes;
        let (own, key) = (self.place(head, token), self.key_place(head, token));
        Token {
            q: &self.q[key * rows..(key + 1) * rows],
            k: &self.k[key * rows..(key + 1) * rows],
            v: &self.v[own * columns..(own + 1) * columns],
            g: &self.g[own * decays..(own + 1) * decays],
            rate: self.rate.map(|rate| rate[own]),
        }
    }
}

impl<T: Float> Token<'_, T> {
    /// How much of a row is left.
    #[inline(always)]
    fn left(&self, row: usize) -> T {
        self.g[if self.g.len() == 1 { 0 } else { row }].exp()
    }

    /// What is left of each row.
    #[inline(always)]
    fn decay(&self, state: &mut [T]) {
        let one = if self.g.len() == 1 { Some(self.left(0)) } else { None };
        for (number, row) in state.chunks_exact_mut(self.v.len()).enumerate() {
            let left = one.unwrap_or_else(|| self.left(number));
            row.iter_mut().for_each(|it| *it = it.times(left));
        }
    }

    /// What the token adds for its key, of what is left of the state.
    #[inline(always)]
    fn news(&self, state: &[T], news: &mut [T]) {
        match self.rate {
            None => news.copy_from_slice(self.v),
            Some(rate) => {
                columns_of(self.k, state, news);
                for (new, &value) in news.iter_mut().zip(self.v) {
                    *new = rate.times(value.minus(*new));
                }
            }
        }
    }
}

/// `made = stateᵀ by`.
#[inline(always)]
fn columns_of<T: Float>(by: &[T], state: &[T], made: &mut [T]) {
    made.fill(T::ZERO);
    for (row, &factor) in state.chunks_exact(made.len()).zip(by) {
        for (made, &it) in made.iter_mut().zip(row) {
            *made = made.plus(factor.times(it));
        }
    }
}

/// `state += k newsᵀ`.
#[inline(always)]
fn add<T: Float>(state: &mut [T], k: &[T], news: &[T]) {
    for (row, &factor) in state.chunks_exact_mut(news.len()).zip(k) {
        for (it, &new) in row.iter_mut().zip(news) {
            *it = it.plus(factor.times(new));
        }
    }
}

/// All tokens of a head, whose state becomes that after the last.
#[inline(always)]
fn scan<T: Float>((run, head, state, y): (&Run<'_, T>, [usize; 2], &mut [T], &mut [T])) {
    let columns = run.sizes.columns;
    let mut news = vec![T::ZERO; columns];
    for number in 0..run.sizes.tokens {
        let token = run.token(head, number);
        token.decay(state);
        token.news(state, &mut news);
        add(state, token.k, &news);
        let own = run.place(head, number) * columns;
        columns_of(token.q, state, &mut y[own..own + columns]);
    }
}

#[cfg(test)]
mod tests;
