//! Configurations of training frameworks, scored: what they take, and how far that is from the best.
//!
//! - [`read`] — what a configuration says, in the words of stated setups
//! - [`space`] — the setups that a framework runs on the same devices
//! - [`load`] — the worst load of experts
//! - [`told`] — what a framework takes for a plan that is exported to it
//! - [`errors`] — how far published runs are from what is predicted

pub mod read;

pub mod space;

pub mod load;

pub mod errors;

pub mod told;

#[cfg(test)]
mod recipes;
