//! The busiest adapters first.
//!
//! Senders are chosen for the work with the fewest possible ones first, of equal numbers for the
//! longest: the one with the least to send. Then, again and again, of the work that can start
//! earliest that whose adapters have most left to do is taken up.

use super::{Adapters, Problem, Schedule};

pub(super) fn longest_first(problem: &Problem) -> Schedule {
    let senders = least_loaded(problem);
    let mut into = vec![0; problem.nodes];
    let mut out = vec![0; problem.nodes];
    for (work, &sender) in problem.works.iter().zip(&senders) {
        out[sender] += work.bytes;
        work.receivers.iter().for_each(|&it| into[it] += work.bytes);
    }
    let mut adapters = Adapters::idle(problem.nodes);
    let mut left: Vec<usize> = (0..problem.works.len()).collect();
    let mut order = Vec::new();
    let left_to_do = |index: usize, out: &[u64], into: &[u64]| {
        let work = &problem.works[index];
        work.receivers.iter().map(|&it| into[it]).fold(out[senders[index]], u64::max)
    };
    while let Some(place) = (0..left.len()).min_by_key(|&place| {
        let index = left[place];
        let start = adapters.start(&problem.works[index], senders[index]);
        (start, u64::MAX - left_to_do(index, &out, &into), index)
    }) {
        let index = left.swap_remove(place);
        let work = &problem.works[index];
        adapters.take_up(work, senders[index]);
        out[senders[index]] -= work.bytes;
        work.receivers.iter().for_each(|&it| into[it] -= work.bytes);
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
    let mut load = vec![0; problem.nodes];
    let mut senders = vec![0; problem.works.len()];
    for index in order {
        let work = &problem.works[index];
        let least = work.senders.iter().copied().min_by_key(|&sender| load[sender]);
        senders[index] = least.unwrap_or(0);
        load[senders[index]] += work.bytes;
    }
    senders
}
