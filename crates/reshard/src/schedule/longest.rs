//! The busiest adapters first.
//!
//! Senders are chosen for the work with the fewest possible ones first, of equal numbers for the
//! longest: the one with the least to send. Then, again and again, the node that is idle first
//! takes up that of its work which can start earliest; of several such nodes the one with most
//! left to send, and of several such pieces the one whose receivers have most left to receive.

use super::{Adapters, Problem, Schedule};

pub(super) fn longest_first(problem: &Problem) -> Schedule {
    let senders = least_loaded(problem);
    let mut into = vec![0; problem.nodes];
    let mut out = vec![0; problem.nodes];
    let mut left: Vec<Vec<usize>> = vec![vec![]; problem.nodes];
    for (index, work) in problem.works.iter().enumerate() {
        let sender = senders[index];
        left[sender].push(index);
        out[sender] += work.bytes;
        work.receivers.iter().for_each(|&it| into[it] += work.bytes);
    }
    let mut adapters = Adapters::idle(problem.nodes);
    let mut order = Vec::new();
    let idle_first = |left: &[Vec<usize>], adapters: &Adapters, out: &[u64]| {
        let busy = (0..problem.nodes).filter(|&node| !left[node].is_empty());
        busy.min_by_key(|&node| (adapters.out[node], u64::MAX - out[node], node))
    };
    while let Some(sender) = idle_first(&left, &adapters, &out) {
        let earliest = |&place: &usize| {
            let index = left[sender][place];
            let work = &problem.works[index];
            let most = work.receivers.iter().map(|&it| into[it]).max().unwrap_or(0);
            (adapters.start(work, sender), u64::MAX - most, index)
        };
        let Some(place) = (0..left[sender].len()).min_by_key(earliest) else { break };
        let index = left[sender].swap_remove(place);
        let work = &problem.works[index];
        adapters.take_up(work, sender);
        out[sender] -= work.bytes;
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
