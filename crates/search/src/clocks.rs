//! Two clocks in the objective: exchanges that may run beside computing count less, or computing does.
//!
//! Each part of a step with a clock of its own takes the longest of some sums `Sᵢ` ([`plan::Load::sums`]), which is at
//! least any mean of them:
//!
//! ```text
//! T = maxᵢ Sᵢ  ≥  Σᵢ λᵢ Sᵢ        λᵢ ≥ 0, Σᵢ λᵢ = 1
//! ```
//!
//! For given `λ` the right side is a sum over choices, as it is minimised without clocks; so its least is a bound
//! of the least `T`, and what has it is a plan. With all weight on one sum ([`ONE_SUM`]) the plan is the best where no
//! other takes longer. Where one does, the next `λ` of both clocks is where the least mean of the plans found so far is
//! highest (a linear program, Kelley's method of cutting planes), no further from the best `λ` so far than half of all
//! at first, and half as far each time that nothing is gained (Marsten, Hogan and Blankenship, "The BOXSTEP method",
//! Operations Research 23(3), 1975), until bound and plan meet, no `λ` can have a higher bound, or a fixed number of
//! times. What is left of the gap is closed by plans between two of those found (`planner/mixed.rs`).

use good_lp::{Expression, ProblemVariables, Solution as _, SolverModel, Variable, constraint, variable};
use plan::{Clock, Load, Overlap, Plan, Proof, SUMS};
use planner_ir::{Graph, Phase};

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

/// A second of either costs the other as much.
const NO_OVERLAP: Overlap = Overlap { cost: 1.0, latency: None };

/// A share of each sum, for each clock.
type Shares = [[f64; SUMS]; 2];

/// All weight on one sum: computing takes longer than what may run beside it, and gradients of parameters longer than
/// what gradients of values wait for.
const ONE_SUM: Shares = [[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]];

/// How much a second counts of what is on a clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    alone: f64,
    waited: f64,
    apart: f64,
    beside: f64,
    routed: f64,
    meanwhile: f64,
    /// Exchanges that stand in the way.
    blocking: f64,
    /// Besides, what an exchange has links for itself that all use.
    links: f64,
    /// The same of an operation that moves something in its steps, and computes no more than the rest of them.
    in_steps: f64,
}

impl Counts {
    const ONE: Self = Self {
        alone: 1.0,
        waited: 1.0,
        apart: 1.0,
        beside: 1.0,
        routed: 1.0,
        meanwhile: 1.0,
        blocking: 1.0,
        links: 0.0,
        in_steps: 0.0,
    };
}

/// How much a second counts, for each clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weights {
    counts: [Counts; 2],
    /// How one runs beside the other, if it does, and whether gradients of parameters are a part of their own.
    overlap: Option<(Overlap, bool)>,
}

impl Weights {
    /// Everything stands in the way.
    pub(crate) const ONE: Self = Self { counts: [Counts::ONE; 2], overlap: None };

    fn of(shares: Shares, (overlap, splits): (Overlap, bool)) -> Self {
        let counts = shares.map(|shares| {
            let of = |load: Load| {
                let load = if splits { load.one_by_one() } else { load };
                load.sums(overlap).iter().zip(shares).map(|(sum, share)| share * sum).sum()
            };
            Counts {
                alone: of(Load { alone: 1.0, ..Load::default() }),
                waited: of(Load { waited: 1.0, ..Load::default() }),
                apart: of(Load { apart: 1.0, ..Load::default() }),
                beside: of(Load { behind: 1.0, ..Load::default() }),
                routed: of(Load { routed: 1.0, ..Load::default() }),
                meanwhile: of(Load { meanwhile: 1.0, ..Load::default() }),
                blocking: of(Load { alone: 1.0, blocking: 1.0, ..Load::default() }),
                links: of(Load { links: 1.0, ..Load::default() }),
                in_steps: of(Load { blocking: 1.0, links: 1.0, ..Load::default() }),
            }
        });
        Self { counts, overlap: Some((overlap, splits)) }
    }

