//! Why a program did not run to its end.

use std::fmt;

use kernels::KernelError;
use planner_ir::{State, Type};

/// Why a program did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// An input that is not given.
    Missing(String),
    /// A weight that cannot be read; its name, why.
    Weight(String, String),
    /// Another number of micro-batches; found, expected.
    MicroBatches(usize, u64),
    /// A state that there is not, or that does not last from step to step.
    State(State),
    /// An input, weight or state of another type; its name, found, expected.
    Type(String, Type, Type),
    /// An operation on whole values that failed; its name, why.
    Whole(String, KernelError),
    /// What is made of weights and constants before the first step is too large; the operation, how much
    /// there would be at once, what there may be (bytes).
    Preparation(String, u64, u64),
    /// More memory than this machine has left.
    Room {
        /// How many ranks are here.
        ranks: usize,
        /// What they take at least (bytes).
        needed: u64,
        /// What is free (bytes).
        free: u64,
    },
    /// An instruction that failed.
    Instruction {
        /// On which rank.
        rank: u64,
        /// Its number.
        number: usize,
        /// Its text.
        text: String,
        /// Why.
        error: KernelError,
    },
    /// A rank whose thread cannot be started; why.
    Thread(u64, String),
    /// A rank that panicked.
    Panicked(u64),
    /// An output or state whose copies on two ranks differ; its name, the ranks.
    Replicas(String, u64, u64),
    /// A device, or a library that it is reached by, that failed; how.
    Device(String),
    /// Programs that break the rules of programs; how.
    Program(String),
}

impl RunError {
    /// Whether the model or what it was given is to blame, and not what was made of it.
    #[must_use]
    pub fn is_of_input(&self) -> bool {
        match self {
            Self::Weight(..) | Self::Device(_) | Self::Preparation(..) | Self::Room { .. } => true,
            Self::Whole(_, error) | Self::Instruction { error, .. } => error.is_of_numbers(),
            _ => false,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "input `{name}` is not given"),
            Self::Weight(name, why) => write!(f, "weight `{name}` cannot be read: {why}"),
            Self::Type(name, found, expected) => {
                write!(f, "`{name}` is {found}, expected {expected}")
            }
            Self::MicroBatches(found, expected) => {
                write!(f, "{found} micro-batches are given, expected {expected}")
            }
            Self::State(State { kind, name }) => {
                write!(f, "there is no {} of `{name}` that lasts from step to step", kind.name())
            }
            Self::Whole(origin, error) => write!(f, "`{origin}`: {error}"),
            Self::Preparation(origin, found, most) => write!(
                f,
                "`{origin}`: constants computed before the first step take {found} bytes, expected {most} at \
                 most: what the weights take, and 4 GB"
            ),
            Self::Room { ranks, needed, free } => write!(
                f,
                "{ranks} ranks on this machine compute in {needed} bytes of memory at least, {free} are free: \
                 expected fewer ranks here, a smaller batch, shorter sequences, or more memory"
            ),
            Self::Instruction { rank, number, text, error } => {
                write!(f, "rank {rank}, instruction {number} ({text}): {error}")
            }
            Self::Thread(rank, why) => write!(
                f,
                "the thread of rank {rank} cannot be started: {why}; allow more threads (`ulimit -u`, or what \
                 limits this container), or run fewer ranks"
            ),
            Self::Panicked(rank) => write!(f, "rank {rank} panicked"),
            Self::Replicas(name, first, second) => {
                write!(f, "ranks {first} and {second} have different copies of `{name}`")
            }
            Self::Device(how) => f.write_str(how),
            Self::Program(how) => write!(f, "the programs cannot be run: {how}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Refuses a value of another type.
pub(crate) fn expect_type(name: &str, found: &Type, expected: &Type) -> Result<(), RunError> {
    if found == expected {
        return Ok(());
    }
    Err(RunError::Type(name.to_owned(), found.clone(), expected.clone()))
}
