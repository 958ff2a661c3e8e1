//! Pieces of a rank's memory, and what lies in them.

use planner_ir::{StateKind, Type};

/// Every storage starts at a multiple of this (bytes): a cache line.
pub const ALIGNMENT: u64 = 64;

/// What a piece of memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A weight at rest.
    Weight,
    /// A value at rest that is computed before the first step.
    Prepared,
    /// An input at rest.
    Input,
    /// A state of a training step, at rest.
    State(StateKind),
    /// What an instruction makes.
    Activation,
    /// What is packed to be sent, or received to be unpacked or used at one time step.
    Communication,
    /// What an instruction makes that is returned.
    Output,
}

/// One of a rank's two memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// At rest between steps. Of this, a step changes only states, and inputs that something is written over.
    Resident,
    /// Written in a step.
    Step,
}

/// A piece of memory. What is no state is written once in a step, or in a repetition: at once or
/// part by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// What it is for.
    pub kind: Kind,
    /// How large it is (bytes).
    pub bytes: u64,
    /// Where it starts in its region (bytes).
    pub offset: u64,
    /// How many places it has, one after another: micro-batches use them in turn. One, but for what
    /// is kept from one part of a micro-batch to another, or sent, while others have theirs.
    pub places: u64,
    /// The storage whose place it is to take, as large: what it holds comes over what lay there, chunk
    /// by chunk or element by element.
    pub over: Option<StorageId>,
}

/// What lies in a storage, from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where.
    pub storage: StorageId,
    /// Its elements and shape, row-major.
    pub type_: Type,
}

/// Which storage of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub usize);

/// Which buffer of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub usize);

impl Kind {
    /// In which memory it is.
    pub fn region(self) -> Region {
        match self {
            Self::Weight | Self::Prepared | Self::Input | Self::State(_) => Region::Resident,
            Self::Activation | Self::Communication | Self::Output => Region::Step,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Prepared => "prepared",
            Self::Input => "input",
            Self::State(kind) => kind.name(),
            Self::Activation => "activation",
            Self::Communication => "communication",
            Self::Output => "output",
        }
    }

    /// Of which state it is.
    pub fn state(self) -> Option<StateKind> {
        match self {
            Self::State(kind) => Some(kind),
            _ => None,
        }
    }

    /// Whether it is of a state that is summed over micro-batches.
    pub fn is_summed(self) -> bool {
        self.state().is_some_and(StateKind::is_summed)
    }

    /// Whether it is of a state that lasts from step to step.
    pub fn lasts(self) -> bool {
        self.state().is_some_and(|kind| !kind.is_summed())
    }
}
