//! The time of the core of attention: scores, softmax, and their product with values.
//!
//! Kernels compute heads whose vectors are a multiple of 32 long, and pad others; beyond 256 there is none, and
//! scores are written to memory. How much slower heads of 64 are than those of 128, and how much faster 8 bits
//! are, is what the device's laws of measured operations say, where it has them: a softmax takes as long for
//! short vectors as for long ones.
//!
//! Source: Dao, "FlashAttention-2", arXiv 2307.08691, and its `headdim_switch`; `docs/operation-validation.md`,
//! `context_attention`.

use cost_models::compute::{self, Seen, attention, attention_gradient};
use cost_models::machine::{Device, Precision};
use cost_models::operations::{Format, Operation, operation};
use cost_models::units::{Seconds, exact};

use crate::framework::Figure;
use crate::pieces::{ELEMENT, Job, Way};
use crate::setup::{Attention, Setup};

/// The longest vector of a head that one kernel computes.
const LONGEST: u64 = 256;
/// Vectors are padded to a multiple of this.
const PADDED: u64 = 32;
/// The vectors of heads that rates of machine files are of.
const USUAL: u64 = 128;

/// How attention is computed: where heads are too long for one kernel, scores are written to memory.
#[must_use]
pub fn kernel(setup: &Setup) -> Attention {
    if setup.model.key_size() > LONGEST { Attention::Unfused } else { setup.attention }
}

/// Time of the core of attention forward, and backward.
#[must_use]
pub fn core(job: &Job<'_>) -> [Seconds; 2] {
    let rate = job.figure(Figure::AttentionRate);
    match kernel(job.setup) {
        Attention::Unfused => unfused(job),
        Attention::Flash => fused(job, rate * job.figure(Figure::FlashRate), Format::Bfloat16),
        Attention::Fused => fused(job, rate, Format::Bfloat16),
        Attention::FusedF8 => fused(job, rate, Format::Fp8),
    }
}

/// Heads of a rank, of all examples of a micro-batch.
fn heads(setup: &Setup) -> u64 {
    setup.mbs * (setup.model.heads / setup.tp).max(1)
}

fn unfused(job: &Job<'_>) -> [Seconds; 2] {
    let (setup, model, heads) = (job.setup, &job.setup.model, heads(job.setup));
    let (queries, keys) = (model.seq.div_ceil(setup.cp), model.seq);
    let sizes = [[queries, keys, model.key_size()], [queries, model.value_size(), keys]];
    let one = |way| sizes.iter().map(|&it| job.wide_product(way, heads, it)).sum::<Seconds>();
    let scores = exact(ELEMENT * heads * queries) * exact(keys);
    let passes = job.figure(Figure::ScorePasses);
    let back = passes * job.figure(Figure::BackwardPasses);
    let backward = one(Way::Input) + one(Way::Weight) + job.touch(back * scores);
    [one(Way::Forward) + job.touch(passes * scores), backward]
}

fn fused(job: &Job<'_>, rate: f64, format: Format) -> [Seconds; 2] {
    let (setup, model) = (job.setup, &job.setup.model);
    let device = &job.cluster.machine.device;
    let size = model.key_size().next_multiple_of(PADDED);
    let kernel = compute::Attention {
        heads: heads(setup),
        queries: model.seq.div_ceil(setup.cp),
        keys: model.seq,
        seen: Seen::half(model.seq),
        key_size: size,
        value_size: model.value_size().next_multiple_of(PADDED),
        precision: Precision::Bf16,
    };
    let packed = if setup.packed { job.figure(Figure::PackedExamples) } else { 1.0 };
    let part = 1.0 / (packed * rate * relative(device, size, format));
    [attention, attention_gradient].map(|price| part * price(device, &kernel))
}

/// The rate of attention with heads of this size and type, relative to heads of 128 in 16 bits, by the laws
/// of the device; 1 where it has none.
#[must_use]
pub fn relative(device: &Device, size: u64, format: Format) -> f64 {
    // Sizes between those that kernels are measured with are computed as the next.
    let size = [64, USUAL, LONGEST].into_iter().find(|&it| size <= it).unwrap_or(LONGEST);
    let usual = measured(device, USUAL, Format::Bfloat16);
    usual.zip(measured(device, size, format)).map_or(1.0, |(usual, time)| usual / time)
}

/// Time of as much attention as 32 heads of 128 have, over a long prompt (seconds).
fn measured(device: &Device, head_size: u64, format: Format) -> Option<f64> {
    let heads = 32 * USUAL / head_size;
    let (batch, queries, before) = (1, 8192, 0);
    let prefill = operation::Attention {
        batch,
        queries,
        before,
        heads,
        kv_heads: heads,
        head_size,
        window: None,
        windows: true,
        format,
        cache: format,
    };
    let law = format!("context_attention {} {}", format.name(), format.name());
    device.time(&law, &Operation::Prefill(prefill)).map(|time| time.0)
}

#[cfg(test)]
mod tests;
