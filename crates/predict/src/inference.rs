//! The time to answer: to read prompts, and to write token after token.
//!
//! A token of `b` examples passes all layers once; what it takes is mostly to read weights, and the
//! keys and values of the `c` tokens before:
//!
//! ```text
//! t = layers · (products of b rows + keys and values read + sums among tensor-parallel ranks)
//!     + logits + start
//! ```
//!
//! Source: Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023, section 3.

use cost_models::units::{Seconds, exact};

use crate::framework::Figure;
use crate::layer;
use crate::pieces::{ELEMENT, Job};
use crate::setup::{Arithmetic, Setup};

/// Bytes of an element of a weight.
fn weight_bytes(setup: &Setup) -> f64 {
    if matches!(setup.precision, Arithmetic::F8 | Arithmetic::F4) { 1.0 } else { exact(ELEMENT) }
}

/// Time to pass the setup's tokens through all layers and the logits of the last of each example;
/// with as many tokens as examples, the time of a step of writing, without keys and values.
#[must_use]
pub fn pass(job: &Job<'_>) -> Seconds {
    let layers = exact(job.setup.model.layers);
    let one = layer::layer(job);
    // Graphs of kernels are launched at once, so that the host is not waited for.
    let start = Seconds(job.figure(Figure::StepOverhead));
    layers * one.forward.total() + layer::head(job).forward.total() + start
}

/// Time to read the keys and values of `tokens` tokens in all layers.
#[must_use]
pub fn keys_and_values(job: &Job<'_>, tokens: f64) -> Seconds {
    job.touch(tokens * key_value_bytes(job.setup))
}

/// Bytes of keys and values of a token on a rank, in all layers.
#[must_use]
pub fn key_value_bytes(setup: &Setup) -> f64 {
    let model = &setup.model;
    let columns = exact(2 * model.kv_heads * model.head_size) / exact(setup.tp.min(model.kv_heads));
    weight_bytes(setup) * exact(model.layers) * columns
}

/// How many examples of so many tokens have room beside the weights.
#[must_use]
pub fn room(job: &Job<'_>, tokens: f64) -> f64 {
    /// The part of the memory beside weights that engines give to keys and values.
    const CACHE: f64 = 0.9;
    let setup = job.setup;
    let weights = weight_bytes(setup) * setup.model.parameters() / exact(setup.tp);
    let left = CACHE * (exact(job.cluster.machine.usable_memory().0) - weights);
    left / (key_value_bytes(setup) * tokens)
}
