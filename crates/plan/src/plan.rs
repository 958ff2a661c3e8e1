//! The execution plan: which device computes which piece of which operation, what moves between
//! devices, and what that costs.

use planner_ir::{Graph, Layout, Mesh, Move, Partition, Phase, Source, ValueId};

use crate::pin::Pin;
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
    /// What was not chosen, because a user said it.
    pub pins: Vec<Pin>,
    /// The inputs of the model whose values are part of the program.
    pub controls: Vec<Control>,
    /// What a step takes, by name.
    pub estimate: Vec<Term>,
    /// How much of that runs beside something else.
    pub hidden: Hidden,
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

/// An input of one element that decides what is computed: a program is for one value of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The number that it is; of a truth value 0 or 1.
    pub value: i64,
}

/// The machine that a plan was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineName {
    /// Its name.
    pub name: String,
    /// How many devices of it are used.
    pub devices: u64,
    /// The SHA-256 of what it was said to be, in hexadecimal: of all numbers that prices are made of. None
    /// in plans that do not say by which prices they were made.
    pub sha256: Option<String>,
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
        /// For each operand and then each result, what all devices together receive of its blocks
        /// during the steps of the partition, each time that it runs (bytes): see
        /// [`bytes_of_steps`](crate::bytes_of_steps). Nothing stands here for a partition of one
        /// step.
        bytes: Vec<u64>,
        /// What it takes each time that it runs (seconds).
        seconds: f64,
        /// What of that is exchanged.
        exchanged: Exchanged,
    },
}

/// What an operation exchanges each time that it runs (seconds).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// What rows that are routed take on their way, with what says where they go.
    pub rows: f64,
    /// For how long these, or what moves in its steps, have links for themselves that all exchanges use: without what
    /// is copied for rows, and without the latency of each message; nothing where not all use the same links.
    pub links: f64,
}

/// A copy of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// As it is made.
    Made,
    /// As the transfer of that number leaves it.
    Transferred(usize),
}

/// A copy of a value made in another layout, whenever what reads it first is computed.
///
/// In a training step it is made for every micro-batch or once in the update, see [`Plan::when`].
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
    /// What each move takes each time that it is made (seconds).
    pub seconds: Vec<f64>,
    /// Whether it stands in the way though it might run beside computing: there is no room for what it makes before
    /// that is used, or for what it is made from afterwards.
    pub waits: bool,
}

impl Transfer {
    /// How often something is exchanged for it.
    #[must_use]
    pub fn exchanges(&self) -> usize {
        self.moves.iter().filter(|it| it.travels()).count()
    }

    /// What all moves take together each time that it is made (seconds).
    #[must_use]
    pub fn takes(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Whether something is exchanged, and not only a part of it taken.
    #[must_use]
    pub fn travels(&self) -> bool {
        self.exchanges() > 0
    }
}

/// What each of several exchanges takes of what they take together, if they go at one rate: by the bytes that are received
/// (seconds).
#[must_use]
pub fn shared(seconds: f64, bytes: &[u64]) -> Vec<f64> {
    if bytes.len() == 1 {
        return vec![seconds];
    }
    let all: f64 = bytes.iter().map(|&it| exact(it)).sum();
    let count = exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    bytes.iter().map(|&it| if all > 0.0 { seconds * exact(it) / all } else { seconds / count }).collect()
}

/// A part of a step: that which is done for every micro-batch (all of inference), and the update,
/// which follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Once for every micro-batch.
    MicroBatch,
    /// Once, after the last micro-batch.
    Update,
}

/// A part of a step's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What takes it.
    pub name: String,
    /// How long (seconds).
    pub seconds: f64,
}

/// How much less a step takes than its terms add up to, because exchanges run beside computing: each time
/// that the part of a step runs (seconds).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hidden {
    /// Of the loss of a micro-batch, or all of inference.
    pub forward: f64,
    /// Of its gradients.
    pub backward: f64,
}

/// A part of what a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// What it is.
    pub kind: String,
    /// How much (bytes).
    pub bytes: u64,
}

