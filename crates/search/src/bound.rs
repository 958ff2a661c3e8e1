//! The least time under a bound on memory, by multipliers: a solution and a proven lower bound.
//!
//! ```text
//! L(μ) = min_x  time(x)  +  Σ_p μ_p (resident(x) + mean over blocks of live_p(x) − capacity)
//! ```
//!
//! is a lower bound for every μ ≥ 0, and each L(μ) is one minimisation without a bound on memory, exact or,
//! where blocks are too wide for that, with a bound of its own. The blocks of a segment share their multipliers,
//! which keeps them equal. Each minimum found is repaired until it fits, then improved step by step. Everything
//! is counted, nothing is timed.

mod enumerate;
mod exchange;
mod line;
mod mixed;
mod feasible;
mod floors;
mod joints;
mod periodic;
mod repair;
mod switch;
mod top;
mod trail;

use std::sync::Arc;

use crate::chain::{
    Chain, ChainChoices, ChainSolution, Flat, Goal, Prices, Relaxation, Segment, Starts, Width,
};
use crate::ilp;
use crate::problem::{Place, Problem, Proof, SearchError, Solution, real, real_size};
pub(crate) use feasible::is_far;
use floors::Floors;
pub(crate) use joints::Joints;
pub use trail::Trail;

/// A relative gap that counts as none for the purpose of stopping; it is reported all the same.
pub const GAP: f64 = 1e-4;

/// A relative gap with which the search of a large chain is content.
const SETTLED: f64 = 1e-3;

/// The number of nodes of all blocks above which a chain is large.
const LARGE: usize = 200;

/// The most variables of an integer program that is tried in order to close a gap.
const SMALL: usize = 400;

/// A relative gap that rounding alone explains.
const EXACT: f64 = 1e-11;

/// How much more time than the best, relative to it, choices take that are near.
const NEAR: f64 = 0.02;

/// The most of them that are kept.
const MOST_NEAR: usize = 6;

/// What a search knows so far.
struct Search<'a> {
    chain: &'a Chain,
    flat: &'a Flat,
    relaxation: &'a Relaxation,
    rows: Vec<Place>,
    capacity: u64,
    /// The multipliers of the best bound, for each row: cost per capacity.
    multipliers: Vec<f64>,
    /// The best assignment of the flat problem that fits, and its time.
    best: Option<(Vec<usize>, f64)>,
    /// What fits and takes little more time than the best, or did, the fastest first.
    near: Vec<(ChainChoices, f64)>,
    /// No assignment that fits takes less time.
    bound: f64,
    /// By how much more than the bound what was found at its multipliers takes, by them (seconds).
    missed: f64,
    /// The least peak of any assignment seen, and its place.
    nearest: Option<(u64, Place)>,
    /// What was seen, by searches before too.
    trail: Trail,
    floors: Floors,
    /// What messages begin with.
    starts: Starts,
}

/// The assignment of least time whose memory fits, as far as can be told.
pub fn solve(problem: &Problem, capacity: u64) -> Result<Solution, SearchError> {
    let (choices, time, proof) = solve_flat(Chain::from(problem.clone()), capacity, Width::Narrow)?;
    Ok(Solution { choices, time, proof })
}

/// The choices of least time for a chain whose memory fits, as far as can be told.
pub fn solve_chain(chain: &Chain, capacity: u64) -> Result<ChainSolution, SearchError> {
    Solver::new(&Arc::new(chain.clone()), Trail::default(), Width::Narrow).solve(capacity)
}

/// A chain that is ready to be solved for many capacities.
pub struct Solver {
    base: Arc<Base>,
    /// Why a search found nothing: what it proved, or what came nearest.
    refused: Option<SearchError>,
    /// By how much less the bounds of the first search are than what was found at the same prices (seconds).
    missed: Option<f64>,
    /// What was found that takes little more time than what was the best.
    near: Vec<ChainChoices>,
    trail: Trail,
    floors: Floors,
    starts: Starts,
}

/// A chain, and what is made of it once.
#[derive(Debug)]
struct Base {
    chain: Arc<Chain>,
    flat: Flat,
    /// None if the boundaries have too many states for a table over pairs of them.
    relaxation: Option<Relaxation>,
    width: Width,
}

