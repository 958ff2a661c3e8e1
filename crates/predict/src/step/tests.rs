//! What must hold of every step: terms that sum to the total, work that is not lost.

use super::*;
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::model::{Dense, Experts, even_stages};
use crate::setup::{Recompute, Setup};
use crate::stated::gpt;

/// GPT of 8 layers on A100.
fn setup(tp: u64, pp: u64, dp: u64) -> Setup {
    Setup { tp, pp, dp, stages: even_stages(8, pp), gbs: 16, ..gpt(8, 4096, 32, 2048) }
}

fn time(setup: &Setup) -> Estimate {
    setup.check().unwrap();
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("megatron-lm").unwrap();
    step(&Job::new(setup, &framework, &cluster).unwrap())
}

#[test]
fn terms_are_not_negative_and_sum_to_the_total() {
    for setup in
        [setup(1, 1, 1), setup(2, 2, 4), setup(8, 4, 2), Setup { zero: Zero::Weights, ..setup(1, 1, 16) }]
    {
        let time = time(&setup);
        let sum: f64 = time.terms().iter().map(|term| term.time.0).sum();
        assert!(time.terms().iter().all(|term| term.time.0 >= 0.0), "{time}");
        assert!((sum / time.total().0 - 1.0).abs() < 1e-12);
    }
}

#[test]
fn devices_save_time_and_never_all_of_what_they_could() {
    let one = time(&setup(1, 1, 1)).total();
    for (tp, pp, dp) in [(2, 1, 1), (8, 1, 1), (1, 2, 1), (1, 8, 1), (1, 1, 2), (1, 1, 8), (2, 2, 2)] {
        let many = time(&setup(tp, pp, dp)).total();
        let devices = exact(tp * pp * dp);
        assert!(many.0 < one.0, "tp {tp}, pp {pp}, dp {dp}: {many}, not below {one}");
        // Rounding to tiles may favour a part a little.
        assert!(devices * many.0 > 0.97 * one.0, "tp {tp}, pp {pp}, dp {dp}: {devices} x {many} below {one}");
    }
}

/// A layer that predicts a further token takes more than another one, by a pass through the head, in time and memory,
/// and is where stages say that it is.
#[test]
fn a_layer_that_predicts_a_further_token_passes_through_the_head() {
    let with = |further, stages: [u64; 2]| {
        let mut setup = Setup { stages: stages.to_vec(), ..setup(1, 2, 1) };
        setup.model.further = further;
        setup
    };
    let [plain, one, two] = [with(0, [4, 4]), with(1, [4, 4]), with(2, [4, 4])];
    let [none, ones, twos] = [&plain, &one, &two].map(|it| time(it).of("logits").0);
    assert!(none > 0.0 && (ones / none - 2.0).abs() < 1e-9 && (twos / none - 3.0).abs() < 1e-9);
    assert!(time(&plain).total().0 < time(&one).total().0);
    let held = |setup: &Setup| {
        let cluster =
            Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
        let framework = Framework::shipped("megatron-lm").unwrap();
        crate::memory::stages(&Job::new(setup, &framework, &cluster).unwrap())
    };
    let [before, after] = [held(&plain), held(&one)];
    assert_eq!(before[0], after[0]);
    assert!((after[1].logits / before[1].logits - 2.0).abs() < 1e-9 && before[1].weights < after[1].weights);
    // Of stages of which the last has the head alone, the one before predicts the further token.
    let split = with(1, [8, 0]);
    assert_eq!([0, 1].map(|stage| (split.further(stage), split.heads(stage))), [(1, 1), (0, 1)]);
    assert_eq!([0, 1].map(|stage| split.tables(stage)), [1, 1]);
    let mut refused = one.clone();
    refused.model.further = 8;
    assert!(refused.check().is_err());
}

#[test]
fn what_is_computed_again_takes_time() {
    let of = |recompute| time(&Setup { recompute, ..setup(1, 1, 1) }).total().0;
    let (none, selective, full) = (of(Recompute::None), of(Recompute::Selective), of(Recompute::Full));
    assert!(none < selective && selective < full);
    // A forward pass is a third of forward and backward.
    assert!((full / none - 4.0 / 3.0).abs() < 0.05, "{}", full / none);
}

#[test]
fn long_exchanges_hide_their_hops_and_short_ones_their_bytes() {
    // A second of hops, and a second for each byte.
    let price = |size: Bytes| Seconds(1.0 + exact(size.0));
    let of = |bytes: u64| piecewise(Bytes(bytes), price).0;
    assert!((of(1) - 2.0_f64.sqrt().sqrt()).abs() < 1e-12);
    assert!((of(100) / 100.0 - 1.0).abs() < 1e-6 && of(100) < price(Bytes(100)).0);
    assert!(piecewise(Bytes(5), |_| Seconds(3.0)).0.to_bits() == 3.0_f64.to_bits());
}

