//! The bytes that a rank holds at the peak of a training step, by kind.
//!
//! Values that a layer keeps for its backward pass are counted tensor by tensor, in units of one
//! value `[tokens, hidden]`; with scores in memory and dropout this is
//!
//! ```text
//! tokens · hidden · (10 + 24/t + 5 a s/(h t))       34 in place of 10 + 24/t if split along the sequence
//! ```
//!
//! Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
//! MLSys 2023, table 2; without scores and dropout the same is counted of what one kernel keeps.
//! An expert that all tokens go to keeps what a feed-forward part of its width does: what its first products make, and
//! what its last product is given; what it is given is kept for the router already.
//! How many micro-batches a stage holds: Narayanan et al., SC21, section 2.2, and Megatron-LM,
//! `schedules.py`, for interleaved pipelines; Qi et al., ICLR 2024, for zero bubble.

use ::schedule::{held, held_apart};
use cost_models::quantity::whole_bytes;
use cost_models::units::{Bytes, exact};

use crate::attention;
use crate::experts;
use crate::framework::{Figure, Framework};
use crate::pieces::{ELEMENT, Job};
use crate::schedule::{self, real};
use crate::setup::{Arithmetic, Attention, Kinds, Learns, Recompute, Setup, Zero};

/// Bytes of a rank, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Weights (bytes).
    pub weights: f64,
    /// Gradients (bytes).
    pub gradients: f64,
    /// States of the optimizer, master weights included (bytes).
    pub optimizer: f64,
    /// Values kept for the backward pass (bytes).
    pub activations: f64,
    /// Logits and their gradients (bytes).
    pub logits: f64,
    /// Workspace, and what an allocator adds (bytes).
    pub workspace: f64,
}

