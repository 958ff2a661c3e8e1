//! Inputs that take examples.

use planner_ir::Type;

/// An input that takes examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    /// Its name.
    pub(super) name: String,
    /// What it is in a micro-batch.
    pub(super) type_: Type,
}

/// A number of bytes as a file has it.
pub(super) fn bytes_of(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