/// All that a device holds (bytes).
pub fn held(memory: &[Holding]) -> u64 {
    memory.iter().map(|it| it.bytes).sum()
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

impl Proof {
    /// That of a plan that takes so long, where none takes less than this (seconds).
    #[must_use]
    pub fn of(lower_bound: f64, seconds: f64) -> Self {
        if lower_bound < seconds { Self::Gap { lower_bound } } else { Self::Optimal }
    }

    /// The proven lower bound, of a plan that takes so long (seconds).
    #[must_use]
    pub fn bound(self, seconds: f64) -> f64 {
        match self {
            Self::Optimal => seconds,
            Self::Gap { lower_bound } => lower_bound,
        }
    }
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
    /// Whether all rules were applied until nothing new came of them, and nothing was left out.
    pub saturated: bool,
    /// What was asked for and left out, as the space with it is too large.
    pub left_out: Vec<LeftOut>,
    /// Choices offered to the search.
    pub choices: u64,
}

/// Partitions that a search leaves out where those it was asked for are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// Sequences of which a device has every so many tokens.
    Stripes,
    /// Values held skewed, whose blocks are numbered by sums of coordinates, and the operations in time steps
    /// that use or make them so.
    Skews,
    /// Operations done in time steps.
    Steps,
    /// Operations split along more than one or two loops at once.
    Splits,
}

impl LeftOut {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stripes => "stripes",
            Self::Skews => "skews",
            Self::Steps => "steps",
            Self::Splits => "splits",
        }
    }
}

impl Plan {
    /// The time of one step (seconds): that of its terms, less what is hidden.
    pub fn seconds(&self) -> f64 {
        self.estimate.iter().map(|term| term.seconds).sum::<f64>() - self.hidden_seconds()
    }

    /// How much of the exchanges of a step runs beside computing (seconds).
    pub fn hidden_seconds(&self) -> f64 {
        self.seconds_of(self.hidden)
    }

    /// How much that is in a step, if so much is hidden each time that a part of it runs (seconds).
    pub fn seconds_of(&self, hidden: Hidden) -> f64 {
        let times = self.graph.training.as_ref().map_or(1, |training| training.micro_batches);
        exact(times) * (hidden.forward + hidden.backward)
    }

    /// For each transfer, in which part of a step it is made: in that of its first reader.
    ///
    /// Readers are operations; transfers of the copy; what is returned, in the part of the step in
    /// which it is made, sums over micro-batches after the update; and what becomes of a state, likewise.
    /// A transfer without readers is made where its value is.
    ///
    /// # Panics
    /// If a copy or a value is named that there is not.
    pub fn when(&self) -> Vec<Part> {
        let mut parts: Vec<Option<Part>> = vec![None; self.transfers.len()];
        let mut read = |copy: Copy, part: Part| {
            if let Copy::Transferred(it) = copy {
                parts[it] = Some(parts[it].map_or(part, |before| before.min(part)));
            }
        };
        for (node, assignment) in self.graph.nodes.iter().zip(&self.assignments) {
            if let Assignment::Computed { operands, .. } = assignment {
                operands.iter().for_each(|&copy| read(copy, self.part(node.phase)));
            }
        }
        for (output, &copy) in self.graph.outputs.iter().zip(&self.outputs) {
            let sum = self.graph.training.iter().flat_map(|it| &it.carried).any(|it| it.next == output.value);
            read(copy, if sum { self.part(Phase::Update) } else { self.made_in(output.value) });
        }
        let carried = self.graph.training.iter().flat_map(|training| &training.carried);
        for (carried, &copy) in carried.zip(&self.carried) {
            read(copy, self.made_in(carried.next));
        }
        // Copies come after what they are made from.
        for (index, transfer) in self.transfers.iter().enumerate().rev() {
            let part = *parts[index].get_or_insert_with(|| self.made_in(transfer.value));
            if let Copy::Transferred(from) = transfer.from {
                parts[from] = Some(parts[from].map_or(part, |before| before.min(part)));
            }
        }
        parts.into_iter().flatten().collect()
    }

    /// For each transfer, how often it is made in a step.
    ///
    /// # Panics
    /// If a copy or a value is named that there is not.
    pub fn runs(&self) -> Vec<u64> {
        let micro_batches = self.graph.training.as_ref().map_or(1, |training| training.micro_batches);
        let runs = |part| if part == Part::MicroBatch { micro_batches } else { 1 };
        self.when().into_iter().map(runs).collect()
    }

    fn part(&self, phase: Phase) -> Part {
        let updates = phase == Phase::Update && self.graph.training.is_some();
        if updates { Part::Update } else { Part::MicroBatch }
    }

    /// Where a value is made, or first used as it can be.
    fn made_in(&self, value: ValueId) -> Part {
        match &self.graph.value(value).source {
            Source::Result { node, .. } => self.part(self.graph.node(*node).phase),
            Source::State(state) if !state.kind.is_summed() => Part::Update,
            _ => Part::MicroBatch,
        }
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

/// A count as a number: exact below 2^53, and no step has as many micro-batches.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
pub(crate) fn exact(count: u64) -> f64 {
    count as f64
}
