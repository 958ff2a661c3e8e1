//! Training steps on two axes whose products are in time steps, forward and backward.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Assignment, Plan, Recompute};
use planner_ir::{Graph, Node, NodeId, Op, Optimizer, Phase, Source, ValueId};
use rewrite::Steps;
use search::MachinePrices;

use super::cases::{self, ADAMW, Case, MOMENTUM, parted};
use super::chosen::check_plan;
use super::manners::{Form, Manner, Preferring, SIDE, falls};
use super::roles::stems;
use super::{expect_none, faults_of};
use crate::corpus::machine;

/// On what ranks train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Threads,
    /// Threads, and a GPU that is not there.
    Both,
}

/// What is planned: the model, how blocks go around, the optimizer; and what trains by it.
const TRIALS: [(&str, Form, Optimizer, On); 4] = [
    ("gpt2/legacy.onnx", Form::Square, ADAMW, On::Both),
    ("llama/legacy.onnx", Form::Square, MOMENTUM, On::Threads),
    ("qwen3/legacy.onnx", Form::Ring, MOMENTUM, On::Threads),
    ("llama/legacy.onnx", Form::Ring, ADAMW, On::Both),
];

/// What a product with a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pass {
    /// Y = X W.
    Result,
    /// dX = dY Wᵀ.
    Input,
    /// dW = Xᵀ dY.
    Weight,
}

/// What a product is for, if it is one of matrices that all fall into blocks.
fn pass(graph: &Graph, stems: &[bool], node: &Node) -> Option<Pass> {
    let Op::Contract(_) = node.op else { return None };
    let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
    let of_parameters = node.operands.iter().filter(|it| stems[it.0]).count();
    let large = node.results.iter().all(|it| graph.type_of(*it).rank() > 1);
    match (node.phase, of_parameters) {
        _ if !falls(&loops) || !large => None,
        (Phase::Forward, 1) => Some(Pass::Result),
        (Phase::Backward | Phase::Gradient, 1) => Some(Pass::Input),
        (Phase::Backward | Phase::Gradient, 0) => Some(Pass::Weight),
        _ => None,
    }
}

/// The products with parameters: what each is for.
fn products(graph: &Graph) -> Vec<(NodeId, Pass)> {
    let stems = stems(graph);
    graph.node_ids().filter_map(|id| Some((id, pass(graph, &stems, graph.node(id))?))).collect()
}

/// How many products of each pass have a partition of the form, and how many there are.
fn counted(plan: &Plan, form: Form) -> BTreeMap<Pass, (usize, usize)> {
    let graph = &plan.graph;
    let stems = stems(graph);
    let mut counts = BTreeMap::new();
    for (id, pass) in products(graph) {
        let node = graph.node(id);
        let Assignment::Computed { partition, .. } = &plan.assignments[id.0] else { continue };
        let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
        let of_parameters: Vec<bool> = node.operands.iter().map(|it| stems[it.0]).collect();
        let count: &mut (usize, usize) = counts.entry(pass).or_default();
        count.0 += usize::from(partition.steps == SIDE && form.is_of(partition, &loops, &of_parameters));
        count.1 += 1;
    }
    counts
}

/// The values that parameters of products are on their way to the products, and their gradients on
/// their way to the updates, and what the updates make; but what is cut into parameters of several
/// products, or put together of their gradients.
fn of_products(graph: &Graph) -> BTreeSet<ValueId> {
    let stems = stems(graph);
    let mut found = BTreeSet::new();
    for (id, pass) in products(graph) {
        let node = graph.node(id);
        match pass {
            Pass::Weight => found.extend(node.results.iter().copied()),
            _ => found.extend(node.operands.iter().copied().filter(|it| stems[it.0])),
        }
    }
    let shapes = |node: &Node| matches!(node.op, Op::Reshape { .. } | Op::Transpose { .. });
    for node in graph.nodes.iter().rev().filter(|node| shapes(node) && stems[node.operands[0].0]) {
        if found.contains(&node.results[0]) {
            found.insert(node.operands[0]);
        }
    }
    for node in &graph.nodes {
        let later = matches!(node.phase, Phase::Gradient | Phase::Update) || shapes(node);
        let from = node.operands.iter().any(|it| !stems[it.0] && found.contains(it));
        if later && from && !matches!(node.op, Op::Concat { .. }) {
            found.extend(node.results.iter().copied());
        }
    }
    found.retain(|it| graph.type_of(*it).rank() > 1);
    found
}

/// Says what parameter or gradient of a product is not at home: moved outside of the products, or
/// held by a device in more than its part.
fn check_home(plan: &Plan) -> Result<(), String> {
    let values = of_products(&plan.graph);
    let parameters = |it: &&ValueId| matches!(plan.graph.value(**it).source, Source::State(_));
    if !values.iter().any(|it| parameters(&it)) {
        return Err("no parameter of a product".to_owned());
    }
    for &value in &values {
        let type_ = plan.graph.type_of(value);
        let held = plan.layouts[value.0].local_type(type_).elements();
        if held * plan.mesh.devices() != type_.elements() {
            return Err(format!("{held} of {} elements of {value:?} are held", type_.elements()));
        }
    }
    let moved =
        plan.transfers.iter().find(|it| values.contains(&it.value) && it.bytes.iter().any(|it| *it > 0));
    moved.map_or(Ok(()), |it| {
        let source = &plan.graph.value(it.value).source;
        Err(format!("{:?} of {source:?} is moved by {:?} to {:?}", it.value, it.moves, it.layout))
    })
}

fn check(case: &Case, form: Form, optimizer: Optimizer, on: On) -> Result<(), String> {
    let (mesh, machine) = machine("2x2");
    let training = case.training(optimizer, Recompute::Nothing);
    let prepared = case.prepared(&training, &parted(&case.batch(0), 1));
    let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
    let prices = Preferring::new(Manner::InTime(form), prices, &prepared.graph, &prepared.sections);
    let plan = case.plan_in(&prepared, &mesh, &machine, &prices, Steps::Offered)?;
    check_plan(&plan)?;
    let counts = counted(&plan, form);
    println!("{} {form:?}: {counts:?}", case.title);
    for pass in [Pass::Result, Pass::Input, Pass::Weight] {
        let (found, all) = counts.get(&pass).copied().unwrap_or_default();
        if found == 0 || found != all {
            return Err(format!("{found} of {all} products of {pass:?} are in steps"));
        }
    }
    if form == Form::Square {
        check_home(&plan)?;
    }
    case.check_training(&plan, optimizer, 1)?;
    match on {
        On::Threads => Ok(()),
        On::Both => case.check_on_gpu(&plan, optimizer, 1).map_err(|error| format!("on a GPU: {error}")),
    }
}

#[test]
fn products_in_time_steps_on_two_axes_train_as_pytorch() {
    let mut failures = Vec::new();
    for (model, form, optimizer, on) in TRIALS {
        let mut all = cases::all().into_iter();
        let Some(path) = all.find(|path| path.to_string_lossy().contains(model)) else { continue };
        let what = format!("{model} by {form:?}");
        failures.extend(faults_of(&what, || {
            let wrong = check(&Case::load(&path).stretched(1, SIDE), form, optimizer, on).err();
            wrong.map(|error| format!("{what}: {error}")).into_iter().collect()
        }));
    }
    expect_none(&failures);
}
