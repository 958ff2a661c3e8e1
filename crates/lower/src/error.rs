//! Why a plan has no programs.

use std::fmt;

use planner_ir::{MoveError, PartitionError};

/// Why a plan has no programs: it is not one, or it says what programs cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LowerError {
    /// Another number of layouts, assignments or partitions than the graph asks for; of what,
    /// found, expected.
    Count(&'static str, usize, usize),
    /// A partition that its operation cannot have; its name, why.
    Partition(String, PartitionError),
    /// An operation whose results are not among those of its parts; its name.
    Parts(String),
    /// A copy whose layout is not the one that its operation uses or makes; the operation, which
    /// operand or result.
    Layout(String, String),
    /// A prepared operation that needs what is not prepared.
    Prepared(String),
    /// A transfer that does not exist, is of another value, or is made from a later one.
    Transfer(usize),
    /// A move that cannot be made; of which transfer, which, why.
    Move(usize, usize, MoveError),
    /// An all-to-all within one dimension whose blocks do not fall into equal parts; of which
    /// transfer, which move.
    Interleaved(usize, usize),
    /// A transfer whose moves do not lead to its layout.
    Arrival(usize),
    /// A value at rest that is no sum over micro-batches, or an output, of which a sum is owed; its
    /// name.
    Owed(String),
    /// A state whose place the plan's copy of what it becomes cannot take; its name.
    Carried(String),
    /// An input that is used by micro-batches and by the update; its name.
    Input(String),
    /// A value that cannot cross between stages so; its crossing's name, why.
    Crossing(String, String),
    /// A schedule that cannot be kept; why.
    Schedule(String),
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(of, found, expected) => write!(f, "plan has {found} {of}, expected {expected}"),
            Self::Partition(node, error) => write!(f, "`{node}` cannot be partitioned so: {error}"),
            Self::Parts(node) => write!(f, "`{node}` makes other results than its parts do"),
            Self::Layout(node, of) => {
                write!(f, "`{node}`: the plan's layout of {of} is not the one of its partition")
            }
            Self::Crossing(name, error) => write!(f, "crossing `{name}` cannot be made: {error}"),
            Self::Schedule(error) => write!(f, "the schedule cannot be kept: {error}"),
            Self::Prepared(node) => {
                write!(f, "`{node}` is prepared but depends on what is computed at every step")
            }
            Self::Transfer(transfer) => {
                write!(f, "transfer {transfer} is not one of that value from an earlier copy")
            }
            Self::Move(transfer, step, error) => {
                write!(f, "move {step} of transfer {transfer} cannot be made: {error}")
            }
            Self::Interleaved(transfer, step) => write!(
                f,
                "move {step} of transfer {transfer} exchanges unequal blocks within a dimension, expected equal ones"
            ),
            Self::Arrival(transfer) => {
                write!(f, "the moves of transfer {transfer} do not lead to its layout")
            }
            Self::Carried(name) => {
                write!(f, "what `{name}` becomes is in another layout, expected the one of the state")
            }
            Self::Input(name) => {
                write!(
                    f,
                    "input `{name}` is used by micro-batches and by the update, expected by one of them"
                )
            }
            Self::Owed(name) => write!(f, "a sum of `{name}` is owed, expected a copy that owes none"),
        }
    }
}

impl std::error::Error for LowerError {}
