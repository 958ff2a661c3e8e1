//! A first assignment that fits, or a proof that there is none.
//!
//! All windows are minimised together first, which mostly finds something. Then the windows are
//! minimised alone, the one that is exceeded most each time: that each can be made to fit is
//! necessary, and known of those that did. If all can and still nothing fits, weights on them are shifted towards those
//! that are exceeded, for as long as that comes nearer; the least weighted memory is a lower bound on the peak. A large
//! chain that is far from fitting is not searched for its time.

use super::Search;
use crate::chain::{EXACTLY, Goal};
use crate::problem::{SearchError, real, real_size};

/// How often the weights are shifted.
const ROUNDS: u32 = 60;

/// The most windows of a large chain that are minimised alone, and how often its weights are
/// shifted.
const FEW: u32 = 12;

/// After so many shifts that do not come nearer there are no more.
const STALLED: u32 = 12;

/// How fast, at first: the weight of a window grows by this power of e for each part of the
/// capacity by which it is exceeded.
const RATE: f64 = 4.0;

/// How often the memory of a large chain is minimised before time is.
const LOOKS: u32 = 4;

/// What is near to fitting holds at most this part of the capacity more.
const NEAR: u64 = 4;

/// Whether what holds so much is far from fitting (bytes).
pub(crate) fn is_far(held: u64, capacity: u64) -> bool {
    held > capacity.saturating_add(capacity / NEAR)
}

/// Whether a large chain is far from fitting: with memory alone minimised a few times, by weights on windows
/// that shift towards those that are exceeded, the nearest holds much more than there is.
pub(super) fn nothing_is_near(search: &mut Search<'_>) -> Result<bool, SearchError> {
    let rows = search.rows.len();
    let mut weights = vec![1.0 / real_size(rows); rows];
    for round in 0..LOOKS {
        let minimum = search.minimise((Goal::Memory, EXACTLY), &weights)?;
        if minimum.bound > 0.0 {
            let (least, capacity) = (least_bytes(search, minimum.bound), search.capacity);
            return Err(SearchError::DoesNotFitTogether { least, capacity });
        }
        let Some(choices) = &minimum.choices else { return Ok(false) };
        search.look_at(choices);
        if search.nearest.is_none_or(|(peak, _)| !is_far(peak, search.capacity)) {
            return Ok(false);
        }
        shift(&mut weights, &minimum.excess, round);
    }
    Ok(true)
}

/// Minimises memory until something fits.
pub(super) fn find(search: &mut Search<'_>) -> Result<(), SearchError> {
    let rows = search.rows.len();
    let (mut windows, mut rounds) = (u32::try_from(rows).unwrap_or(u32::MAX), ROUNDS);
    if search.is_large() {
        (windows, rounds) = (windows.min(FEW), FEW);
    }
    let even = vec![1.0 / real_size(rows); rows];
    let Some(mut excess) = together(search, &even)? else { return Ok(()) };
    let mut weights = even;
    shift(&mut weights, &excess, 0);

    let mut alone = vec![false; rows];
    for _ in 0..windows {
        // Where others are exceeded, a window that is not has been made to fit.
        if excess.iter().any(|&it| it > 0.0) {
            alone.iter_mut().zip(&excess).for_each(|(alone, &excess)| *alone |= excess <= 0.0);
        }
        let left = (0..rows).filter(|&row| !alone[row]);
        let Some(row) = left.max_by(|&a, &b| f64::total_cmp(&excess[a], &excess[b])) else {
            break;
        };
        alone[row] = true;
        let mut only = vec![0.0; rows];
        only[row] = 1.0;
        let minimum = search.minimise((Goal::Memory, EXACTLY), &only)?;
        if minimum.bound > 0.0 {
            let (least, capacity) = (least_bytes(search, minimum.bound), search.capacity);
            return Err(SearchError::DoesNotFit { place: search.rows[row], least, capacity });
        }
        if let Some(choices) = &minimum.choices {
            search.trail.add(choices);
            search.offer(choices);
            excess = minimum.excess;
        }
        if search.best.is_some() {
            return Ok(());
        }
    }
    let nearest = |search: &Search<'_>| search.nearest.map_or(u64::MAX, |(peak, _)| peak);
    let (mut before, mut stalled) = (nearest(search), 0);
    for round in 1..rounds {
        let Some(excess) = together(search, &weights)? else { break };
        shift(&mut weights, &excess, round);
        let now = nearest(search);
        stalled = if now < before { 0 } else { stalled + 1 };
        if stalled == STALLED {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Minimises the weighted memory of all windows: by how much each is exceeded then, or nothing if
/// something was found that fits.
fn together(search: &mut Search<'_>, weights: &[f64]) -> Result<Option<Vec<f64>>, SearchError> {
    let minimum = search.minimise((Goal::Memory, EXACTLY), weights)?;
    if minimum.bound > 0.0 {
        let (least, capacity) = (least_bytes(search, minimum.bound), search.capacity);
        return Err(SearchError::DoesNotFitTogether { least, capacity });
    }
    if let Some(choices) = &minimum.choices {
        search.trail.add(choices);
        search.offer(choices);
    }
    let excess = if minimum.excess.is_empty() { vec![0.0; weights.len()] } else { minimum.excess };
    Ok(search.best.is_none().then_some(excess))
}

/// Weighs windows that are exceeded more.
fn shift(weights: &mut [f64], excess: &[f64], round: u32) {
    let rate = RATE / f64::from(round + 1).sqrt();
    for (weight, excess) in weights.iter_mut().zip(excess) {
        *weight *= (rate * excess).exp();
    }
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// The bytes that a positive bound, in parts of the capacity, proves.
#[expect(clippy::cast_possible_truncation, reason = "bytes of memory are far below 2^53")]
#[expect(clippy::cast_sign_loss, reason = "the bound is positive")]
fn least_bytes(search: &Search<'_>, bound: f64) -> u64 {
    let beyond = (bound * real(search.capacity.max(1))).ceil();
    search.capacity + beyond as u64
}
