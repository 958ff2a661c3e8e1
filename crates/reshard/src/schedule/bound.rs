//! What no schedule can be better than.

use std::collections::BTreeMap;

use super::Problem;

/// Up to how many different sets of senders are compared with each other.
const SETS: usize = 1 << 10;

pub(super) fn bound(problem: &Problem) -> u64 {
    let mut into = vec![0; problem.nodes];
    let mut out: BTreeMap<&[usize], u64> = BTreeMap::new();
    for work in &problem.works {
        for &receiver in &work.receivers {
            into[receiver] += work.bytes;
        }
        *out.entry(&work.senders).or_default() += work.bytes;
    }
    let all = every_sender(problem);
    let total = out.values().sum::<u64>();
    let shared = |bytes: u64, nodes: usize| bytes.div_ceil(u64::try_from(nodes).unwrap_or(u64::MAX).max(1));
    let among = |set: &[usize]| {
        let within = out.iter().filter(|(other, _)| other.iter().all(|it| set.binary_search(it).is_ok()));
        shared(within.map(|(_, bytes)| bytes).sum(), set.len())
    };
    let sets = out.keys().take(SETS).map(|set| among(set));
    into.iter().copied().chain(sets).chain([shared(total, all.len())]).max().unwrap_or(0)
}

/// Every node that may send something, ascending.
pub(super) fn every_sender(problem: &Problem) -> Vec<usize> {
    let mut all: Vec<usize> = problem.works.iter().flat_map(|work| work.senders.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all
}
