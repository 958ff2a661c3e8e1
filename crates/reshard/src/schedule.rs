//! Who sends, and in which order.
//!
//! A piece of work keeps the adapter of its sender, outwards, and those of its receivers, inwards,
//! busy for as long as its bytes take: the bytes of the portions that travel, not of the blocks
//! that they are cut from. An adapter does one piece of work at a time in either direction. What a
//! receiver passes on goes outwards while it comes in, and is not counted.
//!
//! ```text
//! minimise  the end of the last piece of work
//! over      one of its possible senders for each, and an order in which adapters take them up
//! ```
//!
//! Few pieces of work are scheduled exactly, unless something found before meets the lower bound;
//! of several heuristics the best is taken.
//!
//! Source: Zhuang et al., "On Optimizing the Communication of Model Parallelism" (MLSys 2023), and
//! the searches of its artifact, which take whole blocks for what travels.

mod bound; // what no schedule can be better than
mod matched; // each receiver has a sender of its own
mod exact; // every order and every choice, with bounds
mod rounds; // random rounds of work that does not meet
mod longest; // the busiest adapters first
mod bundle; // much work as less

pub use exact::exact;

/// A piece of work: bytes that go from one node to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The nodes that may send it, ascending, at least one.
    pub senders: Vec<usize>,
    /// The nodes that receive it, none of them a sender.
    pub receivers: Vec<usize>,
    /// How long it keeps adapters busy (bytes).
    pub bytes: u64,
}

/// What is to be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How many nodes there are.
    pub nodes: usize,
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
    /// For each piece of work the node that sends it.
    pub senders: Vec<usize>,
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

/// From how many on pieces of work between the same nodes are put together.
const MANY: usize = 1 << 11;

impl Problem {
    /// When the last piece of work ends (bytes).
    ///
    /// # Panics
    /// If there are less senders than pieces of work, or numbers that there are not.
    pub fn end(&self, senders: &[usize], order: &[usize]) -> u64 {
        let mut adapters = Adapters::idle(self.nodes);
        order.iter().map(|&work| adapters.take_up(&self.works[work], senders[work])).max().unwrap_or(0)
    }

    /// What no schedule can be better than (bytes): the bytes into any one node; and, of work that
    /// can only come from some nodes, its bytes shared evenly among these.
    pub fn bound(&self) -> u64 {
        bound::bound(self)
    }

    fn schedule(&self, senders: Vec<usize>, order: Vec<usize>) -> Schedule {
        let (end, bound) = (self.end(&senders, &order), self.bound());
        let proof = if end <= bound { Proof::Optimal } else { Proof::Bounded };
        Schedule { senders, order, end, bound, proof }
    }
}

impl Schedule {
    /// Whether it ends at the lower bound.
    pub fn meets_bound(&self) -> bool {
        self.end <= self.bound
    }
}

/// The first sender of each piece of work, and the order in which they are listed.
pub fn in_order(problem: &Problem) -> Schedule {
    let senders = problem.works.iter().map(|work| work.senders[0]).collect();
    problem.schedule(senders, (0..problem.works.len()).collect())
}

/// The best schedule that is found.
pub fn scheduled(problem: &Problem) -> Schedule {
    if problem.works.len() > MANY {
        return bundle::scheduled(problem);
    }
    let found = heuristic(problem);
    if found.meets_bound() || problem.works.len() > FEW {
        return found;
    }
    exact(problem, &found)
}

/// The best of what is found without trying everything.
pub fn heuristic(problem: &Problem) -> Schedule {
    let mut best = matched::matched(problem);
    for other in [in_order, longest::longest_first, rounds::random_rounds] {
        if best.meets_bound() {
            break;
        }
        let other = other(problem);
        if other.end < best.end {
            best = other;
        }
    }
    best
}

/// A number of bytes for each adapter: until when it is busy, or what it has left to do.
#[derive(Clone, Debug)]
struct Adapters {
    /// Outwards, by node (bytes).
    out: Vec<u64>,
    /// Inwards, by node (bytes).
    into: Vec<u64>,
}

impl Adapters {
    fn idle(nodes: usize) -> Self {
        Self { out: vec![0; nodes], into: vec![0; nodes] }
    }

    /// When a piece of work can start.
    fn start(&self, work: &Work, sender: usize) -> u64 {
        work.receivers.iter().map(|&it| self.into[it]).fold(self.out[sender], u64::max)
    }

    /// Does a piece of work; when it ends.
    fn take_up(&mut self, work: &Work, sender: usize) -> u64 {
        let end = self.start(work, sender) + work.bytes;
        self.out[sender] = end;
        for &receiver in &work.receivers {
            self.into[receiver] = end;
        }
        end
    }
}
