//! Plans and programs for people: in words, in tables for programs, as pictures.
//!
//! - [`explained`] — a plan in words: what each operation of each block does, and what it waits for
//! - [`explanation`] — all that `explain` says of a plan or a pipeline
//! - [`simulated`] — how a plan went by the clock of a machine
//! - [`sweep`] — plans on clusters that differ in one thing
//! - [`summary`] — what is said of a plan that was made
//! - [`throughput`] — how fast a step is, in the field's numbers
//! - [`kept`] — what blocks of a training step keep
//! - [`weight_roles`] — which weights a step trains, which not and why
//! - [`attention`] — what attention is found to be
//! - [`chart`] — a schedule as a chart
//! - [`diagram`] — a partition as a diagram
//! - [`page`] — a plan as a page for a browser
//! - [`plot`] — curves as a picture

pub mod attention;
pub mod chart;
pub mod diagram;
pub mod explained;
pub mod explanation;
pub mod kept;
pub mod page;
pub mod plot;
pub mod simulated;
pub mod summary;
pub mod sweep;
pub mod throughput;
mod svg; // what pictures have in common
pub mod weight_roles;
