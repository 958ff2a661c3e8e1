//! Who sends, and in which order.
//!
//! A piece of work keeps the adapter that it leaves by, outwards, and those that it enters by, inwards,
//! busy for as long as its bytes take: the bytes of the portions that travel, not of the blocks
//! that they are cut from. An adapter does one piece of work at a time in either direction. What a
//! receiver passes on goes outwards while it comes in, and is not counted.
//!
//! ```text
//! minimise  the end of the last piece of work
//! over      for each the adapter that it leaves by and one of each node that it enters, and an order in
//!           which adapters take them up
//! ```
//!
//! Few pieces of work are scheduled exactly, unless something found before meets the lower bound;
//! of several heuristics the best is taken.
//!
//! Source: Zhuang et al., "On Optimizing the Communication of Model Parallelism" (MLSys 2023), and
//! the searches of its artifact, which take whole blocks for what travels.

mod bound; // what no schedule can be better than
mod entries; // by which adapters work enters nodes
mod matched; // each receiver has a sender of its own
mod turns; // as few rounds as can be of work that does not meet
mod exact; // every order and every choice, with bounds
mod rounds; // random rounds of work that does not meet
mod longest; // the busiest adapters first
mod bundle; // much work as less

pub use exact::exact;

/// A piece of work: bytes that go from one node to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The adapters that it may leave by, ascending, at least one.
    pub senders: Vec<usize>,
    /// For each node that receives it the adapters that it may enter by, ascending, at least one.
    pub receivers: Vec<Vec<usize>>,
    /// How long it keeps adapters busy (bytes).
    pub bytes: u64,
}

/// What is to be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How many adapters there are, of all nodes.
    pub adapters: usize,
    /// The pieces of work.
    pub works: Vec<Work>,
}

/// How good a schedule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// No schedule ends earlier.
    Optimal,
    /// No schedule ends before the lower bound.
    Bounded,
}

/// Who sends, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// For each piece of work the adapter that it leaves by.
    pub senders: Vec<usize>,
    /// For each piece of work the adapter by which it enters each node.
    pub entries: Vec<Vec<usize>>,
    /// The pieces of work in the order in which adapters take them up.
    pub order: Vec<usize>,
    /// When the last one ends (bytes of a busy adapter).
    pub end: u64,
    /// The lower bound (bytes).
    pub bound: u64,
    /// How good it is.
    pub proof: Proof,
}

/// Up to how many pieces of work every order is tried.
const FEW: usize = 20;

/// In up to how many ways each of them may leave and enter.
const WAYS: usize = 64;

/// From how many on pieces of work between the same adapters are put together.
const MANY: usize = 1 << 11;

impl Work {
    /// The adapters by which it enters nodes, where that is known: the first that there are.
    fn entries(&self) -> impl Iterator<Item = usize> + Clone {
        self.receivers.iter().filter_map(|it| it.first().copied())
    }

    /// In how many ways it may leave and enter.
    fn ways(&self) -> usize {
        self.receivers.iter().fold(self.senders.len(), |ways, it| ways.saturating_mul(it.len()))
    }
}

impl Problem {
    /// When the last piece of work ends (bytes).
    ///
    /// # Panics
    /// If there are less senders or entries than pieces of work, or numbers that there are not.
    pub fn end(&self, senders: &[usize], entries: &[Vec<usize>], order: &[usize]) -> u64 {
        let mut adapters = Adapters::idle(self.adapters);
        let ends = order.iter().map(|&work| {
            adapters.take_up(self.works[work].bytes, senders[work], entries[work].iter().copied())
        });
        ends.max().unwrap_or(0)
    }

    /// What no schedule can be better than (bytes): of work that can only leave by some adapters, or
    /// only enter by some, its bytes shared evenly among these.
    pub fn bound(&self) -> u64 {
        bound::bound(self)
    }

    /// What enters by the first adapters that it may, and leaves by these.
    fn schedule(&self, senders: Vec<usize>, order: Vec<usize>) -> Schedule {
        let entries: Vec<Vec<usize>> = self.works.iter().map(|work| work.entries().collect()).collect();
        let end = self.end(&senders, &entries, &order);
        self.judged(Schedule { senders, entries, order, end, bound: 0, proof: Proof::Bounded })
    }

    /// A schedule with the bound of this problem.
    fn judged(&self, found: Schedule) -> Schedule {
        let bound = self.bound();
        let proof = if found.end <= bound { Proof::Optimal } else { Proof::Bounded };
        Schedule { bound, proof, ..found }
    }
}

impl Schedule {
    /// Whether it ends at the lower bound.
    pub fn meets_bound(&self) -> bool {
        self.end <= self.bound
    }
}

/// The first sender of each piece of work, the first entry, and the order in which they are listed.
pub fn in_order(problem: &Problem) -> Schedule {
    let senders = problem.works.iter().map(|work| work.senders[0]).collect();
    problem.schedule(senders, (0..problem.works.len()).collect())
}

/// The best schedule that is found.
pub fn scheduled(problem: &Problem) -> Schedule {
    let found = heuristic(problem);
    let is_little = problem.works.len() <= FEW && problem.works.iter().all(|work| work.ways() <= WAYS);
    if found.meets_bound() || !is_little {
        return found;
    }
    exact(problem, &found)
}

/// The best of what is found without trying everything.
pub fn heuristic(problem: &Problem) -> Schedule {
    let entered = entries::entered(problem);
    let more = [in_order, turns::in_turns, longest::longest_first, rounds::random_rounds];
    let much = [in_order, turns::in_turns, bundle::bundled];
    let others: &[fn(&Problem) -> Schedule] = if entered.works.len() > MANY { &much } else { &more };
    let mut best = matched::matched(&entered);
    for other in others {
        if best.meets_bound() {
            break;
        }
        let other = other(&entered);
        if other.end < best.end {
            best = other;
        }
    }
    let listed = in_order(problem);
    problem.judged(if listed.end < best.end { listed } else { best })
}

/// A number of bytes for each adapter: until when it is busy, or what it has left to do.
#[derive(Clone, Debug)]
struct Adapters {
    /// Outwards (bytes).
    out: Vec<u64>,
    /// Inwards (bytes).
    into: Vec<u64>,
}

impl Adapters {
    fn idle(adapters: usize) -> Self {
        Self { out: vec![0; adapters], into: vec![0; adapters] }
    }

    /// When a piece of work can start that leaves by one adapter and enters by others.
    fn start(&self, sender: usize, entries: impl Iterator<Item = usize>) -> u64 {
        entries.map(|it| self.into[it]).fold(self.out[sender], u64::max)
    }

    /// Does a piece of work of so many bytes; when it ends.
    fn take_up(&mut self, bytes: u64, sender: usize, entries: impl Iterator<Item = usize> + Clone) -> u64 {
        let end = self.start(sender, entries.clone()) + bytes;
        self.out[sender] = end;
        entries.for_each(|entry| self.into[entry] = end);
        end
    }
}
