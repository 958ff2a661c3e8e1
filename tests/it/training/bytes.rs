//! What plans move of parameters and their gradients, and what the textbook says that they move.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Plan, ValueKind, traffic};
use planner_ir::{Graph, Op, Phase, Source, State, StateKind, Type, ValueId};

/// Bytes by kind of value and of move.
pub(super) type Moved = BTreeMap<(ValueKind, &'static str), u64>;

/// What a step moves of parameters, gradients and optimizer states; moves that carry nothing left out.
pub(super) fn of_states(plan: &Plan) -> Moved {
    let states = [ValueKind::Gradient, ValueKind::Parameter, ValueKind::OptimizerState];
    let all = traffic(plan).into_iter();
    let some = all.filter(|it| it.traffic.bytes > 0 && states.contains(&it.kind));
    some.map(|it| ((it.kind, it.traffic.name), it.traffic.bytes)).collect()
}

/// What a step moves of these in data parallelism over all ranks, from this stage of ZeRO on.
///
/// Source: Rajbhandari et al., "ZeRO", 2020, sections 5 and 7: of P bytes of parameters, n devices
/// together receive 2 (n - 1) P in plain data parallelism (an all-reduce of gradients) and in
/// stages 1 and 2 (a reduce-scatter of gradients, an all-gather of parameters); in stage 3
/// parameters are gathered for the forward and again for the backward pass. From stage 2 on
/// gradients are reduced for each micro-batch, in stage 3 parameters are gathered for each. Tied
/// parameters are used, and their gradients added, once more. Parameters none of whose dimensions
/// falls into n parts stay whole in every stage.
pub(super) fn of_textbook(plan: &Plan, stage: u8, ranks: u64) -> Moved {
    let graph = &plan.graph;
    let times = graph.training.as_ref().map_or(1, |it| it.micro_batches);
    let falls = |type_: &Type| stage > 0 && type_.shape.iter().any(|it| it.is_multiple_of(ranks));
    let (mut split, mut whole) = (0, 0);
    for value in graph.values.iter().filter(|it| is_state(&it.source, StateKind::Parameter)) {
        *(if falls(&value.type_) { &mut split } else { &mut whole }) += value.type_.bytes();
    }
    let gradients = if stage == 1 { split } else { times * added(graph, falls) };
    let parameters = if stage == 3 { times * gathered(graph, falls) } else { split };
    let all = [
        ((ValueKind::Gradient, "all-reduce"), 2 * whole),
        ((ValueKind::Gradient, "reduce-scatter"), gradients),
        ((ValueKind::Parameter, "all-gather"), parameters),
    ];
    all.into_iter().filter(|it| it.1 > 0).map(|(what, bytes)| (what, (ranks - 1) * bytes)).collect()
}

fn is_state(source: &Source, wanted: StateKind) -> bool {
    matches!(source, Source::State(State { kind, .. }) if *kind == wanted)
}

/// The bytes that are added to those gradients in a micro-batch: those of their parameters, a tied
/// one once for each use.
fn added(graph: &Graph, falls: impl Fn(&Type) -> bool) -> u64 {
    let mut sums: Vec<bool> =
        graph.values.iter().map(|it| is_state(&it.source, StateKind::Gradient) && falls(&it.type_)).collect();
    let mut bytes = 0;
    for node in graph.nodes.iter().filter(|node| node.phase == Phase::Gradient) {
        if node.operands.first().is_some_and(|operand| sums[operand.0]) {
            sums[node.results[0].0] = true;
            bytes += graph.type_of(node.results[0]).bytes();
        }
    }
    bytes
}

/// The bytes of those parameters that a micro-batch's operations use whole: of a parameter for each
/// use, so that it is gathered for the forward and again for the backward pass; of what is taken
/// from one (and kept, if it is not done again) once.
fn gathered(graph: &Graph, falls: impl Fn(&Type) -> bool) -> u64 {
    let mut taken: Vec<bool> = graph
        .values
        .iter()
        .map(|it| is_state(&it.source, StateKind::Parameter) && falls(&it.type_))
        .collect();
    let mut bytes = 0;
    let mut kept: BTreeSet<ValueId> = BTreeSet::new();
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
