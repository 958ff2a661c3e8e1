//! Tests of what another program has at rest.

use cost_models::machine::shipped;
use plan::{MachineName, ModelFile, Plan};
use planner_ir::{Contract, DType, Graph, Label, Mesh, Op, Output, Source, Type, Unary, ValueId};
use rewrite::Steps;

use super::Beside;
use crate::{Live, MachinePrices, Pinned, PlanError, Request, plan, sections};

/// Layers of two products and something between, of so many rows.
fn layers(rows: u64) -> Graph {
    let mut graph = Graph::default();
    let value =
        |graph: &mut Graph, shape: [u64; 2], source| graph.push_value(Type::new(DType::BF16, shape), source);
    let mut x = value(&mut graph, [rows, 256], Source::Input("x".to_owned()));
    let product = |graph: &mut Graph, x: ValueId, w: ValueId| {
        let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
        let op = Op::Contract(Contract { left: labels("mk"), right: labels("kn"), result: labels("mn") });
        let types = op.infer(&graph.types_of(&[x, w])).expect("types fit");
        graph.push_node(op, vec![x, w], types, String::new())[0]
    };
    for layer in 0..4 {
        let up = value(&mut graph, [256, 1024], Source::Weight(format!("up.{layer}")));
        let down = value(&mut graph, [1024, 256], Source::Weight(format!("down.{layer}")));
        let wide = product(&mut graph, x, up);
        let op = Op::Unary(Unary::Tanh);
        let types = op.infer(&graph.types_of(&[wide])).expect("types fit");
        let wide = graph.push_node(op, vec![wide], types, String::new())[0];
        x = product(&mut graph, wide, down);
    }
    graph.outputs.push(Output { name: "y".to_owned(), value: x });
    graph
}

/// What all weights take (bytes).
const WEIGHTS: u64 = 4 * 2 * 256 * 1024 * 2;

/// What is counted of the plan of so many rows beside something else, in so much memory.
fn planned(rows: u64, beside: Beside, capacity: u64) -> Result<Plan, PlanError> {
    let graph = layers(rows);
    let blocks = rewrite::blocks(&graph);
    let sections = sections(&blocks);
    let machine = shipped::named("h100-80g-4x").expect("is a machine");
    let mesh = Mesh::parse("4").expect("is a mesh");
    let prices = MachinePrices::new(&machine, &mesh).expect("suits");
    let pinned = Pinned { beside: beside.clone(), ..Pinned::default() };
    let holds = |plan: &Plan| {
        let all = plan::held(&plan.memory);
        let at_rest = plan.memory.iter().filter(|it| it.kind == "weights").map(|it| it.bytes).sum::<u64>();
        let shared: u64 = beside.shared(plan).into_iter().sum();
        Ok(beside.resident + at_rest - shared + (all - at_rest).max(beside.arena))
    };
    plan(&Request {
        graph: &blocks.graph,
        sections: &sections,
        mesh: &mesh,
        capacity,
        prices: &prices,
        model: &ModelFile { path: "model.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &MachineName { name: machine.full_name(), devices: 4, sha256: None },
        steps: Steps::One,
        live: Live::ONE,
        pinned: Some(&pinned),
        fixed: &[],
        trail: None,
        memory: &holds,
        enough: &|_| false,
    })
}

/// What a plan has at rest (bytes).
fn at_rest(plan: &Plan) -> u64 {
    Beside::of(plan, 0, 0).shared(plan).into_iter().sum()
}

/// What is left besides what is at rest: less than a quarter of all weights (bytes).
const STEP: u64 = 1_000_000;

#[test]
fn weights_that_are_held_alike_take_nothing() {
    let few = planned(4, Beside::default(), WEIGHTS / 2).expect("fits");
    let known = Beside::of(&few, at_rest(&few), 0);
    // All weights take more than a step, even split.
    let capacity = known.resident + STEP;
    let found = planned(64, known.clone(), capacity).expect("fits beside it");
    let shared: u64 = known.shared(&found).into_iter().sum();
    assert!(shared > known.resident / 4 * 3, "{shared} of {}", known.resident);
    // Where it is not known how weights are held, there is no room for others.
    let unknown = Beside { resident: known.resident, ..Beside::default() };
    assert!(planned(64, unknown, capacity).is_err());
}

#[test]
fn the_memory_of_the_other_steps_is_there_whatever_a_step_needs() {
    let arena = WEIGHTS;
    let capacity = WEIGHTS / 4 + STEP + arena;
    let alone = planned(4, Beside::default(), capacity).expect("fits");
    let beside = planned(4, Beside::of_steps(arena), capacity).expect("fits");
    assert!(at_rest(&alone) > at_rest(&beside), "{} and {}", at_rest(&alone), at_rest(&beside));
    assert!(at_rest(&beside) + arena <= capacity);
    let refused = planned(4, Beside::of_steps(arena), WEIGHTS / 4 + arena - 1);
    assert!(refused.is_err_and(|error| error.is_proven()));
}
