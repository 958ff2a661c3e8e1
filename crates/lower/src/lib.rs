//! A plan to one program per rank: instructions over buffers with fixed places, on streams.
//!
//! A program is what every interpreter runs: threads of this machine, processes, devices, and a
//! clock instead of data. Nothing is chosen here: which blocks are computed and what moves
//! between ranks is the plan's; here it gets buffers, an order and the events that keep it.

mod storage; // pieces of memory, and what lies in them
mod action; // what an instruction does
mod program; // what a rank does in a step
mod error; // why a plan has no programs
mod strided; // copies between two orders of the same elements
mod exchange; // one move of a value: pack, collective, unpack
mod routing; // how an operation's rows are routed
mod facts; // what the programs of all ranks share, checked
mod build; // a plan to instructions over buffers
mod carry; // what states become
mod ends; // what a stage of a pipeline sends and receives
mod pipeline; // stages to programs
mod routes; // how what crosses comes from rank to rank
mod joined; // the programs of a rank's stages as one
mod rings; // how many places what outlives a turn has
mod temporal; // operations in time steps
mod routed; // operations whose rows go to where what they use is
mod rotate; // blocks of neighbours
mod in_place; // what states become, made where the states are
mod halves; // a sequence as a tree over its stretches
mod expected; // what plans expect instructions to take
mod overlap; // exchanges beside computing
mod arena; // places for buffers, by their lifetimes
mod users; // who used which bytes last
mod events; // who waits for whom
mod happens; // what happens before what in a rank
mod issue; // in which order a host issues what its rank exchanges
mod memory; // what a device's memory is for
mod alike; // one program for all ranks
mod budget; // whether there are not too many instructions
mod grouped; // one program for all ranks of each group
mod show; // the text form of a program
mod verify; // the rules that programs obey, trusting nothing that made them

pub use action::{
    Action, Block, Collective, CollectiveKind, CommunicatorId, Compute, Copied, Direction, Further, Message,
    Moving, Origin, Received, Remote, Rows, Sent, Way,
};
pub use alike::{Alike, alike};
pub use budget::{pipeline_within_budget, within_budget};
pub use build::{footprint, lower};
pub use error::LowerError;
pub use grouped::{Grouped, grouped};
pub use issue::{Issued, Stalled, issue_order};
pub use memory::{Least, least, memory};
pub use pipeline::{Pipelined, pipeline, pipelined};
pub use program::{
    Event, Instruction, Port, Preparation, Program, Repeated, RepeatedPart, Stream, Turn, Whole,
};
pub use routes::{by, sides};
pub use storage::{ALIGNMENT, Buffer, BufferId, Kind, Region, Storage, StorageId};
pub use strided::{Stride, Strided};
pub use verify::{Place, Violation, verify};

#[cfg(test)]
mod tests;
