//! Training: a plan and data to trained weights.
//!
//! [`ready()`] reads everything that a [`Job`] names and refuses what cannot go well; a [`Run`] does its steps, writes
//! checkpoints, and the weights in the end.

pub mod data; // files of examples, cut into micro-batches
mod input; // inputs that take examples
mod job; // what is asked of a run
pub mod order; // which examples, in which step
mod ranges; // numbers that index classes and tables
mod ready; // what is read and refused before a rank starts
mod report; // what is said of each step
mod resume; // the checkpoint that a run goes on from
mod run; // steps, checkpoints, weights
pub mod schedule; // the learning rate
mod settings; // what a run is made with, in words
mod tokens; // examples from a file of tokens
mod trained; // a plan or a pipeline, checked against its model

pub use job::{Job, Width};
pub use ready::{Ready, facts, ready};
pub use report::StepReport;
pub use resume::Resumed;
pub use run::{Finished, Run};
pub use settings::Change;
pub use trained::{Trained, derived_pipeline};
