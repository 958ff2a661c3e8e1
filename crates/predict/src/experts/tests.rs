//! Experts are shared as Megatron shares them, and tokens are sent no more often than they must be.

use super::*;
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::memory;
use crate::model::Mlp;
use crate::setup::{Recompute, Zero};
use crate::stated::gpt;
use crate::step;

const EXPERTS: Experts = Experts { count: 128, top_k: 8, shared: 0 };

/// Qwen3 30B's layers.
fn setup(tp: u64, ep: u64, etp: u64, dp: u64) -> Setup {
    let mut setup = gpt(48, 2048, 32, 4096);
    setup.model.ffn_hidden = 768;
    setup.model.mlp = Mlp::Gated;
    setup.model.experts = Some(EXPERTS);
    Setup { tp, ep, etp, dp, gbs: 4 * dp, zero: Zero::Optimizer, seq_parallel: tp > 1, ..setup }
}

fn on<T>(setup: &Setup, device: &str, of: impl Fn(&Job<'_>) -> T) -> T {
    setup.check().unwrap();
    let cluster = Cluster::new(machine_of(device).unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("megatron-core").unwrap();
    of(&Job::new(setup, &framework, &cluster).unwrap())
}

/// Of all draws of 2 of 4 experts in 2 parts, 2 of 6 lie in one part.
#[test]
fn parts_that_a_token_goes_to_are_counted_as_draws_are() {
    assert!((distinct(Experts { count: 4, top_k: 2, shared: 0 }, 2) - 10.0 / 6.0).abs() < 1e-12);
    assert!((distinct(EXPERTS, 1) - 1.0).abs() < 1e-12);
    assert!((distinct(EXPERTS, 128) - 8.0).abs() < 1e-12);
    // More experts for a token than the other parts have.
    assert!((distinct(Experts { count: 4, top_k: 3, shared: 0 }, 2) - 2.0).abs() < 1e-12);
}

/// With `etp` 1 the ranks of a group of experts are tp x cp x dp: a rank has whole experts, and no fewer
/// parameters than without tensor parallelism.
#[test]
fn experts_are_shared_over_tensor_parallel_ranks_too() {
    let experts = |setup: &Setup| on(setup, "H100-SXM5-80GB", |job| step::parameters(job)[1]);
    let all = 48.0 * 128.0 * 3.0 * 2048.0 * 768.0;
    assert!((experts(&setup(1, 8, 1, 8)) / (all / 8.0) - 1.0).abs() < 1e-12);
    assert!((experts(&setup(2, 8, 1, 4)) / (all / 8.0) - 1.0).abs() < 1e-12);
    assert!((experts(&setup(2, 4, 2, 4)) / (all / 8.0) - 1.0).abs() < 1e-12);
    let sizes = |setup: &Setup| on(setup, "H100-SXM5-80GB", |job| [job.expert.size, job.expert_data.size]);
    assert_eq!(sizes(&setup(2, 8, 1, 8)), [8, 2]);
    assert_eq!(sizes(&setup(2, 4, 2, 8)), [4, 2]);
    let refused = setup(2, 16, 1, 4).check().unwrap_err().to_string();
    assert_eq!(refused, "ep x etp is 16, expected a divisor of tp x cp x dp = 8");
}

/// A tensor-parallel rank has a part of the sequence, and sends that alone.
#[test]
fn tokens_are_divided_among_tensor_parallel_ranks() {
    assert_eq!(rows(&setup(1, 8, 1, 8), EXPERTS), 4096 * 8 / 16);
    assert_eq!(rows(&setup(2, 8, 1, 4), EXPERTS), 4096 * 8 / 2 / 16);
    assert_eq!(rows(&setup(2, 4, 2, 4), EXPERTS), 4096 * 8 / 32);
    let time = |tp: u64, dp: u64| on(&setup(tp, 8, 1, dp), "H100-SXM5-80GB", |job| exchange(job, EXPERTS).0);
    let (one, two) = (time(1, 8), time(2, 4));
    assert!((0.45..0.6).contains(&(two / one)), "{two} beside {one}");
}

/// Over two nodes a token goes across once, not for each of the four experts that are there on average.
#[test]
fn a_token_goes_to_a_node_once() {
    let time = |dispatch| {
        let setup = Setup { dispatch: Some(dispatch), ..setup(1, 16, 1, 16) };
        on(&setup, "H100-SXM5-80GB", |job| exchange(job, EXPERTS).0)
    };
    let ratio = time(Dispatch::AllToAll) / time(Dispatch::OncePerNode);
    assert!((3.0..4.5).contains(&ratio), "{ratio}");
    let inside = |dispatch| {
        let setup = Setup { dispatch: Some(dispatch), ..setup(1, 8, 1, 8) };
        on(&setup, "H100-SXM5-80GB", |job| exchange(job, EXPERTS).0)
    };
    // 8 (1 − (7/8)⁸) of 8.
    let ratio = inside(Dispatch::OncePerNode) / inside(Dispatch::AllToAll);
    assert!((0.62..0.75).contains(&ratio), "{ratio}");
}

/// A rank multiplies by the shared expert as by any other, and it is split as attention is.
#[test]
fn the_shared_expert_takes_time() {
    let with = |shared, tp| {
        let mut setup = setup(tp, 8, 1, 8 / tp);
        setup.model.experts = Some(Experts { shared, ..EXPERTS });
        on(&setup, "H100-SXM5-80GB", |job| crate::layer::layer(job).forward.of("products").0)
    };
    let more = |tp| with(6144, tp) - with(0, tp);
    // As wide as all eight experts of a token, in fewer and larger products.
    assert!((0.3..0.9).contains(&(more(1) / with(0, 1))), "{} of {}", more(1), with(0, 1));
    assert!((0.4..0.7).contains(&(more(2) / more(1))), "{} beside {}", more(2), more(1));
}

/// More imbalance never costs less, in time or in memory, up to where all tokens go to the busiest rank; nothing
/// changes where every rank has all experts.
#[test]
fn more_imbalance_never_costs_less() {
    let shares = [1.0, 1.05, 1.3, 1.72, 2.0, 5.0, 8.0, 100.0];
    for recompute in [Recompute::None, Recompute::Selective, Recompute::HalfOfProducts, Recompute::Full] {
        for (zero, dispatch) in
            [(Zero::Optimizer, Dispatch::AllToAll), (Zero::Weights, Dispatch::OncePerNode)]
        {
            for (tp, ep, etp, dp) in [(1, 1, 1, 8), (1, 8, 1, 16), (2, 4, 2, 8)] {
                let takes = |imbalance| {
                    let dispatch = Some(dispatch);
                    let (mbs, gbs) = (4, 16 * dp);
                    let setup =
                        Setup { imbalance, recompute, zero, dispatch, mbs, gbs, ..setup(tp, ep, etp, dp) };
                    let step = |job: &Job<'_>| [step::step(job).total().0, memory::peak(job).total()];
                    on(&setup, "H100-SXM5-80GB", step)
                };
                let taken = shares.map(takes);
                for pair in taken.windows(2) {
                    // A sum of terms is off by rounding, where another term is less by as much.
                    let no_less = |of: usize| pair[0][of] <= pair[1][of] * (1.0 + 1e-12);
                    assert!(no_less(0) && no_less(1), "{ep} {recompute:?}: {taken:?}");
                }
                let [time, held] = [0, 1].map(|of| taken[7][of] / taken[0][of]);
                assert_eq!(time > 1.2 && held > 1.0, ep > 1, "{ep} {recompute:?}: {time} {held}");
                // Of 8 experts of a token no rank with 16 or more has more than all: `ep` times an even share.
                let bound = takes(exact(ep)).map(f64::to_bits);
                assert_eq!(taken[7].map(f64::to_bits), bound, "{ep} {recompute:?}");
            }
        }
    }
}

/// What the busiest rank keeps of experts grows with its share: its inputs, and what products make of them.
#[test]
fn the_busiest_rank_keeps_more_of_experts() {
    let kept = |imbalance| memory::layer_activations(&Setup { imbalance, ..setup(1, 8, 1, 8) });
    let of_a_token = 8.0 * 2.0 * (2.0 * 2048.0 + 3.0 * 768.0);
    let more = kept(1.5) - kept(1.0);
    assert!((more / (0.5 * 4096.0 * of_a_token) - 1.0).abs() < 1e-12, "{more}");
}
