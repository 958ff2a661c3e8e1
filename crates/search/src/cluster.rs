//! A search over a whole cluster: setups in the order of what they promise, each priced exactly, until
//! none that is left can be better; and the cut of a model into stages.
//!
//! Setups (how many groups, which mesh, how many micro-batches, what is computed again) are independent
//! of each other: they are priced in parallel, in batches of a fixed size, so that the outcome does not
//! depend on how many processors there are.

use planner_ir::schedule::StageTimes;
use rayon::prelude::*;

/// How many times as many setups are tried as are to be had.
const TRIED: usize = 2;
/// How many setups are priced at a time.
const BATCH: usize = 2;

/// What a search over setups comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<T> {
    /// What can be had, the best first: the setup's number, what it takes (seconds), what it is.
    pub all: Vec<(usize, f64, T)>,
    /// What none of the setups takes less than (seconds).
    pub lower_bound: f64,
    /// How many were priced.
    pub priced: usize,
}

/// The setups that `price` makes something of, in one way or several, and what they take; of each
/// it tells besides what no way takes less than.
///
/// Setups are priced in the order of `guesses`, at most so many that can be had, and twice as many in
/// all; then in the order of `bounds`, which no setup can be below, as many again, as long as that could
/// help.
pub fn best<T: Send>(
    guesses: &[f64],
    bounds: &[f64],
    most: usize,
    price: impl Fn(usize) -> (f64, Vec<(f64, T)>) + Sync,
) -> Found<T> {
    let mut search = Search { bounds: bounds.to_vec(), priced: vec![false; bounds.len()], all: Vec::new() };
    let order = |keys: &[f64]| {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]).then(a.cmp(&b)));
        order
    };
    search.go(&order(guesses), (most, TRIED * most), &price);
    search.go(&order(bounds), (most, most), &price);
    let Search { bounds, priced, mut all } = search;
    let lower_bound = bounds.into_iter().fold(f64::INFINITY, f64::min);
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    Found { lower_bound, all, priced: priced.into_iter().filter(|&it| it).count() }
}

/// What is known of setups.
struct Search<T> {
    /// What none takes less than (seconds).
    bounds: Vec<f64>,
    /// Which were priced.
    priced: Vec<bool>,
    all: Vec<(usize, f64, T)>,
}

impl<T: Send> Search<T> {
    /// Prices setups that may be better than what there is, until so many are had or tried.
    fn go(
        &mut self,
        order: &[usize],
        (had, tried): (usize, usize),
        price: &(impl Fn(usize) -> (f64, Vec<(f64, T)>) + Sync),
    ) {
        let (mut now_had, mut now_tried) = (0, 0);
        let mut rest = order.iter().copied().peekable();
        while rest.peek().is_some() && now_had < had && now_tried < tried {
            let incumbent = self.all.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
            let may_help = |it: &usize| !self.priced[*it] && self.bounds[*it] < incumbent;
            let batch: Vec<usize> = rest.by_ref().filter(may_help).take(BATCH).collect();
            now_tried += batch.len();
            let made: Vec<_> = batch.into_par_iter().map(|it| (it, price(it))).collect();
            for (number, (bound, outcomes)) in made {
                now_had += usize::from(!outcomes.is_empty());
                self.priced[number] = true;
                self.bounds[number] = self.bounds[number].max(bound);
                self.all.extend(outcomes.into_iter().map(|(seconds, it)| (number, seconds, it)));
            }
        }
    }
}

/// What a block of a model takes in a setup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCost {
    /// For one micro-batch (seconds).
    pub times: StageTimes,
    /// Once in a step (seconds).
    pub update: f64,
    /// What a device holds of it at rest (bytes).
    pub resident: u64,
    /// What it keeps of each micro-batch for the backward part (bytes).
    pub kept: u64,
}

/// The first blocks of stages such that the group that has most to do has as little as can be, and each
/// fits; of equal ones that whose first stages are longest. Nothing if none fits.
///
/// Stage `s` is on group `s` modulo the number of groups, and keeps what belongs to `live[s]`
/// micro-batches. A group may hold `capacity` bytes: each of its stages an equal part of it.
pub fn cut(
    blocks: &[BlockCost],
    live: &[u64],
    groups: usize,
    micro_batches: f64,
    capacity: u64,
) -> Option<Vec<usize>> {
    let (count, stages) = (blocks.len(), live.len());
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
            let (mut work, mut resident, mut kept) = (0.0, 0_u64, 0_u64);
            for start in (stage - 1..end).rev() {
                let block = &blocks[start];
                work += micro_batches * block.times.total() + block.update;
                resident = resident.saturating_add(block.resident);
                kept = kept.saturating_add(block.kept);
                if resident.saturating_add(kept.saturating_mul(live[stage - 1])) > part {
                    break;
                }
                let most = least[stage - 1][start].0.max(work);
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