    /// Weights of which all that the search may come to are means.
    pub(crate) fn corners(&self, routes: Routes) -> Vec<Self> {
        let Some(overlap) = self.overlap else { return vec![*self] };
        let end = |sum: usize| std::array::from_fn(|it| if it == sum { 1.0 } else { 0.0 });
        let [forward, backward] = Clock::ALL.map(|it| sums_of(it, routes, overlap.0));
        let pairs = forward.iter().flat_map(|&one| backward.iter().map(move |&other| [one, other]));
        pairs.map(|pair| Self::of(pair.map(end), overlap)).collect()
    }

    /// Of what a device does alone, in a phase.
    pub(crate) fn alone(&self, phase: Phase) -> f64 {
        Clock::of(phase).map_or(1.0, |clock| {
            let counts = &self.counts[clock as usize];
            if phase == Phase::Gradient { counts.apart } else { counts.alone }
        })
    }

    /// Of an exchange for something in a phase that may run beside computing, or is waited for.
    pub(crate) fn exchanged(&self, phase: Phase, is_beside: bool) -> f64 {
        match Clock::of(phase) {
            Some(clock) if is_beside => self.counts[clock as usize].beside,
            Some(Clock::Backward) if phase == Phase::Backward => self.counts[Clock::Backward as usize].waited,
            Some(Clock::Forward) => self.counts[Clock::Forward as usize].blocking,
            _ => self.alone(phase),
        }
    }

    /// Besides, of what an exchange for something in a phase has links for itself that all use.
    pub(crate) fn on_links(&self, phase: Phase) -> f64 {
        Clock::of(phase).map_or(0.0, |clock| self.counts[clock as usize].links)
    }

    /// The same of what an operation moves in its steps.
    pub(crate) fn in_steps(&self, phase: Phase) -> f64 {
        Clock::of(phase).map_or(0.0, |clock| self.counts[clock as usize].in_steps)
    }

    /// How long that is, of an exchange of so many moves that takes so long (seconds).
    pub(crate) fn links_for(&self, seconds: f64, moves: usize) -> f64 {
        self.overlap.map_or(0.0, |(overlap, _)| overlap.on_links(seconds, moves))
    }

    /// Of rows that are routed for something in a phase.
    pub(crate) fn routed(&self, phase: Phase) -> f64 {
        Clock::of(phase).map_or(1.0, |clock| self.counts[clock as usize].routed)
    }

    /// Of what may be computed meanwhile.
    pub(crate) fn meanwhile(&self, phase: Phase) -> f64 {
        Clock::of(phase).map_or(1.0, |clock| self.counts[clock as usize].meanwhile)
    }

    /// No less than any of what is moved or computed by itself.
    pub(crate) fn most(&self) -> f64 {
        let all = self.counts.iter();
        let most = |it: &Counts| {
            let exchanged = it.waited.max(it.beside).max(it.blocking).max(it.apart) + it.links;
            [it.alone, it.routed, it.meanwhile].into_iter().fold(exchanged, f64::max)
        };
        all.map(most).fold(0.0, f64::max)
    }
}

/// The sums of a clock that may be its longest one: nothing but rows that are routed is waited for in the loss while
/// something else can be computed.
fn sums_of(clock: Clock, routes: Routes, overlap: Overlap) -> &'static [usize] {
    match (clock, routes, overlap.latency) {
        (Clock::Forward, Routes::Nothing, None) => &[0, 2],
        (Clock::Forward, Routes::Nothing, Some(_)) => &[0, 2, 4],
        (Clock::Forward, Routes::Rows, None) | (Clock::Backward, _, None) => &[0, 1, 2, 3],
        (Clock::Forward, Routes::Rows, Some(_)) | (Clock::Backward, _, Some(_)) => &[0, 1, 2, 3, 4],
    }
}

/// Whether rows may be routed while something else can be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routes {
    Nothing,
    Rows,
}

impl Routes {
    /// Of a program.
    pub(crate) fn of(graph: &Graph) -> Self {
        let any = graph.meanwhile().iter().any(|it| !it.computed.is_empty());
        if any { Self::Rows } else { Self::Nothing }
    }
}

/// What a plan takes: what is on each clock, all the times that its part of a step runs, and in all (seconds).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) loads: [Load; 2],
    pub(crate) seconds: f64,
}

