//! Two clocks in the objective: exchanges that may run beside computing count less, or computing does.
//!
//! Each part of a step with a clock of its own (see [`plan::Load`]) takes the longer of two sums, which is at
//! least any mean of them:
//!
//! ```text
//! T = max(A + c H, H + c A)  ≥  λ (A + c H) + (1 − λ) (H + c A)        0 ≤ λ ≤ 1
//! ```
//!
//! For given `λ` the right side is a sum over choices, as it is minimised without clocks; so its least is a bound
//! of the least `T`, and what has it is a plan. With `λ = 1` the plan is the best where nothing that may run
//! beside computing takes longer than it. Where something does, `λ` of that clock is sought by halving, until
//! bound and plan meet, or a fixed number of times.

use plan::{Clock, Load, Plan, Proof};

/// A relative gap with which the search for weights is content.
const SETTLED: f64 = 1e-3;

/// A relative gap that rounding alone explains: times are added up in another order.
const EXACT: f64 = 1e-9;

/// The most weights that are tried.
const MOST: usize = 6;

/// How much a second counts of what stands in the way, and of what may run beside it, for each clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weights {
    alone: [f64; 2],
    beside: [f64; 2],
}

impl Weights {
    /// Everything stands in the way.
    pub(crate) const ONE: Self = Self { alone: [1.0; 2], beside: [1.0; 2] };

    fn of(shares: [f64; 2], cost: f64) -> Self {
        Self {
            alone: shares.map(|share| share + (1.0 - share) * cost),
            beside: shares.map(|share| share * cost + (1.0 - share)),
        }
    }

    /// Of what stands in the way on a clock, or in the update.
    pub(crate) fn alone(&self, clock: Option<Clock>) -> f64 {
        clock.map_or(1.0, |clock| self.alone[clock as usize])
    }

    /// Of what may run beside it.
    pub(crate) fn beside(&self, clock: Clock) -> f64 {
        self.beside[clock as usize]
    }

    /// No more than any, whatever is on which clock.
    pub(crate) fn least(&self) -> f64 {
        self.alone.into_iter().chain(self.beside).fold(1.0, f64::min)
    }
}

/// The weights that are tried one after another, and what came of them.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    cost: Option<f64>,
    /// For each clock, between which numbers `λ` is, and what it is.
    between: [[f64; 2]; 2],
    share: [f64; 2],
    tried: usize,
    /// The least time of a plan, and the largest bound (seconds).
    time: f64,
    bound: f64,
}

impl Clocks {
    /// Clocks where a second of either costs the other so much; none where nothing runs beside anything.
    pub(crate) fn new(cost: Option<f64>) -> Self {
        let cost = cost.filter(|cost| *cost < 1.0);
        Self { cost, between: [[0.0, 1.0]; 2], share: [1.0; 2], tried: 0, time: f64::INFINITY, bound: 0.0 }
    }

    /// The weights to try.
    pub(crate) fn weights(&self) -> Weights {
        self.cost.map_or(Weights::ONE, |cost| Weights::of(self.share, cost))
    }

    /// Whether others are worth trying after a plan with these loads and this time, and a bound (seconds).
    pub(crate) fn go_on(&mut self, loads: [Load; 2], time: f64, bound: f64) -> bool {
        (self.time, self.bound) = (self.time.min(time), self.bound.max(bound));
        self.tried += 1;
        if self.cost.is_none() || self.gap() <= SETTLED || self.tried == MOST {
            return false;
        }
        let mut moved = false;
        for clock in Clock::ALL.map(|clock| clock as usize) {
            let (longer, share) = (loads[clock].beside() > loads[clock].alone, self.share[clock]);
            // One end is enough where what is longer is what counts there.
            if (longer && share <= 0.0) || (!longer && share >= 1.0) {
                continue;
            }
            let between = &mut self.between[clock];
            between[usize::from(longer)] = share;
            self.share[clock] = if share >= 1.0 { 0.0 } else { 0.5 * (between[0] + between[1]) };
            moved = true;
        }
        moved
    }

    /// By how much the least time of a plan is above the largest bound, relative to it.
    fn gap(&self) -> f64 {
        self.time / self.bound - 1.0
    }

    /// What is proven of the best plan: what was, where nothing runs beside anything.
    pub(crate) fn proof(&self, plan: &Plan) -> Proof {
        match self.cost {
            None => plan.proof,
            Some(_) if self.gap() <= EXACT => Proof::Optimal,
            Some(_) => Proof::Gap { lower_bound: self.bound.min(self.time) },
        }
    }
}

#[cfg(test)]
mod tests;
