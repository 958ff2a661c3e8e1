//! Much work as less.
//!
//! Where there are very many pieces of work, senders are chosen first; what then goes between the
//! same nodes is one piece of work, which the pieces do one after another. Where there are still
//! very many, nodes take turns: each sends to the next one first, then to the one after it.

use std::collections::BTreeMap;

use super::longest::least_loaded;
use super::{Problem, Schedule, Work, heuristic, in_order};

/// Up to how many bundles the heuristics are tried.
const BUNDLES: usize = 1 << 12;

pub(super) fn scheduled(problem: &Problem) -> Schedule {
    let senders = least_loaded(problem);
    let mut bundles: BTreeMap<(usize, &[usize]), Vec<usize>> = BTreeMap::new();
    for (index, work) in problem.works.iter().enumerate() {
        bundles.entry((senders[index], &work.receivers)).or_default().push(index);
    }
    let mut bundles: Vec<_> = bundles.into_iter().collect();
    bundles.sort_by_key(|((sender, receivers), _)| {
        let first = receivers.first().copied().unwrap_or(0);
        ((first + problem.nodes - sender) % problem.nodes.max(1), *sender)
    });
    let bytes = |works: &[usize]| works.iter().map(|&it| problem.works[it].bytes).sum();
    let work = |((sender, receivers), works): &((usize, &[usize]), Vec<usize>)| Work {
        senders: vec![*sender],
        receivers: receivers.to_vec(),
        bytes: bytes(works),
    };
    let bundled = Problem { nodes: problem.nodes, works: bundles.iter().map(work).collect() };
    let found = if bundles.len() > BUNDLES { in_order(&bundled) } else { heuristic(&bundled) };
    let order = found.order.iter().flat_map(|&bundle| bundles[bundle].1.iter().copied()).collect();
    let found = problem.schedule(senders, order);
    let listed = in_order(problem);
    if listed.end < found.end { listed } else { found }
}
