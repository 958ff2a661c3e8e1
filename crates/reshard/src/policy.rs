//! What may be chosen of how a value is brought over.

use crate::strategy::Strategy;

/// Which strategy is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// What takes least by the clock of [`simulate`](crate::simulate()): one for all, or for each unit task the one
    /// with the least estimate. Of very many unit tasks, each has the one with the least estimate.
    Cheapest,
    /// For each unit task the one with the least estimate, as if it were alone.
    Estimated,
    /// This one for all.
    Only(Strategy),
}

/// Who sends, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first node that can, in the order of the unit tasks.
    Listed,
    /// As few bytes after each other as can be found.
    Scheduled,
}

/// How a value is to be brought over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which strategy is used.
    pub strategy: Choice,
    /// Who sends, and in which order.
    pub order: Order,
    /// The most chunks of a broadcast.
    pub most_chunks: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { strategy: Choice::Cheapest, order: Order::Scheduled, most_chunks: 64 }
    }
}
