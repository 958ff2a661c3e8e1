//! Blocks that repeat, joined at their boundaries: what a chain is and what it costs.
//!
//! ```text
//! globals ───────┬──────────────┬──────────────┐
//!          ┌─────┴────┐   ┌─────┴────┐   ┌─────┴────┐
//!          │ block 0  ├─x─┤ block 1  ├─y─┤ block 2  │      x: exit of block 0 = entry of block 1
//!          └──────────┘   └──────────┘   └──────────┘
//! ```
//!
//! Every block is a [`Problem`] of its own; blocks agree on the choices of the nodes that they
//! share. [`Chain::time`] and [`Chain::usage`] define what a choice costs, and [`Chain::flat`] is
//! the same chain as one problem.

mod flat;
mod product;
mod relax;
mod segment;
mod variants;

pub use flat::Flat;
pub use product::product;
use relax::MOST_PAIRS;
pub(crate) use relax::{EXACTLY, Prices, Relaxation, Starts, Width};
pub(crate) use segment::priced_costs;
use variants::Interface;
pub use variants::{Variant, unite};

use crate::problem::{Problem, Proof, real_size};

/// What a unit of cost is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Goal {
    /// Times count, and memory as it is priced.
    Time,
    /// Only memory counts, as it is priced; times only forbid.
    Memory,
}

/// Segments in sequence, and values that all blocks use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// Values used by many blocks, such as a mask.
    pub globals: Vec<Global>,
    /// What follows on what; not empty.
    pub segments: Vec<Segment>,
}

/// A value that many blocks use and that has one choice for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Global {
    /// The time of each choice, paid once (seconds).
    pub times: Vec<f64>,
    /// What each choice keeps resident, once (bytes).
    pub resident: Vec<u64>,
}

/// Equal blocks in sequence.
///
/// Invariants: `count` is at least 1; the nodes in `entry` have the same domains as those in the
/// `exit` of what comes before, one by one. The entry of the first block of a chain and the exit
/// of the last may be empty, or else are free.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The block. The time and the memory of a boundary node are paid by every block that lists
    /// them: a value that is paid for where it is made has zeros where it enters.
    pub problem: Problem,
    /// The nodes that are the exit nodes of the block before.
    pub entry: Vec<usize>,
    /// The nodes that are the entry nodes of the block after.
    pub exit: Vec<usize>,
    /// The nodes that are global.
    pub shared: Vec<Shared>,
    /// How many blocks there are (blocks).
    pub count: usize,
    /// The problems of which each block is one, if `problem` is made of several ([`unite`]).
    pub variants: Vec<Variant>,
}

/// A node of a block that has the choice of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The node.
    pub node: usize,
    /// An index of [`Chain::globals`].
    pub global: usize,
}

/// A choice for every node of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainChoices {
    /// For each global, its choice.
    pub globals: Vec<usize>,
    /// For each segment, for each of its blocks, for each node, its choice.
    pub blocks: Vec<Vec<Vec<usize>>>,
}

/// A choice for every node of a chain, and how good it is known to be.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainSolution {
    /// The choices.
    pub choices: ChainChoices,
    /// [`Chain::time`] of the choices (seconds).
    pub time: f64,
    /// What is proven about `time`.
    pub proof: Proof,
}

/// The memory that a choice takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What stays resident: of all globals and of all blocks together (bytes).
    pub resident: u64,
    /// For each segment, for each block, for each window, what is live there and not resident
    /// (bytes).
    pub live: Vec<Vec<Vec<u64>>>,
}

impl Chain {
    /// The time of all blocks and globals (seconds), infinite if the choice is forbidden or blocks
    /// disagree.
    pub fn time(&self, choices: &ChainChoices) -> f64 {
        if !self.agree(choices) {
            return f64::INFINITY;
        }
        let globals = self.globals.iter().zip(&choices.globals);
        let globals: f64 = globals.map(|(global, &choice)| global.times[choice]).sum();
        let blocks = self.segments.iter().zip(&choices.blocks);
        let segment = |(segment, blocks): (&Segment, &Vec<Vec<usize>>)| -> f64 {
            blocks.iter().map(|choices| segment.problem.time(choices)).sum()
        };
        globals + blocks.map(segment).sum::<f64>()
    }

    /// Whether all choices take as long as those of another chain, whatever they hold.
    pub(crate) fn takes_as(&self, other: &Self) -> bool {
        let globals = self.globals.iter().zip(&other.globals);
        let segments = self.segments.iter().zip(&other.segments);
        let same = |(a, b): (&Segment, &Segment)| {
            (&a.entry, &a.exit, &a.shared, a.count) == (&b.entry, &b.exit, &b.shared, b.count)
                && a.problem.takes_as(&b.problem)
        };
        (self.globals.len(), self.segments.len()) == (other.globals.len(), other.segments.len())
            && globals.into_iter().all(|(a, b)| a.times == b.times)
            && segments.into_iter().all(same)
    }

    /// The memory that a choice takes.
    pub fn usage(&self, choices: &ChainChoices) -> Usage {
        let globals = self.globals.iter().zip(&choices.globals);
        let globals: u64 = globals.map(|(global, &choice)| global.resident[choice]).sum();
        let segments = || self.segments.iter().zip(&choices.blocks);
        let resident = |(segment, blocks): (&Segment, &Vec<Vec<usize>>)| -> u64 {
            blocks.iter().map(|choices| segment.problem.resident(choices)).sum()
        };
        let live = |(segment, blocks): (&Segment, &Vec<Vec<usize>>)| {
            blocks.iter().map(|choices| segment.problem.live(choices)).collect()
        };
        Usage {
            resident: globals + segments().map(resident).sum::<u64>(),
            live: segments().map(live).collect(),
        }
    }

    /// Whether a table over the states of two neighbouring boundaries is small enough.
    pub(crate) fn has_small_boundaries(&self) -> bool {
        self.segments.iter().all(|segment| {
            let domain = |&node: &usize| real_size(segment.problem.times[node].len());
            segment.entry.iter().chain(&segment.exit).map(domain).product::<f64>() <= MOST_PAIRS
        })
    }

    /// Whether neighbouring blocks agree on their boundary and all of them on the globals.
    fn agree(&self, choices: &ChainChoices) -> bool {
        let blocks: Vec<(&Segment, &Vec<usize>)> = self
            .segments
            .iter()
            .zip(&choices.blocks)
            .flat_map(|(segment, blocks)| blocks.iter().map(move |block| (segment, block)))
            .collect();
        let on_globals = blocks.iter().all(|(segment, block)| {
            let agrees = |shared: &Shared| block[shared.node] == choices.globals[shared.global];
            segment.shared.iter().all(agrees)
        });
        let on_boundaries = blocks.windows(2).all(|pair| {
            let [(before, left), (after, right)] = pair else {
                return true;
            };
            let mut nodes = before.exit.iter().zip(&after.entry);
            nodes.all(|(&exit, &entry)| left[exit] == right[entry])
        });
        on_globals && on_boundaries
    }
}

impl From<Problem> for Chain {
    /// A chain of one block.
    fn from(problem: Problem) -> Self {
        let (entry, exit, shared) = (Vec::new(), Vec::new(), Vec::new());
        let segment = Segment { problem, entry, exit, shared, count: 1, variants: Vec::new() };
        Self { globals: Vec::new(), segments: vec![segment] }
    }
}

impl Usage {
    /// What is resident and the most that is live besides (bytes).
    pub fn peak(&self) -> u64 {
        let live = self.live.iter().flatten().flatten().copied().max();
        self.resident + live.unwrap_or(0)
    }
}

#[cfg(test)]
pub(crate) mod tests;
