//! Shardloom, a compiler for parallelism: from a model file and a machine to a plan and its run.
//!
//! `pipeline` is the architecture read top to bottom. This crate is the only one that reads
//! arguments and the environment.

pub mod arguments; // what the command line says
mod stages; // dumps of stages
mod progress; // what is being done, for a person who waits
mod colour; // colour of what is printed
mod commands; // what each command does
mod entry; // arguments to an exit code

pub use colour::Painted;
pub use commands::Said;
pub use entry::{call, main_with};

#[cfg(test)]
#[path = "../../device/src/emulated.rs"]
mod emulated; // a GPU that is not there
#[cfg(test)]
#[path = "../../../tests/outside.rs"]
#[expect(dead_code, reason = "folders of models are for other packages")]
mod outside; // what may lie outside the repository
#[cfg(test)]
#[path = "../../device/src/emulated/planted.rs"]
mod planted; // how fast it is
