//! What of a step runs as graphs of kernels (CUDA graphs), and how much a host still starts kernel by kernel.
//!
//! A host starts a graph as one, in microseconds whatever it has: that is taken as no time. What it starts kernel by
//! kernel takes the part of the framework's figures that its kernels are of all of a layer, counted forward:
//!
//! | part | kernels |
//! |---|---|
//! | attention | norm, product, two rotations, attention, product, sum with the residual |
//! | the rest of a layer | norm, product, activation, product, sum with the residual |
//! | router and preparation of dispatch | 17 where tokens are sent once to each node, else 31 |
//! | experts | two products of each expert; dispatch, order, activation, order back, combine |
//!
//! A product in narrow numbers is two kernels, as its operand is narrowed first. Memory that graphs have of their own
//! is not counted.
//!
//! Source: what each scope captures: Megatron-Core, "CUDA Graph",
//! <https://docs.nvidia.com/megatron-core/developer-guide/nightly/user-guide/features/cuda_graph.html>. Kernels of a
//! router, and of a layer's experts as one product each: NVIDIA, "Optimizing DeepSeek-V3 Training Performance on
//! NVIDIA GB200 NVL72", sections 1, 2.1.4, 2.2.1 and 2.3. Kernels of attention and of the rest of a layer: its
//! operations in Transformer Engine, each one kernel.

use cost_models::units::exact;

use crate::experts::local;
use crate::setup::{Arithmetic, Dispatch, Graph, Setup};

/// Products of attention, and of the rest of a layer.
const PRODUCTS: f64 = 2.0;
/// Kernels of attention besides: norm, two rotations, attention, sum.
const ATTENTION: f64 = 5.0;
/// Kernels of the rest of a layer besides: norm, activation, sum.
const REST: f64 = 3.0;
/// Kernels of a router and of what is prepared for dispatch, fused.
const ROUTER: f64 = 31.0;
/// The same where tokens are sent once to each node.
const ROUTER_ONCE: f64 = 17.0;
/// Of these, kernels that prepare dispatch: one.
const PREPROCESS: f64 = 1.0;
/// Kernels of experts besides products: dispatch, order, activation, order back, combine.
const BESIDE_EXPERTS: f64 = 5.0;

/// How much of what a layer has besides experts a host starts kernel by kernel (1).
#[must_use]
pub fn of_layer(setup: &Setup) -> f64 {
    let products = PRODUCTS * kernels_of_a_product(setup);
    let (attention, rest) = (products + ATTENTION, products + REST);
    let is_graph =
        |parts: &[Graph]| setup.graphs.iter().any(|it| *it == Graph::Iteration || parts.contains(it));
    let ends: &[Graph] =
        if setup.model.experts.is_some() { &[Graph::Router, Graph::Experts] } else { &[Graph::Mlp] };
    let left = |kernels: f64, parts: &[Graph]| if is_graph(parts) { 0.0 } else { kernels };
    (left(attention, &[Graph::Attention]) + left(rest, ends)) / (attention + rest)
}

/// How much of what experts add to a layer a host starts kernel by kernel (1), by how tokens reach them.
#[must_use]
pub fn of_experts(setup: &Setup, dispatch: Dispatch) -> f64 {
    let Some(routed) = setup.model.experts else { return 0.0 };
    let all = [Graph::Experts, Graph::Iteration];
    if setup.graphs.iter().any(|it| all.contains(it)) {
        return 0.0;
    }
    let router = match dispatch {
        Dispatch::AllToAll => ROUTER,
        Dispatch::OncePerNode => ROUTER_ONCE,
    };
    let kernels =
        router + PRODUCTS * exact(local(setup, routed)) * kernels_of_a_product(setup) + BESIDE_EXPERTS;
    let captured = |graph, of: f64| if setup.graphs.contains(&graph) { of } else { 0.0 };
    let captured = captured(Graph::Router, router - PREPROCESS) + captured(Graph::Preprocess, PREPROCESS);
    1.0 - captured / kernels
}

/// A product, and what narrows its operand.
fn kernels_of_a_product(setup: &Setup) -> f64 {
    match setup.precision {
        Arithmetic::F16 | Arithmetic::Bf16 => 1.0,
        Arithmetic::F8 | Arithmetic::F4 => 2.0,
    }
}

#[cfg(test)]
mod tests;
