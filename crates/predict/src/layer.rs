//! The time of a layer, and of what stands before the first and after the last, for one
//! micro-batch on one rank.

use cost_models::collective::{all_reduce, reduce_scatter, ring_all_gather, send};
use cost_models::estimate::Estimate;
use cost_models::quantity::whole_bytes;
use cost_models::units::{Bytes, Seconds, exact};

use crate::attention;
use crate::experts;
use crate::framework::Figure;
use crate::graphs;
use crate::model::Latent;
use crate::pieces::{ELEMENT, Job, Way};
use crate::schedule;
use crate::setup::{Learns, Recompute};

/// Times of a part of a model, forward and backward, without waiting for the host.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    /// The forward pass.
    pub forward: Estimate,
    /// Gradients by operands, and recomputation for them.
    pub input: Estimate,
    /// Gradients by weights.
    pub weight: Estimate,
    /// The last product of the forward pass.
    pub last: Seconds,
    /// Time that a host takes to start the forward pass.
    pub launch: Seconds,
    /// Time that it takes to start recomputation.
    pub again: Seconds,
    /// Of the forward and of the backward pass, the part of experts, with what they wait for the host.
    pub experts: [Seconds; 2],
}

/// The term of waiting for the host.
pub const WAITING: &str = "waiting for the host";

/// The times of a layer in which nothing is recomputed, and of one in which what the setup
/// says is.
#[must_use]
pub fn layer(job: &Job<'_>) -> Passes {
    let mut times = products(job);
    let [forward, backward] = attention::core(job);
    times.forward.add_term("attention", forward);
    times.input.add_term("attention", backward);
    pointwise(job, &mut times);
    traffic(job, &mut times);
    let collectives = if job.setup.tp > 1 { 2.0 } else { 0.0 } + if job.setup.ep > 1 { 2.0 } else { 0.0 };
    let launch = job.figure(Figure::LayerLaunch) + collectives * job.figure(Figure::CollectiveLaunch);
    times.launch = Seconds(graphs::of_layer(job.setup) * launch);
    if let Some(routed) = job.setup.model.experts {
        wait_for_experts(job, &mut times, experts::passes(job, routed));
    }
    computed_again(job, &mut times, forward);
    if job.setup.learns == Learns::Adapters {
        times.weight = Estimate::new();
    }
    times
}

/// The host reads how many tokens each expert has, for which it waits for the device: it cannot run ahead of
/// experts while the rest of a layer is computed, nor the other way round.
fn wait_for_experts(job: &Job<'_>, times: &mut Passes, experts: [Seconds; 2]) {
    let started = graphs::of_experts(job.setup, experts::dispatch(job));
    let launch = Seconds(started * job.figure(Figure::ExpertLaunch));
    let waits = [beyond(launch, experts[0]), beyond(job.figure(Figure::BackwardLaunch) * launch, experts[1])];
    times.forward.add_term(WAITING, waits[0]);
    times.input.add_term(WAITING, waits[1]);
    times.experts = [experts[0] + waits[0], experts[1] + waits[1]];
}

fn products(job: &Job<'_>) -> Passes {
    let (setup, model) = (job.setup, &job.setup.model);
    let (n, h, tp) = (setup.tokens(), model.hidden, setup.tp);
    let part = |columns: u64| (columns / tp).max(1);
    let mut shapes = match model.latent {
        None => vec![(1, [n, part(model.qkv_columns()), h])],
        Some(Latent { query_rank, rank, rotary, value }) => vec![
            (1, [n.div_ceil(tp), query_rank.unwrap_or(0) + rank + rotary, h]),
            (1, [n, part(model.heads * model.key_size()), query_rank.unwrap_or(h)]),
            (1, [n, part(model.heads * (model.head_size + value)), rank]),
        ],
    };
    shapes.push((1, [n, h, part(model.heads * model.value_size())]));
    match model.experts {
        None => {
            shapes.push((1, [n, part(model.ups() * model.ffn_hidden), h]));
            shapes.push((1, [n, h, part(model.ffn_hidden)]));
        }
        Some(routed) => {
            shapes.push((1, [n.div_ceil(tp), routed.count, h]));
            if routed.shared > 0 {
                shapes.push((1, [n, part(model.ups() * routed.shared), h]));
                shapes.push((1, [n, h, part(routed.shared)]));
            }
            shapes.extend(experts::shapes(setup, routed));
        }
    }
    let last = shapes.last().map(|&(batch, sizes)| job.product(Way::Forward, batch, sizes).total());
    let all = |way| shapes.iter().map(|&(batch, sizes)| job.product(way, batch, sizes)).sum();
    Passes {
        forward: all(Way::Forward),
        input: all(Way::Input),
        weight: all(Way::Weight),
        last: last.unwrap_or_default(),
        ..Passes::default()
    }
}

