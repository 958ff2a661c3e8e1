//! Published measurements beside what the cost model says of them.
//!
//! - [`page`] — the page of errors of training runs and of what they are made of
//! - [`goals`] — what is asked of these errors
//! - [`scatter`] — points as a picture
//! - [`ops`] — measured times of single operations
//! - [`plans`] — stated training steps as pinned plans

pub mod page;

pub mod goals;

pub mod scatter;

pub mod ops;

pub mod plans;

#[cfg(test)]
#[path = "../../../tests/outside.rs"]
#[expect(dead_code, reason = "models are for other packages")]
mod outside; // what may lie outside the repository
