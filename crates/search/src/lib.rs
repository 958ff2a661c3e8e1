//! A space and prices to the cheapest plan, with a proof.
//!
//! - [`problem`] — what is minimised and under which bound, in plain numbers
//! - [`exhaustive`] — the least time by trying everything
//! - [`eliminate`] — the least time exactly, by bucket elimination, memory left aside
//! - [`chain`] — blocks that repeat, joined at their boundaries
//! - [`bound`] — the least time under a bound on memory, by multipliers, with a proof
//! - [`ilp`] — the same by an integer linear program, the second opinion
//! - [`room`] — less memory given to what is counted, until all that is held fits
//! - [`cluster`] — setups of a whole cluster, and the cut of a model into stages

pub mod problem;

pub mod exhaustive;

pub mod eliminate;

pub mod chain;

pub mod bound;

pub mod ilp;

pub mod room;

pub mod cluster;

mod messages;
mod live;
mod prices;
mod section;
mod fixed;
mod join;
mod fold;
mod ways;
mod clocks;
mod manner;
mod slots;
mod beside;
mod assemble;
mod compose;
mod request;
mod prepare;
mod derive;
mod offers;
mod planner;
mod priced;
mod ruled;

pub use beside::Beside;
pub use bound::Trail;
pub use compose::{early, kept, memory as held};
pub use fixed::{Fixed, FixedError, names};
pub use fold::{fold, fold_alone};
pub use join::sections;
pub use live::Live;
pub use planner::{Derive, Derived, plan, plan_among, takes, wanted};
pub use priced::{mispriced, terms_differ, time_differs};
pub use prices::{MachinePrices, Prices, Work};
pub use request::{Holds, Pinned, PlanError, Request, UNBOUNDED, counted};
pub use ruled::{OverExperts, Ruled, Rules};
pub use section::{Cut, Repetition, Section, SharedValue, Sharing};
