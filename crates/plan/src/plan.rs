//! The execution plan: which device computes which piece of which operation, what moves between
//! devices, and what that costs.

use planner_ir::{Graph, Layout, Mesh, Move, Partition, ValueId};

use crate::recipe::Recipe;

/// How a program is run on a machine: the waist of Shardloom. Left of it nothing touches a
/// device, right of it nothing chooses.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The model file that weights are read from.
    pub model: ModelFile,
    /// The machine that it was made for.
    pub machine: MachineName,
    /// The devices' coordinates.
    pub mesh: Mesh,
    /// The program.
    pub graph: Graph,
    /// For each value the layout in which it is made: of inputs, weights and prepared values the
    /// layout at rest, of results that of the operation's partition.
    pub layouts: Vec<Layout>,
    /// For each operation, how it is computed.
    pub assignments: Vec<Assignment>,
    /// The copies that are made of values in other layouts, each after the copy it is made from.
    pub transfers: Vec<Transfer>,
    /// For each output of the program, the copy that is returned; it owes no sum.
    pub outputs: Vec<Copy>,
    /// For each state of a training step, in the order of `graph.training`, the copy of what it
    /// becomes that takes its place: in the layout in which the state is at rest.
    pub carried: Vec<Copy>,
    /// How the training step was derived from the model, if the program is one.
    pub recipe: Option<Recipe>,
    /// What a step takes, by name.
    pub estimate: Vec<Term>,
    /// What the fullest device holds, by kind.
    pub memory: Vec<Holding>,
    /// What a device can hold (bytes).
    pub capacity: u64,
    /// How good the plan is.
    pub proof: Proof,
    /// What the search looked at.
    pub space: SpaceSize,
}

/// A model file, identified by its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    /// Where it was read from.
    pub path: String,
    /// The SHA-256 of its bytes (of the ONNX file, not of external data), in hexadecimal.
    pub sha256: String,
    /// What its symbolic dimensions were bound to, by name, ascending.
    pub dims: Vec<(String, u64)>,
}

/// The machine that a plan was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineName {
    /// Its name.
    pub name: String,
    /// How many devices of it are used.
    pub devices: u64,
}

/// How an operation is computed.
#[derive(Clone, Debug, PartialEq)]
pub enum Assignment {
    /// Once, before the first step, from weights and constants; its results are then cut as their
    /// layouts say.
    Prepared,
    /// At every step; in a training step for every micro-batch, or once in the update.
    Computed {
        /// Which block each device computes.
        partition: Partition,
        /// For each operand, which copy of the value is read.
        operands: Vec<Copy>,
        /// What it takes each time that it runs (seconds).
        seconds: f64,
    },
}

/// A copy of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// As it is made.
    Made,
    /// As the transfer of that number leaves it.
    Transferred(usize),
}

/// A copy of a value made in another layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Which value.
    pub value: ValueId,
    /// From which copy of it.
    pub from: Copy,
    /// How.
    pub moves: Vec<Move>,
    /// The layout after all moves.
    pub layout: Layout,
    /// What all devices together receive in each move, each time that it is made (bytes).
    pub bytes: Vec<u64>,
    /// What it takes each time that it is made (seconds).
    pub seconds: f64,
}

/// A part of a step's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What takes it.
    pub name: String,
    /// How long (seconds).
    pub seconds: f64,
}

/// A part of what a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// What it is.
    pub kind: String,
    /// How much (bytes).
    pub bytes: u64,
}

/// How good a plan is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Proof {
    /// No plan in the space takes less time, by the same prices.
    Optimal,
    /// None takes less than this.
    Gap {
        /// The proven lower bound (seconds).
        lower_bound: f64,
    },
}

/// What the search looked at.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SpaceSize {
    /// Blocks of the program that differ.
    pub unique_blocks: u64,
    /// Blocks of the program.
    pub blocks: u64,
    /// Nodes of the e-graphs.
    pub nodes: u64,
    /// Classes of the e-graphs.
    pub classes: u64,
    /// Whether all rules were applied until nothing new came of them.
    pub saturated: bool,
    /// Choices offered to the search.
    pub choices: u64,
}

impl Plan {
    /// The time of one step (seconds).
    pub fn seconds(&self) -> f64 {
        self.estimate.iter().map(|term| term.seconds).sum()
    }

    /// The layout of a copy of a value.
    ///
    /// # Panics
    /// If there is no such transfer.
    pub fn layout(&self, value: ValueId, copy: Copy) -> &Layout {
        match copy {
            Copy::Made => &self.layouts[value.0],
            Copy::Transferred(transfer) => &self.transfers[transfer].layout,
        }
    }
}
