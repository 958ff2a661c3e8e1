//! Random rounds of work that does not meet.
//!
//! In each round, random orders of what is left each give a set of work of which no two keep the
//! same adapter busy; a sender with less to send so far is the likelier. The set with most work is
//! kept, of equal ones that after which senders have sent most evenly.
//!
//! Source: the randomized greedy algorithm of Zhuang et al., "On Optimizing the Communication of
//! Model Parallelism" (MLSys 2023), as in their artifact.

use super::{Problem, Schedule};

/// How many orders are tried in a round.
const ORDERS: usize = 100;

/// How many pieces of work are looked at in a round, if one order is not more.
const LOOKS: usize = 20_000;

/// Where random numbers start.
const SEED: u64 = 2023;

/// Some work and who sends it.
type Set = Vec<(usize, usize)>;

pub(super) fn random_rounds(problem: &Problem) -> Schedule {
    let mut random = Random(SEED);
    let mut load = vec![0_u64; problem.adapters];
    let mut senders = vec![0; problem.works.len()];
    let mut left: Vec<usize> = (0..problem.works.len()).collect();
    let mut taken = vec![false; problem.works.len()];
    let mut order = Vec::new();
    while !left.is_empty() {
        let tries = (LOOKS / left.len()).clamp(1, ORDERS);
        let sets = (0..tries).map(|_| {
            random.shuffle(&mut left);
            let set = maximal(problem, &left, &load, &mut random);
            (u64::MAX - count(set.len()), spread(problem, &set, &load), set)
        });
        let Some((_, _, set)) = sets.min_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1))) else { break };
        for &(work, sender) in &set {
            senders[work] = sender;
            load[sender] += problem.works[work].bytes;
            taken[work] = true;
            order.push(work);
        }
        left.retain(|&work| !taken[work]);
        left.sort_unstable();
    }
    problem.schedule(senders, order)
}

/// Work in this order, as long as it does not meet what is in the set already.
fn maximal(problem: &Problem, order: &[usize], load: &[u64], random: &mut Random) -> Set {
    let (mut out, mut into) = (vec![false; problem.adapters], vec![false; problem.adapters]);
    let mut set = Set::new();
    for &index in order {
        let work = &problem.works[index];
        if work.entries().any(|it| into[it]) {
            continue;
        }
        let idle: Vec<usize> = work.senders.iter().copied().filter(|&it| !out[it]).collect();
        let most = idle.iter().map(|&it| load[it]).max().unwrap_or(0);
        let weights = idle.iter().map(|&it| most - load[it] + 1);
        let Some(chosen) = random.weighted(weights) else { continue };
        out[idle[chosen]] = true;
        work.entries().for_each(|it| into[it] = true);
        set.push((index, idle[chosen]));
    }
    set
}

/// How unevenly senders have sent after a set: their number squared times the variance.
fn spread(problem: &Problem, set: &Set, load: &[u64]) -> u128 {
    let mut load: Vec<u128> = load.iter().map(|&it| u128::from(it)).collect();
    for &(work, sender) in set {
        load[sender] += u128::from(problem.works[work].bytes);
    }
    let adapters = u128::from(count(load.len()));
    let sum: u128 = load.iter().sum();
    let squares = load.iter().fold(0_u128, |squares, it| squares.saturating_add(it.saturating_mul(*it)));
    adapters.saturating_mul(squares).saturating_sub(sum.saturating_mul(sum))
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The generator splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another one; 0 below 0.
    fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    fn shuffle(&mut self, numbers: &mut [usize]) {
        for place in (1..numbers.len()).rev() {
            let other = usize::try_from(self.below(count(place + 1))).unwrap_or(place);
            numbers.swap(place, other);
        }
    }

    /// One of some places, each as likely as its weight; none of none.
    fn weighted(&mut self, weights: impl Iterator<Item = u64> + Clone) -> Option<usize> {
        let total = weights.clone().fold(0_u64, u64::saturating_add);
        let mut rest = self.below(total);
        let mut last = None;
        for (place, weight) in weights.enumerate() {
            last = Some(place);
            if rest < weight {
                break;
            }
            rest -= weight;
        }
        last
    }
}
