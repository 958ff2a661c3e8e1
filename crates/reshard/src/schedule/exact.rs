//! Every order and every choice of senders, depth first, with lower bounds.
//!
//! Work is taken up in the order of its starts, ties by number: every schedule without needless
//! waiting is one of these. What is left has to enter its receivers, and to leave by the nodes
//! that can send it, after what they have done so far; where that ends no earlier than the best
//! schedule known, nothing is tried.

use super::bound::every_sender;
use super::{Adapters, Problem, Proof, Schedule};

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
        order: Vec::new(),
        all: every_sender(problem),
    };
    search.descend(&Adapters::idle(problem.nodes), (0, 0), 0);
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
    order: Vec<usize>,
    /// Every node that may send something.
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
            for &sender in &self.problem.works[work].senders {
                tries.push((adapters.start(&self.problem.works[work], sender), work, sender));
            }
        }
        tries.retain(|&(start, work, _)| (start, work) >= last);
        tries.sort_unstable();
        for (start, work, sender) in tries {
            let mut after = adapters.clone();
            let ended = after.take_up(&self.problem.works[work], sender);
            self.senders[work] = sender;
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
            for &receiver in &work.receivers {
                into[receiver] += work.bytes;
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
