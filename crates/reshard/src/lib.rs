//! A value's way from a layout on one mesh to a layout on another.
//!
//! The value falls into *unit tasks*: portions that the same ranks have and the same ranks need.
//! A strategy says how the portions of a unit task travel, a schedule which node sends them and in
//! which order; what comes of both is a list of messages. The same list is run and simulated.

mod portion; // portions of a value
mod side; // the ranks at one end, and what each holds
mod error; // why a value cannot be brought over
mod unit; // what the same ranks have and the same ranks need
mod network; // what links do
mod strategy; // how the portions of a unit task travel, and what that takes
mod policy; // what may be chosen
mod job; // what one node sends as a whole
mod schedule; // who sends, and in which order
mod message; // what goes from rank to rank
mod transfer; // from end to end
mod execute; // what messages do, on arrays
mod simulate; // what messages take, by a clock

pub use error::{End, ReshardError};
pub use execute::{ExecuteError, execute};
pub use message::Message;
pub use network::Network;
pub use policy::{Choice, Order, Policy};
pub use portion::{Portion, Span};
pub use schedule::{Problem, Proof, Schedule, Work, exact, heuristic, in_order, scheduled};
pub use side::{Place, Side};
pub use simulate::{Timeline, simulate};
pub use strategy::{Reach, Strategy, chunks, estimate};
pub use transfer::{Resharding, quickest, reshard};
pub use unit::{UnitTask, unit_tasks};

#[cfg(test)]
mod tests;
