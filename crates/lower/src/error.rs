//! Why a plan has no programs.

use std::fmt;

use planner_ir::{MoveError, PartitionError};
use rayon::prelude::*;

/// Why a plan has no programs: it is not one, or it says what programs cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LowerError {
    /// Another number of layouts, assignments or partitions than the graph asks for; of what,
    /// found, expected.
    Count(&'static str, usize, usize),
    /// A partition that its operation cannot have; its name, why.
    Partition(String, PartitionError),
    /// An operation whose rows cannot be exchanged as its partition routes them; its name.
    Routed(String),
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
    /// More instructions of all ranks than are made at once.
    TooMany {
        /// How many ranks there are.
        ranks: u64,
        /// How many instructions one of them has.
        instructions: usize,
        /// How many all of them may have.
        most: u64,
    },
}

/// The most instructions that are made, and verified, at once: some six gigabytes of programs.
const MOST: u64 = 1 << 22;

impl LowerError {
    /// Refuses programs of so many ranks of which one has so many instructions, where that is too many.
    pub(crate) fn unless_few(ranks: u64, instructions: usize) -> Result<(), Self> {
        let all = ranks.saturating_mul(u64::try_from(instructions).unwrap_or(u64::MAX));
        if all > MOST { Err(Self::TooMany { ranks, instructions, most: MOST }) } else { Ok(()) }
    }
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(of, found, expected) => write!(f, "plan has {found} {of}, expected {expected}"),
            Self::Partition(node, error) => write!(f, "`{node}` cannot be partitioned so: {error}"),
            Self::Routed(node) => write!(f, "the rows of `{node}` cannot be exchanged as they are routed"),
            Self::Parts(node) => write!(f, "`{node}` makes other results than its parts do"),
            Self::Layout(node, of) => {
                write!(f, "`{node}`: the plan's layout of {of} is not the one of its partition")
            }
            Self::Crossing(name, error) => write!(f, "crossing `{name}` cannot be made: {error}"),
            Self::TooMany { ranks, instructions, most } => write!(
                f,
                "{ranks} programs of {instructions} instructions are more than are made at once, expected \
                 {most} instructions of all of them at most"
            ),
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

/// What is made of each, in parallel; of several errors the first.
pub(crate) fn each<T, R: Send>(
    all: impl IntoParallelIterator<Item = T>,
    make: impl Fn(T) -> Result<R, LowerError> + Sync + Send,
) -> Result<Vec<R>, LowerError> {
    let made: Vec<Result<R, LowerError>> = all.into_par_iter().map(make).collect();
    made.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{LowerError, MOST};

    #[test]
    fn as_many_instructions_as_there_may_be_are_no_more() {
        let most = usize::try_from(MOST).unwrap();
        let of = LowerError::unless_few;
        assert_eq!([of(1, most), of(8, most / 8)], [Ok(()), Ok(())]);
        let instructions = most / 8 + 1;
        assert_eq!(of(8, instructions), Err(LowerError::TooMany { ranks: 8, instructions, most: MOST }));
        assert!(of(u64::MAX, usize::MAX).is_err());
    }
}
