//! A search over a whole cluster: setups in the order of what they promise, each priced exactly, until
//! none that is left can be better; and the cut of a model into stages.
//!
//! Setups (how many groups, which mesh, how many micro-batches, what is computed again) are independent
//! of each other: they are priced in parallel, in batches of a fixed size, so that the outcome does not
//! depend on how many processors there are.

pub mod unequal; // stages on meshes that differ

use cost_models::quantity::whole_bytes;
use plan::{Waits, by_clocks};
use rayon::prelude::*;
use schedule::StageTimes;

use crate::live::Live;
use crate::problem::real;

/// How many times as many setups are tried as are to be had.
pub const TRIED: usize = 3;
/// How many setups are priced at a time.
const BATCH: usize = 2;

/// What is known of a setup.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<T> {
    /// What no way to run it takes less than (seconds).
    pub lower_bound: f64,
    /// Ways to run it that fit, and what they take (seconds).
    pub ways: Vec<(f64, T)>,
}

/// What a search over setups comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<'a, T> {
    /// What may be had, the best first: the setup's number, what it promises to take (seconds), what it is.
    pub all: Vec<(usize, f64, &'a T)>,
    /// What none of the setups takes less than (seconds).
    pub lower_bound: f64,
}

/// Setups, of which something is known at first, and more by a close look.
///
/// Setups are looked at closely in the order of guesses, what they may take (seconds; infinite where no close look is
/// wanted), where guess and bound are below the best that is had and no way that is known may still be had: at
/// most so many that something comes of, and three times as many in all, or all of them where nothing is had.
#[derive(Debug)]
pub struct Setups<T> {
    known: Vec<Outcome<T>>,
    guesses: Vec<f64>,
    /// Those that were looked at closely.
    looked: Vec<usize>,
    /// How many of them something may come of.
    most: usize,
}

impl<T: Send> Setups<T> {
    /// Setups of which this is known, and guessed.
    pub fn new(known: Vec<Outcome<T>>, guesses: Vec<f64>, most: usize) -> Self {
        Self { known, guesses, looked: Vec::new(), most }
    }

    /// Looks at setups closely, where ways take so long (by a setup's number, what the way promises and what it is;
    /// seconds, infinite where it cannot be had): what is promised, or what is known of it better since.
    pub fn closely(
        &mut self,
        taken: &dyn Fn(usize, f64, &T) -> f64,
        look: impl Fn(usize) -> Outcome<T> + Sync,
    ) {
        loop {
            let least = |number: usize| {
                let ways = self.known[number].ways.iter();
                ways.map(|(seconds, way)| taken(number, *seconds, way)).fold(f64::INFINITY, f64::min)
            };
            let had: Vec<f64> = (0..self.known.len()).map(least).collect();
            let incumbent = had.iter().copied().fold(f64::INFINITY, f64::min);
            // What turned out not to fit does not count.
            let come_to = self.looked.iter().filter(|&&it| had[it].is_finite()).count();
            if incumbent.is_finite() && (come_to >= self.most || self.looked.len() >= TRIED * self.most) {
                break;
            }
            let hoped = |it: usize| self.known[it].lower_bound.max(self.guesses[it]);
            let mut batch: Vec<usize> =
                (0..had.len()).filter(|&it| had[it].is_infinite() && hoped(it) < incumbent).collect();
            batch.sort_by(|&a, &b| self.guesses[a].total_cmp(&self.guesses[b]).then(a.cmp(&b)));
            batch.truncate(BATCH);
            if batch.is_empty() {
                break;
            }
            let made: Vec<(usize, Outcome<T>)> = batch.into_par_iter().map(|it| (it, look(it))).collect();
            for (number, outcome) in made {
                self.looked.push(number);
                self.guesses[number] = f64::INFINITY;
                let own = &mut self.known[number];
                own.lower_bound = own.lower_bound.max(outcome.lower_bound);
                own.ways.extend(outcome.ways);
            }
        }
    }

    /// The ways that are known.
    pub fn found(&self) -> Found<'_, T> {
        let mut all = Vec::new();
        for (number, outcome) in self.known.iter().enumerate() {
            all.extend(outcome.ways.iter().map(|(seconds, it)| (number, *seconds, it)));
        }
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        // A price is of one way to run a setup; that there is none, of those that were tried. Of the best
        // way no more is known than the bound.
        let lower_bound = self.known.iter().map(|it| it.lower_bound).fold(f64::INFINITY, f64::min);
        Found { all, lower_bound }
    }
}