/// Norms, residuals, activations, and copies between products.
fn pointwise(job: &Job<'_>, times: &mut Passes) {
    let (setup, model) = (job.setup, &job.setup.model);
    let n = exact(ELEMENT * setup.tokens());
    let tp = exact(setup.tp);
    let shared = if setup.seq_parallel { tp } else { 1.0 };
    let hidden = job.figure(Figure::HiddenPasses) * exact(model.hidden) / shared;
    let qkv = job.figure(Figure::QkvPasses) * exact(model.qkv_columns()) / tp;
    let every = model.experts.map_or(model.ffn_hidden, |routed| routed.shared);
    let ffn = n * job.figure(Figure::FfnPasses) * exact(model.ups() * every) / tp;
    let ffn = ffn + model.experts.map_or(0.0, |routed| experts::touched(job, routed));
    let bytes = n * (hidden + qkv) + ffn;
    times.forward.add_term("pointwise", job.touch(bytes));
    times.input.add_term("pointwise", job.touch(job.figure(Figure::BackwardPasses) * bytes));
    // Products of other weights' gradients add to them.
    let weights = model.experts_parameters() / exact(setup.ep * setup.etp);
    times.weight.add_term("pointwise", job.touch(job.figure(Figure::AccumulationBytes) * weights));
}

/// What moves between ranks that share a layer.
fn traffic(job: &Job<'_>, times: &mut Passes) {
    let (setup, model) = (job.setup, &job.setup.model);
    let machine = &job.cluster.machine;
    let value = Bytes(ELEMENT * setup.tokens() * model.hidden);
    if setup.tp > 1 {
        let shown = if setup.tp_overlap { 1.0 - job.figure(Figure::TensorHidden) } else { 1.0 };
        // Attention is one block, the feed-forward part another; experts have traffic of their own.
        let blocks = if model.experts.is_some() { 1.0 } else { 2.0 };
        let (forward, backward) = if setup.seq_parallel {
            let gather = ring_all_gather(machine, &job.tensor, value);
            let scatter = reduce_scatter(machine, &job.tensor, value);
            // Backward, what was gathered is gathered again for gradients of weights.
            (blocks * (gather + scatter), blocks * (2.0 * gather + scatter))
        } else {
            let sum = blocks * all_reduce(machine, &job.tensor, value);
            (sum, sum)
        };
        times.forward.add_term("tensor-parallel traffic", shown * forward);
        let splits = schedule::kind(setup).splits_backward();
        let beside = if splits { 0.0 } else { job.figure(Figure::TensorBeside) };
        times.input.add_term("tensor-parallel traffic", (1.0 - beside) * shown * backward);
    }
    if let Some(routed) = model.experts {
        let both = 2.0 * experts::exchange(job, routed);
        times.forward.add_term("expert traffic", both);
        times.input.add_term("expert traffic", both);
    }
    if setup.cp > 1 {
        // Keys and values go around; what is computed at the same time hides them.
        let columns = (model.kv_heads * (model.key_size() + model.value_size()) / setup.tp).max(1);
        let round = Bytes(ELEMENT * setup.tokens() * columns);
        let hops = exact(setup.cp - 1);
        let ring = hops * send(machine, &job.context, round);
        let [forward, backward] = attention::core(job);
        let hidden = (hops / exact(setup.cp)) * forward;
        let back = (hops / exact(setup.cp)) * backward;
        times.forward.add_term("context traffic", beyond(ring, hidden));
        times.input.add_term("context traffic", beyond(2.0 * ring, back));
    }
}

