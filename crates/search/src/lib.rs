//! A space and prices to the cheapest plan, with a proof.
//!
//! - [`problem`] — what is minimised and under which bound, in plain numbers
//! - [`eliminate`] — the least time exactly, by bucket elimination
//! - [`exhaustive`] — the least time by trying everything

pub mod chain;
pub mod eliminate;
pub mod exhaustive;
pub mod problem;
