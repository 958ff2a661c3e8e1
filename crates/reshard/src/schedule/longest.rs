//! The busiest adapters first.
//!
//! Senders are chosen for the work with the fewest possible ones first, of equal numbers for the
//! longest: the one with the least to send. Then, again and again, of the work that can start
//! earliest that one of whose adapters has most left to do is taken up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Adapters, Problem, Schedule, Work};

/// What comes first: the earliest start, then the adapter with most left to do, then all of them
/// together, then the number.
type Rank = Reverse<(u64, Reverse<u64>, Reverse<u64>, usize)>;

pub(super) fn longest_first(problem: &Problem) -> Schedule {
    let senders = least_loaded(problem);
    let mut left = Adapters::idle(problem.adapters);
    for (work, &sender) in problem.works.iter().zip(&senders) {
        left.out[sender] += work.bytes;
        work.entries().for_each(|it| left.into[it] += work.bytes);
    }
    let rank = |index: usize, adapters: &Adapters, left: &Adapters| -> Rank {
        let (work, sender) = (&problem.works[index], senders[index]);
        let of_receivers = || work.entries().map(|it| left.into[it]);
        let most = of_receivers().fold(left.out[sender], u64::max);
        let all = of_receivers().fold(left.out[sender], u64::saturating_add);
        Reverse((adapters.start(sender, work.entries()), Reverse(most), Reverse(all), index))
    };
    let mut adapters = Adapters::idle(problem.adapters);
    let mut order = Vec::new();
    let mut first: BinaryHeap<Rank> =
        (0..problem.works.len()).map(|index| rank(index, &adapters, &left)).collect();
    while let Some(known) = first.pop() {
        let Reverse((.., index)) = known;
        // Starts only become later and what is left only less: whose rank is as it was is first.
        let now = rank(index, &adapters, &left);
        if now != known {
            first.push(now);
            continue;
        }
        let work: &Work = &problem.works[index];
        adapters.take_up(work.bytes, senders[index], work.entries());
        left.out[senders[index]] -= work.bytes;
        work.entries().for_each(|it| left.into[it] -= work.bytes);
        order.push(index);
    }
    problem.schedule(senders, order)
}

/// For each piece of work the sender that has least to send so far.
pub(super) fn least_loaded(problem: &Problem) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.works.len()).collect();
    order.sort_by_key(|&it| {
        let work = &problem.works[it];
        (work.senders.len(), u64::MAX - work.bytes, it)
    });
    let mut load = vec![0; problem.adapters];
    let mut senders = vec![0; problem.works.len()];
    for index in order {
        let work = &problem.works[index];
        let least = work.senders.iter().copied().min_by_key(|&sender| load[sender]);
        senders[index] = least.unwrap_or(0);
        load[senders[index]] += work.bytes;
    }
    senders
}
