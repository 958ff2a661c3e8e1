//! From a model to a plan, from a plan to programs, from programs to tokens: the compiler as a library.
//!
//! - [`pipeline`] — the stages in order, each verified: import, raise, train, plan, lower
//! - [`compile`] — a model file and sizes to a plan, on the best of several meshes
//! - [`derived`] — how the program of a plan comes about: from its model again
//! - [`generation`] — decoders that make tokens
//! - [`training`] — a plan and data to trained weights
//!
//! Whatever goes wrong is a [`Failure`].

pub mod compile;
pub mod derived;
pub mod generation;
pub mod pipeline;
pub mod training;

pub use files::Failure;
pub use launch::{Listener, Nobody};
