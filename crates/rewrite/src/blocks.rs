//! Repeated blocks of a graph: what is equal is told once, with a count.
//!
//! A transformer of 96 equal layers is one block and the number 96. Work that looks at one block
//! instead of the graph (raising, search) does not grow with depth.
//!
//! The nodes are brought into an order in which repetition shows, and that order is cut into
//! consecutive *segments*. Each segment is a repetition of a *block*: the same operations with
//! the same attributes and types, and operands at the same places. What a segment reads from
//! outside is bound anew in every repetition, in one of three ways (see [`Binding`]). Blocks are
//! found by structure; names play no part.
//!
//! What the order guarantees: computations that no output needs are gone; a small constant stands
//! before each operation that reads it, with a copy for each; what several distant places read
//! (masks, rotary tables, an encoder's result) comes before them; what is made for one place (a
//! transposed weight, an output that a layer leaves behind) stands at that place.

mod order; // orders of the nodes in which repetition may show
mod runs; // stretches of an order that repeat
mod describe; // stretches as blocks and their bindings
mod check; // whether blocks reproduce their graph
mod rebuild; // a graph whose segments are other bodies
mod narrow; // stretches that do not repeat, cut where little is alive

use std::fmt;
use std::ops::Range;

use planner_ir::{Graph, ValueId};

pub use check::check;
pub(crate) use narrow::bounded;
pub use narrow::narrowed;
pub(crate) use order::with_local_constants;
pub(crate) use rebuild::{rebuilt, reformed};

/// A graph and the blocks that it consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The graph, its nodes in the order that the segments cut.
    pub graph: Graph,
    /// The blocks that differ, in order of first use.
    pub unique: Vec<Block>,
    /// The graph as repetitions of blocks: consecutive, and together all nodes.
    pub segments: Vec<Segment>,
}

/// A piece of program that repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What is computed. Its first values are its operands: sources `Weight` if every repetition
    /// binds a value that is computed from weights and constants alone, else `Input`. Its outputs
    /// are the values that some repetition's surroundings use.
    pub body: Graph,
    /// For each operand of the body, how repetitions bind it.
    pub bindings: Vec<Binding>,
    /// How many segments repeat it; they are consecutive.
    pub count: usize,
}

/// How the repetitions of a block bind an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Each repetition but the first reads this result of the one before; the first reads any
    /// value made before it.
    Carried(usize),
    /// All repetitions read one value.
    Shared,
    /// Each repetition reads a weight or an input of the program: its own.
    Private,
}

/// One repetition of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which block it repeats.
    pub block: usize,
    /// Its nodes in the graph.
    pub nodes: Range<usize>,
    /// For each operand of the block's body, the graph's value.
    pub operands: Vec<ValueId>,
    /// For each output of the block's body, the graph's value.
    pub results: Vec<ValueId>,
}

/// Why blocks are not those of their graph: our mistake, never the graph's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlocksError {
    /// The number of the segment.
    pub segment: usize,
    /// Which rule it breaks.
    pub rule: &'static str,
}

impl fmt::Display for BlocksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {} of a graph's blocks breaks a rule [{}]", self.segment, self.rule)
    }
}

impl std::error::Error for BlocksError {}

impl Blocks {
    /// How many nodes all the blocks have, each counted once.
    pub fn nodes(&self) -> usize {
        self.unique.iter().map(|block| block.body.nodes.len()).sum()
    }
}

/// The blocks of a graph.
///
/// Of several orders the one with the fewest nodes in unique blocks is taken.
///
/// # Panics
/// If what was found does not reproduce the graph ([`check`]), which is an error of this module.
pub fn blocks(graph: &Graph) -> Blocks {
    let graph = order::with_local_constants(graph);
    let tokens = runs::tokens(&graph);
    let best = order::candidates(&graph)
        .into_iter()
        .map(|order| {
            let runs = runs::find(&graph, &tokens, &order);
            (runs::unique_nodes(&runs, order.len()), order, runs)
        })
        .reduce(|best, next| if next.0 < best.0 { next } else { best });
    let (order, runs) = best.map(|(_, order, runs)| (order, runs)).unwrap_or_default();
    let found = describe::describe(order::reordered(&graph, &order), &runs);
    if let Err(error) = check(&found) {
        panic!("{error}");
    }
    found
}

#[cfg(test)]
mod tests;
