//! Each receiver has a sender of its own, as far as there are as many.
//!
//! Of the work that the same nodes may send, what goes to the first receiver comes from the first of
//! them, to the second from the second, and so on; the next work for the same receiver goes on where
//! these ended. Where as many nodes have something as need it, each sends once what each gets once, all
//! at the same time; and nodes that are alike do what is alike.

use std::collections::BTreeMap;

use super::{Problem, Schedule};

pub(super) fn matched(problem: &Problem) -> Schedule {
    // By the nodes that may send: the receivers in the order in which they come, and how much each has
    // gotten.
    let mut turns: BTreeMap<&[usize], BTreeMap<&[usize], Turn>> = BTreeMap::new();
    for work in &problem.works {
        let known = turns.entry(&work.senders).or_default();
        let place = known.len();
        known.entry(&work.receivers).or_insert(Turn { place, taken: 0 });
    }
    let mut sender = |work: usize| {
        let work = &problem.works[work];
        let known = turns.get_mut(&work.senders[..]);
        let receivers = known.as_ref().map_or(1, |known| known.len());
        let turn = known.and_then(|known| known.get_mut(&work.receivers[..]));
        let next = turn.map_or(0, |turn| {
            turn.taken += 1;
            turn.place + (turn.taken - 1) * receivers
        });
        work.senders[next % work.senders.len()]
    };
    let all = 0..problem.works.len();
    problem.schedule(all.clone().map(&mut sender).collect(), all.collect())
}

/// A receiver: which of all it is, and how many pieces of work it has been given.
struct Turn {
    place: usize,
    taken: usize,
}