impl Taken {
    /// Of a plan that takes so long, in which gradients of parameters are a part of their own or not.
    pub(crate) fn of(plan: &Plan, seconds: f64, (overlap, splits): (Option<Overlap>, bool)) -> Self {
        let runs = real(plan.graph.training.as_ref().map_or(1, |training| training.micro_batches));
        let all = |it: Load| Load {
            alone: runs * it.alone,
            waited: runs * it.waited,
            apart: runs * it.apart,
            routed: runs * it.routed,
            meanwhile: runs * it.meanwhile,
            ahead: runs * it.ahead,
            behind: runs * it.behind,
            blocking: runs * it.blocking,
            links: runs * it.links,
        };
        let own = |it: Load| if splits { it.one_by_one() } else { it };
        Self { loads: plan.loads(overlap).map(all).map(own), seconds }
    }

    /// Which sum of a clock is the longest, where both run beside each other so.
    pub(crate) fn longest(&self, clock: Clock, overlap: Overlap) -> usize {
        let sums = self.loads[clock as usize].sums(overlap);
        let longer = |&one: &usize, &other: &usize| sums[one].total_cmp(&sums[other]).then(other.cmp(&one));
        sums_of(clock, Routes::Rows, overlap).iter().copied().max_by(longer).unwrap_or(0)
    }

    fn sums(&self, overlap: Overlap) -> Sums {
        let clocks = self.loads.map(|it| it.sums(overlap));
        Sums { clocks, rest: self.seconds - clocks.iter().map(longest).sum::<f64>() }
    }
}

/// The longest of some sums (seconds).
fn longest(sums: &[f64; SUMS]) -> f64 {
    sums.iter().copied().fold(0.0, f64::max)
}

/// The sums of each clock, and what is on none (seconds).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    clocks: [[f64; SUMS]; 2],
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
        self.rest + self.clocks.iter().map(longest).sum::<f64>()
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
    overlap: Option<Overlap>,
    splits: bool,
    /// `λ` of each clock: those to try, and those that were tried.
    shares: Shares,
    tried: Vec<Shares>,
    /// Those with the largest bound, and how far from them others are tried.
    centre: Shares,
    reach: f64,
    seen: Vec<Taken>,
    /// The least time of a plan, and the largest bound (seconds).
    time: f64,
    bound: f64,
    /// What left open what lies between the last plan and its bound.
    left: Left,
}

impl Clocks {
    /// Clocks where both run beside each other so, and gradients of parameters are a part of their own or not; none where
    /// nothing runs beside anything.
    pub(crate) fn new(overlap: Option<Overlap>, splits: bool) -> Self {
        let overlap = overlap.filter(|it| it.cost < 1.0);
        Self {
            overlap,
            splits,
            shares: ONE_SUM,
            tried: Vec::new(),
            centre: ONE_SUM,
            reach: FIRST,
            seen: Vec::new(),
            time: f64::INFINITY,
            bound: 0.0,
            left: Left::Weights,
        }
    }

    /// The weights to try.
    pub(crate) fn weights(&self) -> Weights {
        self.overlap.map_or(Weights::ONE, |overlap| Weights::of(self.shares, (overlap, self.splits)))
    }

