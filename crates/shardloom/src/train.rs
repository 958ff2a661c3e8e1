//! Training: what a run needs besides a plan.

pub(crate) mod arguments; // what the command line says
pub(crate) mod schedule; // the learning rate
pub(crate) mod order; // which examples, in which step
pub(crate) mod data; // files of examples, cut into micro-batches
mod tokens; // examples from a file of tokens
pub(crate) mod ranges; // numbers that index classes and tables
pub(crate) mod trained; // a plan or a pipeline, checked against its model
pub(crate) mod settings; // what a run is made with, in words
pub(crate) mod resume; // the checkpoint that a run goes on from
pub(crate) mod report; // what is said of each step