impl Base {
    fn of(chain: &Arc<Chain>, width: Width) -> Self {
        let relaxation = chain.has_small_boundaries().then(|| Relaxation::new(chain, width));
        Self { chain: Arc::clone(chain), flat: chain.flat(), relaxation, width }
    }
}

impl Solver {
    /// Prepares a chain; the search starts from what another one has seen.
    pub(crate) fn new(chain: &Arc<Chain>, trail: Trail, width: Width) -> Self {
        let (trail, (base, floors)) = trail.along(chain);
        let base = base.filter(|it| it.width == width);
        let base = base.unwrap_or_else(|| Arc::new(Base::of(chain, width)));
        Self { base, refused: None, missed: None, near: Vec::new(), trail, floors, starts: Starts::default() }
    }

    /// By how much less the bound of the first search is than what was found at the same prices of memory: the
    /// rest of what lies between bound and choices is what memory leaves open (seconds).
    pub(crate) fn missed(&self) -> f64 {
        self.missed.unwrap_or(f64::INFINITY)
    }

    /// Whether there is much to choose.
    pub(crate) fn is_large(&self) -> bool {
        is_large(&self.base.flat)
    }

    /// Choices that fit into what was given and take little more time than those that were found: what they take
    /// beside what is minimised may be less.
    pub(crate) fn near(&self) -> &[ChainChoices] {
        &self.near
    }

    /// What was seen.
    pub fn into_trail(self) -> Trail {
        self.trail.proving(self.base, self.floors)
    }

    /// The choices of least time whose memory fits, as far as can be told.
    ///
    /// If the boundaries have too many states for a table over pairs of them, the chain is solved
    /// as one flat problem. Less memory than what every choice needs, by proof, or than what the
    /// nearest needs that a search found, is not searched again.
    pub fn solve(&mut self, capacity: u64) -> Result<ChainSolution, SearchError> {
        if let Some(refusal) = self.refused.as_ref().and_then(|it| it.with_less(capacity)) {
            return Err(refusal);
        }
        match self.solved(capacity) {
            Ok((choices, time, proof)) => {
                Ok(ChainSolution { choices: self.base.flat.unfold(&choices), time, proof })
            }
            Err(error) => {
                self.refused = Some(error.clone());
                Err(error)
            }
        }
    }

    fn solved(&mut self, capacity: u64) -> Answer {
        let Base { chain, flat, relaxation, width } = &*self.base;
        let Some(relaxation) = relaxation else {
            return solve_flat(Chain::from(flat.problem.clone()), capacity, *width);
        };
        let mut search = started(chain, flat, relaxation, capacity);
        (search.trail, search.floors) = (std::mem::take(&mut self.trail), std::mem::take(&mut self.floors));
        search.starts = std::mem::take(&mut self.starts);
        let followed = line::follow(&mut search);
        (self.trail, self.floors) = (std::mem::take(&mut search.trail), std::mem::take(&mut search.floors));
        self.starts = search.starts.clone();
        self.missed = self.missed.or(Some(search.missed));
        self.near.extend(std::mem::take(&mut search.near).into_iter().map(|(choices, _)| choices));
        followed?;
        if search.is_settled() || search.best.is_some() && search.is_large() {
            return search.answer();
        }
        let search = search.fitting()?;
        // Much more effort on many nodes finds little.
        if search.is_large() { search.answer() } else { search.tightened()?.closed() }
    }
}

/// The assignment of least time for a chain of one block.
fn solve_flat(chain: Chain, capacity: u64, width: Width) -> Answer {
    let chain = Arc::new(chain);
    let (flat, relaxation) = (chain.flat(), Relaxation::new(&chain, width));
    started(&chain, &flat, &relaxation, capacity).followed()?.tightened()?.closed()
}

/// An assignment of the flat problem, its time and what is proven about it.
type Answer = Result<(Vec<usize>, f64, Proof), SearchError>;

/// A search that knows nothing yet.
fn started<'a>(chain: &'a Chain, flat: &'a Flat, relaxation: &'a Relaxation, capacity: u64) -> Search<'a> {
    let rows = rows(chain);
    Search {
        chain,
        flat,
        relaxation,
        multipliers: vec![0.0; rows.len()],
        rows,
        capacity,
        best: None,
        near: Vec::new(),
        bound: f64::NEG_INFINITY,
        missed: f64::INFINITY,
        nearest: None,
        trail: Trail::default(),
        floors: Floors::default(),
        starts: Starts::default(),
    }
}

