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
//! beside computing takes longer than it. Where something does, the next `λ` of both clocks is where the least
//! mean of the plans found so far is highest (a linear program, Kelley's method of cutting planes), no further from
//! the best `λ` so far than half of all at first, and half as far each time that nothing is gained (Marsten, Hogan
//! and Blankenship, "The BOXSTEP method", Operations Research 23(3), 1975), until bound and plan meet, no `λ` can have a higher bound, or a fixed number of times. What is left of the gap is closed by plans
//! between two of those found (`planner/mixed.rs`).

use good_lp::{Expression, ProblemVariables, Solution as _, SolverModel, Variable, constraint, variable};
use plan::{Clock, Load, Plan, Proof};

use crate::problem::real;

/// A relative gap with which the search for weights is content.
const SETTLED: f64 = 1e-3;

/// A relative gap that rounding alone explains: times are added up in another order.
const EXACT: f64 = 1e-9;

/// The most weights that are tried.
const MOST: usize = 4;

/// How far from the first weights the second ones are: the mean of few plans is highest far from where that of
/// all is.
const FIRST: f64 = 0.5;

/// By how much shares may differ that are the same but for the rounding of the linear program.
const ALIKE: f64 = 1e-6;

/// How much a second counts of what stands in the way, and of what may run beside it, for each clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weights {
    alone: [f64; 2],
    beside: [f64; 2],
    /// What a second of either costs the other, where one runs beside the other.
    cost: Option<f64>,
}

impl Weights {
    /// Everything stands in the way.
    pub(crate) const ONE: Self = Self { alone: [1.0; 2], beside: [1.0; 2], cost: None };

    fn of(shares: [f64; 2], cost: f64) -> Self {
        Self {
            alone: shares.map(|share| share + (1.0 - share) * cost),
            beside: shares.map(|share| share * cost + (1.0 - share)),
            cost: Some(cost),
        }
    }

    /// Weights of which all that the search may come to are means.
    pub(crate) fn corners(&self) -> Vec<Self> {
        let ends = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]];
        self.cost.map_or_else(|| vec![*self], |cost| ends.map(|shares| Self::of(shares, cost)).to_vec())
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

    /// No less than any.
    pub(crate) fn most(&self) -> f64 {
        self.alone.into_iter().chain(self.beside).fold(0.0, f64::max)
    }
}

/// What a plan takes: what is on each clock, all the times that its part of a step runs, and in all (seconds).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) loads: [Load; 2],
    pub(crate) seconds: f64,
}

impl Taken {
    pub(crate) fn of(plan: &Plan) -> Self {
        let runs = real(plan.graph.training.as_ref().map_or(1, |training| training.micro_batches));
        let all =
            |it: Load| Load { alone: runs * it.alone, ahead: runs * it.ahead, behind: runs * it.behind };
        Self { loads: plan.loads().map(all), seconds: plan.seconds() }
    }

    /// Whether what may run beside what stands in the way of a clock is longer than it.
    pub(crate) fn is_longer_beside(&self, clock: Clock) -> bool {
        let load = self.loads[clock as usize];
        load.beside() > load.alone
    }

    fn sums(&self, cost: f64) -> Sums {
        let clocks = self.loads.map(|it| [it.alone + cost * it.beside(), it.beside() + cost * it.alone]);
        Sums { clocks, rest: self.seconds - clocks.iter().map(|it| it[0].max(it[1])).sum::<f64>() }
    }
}

/// The sums of each clock, what stands in the way first, and what is on none (seconds).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    clocks: [[f64; 2]; 2],
    rest: f64,
}

impl Sums {
    /// These and a multiple of others.
    #[must_use]
    pub(crate) fn and(mut self, times: f64, others: &Self) -> Self {
        let own = self.clocks.iter_mut().flatten().zip(others.clocks.iter().flatten());
        own.for_each(|(own, other)| *own += times * other);
        self.rest += times * others.rest;
        self
    }

    /// What they take together.
    pub(crate) fn seconds(&self) -> f64 {
        self.rest + self.clocks.iter().map(|it| it[0].max(it[1])).sum::<f64>()
    }
}

/// What leaves open what lies between a plan and its bound, most of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Memory, or when exchanges can be issued: other weights leave as much.
    Memory,
    /// Weights: the plan takes more than it weighs, and by others it may be less.
    Weights,
    /// When exchanges can be issued: no other weights have a higher bound.
    Order,
}

/// The weights that are tried one after another, and what came of them.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    cost: Option<f64>,
    /// `λ` of each clock: those to try, and those that were tried.
    share: [f64; 2],
    tried: Vec<[f64; 2]>,
    /// Those with the largest bound, and how far from them others are tried.
    centre: [f64; 2],
    reach: f64,
    seen: Vec<Taken>,
    /// The least time of a plan, and the largest bound (seconds).
    time: f64,
    bound: f64,
    /// What left open what lies between the last plan and its bound.
    left: Left,
}

