//! Why a program did not run to its end.

use std::fmt;

use kernels::KernelError;
use planner_ir::Type;

/// Why a program did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// An input that is not given.
    Missing(String),
    /// A weight that cannot be read; its name, why.
    Weight(String, String),
    /// An input or weight of another type; its name, found, expected.
    Type(String, Type, Type),
    /// An operation on whole values that failed; its name, why.
    Whole(String, KernelError),
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
    /// A rank that panicked.
    Panicked(u64),
    /// An output whose copies on two ranks differ; its name, the ranks.
    Replicas(String, u64, u64),
    /// Programs that break the rules of programs; how.
    Program(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "input `{name}` is not given"),
            Self::Weight(name, why) => write!(f, "weight `{name}` cannot be read: {why}"),
            Self::Type(name, found, expected) => {
                write!(f, "`{name}` is {found}, expected {expected}")
            }
            Self::Whole(origin, error) => write!(f, "`{origin}`: {error}"),
            Self::Instruction { rank, number, text, error } => {
                write!(f, "rank {rank}, instruction {number} ({text}): {error}")
            }
            Self::Panicked(rank) => write!(f, "rank {rank} panicked"),
            Self::Replicas(name, first, second) => {
                write!(f, "ranks {first} and {second} have different copies of output `{name}`")
            }
            Self::Program(how) => write!(f, "the programs cannot be run: {how}"),
        }
    }
}

impl std::error::Error for RunError {}