impl Held {
    /// Everything (bytes).
    #[must_use]
    pub fn total(&self) -> f64 {
        self.by_kind().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Each kind in words, with its bytes.
    #[must_use]
    pub fn by_kind(&self) -> [(&'static str, f64); 6] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer states", self.optimizer),
            ("activations", self.activations),
            ("logits", self.logits),
            ("workspace", self.workspace),
        ]
    }
}

/// What the rank of the fullest stage holds.
#[must_use]
pub fn peak(job: &Job<'_>) -> Held {
    stages(job).into_iter().max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
}

/// What a rank of each stage holds.
#[must_use]
pub fn stages(job: &Job<'_>) -> Vec<Held> {
    let kinds = Kinds::of(job.setup);
    (0..job.setup.stages.len()).map(|stage| of_stage(job, &kinds, stage)).collect()
}

/// Whether what a rank holds, with what driver and communication take, is there; by how much the
/// model of memory may err, setups are believed to fit.
#[must_use]
pub fn fits(job: &Job<'_>, held: &Held) -> bool {
    let sure = held.total() * (1.0 - job.figure(Figure::MemoryMargin));
    sure <= exact(room(job).0)
}

/// Whether that many bytes fit, of what there is, in words; and by what they are believed to where they are more.
#[must_use]
pub fn verdict(fits: bool, [held, room]: [f64; 2], framework: &Framework) -> String {
    match (fits, held > room) {
        (false, _) => "does not fit".to_owned(),
        (true, false) => "fits".to_owned(),
        (true, true) => {
            let margin = 100.0 * framework.at(Figure::MemoryMargin);
            format!("fits if less is held than is said, by up to {margin} %")
        }
    }
}

/// Memory of a device that a program can use.
#[must_use]
pub fn room(job: &Job<'_>) -> Bytes {
    job.cluster.machine.usable_memory()
}

fn of_stage(job: &Job<'_>, kinds: &Kinds<'_>, stage: usize) -> Held {
    let setup = job.setup;
    let [whole, apart] = [in_flight(setup, stage), in_flight_apart(setup, stage)];
    let mut held = states(job, kinds, stage);
    let (mut kept, mut working) = (0.0, 0.0_f64);
    for (layers, setup) in kinds.at(stage) {
        // What gradients of weights are made of: scores are not.
        let left = kept_values(setup, Attention::Fused);
        kept += layers * (layer_activations(setup) * (whole - apart) + left * apart);
        // Recomputation for one layer is there besides, and values that the backward pass works on: of what is not
        // computed again, all that the micro-batch kept whose backward part is done now.
        working = match setup.recompute {
            Recompute::None if apart > 0.0 => {
                working + (layer_activations(setup) - left) * layers / real(schedule::sizes(setup)[1])
            }
            _ => working.max(worked_on(setup)),
        };
    }
    held.activations = kept + working + if stage == 0 { exact(ELEMENT) * token_values(setup) } else { 0.0 };
    let logits = exact(setup.tokens() * setup.heads(stage)) * exact(setup.model.vocab.div_ceil(setup.tp));
    held.logits = job.figure(Figure::HeldLogitBytes) * logits;
    let holes = job.figure(Figure::Fragmentation) * (held.activations + held.logits);
    held.workspace = job.figure(Figure::Workspace) + holes;
    held
}

/// Elements of a value `[tokens, hidden]` that a rank holds between layers.
fn token_values(setup: &Setup) -> f64 {
    let whole = exact(setup.tokens() * setup.model.hidden);
    if setup.seq_parallel { whole / exact(setup.tp) } else { whole }
}

/// What a layer keeps for its backward pass, of one micro-batch (bytes).
#[must_use]
pub fn layer_activations(setup: &Setup) -> f64 {
    let input = exact(ELEMENT) * token_values(setup);
    match setup.recompute {
        Recompute::Full => input,
        Recompute::HalfOfProducts => half_of_products(setup),
        Recompute::HalfOfLayers => f64::midpoint(input, kept_values(setup, attention::kernel(setup))),
        // Scores are what selective recomputation does not keep.
        Recompute::Selective => kept_values(setup, Attention::Fused) + dropout_masks(setup),
        Recompute::None => kept_values(setup, attention::kernel(setup)) + dropout_masks(setup),
    }
}

/// A layer's input, the result of attention, and every second product's result (bytes).
fn half_of_products(setup: &Setup) -> f64 {
    let model = &setup.model;
    let load = model.experts.map_or(1.0, |it| experts::imbalance(setup, it));
    let shared = match model.experts {
        Some(it) if it.shared > 0 => exact(model.ups() * it.shared + model.hidden),
        _ => 0.0,
    };
    let products =
        exact(model.qkv_columns() + 2 * model.hidden) + load * exact(model.ups() * model.ffn_hidden) + shared;
    let columns = exact(model.heads * model.value_size()) + products / 2.0;
    exact(ELEMENT) * (token_values(setup) + exact(setup.tokens()) * columns / exact(setup.tp))
}

/// What is there of one layer while it is recomputed, or its backward part is done, beside what stays for the gradients
/// of weights; nothing if nothing is.
fn worked_on(setup: &Setup) -> f64 {
    match setup.recompute {
        _ if schedule::kind(setup).splits_backward() => {
            kept_values(setup, attention::kernel(setup)) - kept_values(setup, Attention::Fused)
        }
        Recompute::Full | Recompute::HalfOfLayers => kept_values(setup, attention::kernel(setup)),
        Recompute::Selective | Recompute::HalfOfProducts | Recompute::None => 0.0,
    }
}

/// Values of a layer in 16 bits, and scores with the mask of their dropout (bytes).
fn kept_values(setup: &Setup, attention: Attention) -> f64 {
    let model = &setup.model;
    let (tokens, t) = (exact(setup.tokens()), exact(setup.tp));
    let element = exact(ELEMENT);
    // What products are given is kept as they are given it: in 8 bits where they are narrow.
    let narrow = matches!(setup.precision, Arithmetic::F8 | Arithmetic::F4);
    let given = if narrow { 1.0 } else { element };
    // Inputs of the two norms, and what products make of their results.
    let shared = 2.0 * (element + given) * token_values(setup);
    let routed = model.experts.map_or(1.0, |it| experts::imbalance(setup, it) * exact(it.top_k));
    let (qkv, context) = (exact(model.qkv_columns()), exact(model.heads * model.value_size()));
    let attended = element * (qkv + context) + if narrow { given * context } else { 0.0 };
    // Of a feed-forward part what its first products make, and what its last is given.
    let of_width = |width: u64| exact(width) * (element * exact(model.ups()) + given);
    let ffn = routed * of_width(model.ffn_hidden) + of_width(model.experts.map_or(0, |it| it.shared));
    // What experts are given is the tokens once more for each, and their results are put together.
    let sent = if model.experts.is_some() { (element + given) * routed * exact(model.hidden) } else { 0.0 };
    let split = tokens * (attended + ffn + sent) / t;
    let scores = match attention {
        Attention::Flash | Attention::Fused | Attention::FusedF8 => 0.0,
        Attention::Unfused => 5.0 * exact(setup.mbs * model.heads) * exact(model.seq) * exact(model.seq) / t,
    };
    shared + split + scores
}

/// Masks of the two dropouts after attention and after the feed-forward part, a byte each: in
/// models of the times when scores were in memory.
fn dropout_masks(setup: &Setup) -> f64 {
    match attention::kernel(setup) {
        Attention::Unfused => 2.0 * token_values(setup),
        Attention::Flash | Attention::Fused | Attention::FusedF8 => 0.0,
    }
}

/// How many micro-batches' values a stage holds at once.
#[must_use]
pub fn in_flight(setup: &Setup, stage: usize) -> f64 {
    let sizes = schedule::sizes(setup);
    real(held(schedule::kind(setup), sizes, stage)) / real(sizes[1])
}

/// Of how many of these only the gradients of weights are to be made.
///
/// What is left for them of a layer of GPT are 32 sbh bytes: Qi et al., ICLR 2024, table 1.
fn in_flight_apart(setup: &Setup, stage: usize) -> f64 {
    let sizes = schedule::sizes(setup);
    real(held_apart(schedule::kind(setup), sizes, stage)) / real(sizes[1])
}

/// Weights, gradients and optimizer states of a stage.
fn states(job: &Job<'_>, kinds: &Kinds<'_>, stage: usize) -> Held {
    let setup = job.setup;
    let [dense, experts] = kinds.parameters_of_rank(stage);
    let shares = [(dense, exact(job.data.size)), (experts, exact(job.expert_data.size))];
    let sum = |from: Zero| {
        let part = |(count, ranks): (f64, f64)| if setup.zero >= from { count / ranks } else { count };
        shares.into_iter().map(part).sum::<f64>()
    };
    let weights = sum(Zero::WeightsInNode);
    // Those of a layer, and of the next.
    let of_layer = |setup: &Setup| {
        let (model, experts) = (&setup.model, exact(setup.ep * setup.etp));
        model.layer_parameters() / exact(setup.tp) + model.experts_parameters() / experts
    };
    let largest = kinds.at(stage).map(|it| of_layer(it.1)).fold(0.0, f64::max);
    let gathered = if setup.zero >= Zero::WeightsInNode { 2.0 * largest } else { 0.0 };
    let learned = f64::from(u8::from(setup.learns == Learns::Everything));
    let element = exact(ELEMENT);
    Held {
        weights: (element + job.figure(Figure::ParameterBytes)) * weights + element * gathered,
        gradients: learned * job.gradient_bytes() * sum(Zero::Gradients),
        optimizer: learned * job.figure(Figure::OptimizerBytes) * sum(Zero::Optimizer),
        ..Held::default()
    }
}

/// A number of bytes in words.
#[must_use]
pub fn words(bytes: f64) -> String {
    whole_bytes(bytes).to_string()
}

#[cfg(test)]
mod tests;
