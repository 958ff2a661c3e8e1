//! The execution plan: its JSON form, its independent checker, differences.

mod check; // the independent checker
pub mod json; // a plan as a file
mod plan; // what a plan says
#[cfg(test)]
mod samples; // plans for tests

pub use check::{MAX_DEVICES, RULES, Violation, Violations, check};
pub use plan::{Assignment, Copy, Holding, MachineName, ModelFile, Plan, Proof, SpaceSize, Term, Transfer};
