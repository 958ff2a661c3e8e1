//! Tests of whole imports.

mod broken; // models that break a rule
mod corpus; // real models
mod evaluate; // graphs computed with the kernels
mod fuzz; // real models with wrong bytes
mod make; // small models, written out
mod npz; // arrays in files
#[path = "../../../tests/outside.rs"]
pub(crate) mod outside; // what may lie outside the repository
mod replace; // models with other weights
mod small; // small models
