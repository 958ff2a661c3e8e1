//! The execution plan: its JSON form, its independent checker, differences.

mod check; // the independent checker
mod diff; // what moved between two plans, and what it bought
pub mod json; // a plan as a file
mod plan; // what a plan says
mod clocks; // what runs beside computing
mod lanes; // and when
mod pipeline; // plans of stages, and what crosses between them
mod generation; // plans of prompts and of single tokens, over one cache
mod pattern; // names with `*`
mod parallelism; // what an axis of a mesh is for, in the words of frameworks
mod served; // how the devices of servers share a model
mod pin; // what a user has fixed
mod recipe; // how a training step was derived from a model
mod roles; // what a model's weights are to its training
#[cfg(test)]
mod samples; // plans for tests
mod steps; // what moves between the steps of a partition
mod summary; // what a plan comes to
mod traffic; // what moves in a step, by what it is
mod words; // what a partition is called

pub use check::{
    GENERATION_RULES, MAX_DEVICES, PIPELINE_RULES, RULES, check, check_generation, check_pipeline,
};
pub use clocks::{Beside, Clock, Load, Overlap, SUMS, beside};
pub use diff::{Change, Diff, Repeated, diff};
pub use generation::{Cache, Form, Generation, Growth, Kept, Positions, common_divisor};
pub use lanes::{Exchange, Lanes};
pub use parallelism::Parallelism;
pub use pattern::matches;
pub use pin::{Pin, is_called};
pub use pipeline::{Arrival, Crossing, Pipeline, Stage, Waits, by_clocks};
pub use plan::{
    Assignment, Control, Copy, Exchanged, Hidden, Holding, LeftOut, MachineName, ModelFile, Part, Plan,
    Proof, SpaceSize, Term, Transfer, held, shared,
};
pub use recipe::{Loss, Masters, NoDecay, Precision, Recipe, Recompute, Scaling};
pub use roles::{Constant, Roles, Tie, Why};
pub use served::{ExpertsBy, Served};
pub use steps::bytes_of_steps;
pub use summary::{Traffic, communication};
pub use traffic::{ValueKind, ValueTraffic, traffic};
pub use words::{
    Along, ClassNames, Parameter, Split, Use, class_names, examples, operation_in_words, parameters,
    partition_in_words, recomputed, strategy, strategy_of_stage,
};