/// What a block of a model takes in a setup, or several of them together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCost {
    /// For one micro-batch, everything one after another (seconds).
    pub times: StageTimes,
    /// What of it may run beside the rest (seconds).
    pub beside: StageTimes,
    /// What of gradients of values is exchanged while others could be computed (seconds).
    pub waits: Waits,
    /// How much of what could be hidden is, from 0 to 1: the same for all blocks.
    pub hides: f64,
    /// Once in a step (seconds).
    pub update: f64,
    /// What a device holds of it at rest (bytes).
    pub resident: u64,
    /// What it keeps of micro-batches under way.
    pub kept: Kept,
    /// The most that is there at once of the micro-batch that is at work, no less than what is kept of it; of several
    /// blocks with what those before the one at work keep (bytes).
    pub most: u64,
}

/// No time at all.
const NO_TIME: StageTimes = StageTimes { forward: 0.0, backward: 0.0, weight: 0.0 };

impl BlockCost {
    /// Of no block.
    pub const NOTHING: Self = Self {
        times: NO_TIME,
        beside: NO_TIME,
        waits: Waits::NOTHING,
        hides: 0.0,
        update: 0.0,
        resident: 0,
        kept: Kept { backward: 0, gradients: 0, apart: 0 },
        most: 0,
    };

    /// Of several blocks together, in the order of the forward pass.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for (own, other) in [(&mut self.times, &other.times), (&mut self.beside, &other.beside)] {
            own.forward += other.forward;
            own.backward += other.backward;
            own.weight += other.weight;
        }
        self.waits = self.waits.and(&other.waits);
        self.hides = self.hides.max(other.hides);
        self.update += other.update;
        self.resident = self.resident.saturating_add(other.resident);
        self.most = self.most.max(self.kept.bytes(Live::ONE).saturating_add(other.most));
        self.kept = self.kept.and(other.kept);
        self
    }

    /// About what it is where so large a part of it, from 0 to 1, is as another plan has it.
    #[must_use]
    pub fn toward(&self, other: &Self, part: f64) -> Self {
        let between = |one: f64, two: f64| one + part * (two - one);
        let bytes = |one: u64, two: u64| whole_bytes(between(real(one), real(two)).ceil()).0;
        let times = |one: &StageTimes, two: &StageTimes| StageTimes {
            forward: between(one.forward, two.forward),
            backward: between(one.backward, two.backward),
            weight: between(one.weight, two.weight),
        };
        Self {
            times: times(&self.times, &other.times),
            beside: times(&self.beside, &other.beside),
            waits: self.waits.times(1.0 - part).and(&other.waits.times(part)),
            hides: between(self.hides, other.hides),
            update: between(self.update, other.update),
            resident: bytes(self.resident, other.resident),
            kept: Kept {
                backward: bytes(self.kept.backward, other.kept.backward),
                gradients: bytes(self.kept.gradients, other.kept.gradients),
                apart: bytes(self.kept.apart, other.kept.apart),
            },
            most: bytes(self.most, other.most),
        }
    }

    /// What a micro-batch takes in a schedule that splits gradients of parameters off or not, by two clocks for each
    /// part of a step ([`by_clocks`], seconds).
    pub fn taken(&self, splits: bool) -> StageTimes {
        by_clocks(self.times, (self.beside, self.waits), self.hides, splits)
    }

    /// What it takes at least together with any others: all that may run beside something is hidden (seconds).
    #[must_use]
    pub fn at_least(&self) -> Self {
        let less = |all: f64, beside: f64| all - self.hides * beside;
        let Waits { waited, routed, .. } = self.waits;
        let times = StageTimes {
            forward: less(self.times.forward, self.beside.forward + routed[0]),
            backward: less(self.times.backward, self.beside.backward + waited + routed[1]),
            weight: less(self.times.weight, self.beside.weight),
        };
        Self { times, beside: NO_TIME, waits: Waits::NOTHING, ..*self }
    }

    /// What so many micro-batches and the update take (seconds).
    pub fn step(&self, micro_batches: f64, splits: bool) -> f64 {
        micro_batches * self.taken(splits).total() + self.update
    }

    /// What a device holds with so many micro-batches under way (bytes).
    pub fn held(&self, live: Live) -> u64 {
        self.resident.saturating_add(self.kept.bytes(live.others())).saturating_add(self.most)
    }
}

/// What a device keeps of each micro-batch under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What the forward part leaves for the backward part alone (bytes).
    pub backward: u64,
    /// What the forward part leaves for gradients of weights (bytes).
    pub gradients: u64,
    /// What the backward part leaves for gradients of weights, where those are a part of their own
    /// (bytes).
    pub apart: u64,
}

