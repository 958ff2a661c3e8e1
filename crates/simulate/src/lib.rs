//! Programs of all ranks on a machine: what is done when, and what is held.
//!
//! A clock instead of data: streams run in order, events and other ranks are waited for, flows
//! share links, and everything takes what the machine's prices say. Nothing is random and no real
//! clock is read: the same programs on the same machine have the same timeline.

mod schedule; // tasks, links and what comes before what
mod sharing; // how flows share links
mod beside; // computing and moving on one processor
mod clock; // when tasks start and end
mod ranks; // the programs of all ranks, and whom each meets
mod crossings; // what ranks send each other between stages
mod classes; // what cannot be told apart
mod symmetry; // ranks that do the same at the same time
mod prices; // what instructions take
mod precedence; // what comes before what on a rank
mod unroll; // programs as a schedule
mod timeline; // what ranks do when
mod exchanged; // what they exchange, by kind
mod waiting; // what computing waits for, and why
mod memory; // what a rank holds over time
mod trace; // timelines in the trace event format
mod chakra; // timelines as execution traces of Chakra
mod snapshot; // what a rank holds over time, as PyTorch's snapshots of memory

pub use chakra::{chakra, groups};
pub use clock::{Deadlock, Times, run};
pub use exchanged::Exchanged;
pub use memory::{Held, Level};
pub use precedence::Order;
pub use prices::alone;
pub use schedule::{Flow, Link, Schedule, Task};
pub use snapshot::snapshot;
pub use timeline::{
    Class, SimulateError, Span, Timeline, common, simulate, simulate_cluster, simulate_each, simulate_grouped,
};
pub use trace::{memory_trace, trace};
pub use waiting::{Waited, Why};

#[cfg(test)]
mod tests;
