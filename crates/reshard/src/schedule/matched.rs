//! Each receiver has a sender of its own, as far as there are as many.
//!
//! Of the work that the same adapters may send, what goes to the first receiver comes from the first of
//! them, to the second from the second, and so on: where there are half as many, to the first two from
//! the first, as blocks of examples lie. Where there are twice as many, a receiver has two, one after
//! the other. Where as many adapters have something as need it, each sends once what each gets once, all at
//! the same time; and devices that are alike do what is alike.

use std::collections::BTreeMap;

use super::{Problem, Schedule};

pub(super) fn matched(problem: &Problem) -> Schedule {
    problem.schedule(matched_senders(problem), (0..problem.works.len()).collect())
}

/// For each piece of work the sender of its receiver.
pub(super) fn matched_senders(problem: &Problem) -> Vec<usize> {
    // By the adapters that may send, the receivers in the order in which they come.
    let mut known: BTreeMap<&[usize], BTreeMap<&[Vec<usize>], Receiver>> = BTreeMap::new();
    for work in &problem.works {
        let receivers = known.entry(&work.senders).or_default();
        let place = receivers.len();
        receivers.entry(&work.receivers).or_insert(Receiver { place, works: 0, sent: 0 }).works += 1;
    }
    let mut senders = Vec::new();
    for work in &problem.works {
        let count = work.senders.len();
        let receivers = known.entry(&work.senders).or_default();
        let all = receivers.len().max(1);
        let receiver = receivers.entry(&work.receivers).or_insert(Receiver { place: 0, works: 1, sent: 0 });
        let turn = receiver.sent * (count / all).max(1) / receiver.works;
        receiver.sent += 1;
        senders.push(work.senders[(receiver.place * count / all + turn) % count]);
    }
    senders
}

/// A receiver of works that the same nodes may send.
struct Receiver {
    /// Which of all it is.
    place: usize,
    /// How many there are for it.
    works: usize,
    /// How many of them have a sender.
    sent: usize,
}
