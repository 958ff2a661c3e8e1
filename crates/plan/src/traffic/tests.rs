//! Tests of traffic: the sums of the literature, of steps partitioned by hand.
//!
//! What all `n` devices together receive: `n − 1` times a value where it is gathered or its addends
//! are scattered, twice that where it is summed for all. With `P` bytes of parameters, `m`
//! micro-batches and activations of `A` bytes:
//!
//! ```text
//! DDP      gradients 2 (n − 1) P
//! ZeRO-1   gradients (n − 1) P, parameters (n − 1) P
//! ZeRO-2   gradients m (n − 1) P, parameters (n − 1) P
//! ZeRO-3   gradients m (n − 1) P, parameters 2 m (n − 1) P: gathered forward and backward
//! tensor   activations 2 m (n − 1) A forward and as much backward, for each pair of products
//! with the sequence split  half as much of each twice, and inputs of products gathered once more
//! ```
//!
//! Source: Rajbhandari et al., "ZeRO", 2020, section 7; Shoeybi et al., "Megatron-LM", 2019, section
//! 3; Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
//! section 4.2.2.

use std::collections::BTreeMap;

use arbtest::arbtest;

use super::ValueKind::{Activation, ActivationGradient, Gradient, Parameter};
use super::{ValueKind, traffic};
use crate::samples::steps::{Ways, step};
use crate::{check, communication, samples};

/// The bytes of all parameters: a scale, columns and rows, of f32.
const P: u64 = (16 + 16 * 32 + 32 * 16) * 4;
/// The bytes of the scale of the norm.
const NORM: u64 = 16 * 4;
/// The bytes of an activation between products.
const A: u64 = 8 * 4 * 16 * 4;

/// The one place that knows how traffic is asked for: all of it but for the total of the loss.
fn moved(mesh: &str, ways: Ways<'_>, micro_batches: u64) -> Vec<(ValueKind, &'static str, u64)> {
    let plan = step(mesh, ways, micro_batches);
    assert_eq!(check(&plan), Ok(()));
    let all = traffic(&plan);
    let sum: u64 = all.iter().map(|it| it.traffic.bytes).sum();
    assert_eq!(sum, communication(&plan).iter().map(|it| it.bytes).sum::<u64>());
    let some = all.into_iter().filter(|it| it.kind != ValueKind::Total && it.traffic.bytes > 0);
    some.map(|it| (it.kind, it.traffic.name, it.traffic.bytes)).collect()
}

/// Steps with one and three micro-batches, on two and four devices.
fn each(ways: Ways<'_>, expected: impl Fn(u64, u64) -> Vec<(ValueKind, &'static str, u64)>) {
    for devices in [2, 4] {
        for micro_batches in [1, 3] {
            let found = moved(&format!("a={devices}"), ways, micro_batches);
            assert_eq!(found, expected(devices - 1, micro_batches), "{devices} devices, {micro_batches}");
        }
    }
}

const DATA: Ways<'_> = Ways { data: Some("a"), ..Ways::NONE };
const ZERO_1: Ways<'_> = Ways { moments: Some("a"), ..DATA };
const ZERO_2: Ways<'_> = Ways { gradients: Some("a"), ..ZERO_1 };
const ZERO_3: Ways<'_> = Ways { parameters: Some("a"), ..ZERO_2 };
const TENSOR: Ways<'_> = Ways { tensor: Some("a"), ..Ways::NONE };

#[test]
fn data_parallel_steps_sum_gradients_once() {
    each(DATA, |peers, _| vec![(Gradient, "all-reduce", 2 * peers * P)]);
}

#[test]
fn zero_moves_what_its_stages_say() {
    each(ZERO_1, |peers, _| {
        vec![(Parameter, "all-gather", peers * P), (Gradient, "reduce-scatter", peers * P)]
    });
    each(ZERO_2, |peers, times| {
        vec![(Parameter, "all-gather", peers * P), (Gradient, "reduce-scatter", times * peers * P)]
    });
    // The scale of the norm is not needed for gradients backward.
    each(ZERO_3, |peers, times| {
        let gathered = times * peers * (2 * P - NORM);
        vec![(Parameter, "all-gather", gathered), (Gradient, "reduce-scatter", times * peers * P)]
    });
}

#[test]
fn tensor_parallel_steps_sum_activations_forward_and_backward() {
    each(TENSOR, |peers, times| {
        let summed = 2 * times * peers * A;
        vec![(Activation, "all-reduce", summed), (ActivationGradient, "all-reduce", summed)]
    });
}

#[test]
fn with_the_sequence_split_sums_are_scattered_and_gathered() {
    // Forward the input of the first product is gathered, and for its gradient again; the sum of
    // the second is scattered. Backward it is the other way round. The gradient of the norm is
    // summed.
    each(Ways { sequence: Some("a"), ..TENSOR }, |peers, times| {
        let once = times * peers * A;
        vec![
            (Activation, "all-gather", 2 * once),
            (Activation, "reduce-scatter", once),
            (ActivationGradient, "all-gather", once),
            (ActivationGradient, "reduce-scatter", once),
            (Gradient, "all-reduce", 2 * peers * NORM),
        ]
    });
}

#[test]
fn what_moves_over_two_axes_adds_up() {
    // Each of two groups for data sums its half of the split parameters; each of two groups for
    // tensors sums its half of the activations.
    let both = Ways { data: Some("a"), tensor: Some("b"), ..Ways::NONE };
    let gradients = 2 * (P - NORM) + 2 * 2 * NORM;
    let summed = 2 * 3 * A;
    let expected = vec![
        (Activation, "all-reduce", summed),
        (ActivationGradient, "all-reduce", summed),
        (Gradient, "all-reduce", gradients),
    ];
    assert_eq!(moved("a=2,b=2", both, 3), expected);
}

#[test]
fn all_that_moves_is_counted_once() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        let mut all: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for it in traffic(&plan) {
            let (count, bytes) = all.entry(it.traffic.name).or_default();
            *count += it.traffic.count;
            *bytes += it.traffic.bytes;
        }
        let expected = communication(&plan).into_iter().map(|it| (it.name, (it.count, it.bytes)));
        assert_eq!(all, expected.collect());
        Ok(())
    });
}
