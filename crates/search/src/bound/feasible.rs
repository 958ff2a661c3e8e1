//! A first assignment that fits, or a proof that there is none.
//!
//! The windows are minimised alone first, the one that is exceeded most each time: that each can
//! be made to fit is necessary. If all can and still nothing fits, weights on them are shifted
//! towards those that are exceeded; the least weighted memory is a lower bound on the peak.

use super::Search;
use crate::chain::Goal;
use crate::problem::{SearchError, real};

/// How often the weights are shifted.
const ROUNDS: u32 = 60;

/// How fast, at first: the weight of a window grows by this power of e for each part of the
/// capacity by which it is exceeded.
const RATE: f64 = 4.0;

/// Minimises memory until something fits.
pub(super) fn find(search: &mut Search<'_>) -> Result<(), SearchError> {
    let rows = search.rows.len();
    let mut alone = vec![false; rows];
    let mut weights = vec![0.0; rows];
    let mut excess = vec![0.0; rows];
    for _ in 0..rows {
        if search.best.is_some() {
            return Ok(());
        }
        let left = (0..rows).filter(|&row| !alone[row]);
        let Some(row) = left.max_by(|&a, &b| f64::total_cmp(&excess[a], &excess[b])) else {
            break;
        };
        alone[row] = true;
        weights.fill(0.0);
        weights[row] = 1.0;
        let minimum = search.minimise(Goal::Memory, &weights)?;
        if minimum.bound > 0.0 {
            let (least, capacity) = (least_bytes(search, minimum.bound), search.capacity);
            return Err(SearchError::DoesNotFit { place: search.rows[row], least, capacity });
        }
        if let Some(choices) = &minimum.choices {
            search.offer(choices);
            excess = minimum.excess;
        }
    }

    weights.fill(1.0);
    for round in 0..ROUNDS {
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        let minimum = search.minimise(Goal::Memory, &weights)?;
        if minimum.bound > 0.0 {
            let (least, capacity) = (least_bytes(search, minimum.bound), search.capacity);
            return Err(SearchError::DoesNotFitTogether { least, capacity });
        }
        if let Some(choices) = &minimum.choices {
            search.offer(choices);
        }
        if search.best.is_some() {
            break;
        }
        let rate = RATE / f64::from(round + 1).sqrt();
        for (weight, excess) in weights.iter_mut().zip(&minimum.excess) {
            *weight *= (rate * excess).exp();
        }
    }
    Ok(())
}

/// The bytes that a positive bound, in parts of the capacity, proves.
#[expect(clippy::cast_possible_truncation, reason = "bytes of memory are far below 2^53")]
#[expect(clippy::cast_sign_loss, reason = "the bound is positive")]
fn least_bytes(search: &Search<'_>, bound: f64) -> u64 {
    let beyond = (bound * real(search.capacity.max(1))).ceil();
    search.capacity + beyond as u64
}
