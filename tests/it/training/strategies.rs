//! Plans of the kinds that people make by hand: data parallel, ZeRO, tensor and sequence parallel.
//!
//! Prices that prefer a kind make the search choose it from the same space; the words of the plan
//! say that it is there, its bytes are those of the textbook, and it trains as PyTorch does.

use std::collections::BTreeMap;

use plan::{Plan, Recompute, ValueKind, strategy, traffic};
use planner_ir::{Graph, Op, Phase, Source, State, StateKind};
use search::MachinePrices;

use super::cases::{ADAMW, Case, MOMENTUM, gpt2, parted};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use crate::corpus::machine;

/// The plan of a manner, for micro-batches of so many examples each.
fn planned(case: &Case, manner: Manner, mesh: &str, parts: u64, decision: Recompute) -> Plan {
    let (mesh, machine) = machine(mesh);
    let training = case.training(if decision == Recompute::Full { MOMENTUM } else { ADAMW }, decision);
    let micro_batches = parted(&case.batch(0), parts);
    let shape = micro_batches[0]["input_ids"].shape();
    let machine_prices = MachinePrices::new(&machine, &mesh).unwrap();
    let (batch, sequence) = (shape[0], shape[1]);
    let hidden = case.file.weight("model.transformer.wte.weight").unwrap().shape()[1];
    let prices = Preferring { manner, machine: machine_prices, batch, sequence, hidden };
    case.plan_by(&training, &micro_batches, &mesh, &machine, &prices).unwrap()
}

/// Bytes over a step, by kind of value and of move, moves that carry nothing left out.
fn moved(plan: &Plan) -> BTreeMap<(ValueKind, &'static str), u64> {
    let all = traffic(plan).into_iter();
    let bytes = |it: plan::ValueTraffic| ((it.kind, it.traffic.name), it.traffic.bytes);
    all.map(bytes).filter(|it| it.1 > 0).collect()
}

/// The bytes of all parameters.
fn parameters(graph: &Graph) -> u64 {
    let is = |source: &Source| matches!(source, Source::State(State { kind: StateKind::Parameter, .. }));
    graph.values.iter().filter(|value| is(&value.source)).map(|value| value.type_.bytes()).sum()
}

/// The bytes that are added to gradients in a micro-batch: those of all parameters, a tied one once
/// for each use.
fn added(graph: &Graph) -> u64 {
    let mut sums: Vec<bool> = vec![false; graph.values.len()];
    for (index, value) in graph.values.iter().enumerate() {
        sums[index] = matches!(value.source, Source::State(State { kind: StateKind::Gradient, .. }));
    }
    let mut bytes = 0;
    for node in graph.nodes.iter().filter(|node| node.phase == Phase::Gradient) {
        if node.operands.first().is_some_and(|operand| sums[operand.0]) {
            sums[node.results[0].0] = true;
            bytes += graph.type_of(node.results[0]).bytes();
        }
    }
    bytes
}

/// The bytes of parameters that a micro-batch's operations use whole: of a parameter for each use,
/// so that it is gathered for the forward and again for the backward pass; of what is taken from
/// one (and kept, if it is not done again) once.
fn gathered(graph: &Graph) -> u64 {
    let mut taken: Vec<bool> = Vec::new();
    for value in &graph.values {
        taken.push(matches!(value.source, Source::State(State { kind: StateKind::Parameter, .. })));
    }
    let mut bytes = 0;
    let mut kept = std::collections::BTreeSet::new();
    for node in graph.nodes.iter().filter(|node| node.phase != Phase::Update) {
        let takes = matches!(node.op, Op::Slice { .. } | Op::Reshape { .. } | Op::Transpose { .. });
        if takes && taken[node.operands[0].0] {
            taken[node.results[0].0] = true;
            continue;
        }
        for &operand in node.operands.iter().filter(|operand| taken[operand.0]) {
            let at_rest = matches!(graph.value(operand).source, Source::State(_));
            if at_rest || kept.insert(operand) {
                bytes += graph.type_of(operand).bytes();
            }
        }
    }
    bytes
}

/// Source: Rajbhandari et al., "ZeRO", 2020, sections 5 and 7: of P bytes of parameters, n devices
/// together receive 2 (n - 1) P in plain data parallelism (an all-reduce of gradients) and in
/// stages 1 and 2 (a reduce-scatter of gradients, an all-gather of parameters); in stage 3
/// parameters are gathered for the forward and again for the backward pass. From stage 2 on
/// gradients are reduced for each micro-batch, in stage 3 parameters are gathered for each. Tied
/// parameters are used, and their gradients added, once more.
#[test]
fn data_parallel_plans_are_those_of_the_textbook() {
    let Some(case) = gpt2() else { return };
    for (stage, words) in
        [(0, "data parallel over a"), (1, "ZeRO-1 over a"), (2, "ZeRO-2 over a"), (3, "ZeRO-3 (FSDP) over a")]
    {
        for decision in [Recompute::Nothing, Recompute::Full] {
            let plan = planned(&case, Manner::Data(stage), "2", 1, decision);
            check_plan(&plan).unwrap();
            let said = strategy(&plan);
            assert!(said.iter().any(|it| it.starts_with(words)), "stage {stage}: {said:?}");
            let p = parameters(&plan.graph);
            let (kinds, mut expected) = (moved(&plan), BTreeMap::new());
            match stage {
                0 => drop(expected.insert((ValueKind::Gradient, "all-reduce"), 2 * p)),
                1 => drop(expected.insert((ValueKind::Gradient, "reduce-scatter"), p)),
                _ => drop(expected.insert((ValueKind::Gradient, "reduce-scatter"), added(&plan.graph))),
            }
            if stage == 1 || stage == 2 {
                expected.insert((ValueKind::Parameter, "all-gather"), p);
            }
            if stage == 3 {
                expected.insert((ValueKind::Parameter, "all-gather"), gathered(&plan.graph));
            }
            let states = [ValueKind::Gradient, ValueKind::Parameter, ValueKind::OptimizerState];
            let found: BTreeMap<_, _> =
                kinds.into_iter().filter(|((kind, _), _)| states.contains(kind)).collect();
            assert_eq!(found, expected, "stage {stage}, {decision:?}");
            let kind = if decision == Recompute::Full { "sgd" } else { "adamw" };
            case.check_steps(&plan, kind, 1).unwrap();
        }
    }
}

#[test]
fn tensor_and_sequence_parallel_plans_train_as_pytorch() {
    let Some(case) = gpt2() else { return };
    for (manner, mesh, parts, decision) in [
        (Manner::Tensor, "2", 1, Recompute::Nothing),
        (Manner::Tensor, "4", 2, Recompute::Full),
        (Manner::Sequence, "2", 1, Recompute::Full),
        (Manner::Sequence, "2", 1, Recompute::Nothing),
    ] {
        let plan = planned(&case, manner, mesh, parts, decision);
        check_plan(&plan).unwrap();
        let said = strategy(&plan);
        let has = |words: &str| said.iter().any(|it| it.starts_with(words));
        assert!(has("tensor parallel over a"), "{said:?}");
        assert_eq!(has("sequence parallel over a"), manner == Manner::Sequence, "{said:?}");
        let kind = if decision == Recompute::Full { "sgd" } else { "adamw" };
        case.check_steps(&plan, kind, parts).unwrap();
    }
}
