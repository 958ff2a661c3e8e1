//! The memory model against published formulas, and what must always hold.

use super::*;
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::model::even_stages;
use crate::stated::gpt;

/// GPT-3 175B.
fn setup(tp: u64, pp: u64, vpp: u64, dp: u64) -> Setup {
    let stages = even_stages(96, pp);
    Setup { tp, pp, vpp, stages, dp, gbs: 64 * dp, ..gpt(96, 12288, 96, 2048) }
}

/// Source: Korthikanti et al., table 2, with `sbh` the elements of a value between layers.
#[test]
fn layers_keep_what_the_published_formulas_say() {
    let (s, h, a) = (2048.0, 12288.0, 96.0);
    for tp in [1, 2, 4, 8] {
        let t = exact(tp);
        let sbh = s * h;
        let (without, scores) = (10.0 + 24.0 / t, 5.0 * a * s / (h * t));
        let check = |seq_parallel, recompute, expected: f64| {
            let setup = Setup { seq_parallel, recompute, ..setup(tp, 8, 1, 1) };
            let found = layer_activations(&setup) / sbh;
            assert!(
                (found - expected).abs() < 1e-9,
                "{tp} {seq_parallel} {recompute:?}: {found}, not {expected}"
            );
        };
        check(false, Recompute::None, without + scores);
        check(true, Recompute::None, 34.0 / t + scores);
        check(false, Recompute::Selective, without);
        check(true, Recompute::Selective, 34.0 / t);
        check(false, Recompute::Full, 2.0);
        check(true, Recompute::Full, 2.0 / t);
    }
}

/// A shared expert of width `w` keeps `2 w` of its two products in 16 bits and `w` that the third is given, also in 8
/// bits where it is narrow: of each token 4 w + 2 w, or 4 w + w, bytes, a part of them on each tensor-parallel rank.
#[test]
fn a_shared_expert_keeps_what_its_products_make_and_are_given() {
    let of = |shared: u64, tp: u64, precision, recompute| {
        let mut setup = gpt(4, 2048, 16, 4096);
        setup.model.mlp = crate::model::Mlp::Gated;
        setup.model.ffn_hidden = 1408;
        setup.model.experts = Some(crate::model::Experts { count: 64, top_k: 6, shared });
        layer_activations(&Setup { tp, seq_parallel: tp > 1, precision, recompute, ..setup })
    };
    for (tp, precision, recompute, bytes) in [
        (1, Arithmetic::Bf16, Recompute::None, 6.0),
        (2, Arithmetic::Bf16, Recompute::None, 3.0),
        (1, Arithmetic::F8, Recompute::None, 5.0),
        (1, Arithmetic::Bf16, Recompute::Selective, 6.0),
        // Half of its products' results: those of one of two, and half of the last one's.
        (1, Arithmetic::Bf16, Recompute::HalfOfProducts, 2.0 + 2048.0 / 2816.0),
        (1, Arithmetic::Bf16, Recompute::Full, 0.0),
    ] {
        let more = of(2816, tp, precision, recompute) - of(0, tp, precision, recompute);
        let expected = 4096.0 * 2816.0 * bytes;
        assert!((more - expected).abs() < 1.0, "{tp} {precision:?} {recompute:?}: {more}, not {expected}");
    }
}

#[test]
fn the_first_stage_holds_as_much_as_all_layers_keep() {
    let whole = setup(8, 1, 1, 1);
    let staged = setup(8, 8, 1, 1);
    assert!((in_flight(&staged, 0) * 12.0 - 96.0 * in_flight(&whole, 0)).abs() < 1e-9);
    // Interleaved: (1 + (p - 1)/(p v)) times that.
    let parts = setup(8, 8, 3, 1);
    assert!((in_flight(&parts, 0) / in_flight(&staged, 0) - (1.0 + 7.0 / 24.0)).abs() < 1e-9);
}

/// Where gradients of weights are a part of their own, what they are made of is there of every micro-batch that waits
/// for that, computed again or not: 32 sbh of each layer.
///
/// Source: Qi et al., ICLR 2024, table 1, and figure 3: of 8 groups the last has 8 such, the first one, beside the inputs
/// of those whose backward part is to come.
#[test]
fn what_is_computed_again_stays_for_gradients_of_weights() {
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("megatron-lm").unwrap();
    let sbh = 2048.0 * 12288.0;
    let schedule = ::schedule::Kind::ZeroBubbleH1;
    // Of the micro-batch whose backward part is done now there are scores, too: of a layer, or, kept, of all.
    let scores = 5.0 * 96.0 * 2048.0 / 12288.0;
    for (recompute, before, now) in [
        (Recompute::Full, 2.0, scores),
        (Recompute::Selective, 34.0, scores),
        (Recompute::None, 34.0 + scores, 12.0 * (2.0 + scores)),
    ] {
        let setup = Setup { schedule, recompute, ..setup(1, 8, 1, 1) };
        let held = stages(&Job::new(&setup, &framework, &cluster).unwrap());
        for (stage, held) in held.iter().enumerate() {
            let apart = f64::from(u8::try_from(stage).unwrap()) + 1.0;
            let first = if stage == 0 { 2.0 } else { 0.0 };
            let expected = 12.0 * ((8.0 - apart) * before + apart * 32.0) + now + first;
            let found = held.activations / sbh;
            assert!((found - expected).abs() < 1e-6, "{recompute:?}, stage {stage}: {found}, not {expected}");
        }
    }
}

#[test]
fn more_devices_never_hold_more() {
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("megatron-lm").unwrap();
    let total = |setup: &Setup| peak(&Job::new(setup, &framework, &cluster).unwrap()).total();
    for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
        for zero in [Zero::Nothing, Zero::Optimizer, Zero::Gradients, Zero::Weights] {
            for tp in [1, 2, 4] {
                for pp in [1, 2, 4, 8] {
                    for dp in [1, 2, 8] {
                        let with = |it: Setup| Setup { recompute, zero, ..it };
                        let held = total(&with(setup(tp, pp, 1, dp)));
                        assert!(total(&with(setup(2 * tp, pp, 1, dp))) <= held);
                        assert!(total(&with(setup(tp, pp, 1, 2 * dp))) <= held);
                        assert!(total(&with(setup(tp, 2 * pp, 1, dp))) <= held);
                    }
                }
            }
        }
    }
}

/// What is believed to fit though it is more than there is, is not said to fit without a word.
#[test]
fn what_is_more_than_there_is_fits_by_a_margin_that_is_said() {
    let framework = Framework::shipped("megatron-core").unwrap();
    let said = |fits, held| verdict(fits, [held, 80e9], &framework);
    assert_eq!(said(true, 80e9), "fits");
    assert_eq!(said(false, 90e9), "does not fit");
    let margin = format!("by up to {} %", 100.0 * framework.at(Figure::MemoryMargin));
    assert!(said(true, 80.1e9).ends_with(&margin), "{margin}");
}
