//! Ascent of the lower bound in the multipliers, by subgradients.

use super::{GAP, Minimum, Search};
use crate::chain::Goal;
use crate::problem::SearchError;

/// The most minimisations.
const ROUNDS: usize = 200;

/// The most of them for a large chain.
const FEW: usize = 12;

/// Rounds without a better bound after which steps are halved.
const PATIENCE: usize = 6;

/// The step size at which to stop, as a part of the first one.
const LEAST_STEP: f64 = 1e-3;

/// How much of the last direction is kept, against zigzagging.
const MOMENTUM: f64 = 0.3;

/// By how much the time is taken to be above the bound while no assignment is known that fits.
const GUESS: f64 = 1.1;

/// Raises the bound, offering every minimum on the way, until the gap is small or steps are.
pub(super) fn ascend(search: &mut Search<'_>, free: Minimum) -> Result<(), SearchError> {
    let mut multipliers = vec![0.0; search.rows.len()];
    let mut top = (free.bound, multipliers.clone(), free.excess.clone());
    let mut at = (free.bound, free.excess);
    let mut direction = vec![0.0; multipliers.len()];
    let mut step = 1.0;
    let mut stalled = 0;
    let rounds = if search.is_large() { FEW } else { ROUNDS };
    for _ in 0..rounds {
        for (way, excess) in direction.iter_mut().zip(&at.1) {
            *way = excess + MOMENTUM * *way;
        }
        for (way, multiplier) in direction.iter_mut().zip(&multipliers) {
            if *multiplier <= 0.0 {
                *way = way.max(0.0);
            }
        }
        let length: f64 = direction.iter().map(|way| way * way).sum();
        if search.gap() <= GAP || step < LEAST_STEP || length <= 0.0 {
            break;
        }
        let target = search.best.as_ref().map_or(at.0.abs() * GUESS, |(_, time)| *time);
        let size = step * (target - at.0).max(0.0) / length;
        for (multiplier, way) in multipliers.iter_mut().zip(&direction) {
            *multiplier = (*multiplier + size * way).max(0.0);
        }

        let minimum = search.minimise(Goal::Time, &multipliers)?;
        if let Some(choices) = &minimum.choices {
            search.offer(choices);
        }
        let (bound, excess) = (minimum.bound, minimum.excess);
        search.bound = search.bound.max(bound);
        at = (bound, excess);
        if bound > top.0 {
            stalled = 0;
            top = (bound, multipliers.clone(), at.1.clone());
        } else {
            stalled += 1;
        }
        if stalled >= PATIENCE {
            stalled = 0;
            step /= 2.0;
            direction.fill(0.0);
            (at.0, multipliers, at.1) = top.clone();
        }
    }
    search.multipliers = top.1;
    Ok(())
}