/// GPT 175B in DeepSpeed with ZeRO-3, of which each rank has `mbs` examples.
fn sharded_gpt(framework: &str, dp: u64, mbs: u64, dp_overlap: bool) -> Estimate {
    let (zero, recompute) = (Zero::Weights, Recompute::Full);
    let setup = Setup { dp, mbs, zero, recompute, dp_overlap, gbs: dp * mbs, ..gpt(96, 12_288, 96, 2048) };
    setup.check().unwrap();
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped(framework).unwrap();
    step(&Job::new(&setup, &framework, &cluster).unwrap())
}

/// Each of a layer's 12 tensors goes around all ranks by itself: 1535 hops for each, three times a step, and
/// once more to be summed. On eight adapters alone the 350 GB would take 1.75 s each time.
#[test]
fn tensors_that_are_gathered_one_by_one_wait_for_every_hop() {
    let part = |time: &Estimate| time.of("sharding traffic").0 / time.total().0;
    let many = sharded_gpt("deepspeed", 1536, 1, false);
    assert!(part(&many) > 0.5, "{many}");
    assert!(many.of("sharding traffic").0 > 2.0 * 4.0 * 1.75, "{many}");
    // With a quarter of the ranks, each with four times the work, most of it is gone.
    let few = sharded_gpt("deepspeed", 384, 4, false);
    assert!(part(&few) < 0.25, "{few}");
    let together = sharded_gpt("megatron-core", 1536, 1, false);
    assert!(together.of("sharding traffic").0 < 0.5 * many.of("sharding traffic").0, "{together}");
    // Nothing is hidden where nobody says that it is.
    assert!(sharded_gpt("megatron-core", 1536, 1, true).of("sharding traffic").0 < 1e-9);
    assert!(together.of("contention").0.abs() < 1e-12 && many.of("contention").0.abs() < 1e-12);
}

/// Gradients that are sharded are reduced in every micro-batch, but for a pipeline's; weights that were gathered are
/// gathered again where they are let go.
#[test]
fn sharded_gradients_are_reduced_in_every_micro_batch() {
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let terms = |framework: &str, setup: &Setup| {
        setup.check().unwrap();
        let framework = Framework::shipped(framework).unwrap();
        let time = step(&Job::new(setup, &framework, &cluster).unwrap());
        ["gradient reduction", "weight gathering"].map(|it| time.of(it).0)
    };
    let with = |zero, pp| Setup { zero, dp_overlap: false, ..setup(1, pp, 2) };
    let grow_by = |framework, pp, expected: [f64; 2]| {
        let [once, each] = [Zero::Optimizer, Zero::Gradients].map(|zero| terms(framework, &with(zero, pp)));
        assert!(once.iter().all(|it| *it > 0.0));
        for ((once, each), times) in once.into_iter().zip(each).zip(expected) {
            assert!((each / once / times - 1.0).abs() < 1e-9, "{framework}, {pp} stages: {once}, {each}");
        }
    };
    // Sixteen examples of two replicas, one in a micro-batch.
    assert_eq!(with(Zero::Gradients, 1).microbatches(), 8);
    grow_by("megatron-core", 1, [8.0, 1.0]);
    grow_by("deepspeed", 1, [8.0, 1.0]);
    grow_by("torchtitan", 1, [8.0, 8.0]);
    grow_by("torchtitan", 2, [1.0, 1.0]);
}

/// No setup takes less than its floor, whatever is sharded or recomputed and whichever layers have no experts; and where
/// little else takes time, the floor is most of it.
#[test]
fn no_step_takes_less_than_its_floor() {
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("megatron-lm").unwrap();
    let mut experts = gpt(8, 4096, 32, 2048);
    experts.model.experts = Some(Experts { count: 8, top_k: 2, shared: 0 });
    let mut some = experts.clone();
    some.model.dense = Some(Dense { layers: vec![0, 1, 4], width: 8192 });
    let mut tried = 0;
    for base in [&gpt(8, 4096, 32, 2048), &experts, &some] {
        for (tp, pp, vpp) in [(1, 1, 1), (2, 2, 1), (4, 4, 1), (1, 2, 4), (2, 4, 2)] {
            for (zero, recompute) in [
                (Zero::Nothing, Recompute::None),
                (Zero::Optimizer, Recompute::Selective),
                (Zero::Weights, Recompute::Full),
            ] {
                for schedule in [Kind::OneForwardOneBackward, Kind::GPipe, Kind::ZeroBubbleH1] {
                    if vpp > 1 && schedule != Kind::OneForwardOneBackward {
                        continue;
                    }
                    let (dp, stages) = (2, even_stages(8, pp));
                    let cut = Setup { tp, pp, vpp, dp, stages, gbs: 32, ..base.clone() };
                    let setup = Setup { zero, recompute, schedule, seq_parallel: tp > 1, ..cut };
                    setup.check().unwrap();
                    let job = Job::new(&setup, &framework, &cluster).unwrap();
                    let (time, floor) = (step(&job).total().0, floor(&setup, layer_floors(&job)).0);
                    assert!(floor <= time, "{setup:?}: {time}, floor {floor}");
                    let alone = (tp, pp, recompute) == (1, 1, Recompute::None);
                    assert!(!alone || floor > 0.8 * time, "{setup:?}: {time}, floor {floor}");
                    tried += 1;
                }
            }
        }
    }
    assert_eq!(tried, 99);
}
