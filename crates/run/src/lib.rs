//! Programs to results, on the ranks of this machine.
//!
//! Each rank is a thread or a process with its own memory; ranks meet only in collectives, and there
//! hand one another contiguous bytes, or send them to ranks of other stages. How these bytes move is
//! what a transport knows.

mod session; // programs made ready, and run step by step
mod received; // what ranks have received, by why
mod states; // what lasts from step to step: at first, whole, and replaced
mod source; // what a program is given; whole values to blocks and back
mod stored; // arrays by name that are read block by block
mod view; // where the elements of a block lie, back through what moves elements
mod prepared; // what is made of weights before the first step, block by block or whole
mod free; // memory of this machine, beside what ranks on it take
mod rank; // a rank and what it does with its instructions
mod in_place; // results in the places of operands, element by element, and of what is added to
mod memory; // reading and writing parts of one memory at the same time
mod collective; // exchanges between ranks
mod routed; // rows that go to the ranks that have parts which they use
mod transport; // how a rank reaches others
mod threads; // ranks that are threads of this process
mod timed; // how long exchanges take among threads
mod mail; // what ranks of different stages send each other
mod failure; // whether a rank has failed
mod meeting; // ranks that wait for one another, and give up together
mod processes; // ranks that are processes
mod copy; // strided copies
mod reference; // a program on one device, operation by operation
mod not_finite; // where a step went wrong
mod error; // why a program did not run to its end

pub use error::RunError;
pub use not_finite::{NotFinite, Place, not_finite};
pub use processes::{Ended, Interface, JoinError, Joining, LOST, MOST_RANKS, NOT_JOINED, Processes, WAITED};
pub use rank::{Feed, Report};
pub use reference::{Reference, reference};
pub use session::{Engine, Handed, Moved, Outcome, Session, alike, held_beside, run};
pub use source::Sources;
pub use stored::{Stored, take, whole};
pub use timed::{Exchange, Timed, exchanges};

#[cfg(test)]
mod tests;