impl Kept {
    /// Of two blocks together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            backward: self.backward.saturating_add(other.backward),
            gradients: self.gradients.saturating_add(other.gradients),
            apart: self.apart.saturating_add(other.apart),
        }
    }

    /// With so many micro-batches under way (bytes).
    pub fn bytes(self, live: Live) -> u64 {
        let gradients = self.gradients.saturating_mul(live.gradients);
        let backward = self.backward.saturating_mul(live.backward);
        gradients.saturating_add(backward).saturating_add(self.apart.saturating_mul(live.apart))
    }
}

/// What some blocks are together where they are as one plan has them, or between two plans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// The numbers of the plans.
    pub plans: [usize; 2],
    /// How large a part is as the second has it (0 to 1).
    pub part: f64,
}

impl Mix {
    /// Of what blocks are by each plan.
    pub fn of(&self, runs: &[BlockCost]) -> BlockCost {
        let [one, two] = self.plans;
        if self.part > 0.0 { runs[one].toward(&runs[two], self.part) } else { runs[one] }
    }
}

/// What takes least of what plans hold (bytes) and take (seconds), and of what lies between two of them, where so much
/// may be held; nothing if none holds so little.
///
/// Between a plan that holds too much and one that does not, as little is as the second has it as leaves what is `wanted`,
/// at most what may be held.
pub fn mixed(plans: &[(u64, f64)], (capacity, wanted): (u64, u64)) -> Option<(f64, Mix)> {
    let mut best: Option<(f64, Mix)> = None;
    for (number, &(held, seconds)) in plans.iter().enumerate().filter(|it| it.1.0 <= capacity) {
        let alone = (seconds, Mix { plans: [number; 2], part: 0.0 });
        let between = plans.iter().enumerate().filter(|(_, it)| it.0 > capacity && it.1 < seconds);
        let between = between.map(|(other, &(too_much, less))| {
            let part = real(too_much - wanted.max(held)) / real(too_much - held);
            (less + part * (seconds - less), Mix { plans: [other, number], part })
        });
        for it in std::iter::once(alone).chain(between) {
            if best.is_none_or(|best| it.0 < best.0) {
                best = Some(it);
            }
        }
    }
    best
}

/// The same of blocks of a stage, by the steps of so many micro-batches.
pub fn mixed_runs(
    runs: &[BlockCost],
    live: Live,
    (micro_batches, splits): (f64, bool),
    room: (u64, u64),
) -> Option<(f64, Mix)> {
    let plans = runs.iter().map(|run| (run.held(live), run.step(micro_batches, splits)));
    mixed(&plans.collect::<Vec<_>>(), room)
}

/// The first blocks of stages such that the group that has most to do has as little as can be, and each
/// fits; of equal ones that whose first stages are longest. Nothing if none fits.
///
/// Blocks are as one of several plans has them, or between two, in each stage as suits it ([`mixed`]). Stage `s` is on
/// group `s` modulo the number of groups, and keeps what belongs to the micro-batches `live[s]`; `splits` says whether
/// gradients of parameters are tasks of their own. A group may hold `capacity` bytes: each of its stages an equal part
/// of it.
pub fn cut(
    plans: &[&[BlockCost]],
    live: &[Live],
    groups: usize,
    steps: (f64, bool),
    capacity: u64,
) -> Option<Vec<usize>> {
    let (count, stages) = (plans.iter().map(|it| it.len()).min()?, live.len());
    if stages == 0 || stages > count || groups == 0 {
        return None;
    }
    let chunks = u64::try_from(stages.div_ceil(groups)).unwrap_or(u64::MAX);
    let part = capacity / chunks.max(1);
    // For each number of stages and of blocks: the least work of the busiest stage, and where the last
    // of them starts.
    let mut least = vec![vec![(f64::INFINITY, 0); count + 1]; stages + 1];
    least[0][0] = (0.0, 0);
    for stage in 1..=stages {
        for end in stage..=count {
            let mut runs = vec![BlockCost::NOTHING; plans.len()];
            for start in (stage - 1..end).rev() {
                for (run, blocks) in runs.iter_mut().zip(plans) {
                    *run = blocks[start].and(run);
                }
                let Some((taken, _)) = mixed_runs(&runs, live[stage - 1], steps, (part, part)) else { break };
                let most = least[stage - 1][start].0.max(taken);
                if most < least[stage][end].0 {
                    least[stage][end] = (most, start);
                }
            }
        }
    }
    let mut first = vec![0; stages];
    let mut end = count;
    for stage in (1..=stages).rev() {
        if least[stage][end].0.is_infinite() {
            return None;
        }
        end = least[stage][end].1;
        first[stage - 1] = end;
    }
    Some(first)
}

#[cfg(test)]
mod tests;
