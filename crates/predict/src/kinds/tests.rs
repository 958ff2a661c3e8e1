//! Nodes of two kinds wait for each other.

use super::*;
use crate::device::machine_of;
use crate::model::even_stages;
use crate::stated::gpt;

fn setup(pp: u64, dp: u64) -> Setup {
    Setup { pp, dp, gbs: 8 * dp, dp_overlap: false, stages: even_stages(8, pp), ..gpt(8, 4096, 32, 2048) }
}

/// The answer on so many ranks of each device.
fn on(setup: &Setup, devices: &[(&str, u64)]) -> Answer {
    setup.check().unwrap();
    let machines = devices.iter().map(|(device, ranks)| (machine_of(device).unwrap(), *ranks)).collect();
    let framework = Framework::shipped("megatron-lm").unwrap();
    answer(setup, &kinds(machines, &framework, &Links::default(), "a test").unwrap()).unwrap()
}

const A100: &str = "A100-SXM4-80GB";
const H100: &str = "H100-SXM5-80GB";

#[test]
fn one_kind_is_what_it_is_alone_however_often_it_is_named() {
    let time = |devices: &[(&str, u64)]| on(&setup(1, 16), devices).time.total().0;
    assert!((time(&[(A100, 8), (A100, 8)]) / time(&[(A100, 16)]) - 1.0).abs() < 1e-12);
}

/// Replicas wait for the slowest: the others' devices save nothing.
#[test]
fn replicas_are_as_slow_as_the_slowest_kind() {
    let of = |devices: &[(&str, u64)]| on(&setup(1, 16), devices).time;
    let (mixed, slow, fast) = (of(&[(H100, 8), (A100, 8)]), of(&[(A100, 16)]), of(&[(H100, 16)]));
    assert!((mixed.of("products").0 / slow.of("products").0 - 1.0).abs() < 1e-12);
    assert!(mixed.total().0 >= slow.total().0 * (1.0 - 1e-12) && slow.total().0 > 1.5 * fast.total().0);
}

/// The first stage is on the first kind: a bubble is that of the stages as they are.
#[test]
fn stages_are_on_the_kinds_that_have_their_ranks() {
    let of = |devices: &[(&str, u64)]| on(&setup(2, 8), devices).time;
    let (mixed, slow, fast) = (of(&[(H100, 8), (A100, 8)]), of(&[(A100, 16)]), of(&[(H100, 16)]));
    let bubble = |time: &Estimate| time.of("pipeline bubble").0;
    assert!(bubble(&mixed) < bubble(&slow) && bubble(&mixed) > 0.9 * bubble(&fast));
    assert!(mixed.total().0 < slow.total().0 && mixed.total().0 > fast.total().0);
}

/// The memory that is fullest counts: 32 GB of a V100 beside 80 GB of an A100.
#[test]
fn what_does_not_fit_one_kind_does_not_fit() {
    let of = |devices: &[(&str, u64)]| on(&setup(1, 16), devices);
    let mixed = of(&[(A100, 8), ("V100-SXM2-32GB", 8)]);
    assert!(of(&[(A100, 16)]).fits);
    assert!(!mixed.fits && mixed.room < 34e9, "{} of {}", mixed.held.total(), mixed.room);
}
