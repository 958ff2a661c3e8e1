//! Plans of small setups, read back by who does not know the setup.

use cost_models::cluster::Cluster;
use cost_models::machine::shipped;
use export::strategy::Again;
use export::{Job, Runs, Strategy, Target};
use plan::json::Content;
use planner_ir::{Layout, Source, StateKind, Value};
use predict::model::even_stages;
use predict::model::{Embedding, Experts, Mlp};
use predict::setup::{Arithmetic, Recompute, Setup, Zero};
use predict::stated::gpt;

use super::{cluster, divisible, planned};

/// A small GPT or Llama, one example to a micro-batch.
fn setup(mlp: Mlp, layers: u64, [tp, pp, cp, dp]: [u64; 4]) -> Setup {
    let mut setup = gpt(layers, 128, 4, 64);
    (setup.model.mlp, setup.model.vocab, setup.precision) = (mlp, 256, Arithmetic::Bf16);
    if mlp == Mlp::Gated {
        (setup.model.kv_heads, setup.model.embedding) = (2, Embedding::Untied);
    }
    let (gbs, stages) = (4 * dp, even_stages(layers, pp));
    Setup { tp, pp, cp, dp, gbs, stages, ..setup }
}

fn on(setup: &Setup) -> Cluster {
    cluster(setup, &shipped::named("h100-80g-1x").unwrap()).unwrap()
}

/// What a plan of a setup does, as who does not know the setup reads it from the plan.
fn read(setup: &Setup) -> Strategy {
    let content = planned(setup, &on(setup)).unwrap();
    let job = match &content {
        Content::Plan(plan) => Job::of_plan(plan),
        Content::Pipeline(pipeline) => Job::of_pipeline(pipeline),
        Content::Generation(_) => panic!("no training"),
    };
    match export::export(&job, Target::Megatron).unwrap().runs {
        Runs::Strategy(strategy) => strategy,
        Runs::Parameters | Runs::Serving(_) => panic!("no strategy"),
    }
}

#[test]
fn a_plan_does_what_its_setup_says() {
    let whole = Setup { zero: Zero::Weights, ..setup(Mlp::Gated, 2, [1, 1, 1, 8]) };
    let found = read(&whole);
    assert_eq!((found.data, found.zero, found.sharded, found.micro_batches), (8, 3, 8, 4));
    let states = read(&Setup { zero: Zero::Optimizer, ..whole.clone() });
    assert_eq!((states.zero, states.sharded), (1, 8));
    let in_nodes = Setup { zero: Zero::WeightsInNode, ..setup(Mlp::Gated, 2, [1, 1, 1, 16]) };
    let found = read(&in_nodes);
    assert_eq!((found.data, found.zero, found.sharded), (16, 3, 8));
    let nothing = Setup { zero: Zero::Nothing, ..whole };
    let alike = read(&nothing);
    assert_eq!((alike.data, alike.zero), (8, 0));
    // Gradients of four micro-batches are summed once.
    let Content::Plan(plan) = planned(&nothing, &on(&nothing)).unwrap() else { panic!("stages") };
    let owes = |value: &Value, layout: &Layout| match &value.source {
        Source::State(state) if state.kind == StateKind::Gradient => Some(!layout.owed.is_empty()),
        _ => None,
    };
    let states: Vec<bool> = plan
        .graph
        .values
        .iter()
        .zip(&plan.layouts)
        .filter_map(|(value, layout)| owes(value, layout))
        .collect();
    assert!(!states.is_empty() && states.iter().all(|owes| *owes), "{states:?}");
}

#[test]
fn a_pipeline_does_what_its_setup_says() {
    let recompute = Recompute::Full;
    let staged = Setup { vpp: 2, seq_parallel: true, recompute, ..setup(Mlp::Plain, 4, [2, 2, 1, 2]) };
    let found = read(&staged);
    assert_eq!((found.tensor, found.sequence, found.pipeline, found.chunks, found.data), (2, true, 2, 2, 2));
    assert_eq!((found.layers.as_slice(), found.recompute), (&[1; 4][..], Again::Full));
    let selective = Recompute::Selective;
    let found = read(&Setup { recompute: selective, ..setup(Mlp::Gated, 2, [2, 1, 2, 1]) });
    assert_eq!((found.tensor, found.context, found.recompute), (2, 2, Again::Selective));
}

#[test]
fn what_is_not_planned_is_refused_with_the_reason() {
    let plain = setup(Mlp::Gated, 2, [1, 1, 1, 3]);
    let refused = |setup: &Setup, expected: &str| {
        let found = planned(setup, &on(setup)).unwrap_err().to_string();
        assert_eq!(found, expected);
    };
    refused(
        &Setup { precision: Arithmetic::F4, ..plain.clone() },
        "stated products in 4 bits are priced by the figures of frameworks, and not planned",
    );
    refused(
        &Setup { zero: Zero::Weights, ..plain.clone() },
        "vectors of 128 elements are not sharded over 3 devices",
    );
    let fewer = divisible(&Setup { zero: Zero::Weights, ..plain.clone() }, 8);
    assert_eq!((fewer.dp, fewer.gbs, fewer.devices()), (2, 8, 2));
    let nodes = Setup { zero: Zero::Weights, ..setup(Mlp::Gated, 2, [1, 1, 1, 96]) };
    assert_eq!((divisible(&nodes, 8).dp, divisible(&plain, 8).dp), (64, 3));
    let mut narrow = Setup { precision: Arithmetic::F8, ..plain.clone() };
    narrow.model.experts = Some(Experts { count: 4, top_k: 2, shared: 0 });
    refused(&narrow, "experts with products in 8 bits are not planned");
    let mut shared = plain;
    shared.model.experts = Some(Experts { count: 4, top_k: 2, shared: 64 });
    refused(&shared, "experts beside one that all tokens go to are not written");
}
