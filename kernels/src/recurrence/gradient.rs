//! The gradients of recurrences.
//!
//! States are recomputed: one is kept every so many tokens, and those between follow from it when the
//! gradient comes by, from the last token to the first.

use super::{Run, Sizes, Token, add, columns_of, dot};
use crate::array::TensorMut;
use crate::error::KernelError;
use crate::number::Float;
use crate::wide::wide;

/// The gradients towards all operands, of those towards both results.
pub(super) fn compute<T: Float>(
    run: &Run<'_, T>,
    [dy, dstate]: [&[T]; 2],
    results: &mut [TensorMut],
) -> Result<(), KernelError> {
    let mut made = results.iter_mut().map(TensorMut::elements_mut::<T>).collect::<Result<Vec<_>, _>>()?;
    made.iter_mut().for_each(|it| it.fill(T::ZERO));
    let [q, k, v, g, rest @ ..] = &mut made[..] else { return Err(KernelError::Size) };
    let (rate, state) = match rest {
        [state] => (None, state),
        [rate, state] => (Some(rate), state),
        _ => return Err(KernelError::Size),
    };
    let Sizes { heads, rows, columns, .. } = run.sizes;
    state.copy_from_slice(dstate);
    if rows * columns == 0 {
        return Ok(());
    }
    let mut made = Made { q, k, v, g, rate: rate.map(|rate| &mut **rate) };
    for (number, dstate) in state.chunks_exact_mut(rows * columns).enumerate() {
        wide!(head_gradient, (run, [number / heads, number % heads], dy, dstate, &mut made));
    }
    Ok(())
}

/// What is computed beside the gradient towards the first state.
struct Made<'a, T> {
    q: &'a mut [T],
    k: &'a mut [T],
    v: &'a mut [T],
    g: &'a mut [T],
    rate: Option<&'a mut [T]>,
}

/// A head, the gradients of results, and what is made.
type OfHead<'a, 'b, T> = (&'a Run<'b, T>, [usize; 2], &'a [T], &'a mut [T], &'a mut Made<'b, T>);

/// All tokens of a head, from the last to the first.
#[inline(always)]
fn head_gradient<T: Float>((run, head, dy, dstate, made): OfHead<'_, '_, T>) {
    let Sizes { tokens, heads, rows, columns, .. } = run.sizes;
    let size = rows * columns;
    let step = tokens.isqrt().max(1);
    let mut room = Room::new(rows, columns);
    let first = (head[0] * heads + head[1]) * size;
    let mut state = run.state[first..first + size].to_vec();
    let mut kept = Vec::new();
    for number in 0..tokens {
        if number % step == 0 {
            kept.extend_from_slice(&state);
        }
        follow(&run.token(head, number), &mut state, &mut room.news);
    }
    // States before the tokens of one stretch, and after its last.
    let mut states = vec![T::ZERO; (step + 1) * size];
    for (stretch, start) in (0..tokens).step_by(step).enumerate().rev() {
        let count = step.min(tokens - start);
        states[..size].copy_from_slice(&kept[stretch * size..(stretch + 1) * size]);
        for place in 0..count {
            states.copy_within(place * size..(place + 1) * size, (place + 1) * size);
            let after = &mut states[(place + 1) * size..(place + 2) * size];
            follow(&run.token(head, start + place), after, &mut room.news);
        }
        for place in (0..count).rev() {
            let states = &states[place * size..(place + 2) * size];
            token_gradient(run, head, start + place, states, dy, dstate, &mut room, made);
        }
    }
}

/// Numbers of one token.
struct Room<T> {
    /// What is left of the state.
    left: Vec<T>,
    /// What is added for the key.
    news: Vec<T>,
    /// The gradient towards that.
    dnews: Vec<T>,
    /// What the value has more than is found.
    apart: Vec<T>,
}

impl<T: Float> Room<T> {
    fn new(rows: usize, columns: usize) -> Self {
        let zeros = |count| vec![T::ZERO; count];
        Self {
            left: zeros(rows * columns),
            news: zeros(columns),
            dnews: zeros(columns),
            apart: zeros(columns),
        }
    }
}

/// The state after a token.
#[inline(always)]
fn follow<T: Float>(token: &Token<'_, T>, state: &mut [T], news: &mut [T]) {
    token.decay(state);
    token.news(state, news);
    add(state, token.k, news);
}

/// The gradients of a token, of states before and after it; `dstate` is the gradient towards the state after
/// it, and becomes that towards the state before it.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "it is one piece of a loop")]
fn token_gradient<T: Float>(
    run: &Run<'_, T>,
    head: [usize; 2],
    number: usize,
    states: &[T],
    dy: &[T],
    dstate: &mut [T],
    room: &mut Room<T>,
    made: &mut Made<'_, T>,
) {
    let Sizes { rows, columns, decays, .. } = run.sizes;
    let token = run.token(head, number);
    let (own, key) = (run.place(head, number), run.key_place(head, number));
    let (before, after) = states.split_at(rows * columns);
    let Room { left, news, dnews, apart } = room;
    left.copy_from_slice(before);
    token.decay(left);
    token.news(left, news);
    let dy = &dy[own * columns..(own + 1) * columns];
    let dq = &mut made.q[key * rows..(key + 1) * rows];
    let dk = &mut made.k[key * rows..(key + 1) * rows];
    let dv = &mut made.v[own * columns..(own + 1) * columns];
    let dg = &mut made.g[own * decays..(own + 1) * decays];
    add(dstate, token.q, dy);
    columns_of(token.k, dstate, dnews);
    for (row, (dq, dk)) in dq.iter_mut().zip(&mut *dk).enumerate() {
        let row = row * columns..(row + 1) * columns;
        *dq = dq.plus(dot((&after[row.clone()], dy)));
        *dk = dk.plus(dot((&dstate[row], news)));
    }
    match (token.rate, &mut made.rate) {
        (Some(rate), Some(drate)) => {
            columns_of(token.k, left, apart);
            for (apart, &value) in apart.iter_mut().zip(token.v) {
                *apart = value.minus(*apart);
            }
            drate[own] = dot((dnews, apart));
            for (dv, dnew) in dv.iter_mut().zip(&mut *dnews) {
                *dv = rate.times(*dnew);
                // From here on the gradient towards what is found.
                *dnew = T::ZERO.minus(*dv);
            }
            for (dk, left) in dk.iter_mut().zip(left.chunks_exact(columns)) {
                *dk = dk.plus(dot((left, dnews)));
            }
            add(dstate, token.k, dnews);
        }
        _ => dv.copy_from_slice(dnews),
    }
    for (row, dstate) in dstate.chunks_exact_mut(columns).enumerate() {
        let place = if decays == 1 { 0 } else { row };
        dg[place] = dg[place].plus(dot((&*dstate, &left[row * columns..(row + 1) * columns])));
        let left = token.left(row);
        dstate.iter_mut().for_each(|it| *it = it.times(left));
    }
}
