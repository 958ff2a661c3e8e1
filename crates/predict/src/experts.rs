//! The experts of a layer on the busiest rank: the tokens that come to them, and the traffic for that.
//!
//! All ranks wait for the busiest, as results are exchanged in every layer. It has `imbalance` times its even share
//! of tokens, at most every token that may go to its experts ([`imbalance`]).
//!
//! Tensor-parallel ranks hold parts of the sequence between blocks, so that each sends its own part of the
//! tokens, `tokens / tp`. Ranks are numbered as Megatron does: those that compute parts of one expert
//! (`etp`) are neighbours, then those that share experts (`ep`), over all of tp x cp x dp.
//!
//! Source: Megatron-LM, `megatron/core/parallel_state.py`, `RankGenerator` of experts, and
//! `megatron/core/transformer/moe/token_dispatcher.py`.

use cost_models::collective::{all_to_all, reduce_scatter, ring_all_gather};
use cost_models::quantity::whole_bytes;
use cost_models::units::{Bytes, Seconds, exact};

use crate::framework::Figure;
use crate::model::Experts;
use crate::pieces::{ELEMENT, Job, Way};
use crate::setup::{Dispatch, Setup};

/// Tokens of the busiest rank over an even share of them:
///
/// ```text
/// 1 <= imbalance <= ep min(E/ep, k)/k
/// ```
///
/// as a token goes to an expert once, with `E/ep` experts on a rank, `k` of `E` for a token. A rank that has all
/// experts has all tokens, whatever is stated.
#[must_use]
pub fn imbalance(setup: &Setup, experts: Experts) -> f64 {
    let most = exact(setup.ep * local(setup, experts).min(experts.top_k)) / exact(experts.top_k.max(1));
    setup.imbalance.min(most).max(1.0)
}

/// Tokens that come to the busiest rank, each once for every expert of it that it goes to.
fn received(setup: &Setup, experts: Experts) -> f64 {
    imbalance(setup, experts) * exact(setup.tokens() * experts.top_k) / exact(setup.tp)
}

/// The two products of a rank's experts: how many, and their sizes.
#[must_use]
pub fn shapes(setup: &Setup, experts: Experts) -> [(u64, [u64; 3]); 2] {
    let (model, rows) = (&setup.model, rows(setup, experts));
    let part = |columns: u64| (columns / setup.etp).max(1);
    [[rows, part(model.ups() * model.ffn_hidden), model.hidden], [rows, model.hidden, part(model.ffn_hidden)]]
        .map(|sizes| (local(setup, experts), sizes))
}

/// Bytes read and written forward outside products: activations, and tokens that are put in the order of
/// their experts, and back.
#[must_use]
pub fn touched(job: &Job<'_>, experts: Experts) -> f64 {
    let (setup, model) = (job.setup, &job.setup.model);
    let active = job.figure(Figure::FfnPasses) * exact(model.ups() * model.ffn_hidden) / exact(setup.etp);
    let ordered = 4.0 * exact(model.hidden);
    exact(ELEMENT * setup.etp) * received(setup, experts) * (active + ordered)
}

/// Time of a rank's experts forward, and backward, with their traffic.
#[must_use]
pub fn passes(job: &Job<'_>, experts: Experts) -> [Seconds; 2] {
    let shapes = shapes(job.setup, experts);
    let products =
        |way| shapes.iter().map(|&(batch, sizes)| job.product(way, batch, sizes).total()).sum::<Seconds>();
    let bytes = touched(job, experts);
    let both = 2.0 * exchange(job, experts);
    let back = job.figure(Figure::BackwardPasses) * bytes;
    let backward = products(Way::Input) + products(Way::Weight) + job.touch(back) + both;
    [products(Way::Forward) + job.touch(bytes) + both, backward]
}

/// Rows of the products of one expert: what comes to the busiest rank, in equal parts for its experts.
#[must_use]
pub fn rows(setup: &Setup, experts: Experts) -> u64 {
    let all = setup.tokens() * experts.top_k * setup.etp;
    let even = all.div_ceil(setup.tp * local(setup, experts));
    whole_bytes(imbalance(setup, experts) * exact(even)).0
}

/// Experts of a rank.
#[must_use]
pub fn local(setup: &Setup, experts: Experts) -> u64 {
    (experts.count / setup.ep).max(1)
}

/// Time to bring tokens to their experts, or their results back.
#[must_use]
pub fn exchange(job: &Job<'_>, experts: Experts) -> Seconds {
    let (setup, machine) = (job.setup, &job.cluster.machine);
    let token = exact(ELEMENT * setup.model.hidden);
    // An exchange takes as long as the rank that is sent most.
    let each = imbalance(setup, experts) * exact(setup.tokens()) / exact(setup.tp) * token;
    let mut time = Seconds::ZERO;
    if setup.ep > 1 {
        time += match dispatch(job) {
            Dispatch::AllToAll => all_to_all(machine, &job.expert, whole_bytes(exact(experts.top_k) * each)),
            Dispatch::OncePerNode => {
                let size = |parts: u64| whole_bytes(distinct(experts, parts) * each);
                let inside = all_to_all(machine, &job.expert_node, size(setup.ep));
                // Tokens go on inside a node while others arrive.
                inside.max(all_to_all(machine, &job.expert_nodes, size(job.expert.nodes)))
            }
        };
    }
    if setup.etp > 1 {
        // Each of the ranks of an expert needs all its tokens, and has a part of every result.
        let gathered: Bytes = whole_bytes(received(setup, experts) * exact(setup.etp) * token);
        let gather = ring_all_gather(machine, &job.expert_tensor, gathered);
        time += 0.5 * (gather + reduce_scatter(machine, &job.expert_tensor, gathered));
    }
    time
}

/// How tokens reach their experts: as the setup says, or as the framework has it.
#[must_use]
pub fn dispatch(job: &Job<'_>) -> Dispatch {
    let once = job.figure(Figure::DispatchOnce) > 0.0;
    let usual = if once { Dispatch::OncePerNode } else { Dispatch::AllToAll };
    job.setup.dispatch.unwrap_or(usual)
}

/// In how many of `parts` equal parts of the experts those of a token are, on average:
///
/// ```text
/// p (1 − Π_{i<k} (E − E/p − i)/(E − i))
/// ```
///
/// for `k` of `E` experts that are drawn without putting back.
#[must_use]
pub fn distinct(experts: Experts, parts: u64) -> f64 {
    let (all, parts) = (exact(experts.count), exact(parts.max(1)));
    let others = all - all / parts;
    let missed = (0..experts.top_k).map(|drawn| ((others - exact(drawn)) / (all - exact(drawn))).max(0.0));
    parts * (1.0 - missed.product::<f64>())
}

#[cfg(test)]
mod tests;
