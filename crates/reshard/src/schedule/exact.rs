//! Every order and every choice of senders and entries, depth first, with lower bounds.
//!
//! Work is taken up in the order of its starts, ties by number: every schedule without needless
//! waiting is one of these. What is left has to enter by the adapters that it can, and to leave by those
//! that can send it, after what they have done so far; where that ends no earlier than the best
//! schedule known, nothing is tried.

use super::bound::every_sender;
use super::{Adapters, Problem, Proof, Schedule, Work};

/// After how many steps the best schedule so far is returned.
const STEPS: u64 = 50_000;

/// The best schedule, starting from one that is known. It is proved to be the best if not more than
/// a fixed number of steps were needed.
pub fn exact(problem: &Problem, known: &Schedule) -> Schedule {
    let mut search = Search {
        problem,
        best: known.clone(),
        steps: 0,
        senders: vec![0; problem.works.len()],
        entries: vec![Vec::new(); problem.works.len()],
        order: Vec::new(),
        all: every_sender(problem),
    };
    search.descend(&Adapters::idle(problem.adapters), (0, 0), 0);
    if search.steps < STEPS || search.best.meets_bound() {
        search.best.proof = Proof::Optimal;
    }
    search.best
}

struct Search<'a> {
    problem: &'a Problem,
    best: Schedule,
    steps: u64,
    senders: Vec<usize>,
    entries: Vec<Vec<usize>>,
    order: Vec<usize>,
    /// Every adapter that something may leave by.
    all: Vec<usize>,
}

impl Search<'_> {
    /// Tries everything after what has been taken up: the last start and number, and the end so far.
    fn descend(&mut self, adapters: &Adapters, last: (u64, usize), end: u64) {
        self.steps += 1;
        if self.steps >= STEPS || self.best.meets_bound() {
            return;
        }
        if self.order.len() == self.problem.works.len() {
            if end < self.best.end {
                self.best.senders.clone_from(&self.senders);
                self.best.entries.clone_from(&self.entries);
                self.best.order.clone_from(&self.order);
                self.best.end = end;
            }
            return;
        }
        let left: Vec<usize> = (0..self.problem.works.len()).filter(|it| !self.order.contains(it)).collect();
        if self.least(adapters, &left).max(end) >= self.best.end {
            return;
        }
        let mut tries = Vec::new();
        for &work in &left {
            let Work { senders, receivers, .. } = &self.problem.works[work];
            for entries in choices(receivers) {
                for &sender in senders {
                    let start = adapters.start(sender, entries.iter().copied());
                    tries.push((start, work, sender, entries.clone()));
                }
            }
        }
        tries.retain(|&(start, work, ..)| (start, work) >= last);
        tries.sort_unstable();
        for (start, work, sender, entries) in tries {
            let mut after = adapters.clone();
            let bytes = self.problem.works[work].bytes;
            let ended = after.take_up(bytes, sender, entries.iter().copied());
            self.senders[work] = sender;
            self.entries[work] = entries;
            self.order.push(work);
            self.descend(&after, (start, work), end.max(ended));
            self.order.pop();
        }
    }

    /// Before when what is left cannot end.
    fn least(&self, adapters: &Adapters, left: &[usize]) -> u64 {
        let mut into = adapters.into.clone();
        let mut out = adapters.out.clone();
        let mut total = 0;
        for work in left.iter().map(|&it| &self.problem.works[it]) {
            for entries in &work.receivers {
                if let [entry] = entries[..] {
                    into[entry] += work.bytes;
                }
            }
            if let [sender] = work.senders[..] {
                out[sender] += work.bytes;
            }
            total += work.bytes;
        }
        let busy: u64 = self.all.iter().map(|&it| adapters.out[it]).sum();
        let shared = (busy + total).div_ceil(u64::try_from(self.all.len()).unwrap_or(u64::MAX).max(1));
        // An adapter that has nothing left to do ends nothing.
        into.into_iter().chain(out).fold(shared, u64::max)
    }
}

/// Every choice of one of each.
fn choices(of: &[Vec<usize>]) -> Vec<Vec<usize>> {
    of.iter().fold(vec![Vec::new()], |chosen, choice| {
        let longer = |chosen: &Vec<usize>| {
            let chosen = chosen.clone();
            choice.iter().map(move |&it| chosen.iter().copied().chain([it]).collect::<Vec<usize>>())
        };
        chosen.iter().flat_map(longer).collect()
    })
}
