//! Tests of raising.

pub(crate) mod evaluate; // graphs computed with the kernels
mod models; // real models
#[path = "../../../../tests/outside.rs"]
mod outside; // what may lie outside the repository
mod random; // random graphs
mod proof; // a rule's two sides, computed
mod rules; // every rule on numbers
