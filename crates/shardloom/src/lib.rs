//! Shardloom, a compiler for parallelism: from a model file and a machine to a plan and its run.
//!
//! `pipeline` is the architecture read top to bottom. This crate is the only one that reads files,
//! arguments and the environment.

pub mod failure; // what ends a command, and its exit code
pub mod model_file; // a model on disk
pub mod arrays; // arrays on disk
pub mod inputs; // inputs made from a seed
pub mod written; // files that are there whole or not at all
pub mod pipeline; // from a model to a plan, from a plan to programs
