//! What graphs leave to a host, counted by hand.

use super::*;
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::layer::WAITING;
use crate::model::{Experts, Mlp};
use crate::pieces::Job;
use crate::stated::gpt;
use crate::step;

/// Qwen3 30B's layers on 16 ranks, 8 experts on each.
fn experts(graphs: &[Graph]) -> Setup {
    let mut setup = gpt(48, 2048, 32, 4096);
    setup.model.ffn_hidden = 768;
    setup.model.mlp = Mlp::Gated;
    setup.model.experts = Some(Experts { count: 128, top_k: 8, shared: 0 });
    Setup { dp: 16, ep: 16, gbs: 64, precision: Arithmetic::F8, graphs: graphs.to_vec(), ..setup }
}

fn waiting(setup: &Setup) -> f64 {
    setup.check().unwrap();
    let cluster = Cluster::new(machine_of("H100-SXM5-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("nemo").unwrap();
    step::step(&Job::new(setup, &framework, &cluster).unwrap()).of(WAITING).0
}

/// Of a layer in bf16 attention has 7 kernels of 12, in 8 bits 9 of 16.
#[test]
fn kernels_that_are_in_no_graph_are_counted() {
    let dense = |precision, graphs: &[Graph]| {
        of_layer(&Setup { precision, graphs: graphs.to_vec(), ..gpt(8, 4096, 32, 2048) })
    };
    let near =
        |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
    near(dense(Arithmetic::Bf16, &[]), 1.0);
    near(dense(Arithmetic::Bf16, &[Graph::Attention]), 5.0 / 12.0);
    near(dense(Arithmetic::F8, &[Graph::Attention]), 7.0 / 16.0);
    near(dense(Arithmetic::F8, &[Graph::Mlp]), 9.0 / 16.0);
    near(dense(Arithmetic::Bf16, &[Graph::Attention, Graph::Mlp]), 0.0);
    near(dense(Arithmetic::Bf16, &[Graph::Iteration]), 0.0);
    // 17 of a router, 32 of 16 products in 8 bits, 5 besides.
    let of = |graphs: &[Graph]| of_experts(&experts(graphs), Dispatch::OncePerNode);
    near(of(&[]), 1.0);
    near(of(&[Graph::Attention]), 1.0);
    near(of(&[Graph::Router]), 38.0 / 54.0);
    near(of(&[Graph::Router, Graph::Preprocess]), 37.0 / 54.0);
    near(of(&[Graph::Experts]), 0.0);
    near(of(&[Graph::Iteration]), 0.0);
    near(of_experts(&experts(&[Graph::Router, Graph::Preprocess]), Dispatch::AllToAll), 37.0 / 68.0);
    // The norm before a router is in its graph, so that of such a layer nothing is left with attention.
    near(of_layer(&experts(&[Graph::Attention, Graph::Router])), 0.0);
    near(of_layer(&experts(&[Graph::Attention, Graph::Mlp])), 7.0 / 16.0);
}

/// The more runs as graphs, the less is waited for; as a whole nothing is.
#[test]
fn graphs_take_waiting_away() {
    let parts = [Graph::Attention, Graph::Router, Graph::Preprocess];
    let times: Vec<f64> = (0..=parts.len()).map(|it| waiting(&experts(&parts[..it]))).collect();
    assert!(times[0] > 0.0 && times.windows(2).all(|it| it[1] <= it[0]), "{times:?}");
    assert!(times[3] < 0.9 * times[0], "{times:?}");
    assert!(waiting(&experts(&[Graph::Iteration])).abs() < 1e-12);
}