/// What of a time is left when so much of it is hidden.
#[must_use]
pub fn beyond(time: Seconds, hidden: Seconds) -> Seconds {
    Seconds((time.0 - hidden.0).max(0.0))
}

fn computed_again(job: &Job<'_>, times: &mut Passes, attention: Seconds) {
    let part = match job.setup.recompute {
        Recompute::None => return,
        Recompute::Selective => {
            times.input.add_term("recomputed", attention);
            return;
        }
        Recompute::HalfOfProducts => {
            let half = 0.5 * times.forward.of("products") + times.forward.of("narrowing");
            times.input.add_term("recomputed", half + times.forward.of("pointwise"));
            times.again = 0.5 * times.launch;
            return;
        }
        Recompute::HalfOfLayers => 0.5,
        Recompute::Full => 1.0,
    };
    // Where that stops when all that the backward pass needs is there, the last product is left out.
    let left_out = (1.0 - job.figure(Figure::LastAgain)) * times.last;
    times.input.add_term("recomputed", part * beyond(times.forward.total(), left_out));
    times.again = part * times.launch;
}

/// The embedding: rows are looked up, and gradients added to them.
#[must_use]
pub fn embedding(job: &Job<'_>) -> Passes {
    let value = exact(ELEMENT * job.setup.tokens() * job.setup.model.hidden);
    let machine = &job.cluster.machine;
    let mut forward = Estimate::term("embedding", job.touch(4.0 * value));
    if job.setup.tp > 1 {
        forward.add_term("tensor-parallel traffic", all_reduce(machine, &job.tensor, whole_bytes(value)));
    }
    let mut weight = Estimate::new();
    if job.setup.learns == Learns::Everything {
        weight.add_term("embedding", job.touch(4.0 * value));
    }
    Passes { forward, weight, ..Passes::default() }
}

/// What joins a token's vector and the one after it, before a layer that predicts a further token: their norms, and a
/// product with both.
///
/// Source: DeepSeek-AI, "DeepSeek-V3", arXiv 2412.19437, section 2.2.
#[must_use]
pub fn joining(job: &Job<'_>) -> Passes {
    let setup = job.setup;
    let (hidden, tokens) = (setup.model.hidden, setup.tokens());
    let sizes = [tokens, hidden.div_ceil(setup.tp), 2 * hidden];
    // Both are read and written by their norms, and once more where they are put together.
    let bytes = exact(8 * ELEMENT * tokens) * exact(hidden);
    let mut forward = job.product(Way::Forward, 1, sizes);
    let mut input = job.product(Way::Input, 1, sizes);
    forward.add_term("pointwise", job.touch(bytes));
    input.add_term("pointwise", job.touch(job.figure(Figure::BackwardPasses) * bytes));
    let learns = setup.learns == Learns::Everything;
    let weight = if learns { job.product(Way::Weight, 1, sizes) } else { Estimate::new() };
    Passes { forward, input, weight, ..Passes::default() }
}

/// The last norm, logits and the loss.
#[must_use]
pub fn head(job: &Job<'_>) -> Passes {
    let (setup, model) = (job.setup, &job.setup.model);
    let columns = model.vocab.div_ceil(setup.tp);
    let sizes = [setup.tokens(), columns, model.hidden];
    let product = |way| Estimate::term("logits", job.wide_product(way, 1, sizes));
    let logits = exact(setup.tokens()) * exact(columns) * job.figure(Figure::LogitBytes);
    let (mut forward, mut input) = (product(Way::Forward), product(Way::Input));
    forward.add_term("logits", job.touch(logits / 2.0));
    input.add_term("logits", job.touch(logits / 2.0));
    if setup.tp > 1 {
        let value = Bytes(ELEMENT * setup.tokens() * model.hidden);
        let sum = all_reduce(&job.cluster.machine, &job.tensor, value);
        input.add_term("tensor-parallel traffic", sum);
    }
    let weight = if setup.learns == Learns::Everything { product(Way::Weight) } else { Estimate::new() };
    Passes { forward, input, weight, ..Passes::default() }
}
