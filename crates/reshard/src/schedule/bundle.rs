//! Much work as less.
//!
//! Where there are very many pieces of work, senders are chosen first; what then goes between the
//! same adapters is put together in bundles, as few as can be scheduled. Where even one bundle for
//! each sender and its receivers is too much, adapters take turns: each sends to the next one first,
//! then to the one after it.

use std::collections::BTreeMap;

use super::longest::least_loaded;
use super::{MANY, Problem, Schedule, Work, longest, rounds};

/// What goes from one adapter to others, in this order.
struct Bundle<'a> {
    sender: usize,
    receivers: &'a [Vec<usize>],
    works: Vec<usize>,
}

pub(super) fn bundled(problem: &Problem) -> Schedule {
    let senders = least_loaded(problem);
    let bundles = bundles(problem, &senders);
    let bytes = |works: &[usize]| works.iter().map(|&it| problem.works[it].bytes).sum();
    let work = |bundle: &Bundle<'_>| Work {
        senders: vec![bundle.sender],
        receivers: bundle.receivers.to_vec(),
        bytes: bytes(&bundle.works),
    };
    let whole = Problem { adapters: problem.adapters, works: bundles.iter().map(work).collect() };
    let [one, other] = [longest::longest_first(&whole), rounds::random_rounds(&whole)];
    let found = if other.end < one.end { other } else { one };
    let order = found.order.iter().flat_map(|&bundle| bundles[bundle].works.iter().copied()).collect();
    problem.schedule(senders, order)
}

/// The work in bundles, of which those that adapters send to the next adapter come first.
fn bundles<'a>(problem: &'a Problem, senders: &[usize]) -> Vec<Bundle<'a>> {
    let mut between: BTreeMap<(usize, &[Vec<usize>]), Vec<usize>> = BTreeMap::new();
    for (index, work) in problem.works.iter().enumerate() {
        between.entry((senders[index], &work.receivers)).or_default().push(index);
    }
    let pieces = (MANY / between.len().max(1)).max(1);
    let mut bundles: Vec<Bundle<'a>> = Vec::new();
    for ((sender, receivers), works) in between {
        let length = works.len().div_ceil(pieces).max(1);
        let piece = |works: &[usize]| Bundle { sender, receivers, works: works.to_vec() };
        bundles.extend(works.chunks(length).map(piece));
    }
    bundles.sort_by_key(|bundle| {
        let first = bundle.receivers.first().and_then(|it| it.first()).copied().unwrap_or(0);
        ((first + problem.adapters - bundle.sender) % problem.adapters.max(1), bundle.sender)
    });
    bundles
}
