//! Training steps of real models, planned for several meshes, run on ranks, and held against what
//! PyTorch computed: losses, gradients, parameters after one and three steps.
//!
//! The model in `tests/models` is always there. More models and all oracles are used where they lie
//! beside the repository; without them the tests say what they left out.

mod cases; // models, and what PyTorch made of them
mod against; // plans on ranks, held against that
mod chosen; // the plans that the search chooses
mod roles; // what the dimensions of a step are
pub(crate) mod manners; // prices that prefer the plans that people make by hand
mod activations; // what is kept for the backward pass
mod keeping; // what is kept value by value
mod forced; // plans made to use what is offered
mod bytes; // what plans move, and what the textbook says
mod textbook; // every oracle under every kind of plan that people make by hand
mod phases; // gradients partitioned otherwise than what they are of
mod megatron; // what tensor and sequence parallel plans move of activations
mod context; // attention whose keys and values go around
mod in_time; // products whose blocks go around, on two axes
mod written; // what training writes
mod pipelines; // steps in stages, each on devices of its own
mod one; // steps on one device: what recipes mean

use super::corpus::{expect_none, faults_of};
