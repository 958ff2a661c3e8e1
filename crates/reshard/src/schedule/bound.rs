//! What no schedule can be better than.

use std::collections::BTreeMap;

use super::Problem;

/// Up to how many different sets of adapters, of more than one, are compared with each other.
const SETS: usize = 1 << 10;

pub(super) fn bound(problem: &Problem) -> u64 {
    let (mut out, mut into) = (Uses::default(), Uses::default());
    for work in &problem.works {
        out.add(&work.senders, work.bytes);
        work.receivers.iter().for_each(|entries| into.add(entries, work.bytes));
    }
    out.bound().max(into.bound())
}

/// Every adapter that something may leave by, ascending.
pub(super) fn every_sender(problem: &Problem) -> Vec<usize> {
    let mut all: Vec<usize> = problem.works.iter().flat_map(|work| work.senders.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The adapters that work may use in one direction, and what it is (bytes).
#[derive(Default)]
struct Uses<'a>(BTreeMap<&'a [usize], u64>);

impl<'a> Uses<'a> {
    fn add(&mut self, adapters: &'a [usize], bytes: u64) {
        *self.0.entry(adapters).or_default() += bytes;
    }

    /// What can only use the adapters of a set, shared evenly among them, of the set for which that is most.
    fn bound(&self) -> u64 {
        let shared =
            |bytes: u64, adapters: usize| bytes.div_ceil(u64::try_from(adapters).unwrap_or(u64::MAX).max(1));
        let among = |set: &[usize]| {
            let within =
                self.0.iter().filter(|(other, _)| other.iter().all(|it| set.binary_search(it).is_ok()));
            shared(within.map(|(_, bytes)| bytes).sum(), set.len())
        };
        // What can only use one adapter is within its set alone.
        let one = self.0.iter().filter(|(set, _)| set.len() == 1).map(|(_, bytes)| *bytes);
        let sets = self.0.keys().filter(|set| set.len() > 1).take(SETS).map(|set| among(set));
        let mut all: Vec<usize> = self.0.keys().flat_map(|set| set.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        one.chain(sets).chain([shared(self.0.values().sum(), all.len())]).max().unwrap_or(0)
    }
}