    /// Whether others are worth trying after a plan that takes this, and a bound (seconds).
    pub(crate) fn go_on(&mut self, taken: Taken, bound: f64) -> bool {
        if bound > self.bound {
            self.centre = self.shares;
        } else {
            self.reach /= 2.0;
        }
        (self.time, self.bound) = (self.time.min(taken.seconds), self.bound.max(bound));
        self.seen.push(taken);
        self.tried.push(self.shares);
        // What lies between bound and plan at these weights is between them at others: that has to be less than what
        // the plan takes beyond what it weighs.
        let weighs = self.weighs(&taken);
        self.left = if taken.seconds - weighs <= weighs - bound { Left::Memory } else { Left::Weights };
        if self.is_settled() || self.seen.len() == MOST || self.left == Left::Memory {
            return false;
        }
        // What has come of weights comes of them again, though a plan takes more than what was minimised.
        let is_new = |shares: &Shares| !self.tried.iter().any(|tried| are_close(tried, shares));
        let is_worth = |found: &(Shares, f64)| is_new(&found.0) && found.1 > self.bound * (1.0 + SETTLED);
        let far = self.highest(1.0).filter(is_worth);
        let found = far.and_then(|far| self.highest(self.reach).filter(is_worth).or(Some(far)));
        match found {
            Some((shares, _)) => self.shares = shares,
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

    /// Which sum of a plan is the longest of a clock.
    pub(crate) fn longest(&self, taken: &Taken, clock: Clock) -> usize {
        taken.longest(clock, self.overlap.unwrap_or(NO_OVERLAP))
    }

    /// The sums of a plan.
    pub(crate) fn sums(&self, taken: &Taken) -> Sums {
        taken.sums(self.overlap.unwrap_or(NO_OVERLAP))
    }

    /// What a plan weighs by the weights that were tried (seconds).
    fn weighs(&self, taken: &Taken) -> f64 {
        let Sums { clocks, rest } = self.sums(taken);
        let weighed = self.shares.iter().flatten().zip(clocks.iter().flatten());
        rest + weighed.map(|(share, sum)| share * sum).sum::<f64>()
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
        self.overlap.is_none() || self.gap() <= SETTLED
    }

    /// The shares by which the least of what the plans seen weigh is highest, and how much that is (seconds): of those
    /// no further than this from the centre.
    fn highest(&self, reach: f64) -> Option<(Shares, f64)> {
        let overlap = self.overlap?;
        let unit = self.time;
        let mut variables = ProblemVariables::new();
        let mut shares: Vec<(Clock, usize, Variable)> = Vec::new();
        for clock in Clock::ALL {
            for &sum in sums_of(clock, self.routes(), overlap) {
                let it = self.centre[clock as usize][sum];
                let near = variable().min((it - reach).max(0.0)).max((it + reach).min(1.0));
                shares.push((clock, sum, variables.add(near)));
            }
        }
        let least = variables.add(variable().min(0.0));
        let mut model = variables.maximise(least).using(crate::ilp::solver);
        for taken in &self.seen {
            let sums = taken.sums(overlap);
            let mut weighs = Expression::from(sums.rest / unit);
            for &(clock, sum, share) in &shares {
                weighs += sums.clocks[clock as usize][sum] / unit * share;
            }
            model = model.with(constraint!(least <= weighs));
        }
        for of in Clock::ALL {
            let own = shares.iter().filter(|it| it.0 == of).map(|it| it.2);
            model = model.with(constraint!(own.sum::<Expression>() == 1.0));
        }
        let solution = model.solve().ok()?;
        let mut found = Shares::default();
        for (clock, sum, share) in shares {
            found[clock as usize][sum] = solution.value(share).clamp(0.0, 1.0);
        }
        for clock in &mut found {
            let all: f64 = clock.iter().sum();
            clock.iter_mut().for_each(|it| *it /= all);
        }
        Some((found, solution.value(least) * unit))
    }

    /// Whether some plan routes rows while something else can be computed.
    fn routes(&self) -> Routes {
        let is_any = |it: &Taken| it.loads[Clock::Forward as usize].computes() > 0.0;
        if self.seen.iter().any(is_any) { Routes::Rows } else { Routes::Nothing }
    }

    /// By how much the least time of a plan is above the largest bound, relative to it: by nothing where it is no
    /// more, as where there is nothing to compute and both are 0.
    fn gap(&self) -> f64 {
        if self.time <= self.bound { 0.0 } else { self.time / self.bound - 1.0 }
    }

    /// What is proven of the best plan: what was, where nothing runs beside anything.
    pub(crate) fn proof(&self, plan: &Plan) -> Proof {
        match self.overlap {
            None => plan.proof,
            Some(_) if self.gap() <= EXACT => Proof::Optimal,
            Some(_) => Proof::Gap { lower_bound: self.bound.min(self.time).min(plan.seconds()) },
        }
    }
}

/// Whether shares of both clocks are the same.
fn are_close(one: &Shares, other: &Shares) -> bool {
    one.iter().flatten().zip(other.iter().flatten()).all(|(one, other)| (one - other).abs() <= ALIKE)
}

#[cfg(test)]
mod tests;
