//! What the fullest device holds, found by asking at each moment who still needs what.

use planner_ir::{Graph, Layout, Source, StateKind, ValueId};

use crate::{Assignment, Copy, Holding, Plan};

/// By kind, at the first moment at which most is held.
pub(super) fn holdings(plan: &Plan) -> Vec<Holding> {
    let graph = &plan.graph;
    let local = |value: ValueId, layout: &Layout| layout.local_bytes(graph.type_of(value));
    let copies = |value: ValueId| {
        let transfers = 0..plan.transfers.len();
        let moved = transfers.filter(move |&it| plan.transfers[it].value == value).map(Copy::Transferred);
        std::iter::once(Copy::Made).chain(moved)
    };
    let mut held = [("weights", 0), ("masters", 0), ("optimizer", 0), ("gradients", 0), ("inputs", 0)];
    let mut add = |kind: &str, bytes: u64| {
        held.iter_mut().filter(|it| it.0 == kind).for_each(|it| it.1 += bytes);
    };
    for value in graph.value_ids() {
        let bytes = local(value, &plan.layouts[value.0]);
        match &graph.value(value).source {
            Source::Input(_) if needs(plan, value, Copy::Made, 0) => add("inputs", bytes),
            Source::State(state) => match state.kind {
                StateKind::Parameter => add("weights", bytes),
                StateKind::Master => add("masters", bytes),
                StateKind::FirstMoment | StateKind::SecondMoment | StateKind::History => {
                    add("optimizer", bytes)
                }
                StateKind::Gradient | StateKind::Total | StateKind::Largest => add("gradients", bytes),
            },
            _ if at_rest(plan, value) && needs(plan, value, Copy::Made, 0) => add("weights", bytes),
            _ => {}
        }
    }
    let mut most = (0, 0);
    for moment in 0..=graph.nodes.len() {
        let (mut live, mut moved) = (0, 0);
        for value in graph.value_ids() {
            for copy in copies(value) {
                let resident = (copy == Copy::Made && at_rest(plan, value)) || carried(plan, value, copy);
                let there = made(plan, value, copy, moment) && needs(plan, value, copy, moment);
                let just_made = copy == Copy::Made && maker(graph, value) == Some(moment);
                if resident || !(there || just_made) {
                    continue;
                }
                match copy {
                    Copy::Made => live += local(value, &plan.layouts[value.0]),
                    Copy::Transferred(it) => moved += local(value, &plan.transfers[it].layout),
                }
            }
        }
        if live + moved > most.0 + most.1 {
            most = (live, moved);
        }
    }
    let live = [("activations", most.0), ("communication", most.1)];
    let kinds = held.into_iter().chain(live);
    let trains =
        |kind: &str| graph.training.is_some() || !["masters", "optimizer", "gradients"].contains(&kind);
    kinds.filter(|it| trains(it.0)).map(|(kind, bytes)| Holding { kind: kind.to_owned(), bytes }).collect()
}

fn maker(graph: &Graph, value: ValueId) -> Option<usize> {
    match graph.value(value).source {
        Source::Result { node, .. } => Some(node.0),
        _ => None,
    }
}

/// Whether a value is there before the first step.
fn at_rest(plan: &Plan, value: ValueId) -> bool {
    maker(&plan.graph, value).is_none_or(|node| plan.assignments[node] == Assignment::Prepared)
}

/// The moments at which a copy is read: by an operation, at the end, or because a copy of it is
/// made for the first that reads that one.
fn reads(plan: &Plan, value: ValueId, copy: Copy) -> Vec<usize> {
    let graph = &plan.graph;
    let mut moments = Vec::new();
    for (moment, (node, assignment)) in graph.nodes.iter().zip(&plan.assignments).enumerate() {
        let Assignment::Computed { operands, .. } = assignment else { continue };
        if node.operands.iter().zip(operands).any(|(&it, &read)| (it, read) == (value, copy)) {
            moments.push(moment);
        }
    }
    let returned =
        |(output, &returned): (&planner_ir::Output, &Copy)| (output.value, returned) == (value, copy);
    if graph.outputs.iter().zip(&plan.outputs).any(returned) {
        moments.push(graph.nodes.len());
    }
    // What takes a state's place is put there as soon as it is made.
    if carried(plan, value, copy) {
        moments.extend(maker(graph, value));
    }
    for (index, transfer) in plan.transfers.iter().enumerate() {
        if (transfer.value, transfer.from) == (value, copy) {
            moments.extend(reads(plan, value, Copy::Transferred(index)).into_iter().min());
        }
    }
    moments
}

/// Whether a copy takes the place of a state.
fn carried(plan: &Plan, value: ValueId, copy: Copy) -> bool {
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    carried.zip(&plan.carried).any(|(it, &place)| (it.next, place) == (value, copy))
}

fn needs(plan: &Plan, value: ValueId, copy: Copy, moment: usize) -> bool {
    reads(plan, value, copy).iter().any(|&it| it >= moment)
}

/// Whether a copy has been made by then: at the latest for its first reader.
fn made(plan: &Plan, value: ValueId, copy: Copy, moment: usize) -> bool {
    match copy {
        Copy::Made => maker(&plan.graph, value).is_none_or(|node| node <= moment),
        Copy::Transferred(_) => reads(plan, value, copy).iter().any(|&it| it <= moment),
    }
}