/// A minimum at given multipliers.
struct Minimum {
    choices: Option<ChainChoices>,
    /// `L(μ)`: a lower bound.
    bound: f64,
    /// For each row, by how much of the capacity its mean over the blocks exceeds it.
    excess: Vec<f64>,
}

impl Search<'_> {
    /// The bound at its top, and the best assignment met on the way there.
    fn followed(mut self) -> Result<Self, SearchError> {
        line::follow(&mut self)?;
        if self.is_settled() { Ok(self) } else { self.fitting() }
    }

    /// The same where nothing was met that fits: by what needs least memory.
    fn fitting(mut self) -> Result<Self, SearchError> {
        if self.best.is_none() {
            feasible::find(&mut self)?;
            // What was found now lies on the other side of the top.
            if self.best.is_some() {
                line::follow(&mut self)?;
            }
        }
        Ok(self)
    }

    /// Multipliers in cost per capacity, one for each row, as prices of bytes.
    fn prices(&self, multipliers: &[f64]) -> Prices {
        let capacity = real(self.capacity.max(1));
        let mut prices = Prices {
            resident: multipliers.iter().sum::<f64>() / capacity,
            live: self.chain.segments.iter().map(|at| vec![0.0; at.problem.windows.len()]).collect(),
        };
        for (row, multiplier) in self.rows.iter().zip(multipliers) {
            let count = real_size(self.chain.segments[row.segment].count);
            if let Some(price) = prices.live[row.segment].get_mut(row.window) {
                *price = multiplier / count / capacity;
            }
        }
        prices
    }

    /// Minimises at multipliers in cost per capacity, one for each row, as closely as this (parts of the minimum).
    fn minimise(&mut self, (goal, close): (Goal, f64), multipliers: &[f64]) -> Result<Minimum, SearchError> {
        let capacity = real(self.capacity.max(1));
        let prices = self.prices(multipliers);
        let relaxed = self.relaxation.minimise(goal, &prices, (&mut self.starts, close))?;
        if relaxed.bound.is_infinite() {
            return Err(SearchError::Contradiction);
        }
        let paid = multipliers.iter().sum::<f64>() * real(self.capacity) / capacity;
        // What rounding may have added.
        let rounding = 1e-12 * (relaxed.bound.abs() + paid);
        let excess = relaxed.choices.as_ref().map_or_else(Vec::new, |at| self.excess(at));
        Ok(Minimum { choices: relaxed.choices, bound: relaxed.bound - paid - rounding, excess })
    }

    fn excess(&self, choices: &ChainChoices) -> Vec<f64> {
        let usage = self.chain.usage(choices);
        let capacity = real(self.capacity);
        let excess = |row: &Place| {
            let blocks = &usage.live[row.segment];
            let live: u64 = blocks.iter().map(|windows| windows[row.window]).sum();
            let mean = real(live) / real_size(blocks.len());
            (real(usage.resident) + mean - capacity) / capacity.max(1.0)
        };
        self.rows.iter().map(excess).collect()
    }

    /// Takes choices as they are, if they fit and are better than what there is.
    fn take(&mut self, choices: &ChainChoices) {
        self.look_at(choices);
        let time = self.chain.time(choices);
        let best = self.best.as_ref().map_or(f64::INFINITY, |(_, best)| *best);
        let is_near = time < f64::INFINITY && time <= (1.0 + NEAR) * best;
        if !is_near || self.chain.usage(choices).peak() > self.capacity {
            return;
        }
        if time < best {
            self.best = Some((self.flat.fold(choices), time));
        }
        if !self.near.iter().any(|(it, _)| it == choices) {
            let place = self.near.partition_point(|(_, other)| *other <= time);
            self.near.insert(place, (choices.clone(), time));
            self.near.truncate(MOST_NEAR);
        }
    }

    /// Takes choices, repaired and improved, if they are better than what there is.
    fn offer(&mut self, choices: &ChainChoices) {
        self.look_at(choices);
        let problem = &self.flat.problem;
        let choices = self.flat.fold(choices);
        let Some(choices) = repair::repair(problem, self.capacity, choices) else {
            return;
        };
        let time = problem.time(&choices);
        if time < self.best.as_ref().map_or(f64::INFINITY, |(_, best)| *best) {
            self.best = Some((choices, time));
        }
    }

    /// Improves the best assignment node by node.
    fn step(&mut self) {
        if let Some((choices, _)) = &self.best {
            self.offer(&self.flat.unfold(choices));
        }
    }

    /// Improves the best assignment by pairs of moves.
    fn exchange(&mut self) {
        if let Some((choices, _)) = self.best.take() {
            let choices = exchange::exchange(&self.flat.problem, self.capacity, choices);
            let time = self.flat.problem.time(&choices);
            self.best = Some((choices, time));
        }
    }

    /// Takes the best choices that are the same in all blocks of a segment, if there are any.
    fn offer_periodic(&mut self) {
        let folded = Arc::new(periodic::fold(self.chain));
        let (flat, relaxation) = (folded.flat(), Relaxation::new(&folded, self.relaxation.width()));
        let found =
            started(&folded, &flat, &relaxation, self.capacity).followed().and_then(Search::tightened);
        // That nothing periodic fits proves nothing.
        let Ok(Some((choices, _))) = found.map(|found| found.best) else { return };
        self.offer(&periodic::unfold(self.chain, &flat.unfold(&choices)));
    }

    fn look_at(&mut self, choices: &ChainChoices) {
        let usage = self.chain.usage(choices);
        let peak = usage.peak();
        if self.nearest.is_some_and(|(nearest, _)| nearest <= peak) {
            return;
        }
        let place = |(segment, blocks): (usize, &Vec<Vec<u64>>)| {
            let at_peak = |live: &u64| usage.resident + live == peak;
            let window = blocks.iter().find_map(|windows| windows.iter().position(at_peak));
            window.map(|window| Place { segment, window })
        };
        if let Some(place) = usage.live.iter().enumerate().find_map(place) {
            self.nearest = Some((peak, place));
        }
    }

    /// The relative distance from the best time to the bound, infinite if nothing was found.
    fn gap(&self) -> f64 {
        match &self.best {
            Some((_, time)) => (time - self.bound) / time.abs().max(f64::MIN_POSITIVE),
            None => f64::INFINITY,
        }
    }

    /// Whether more effort is not worth it: nothing is left to gain, or little and many blocks.
    fn is_settled(&self) -> bool {
        self.gap() <= if self.is_large() { SETTLED } else { EXACT }
    }

    fn is_large(&self) -> bool {
        is_large(self.flat)
    }

    /// Both sides of the gap improved by what is more than following the bound.
    fn tightened(mut self) -> Result<Self, SearchError> {
        if self.gap() > GAP && self.chain.segments.iter().any(|segment| segment.count > 1) {
            self.offer_periodic();
        }
        if self.gap() > EXACT {
            self.exchange();
            enumerate::close(&mut self)?;
        }
        Ok(self)
    }

    /// The answer, after an integer program if that is small enough to close the gap.
    fn closed(self) -> Answer {
        let problem = &self.flat.problem;
        if self.gap() > EXACT && ilp::variables(problem) <= SMALL {
            match ilp::solve(problem, self.capacity) {
                Ok(Solution { choices, time, proof }) => return Ok((choices, time, proof)),
                Err(refusal) if self.best.is_none() => return Err(refusal),
                Err(_) => {}
            }
        }
        self.answer()
    }

    /// The answer as it is.
    fn answer(self) -> Answer {
        let exact = self.gap() <= EXACT;
        let refusal = self.refusal();
        match self.best {
            Some((choices, time)) if exact => Ok((choices, time, Proof::Optimal)),
            Some((choices, time)) => Ok((choices, time, Proof::Gap { lower_bound: self.bound })),
            None => Err(refusal),
        }
    }

    /// That nothing was found that fits.
    fn refusal(&self) -> SearchError {
        match self.nearest {
            Some((found, place)) => SearchError::NothingFound { place, found, capacity: self.capacity },
            None => SearchError::GlobalsNotFound,
        }
    }
}

fn is_large(flat: &Flat) -> bool {
    flat.problem.times.len() > LARGE
}

/// All windows but those that never hold more than another one of their segment.
fn rows(chain: &Chain) -> Vec<Place> {
    let of = |(segment, at): (usize, &Segment)| {
        let places = move |window| Place { segment, window };
        let needful = at.problem.needful();
        // Without windows there is one at which only what is resident is held.
        let none = at.problem.windows.is_empty().then_some(0);
        needful.into_iter().chain(none).map(places)
    };
    chain.segments.iter().enumerate().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
