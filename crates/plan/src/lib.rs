//! The execution plan: its JSON form, its independent checker, differences.

mod plan; // what a plan says

pub use plan::{Assignment, Copy, Holding, MachineName, ModelFile, Plan, Proof, SpaceSize, Term, Transfer};