impl Clocks {
    /// Clocks where a second of either costs the other so much; none where nothing runs beside anything.
    pub(crate) fn new(cost: Option<f64>) -> Self {
        let cost = cost.filter(|cost| *cost < 1.0);
        Self {
            cost,
            share: [1.0; 2],
            tried: Vec::new(),
            centre: [1.0; 2],
            reach: FIRST,
            seen: Vec::new(),
            time: f64::INFINITY,
            bound: 0.0,
            left: Left::Weights,
        }
    }

    /// The weights to try.
    pub(crate) fn weights(&self) -> Weights {
        self.cost.map_or(Weights::ONE, |cost| Weights::of(self.share, cost))
    }

    /// Whether others are worth trying after a plan that takes this, and a bound (seconds).
    pub(crate) fn go_on(&mut self, taken: Taken, bound: f64) -> bool {
        if bound > self.bound {
            self.centre = self.share;
        } else {
            self.reach /= 2.0;
        }
        (self.time, self.bound) = (self.time.min(taken.seconds), self.bound.max(bound));
        self.seen.push(taken);
        self.tried.push(self.share);
        // What lies between bound and plan at these weights is between them at others: that has to be less than what
        // the plan takes beyond what it weighs.
        let weighs = self.weighs(&taken);
        self.left = if taken.seconds - weighs <= weighs - bound { Left::Memory } else { Left::Weights };
        if self.is_settled() || self.seen.len() == MOST || self.left == Left::Memory {
            return false;
        }
        // What has come of weights comes of them again, though a plan takes more than what was minimised.
        let is_new = |share: &[f64; 2]| !self.tried.iter().any(|tried| are_close(tried, share));
        let is_worth = |found: &([f64; 2], f64)| is_new(&found.0) && found.1 > self.bound * (1.0 + SETTLED);
        let far = self.highest(1.0).filter(is_worth);
        let found = far.and_then(|far| self.highest(self.reach).filter(is_worth).or(Some(far)));
        match found {
            Some((share, _)) => self.share = share,
            None => self.left = Left::Order,
        }
        found.is_some()
    }

    /// The sums of a plan that has this part of the blocks of the second plan, and the others of the first, if nothing
    /// joins them.
    pub(crate) fn between(&self, plans: [&Taken; 2], (part, of): (usize, usize)) -> Sums {
        let exact = |count: usize| real(u64::try_from(count).unwrap_or(u64::MAX));
        let share = exact(part) / exact(of);
        let [first, second] = plans.map(|it| self.sums(it));
        Sums::default().and(1.0 - share, &first).and(share, &second)
    }

    /// The sums of a plan.
    pub(crate) fn sums(&self, taken: &Taken) -> Sums {
        taken.sums(self.cost.unwrap_or(1.0))
    }

    /// What a plan weighs by the weights that were tried (seconds).
    fn weighs(&self, taken: &Taken) -> f64 {
        let Sums { clocks, rest } = self.sums(taken);
        let means = self.share.iter().zip(clocks);
        rest + means.map(|(share, [alone, beside])| share * alone + (1.0 - share) * beside).sum::<f64>()
    }

    /// What left open what lies between the last plan and its bound.
    pub(crate) fn left(&self) -> Left {
        self.left
    }

    /// A plan between those seen takes this long (seconds).
    pub(crate) fn met(&mut self, seconds: f64) {
        self.time = self.time.min(seconds);
    }

    /// Whether plan and bound meet, nearly.
    pub(crate) fn is_settled(&self) -> bool {
        self.cost.is_none() || self.gap() <= SETTLED
    }

    /// The shares by which the least of what the plans seen weigh is highest, and how much that is (seconds): of those
    /// no further than this from the centre.
    fn highest(&self, reach: f64) -> Option<([f64; 2], f64)> {
        let cost = self.cost?;
        let unit = self.time;
        let mut variables = ProblemVariables::new();
        let shares: [Variable; 2] = self
            .centre
            .map(|it| variables.add(variable().min((it - reach).max(0.0)).max((it + reach).min(1.0))));
        let least = variables.add(variable().min(0.0));
        let mut model = variables.maximise(least).using(crate::ilp::solver);
        for taken in &self.seen {
            let sums = taken.sums(cost);
            let mut weighs = Expression::from(sums.rest / unit);
            for (share, [alone, beside]) in shares.into_iter().zip(sums.clocks) {
                weighs += beside / unit + (alone - beside) / unit * share;
            }
            model = model.with(constraint!(least <= weighs));
        }
        let solution = model.solve().ok()?;
        let share = shares.map(|it| solution.value(it).clamp(0.0, 1.0));
        Some((share, solution.value(least) * unit))
    }

    /// By how much the least time of a plan is above the largest bound, relative to it: by nothing where it is no
    /// more, as where there is nothing to compute and both are 0.
    fn gap(&self) -> f64 {
        if self.time <= self.bound { 0.0 } else { self.time / self.bound - 1.0 }
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

/// Whether shares of both clocks are the same.
fn are_close(one: &[f64; 2], other: &[f64; 2]) -> bool {
    one.iter().zip(other).all(|(one, other)| (one - other).abs() <= ALIKE)
}

#[cfg(test)]
mod tests;
