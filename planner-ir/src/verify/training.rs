//! What a training step is besides a graph: its states and its phases.

use std::collections::BTreeSet;

use super::{Violations, name};
use crate::graph::{Carried, Graph, Phase, Source, StateKind, Training, ValueId};
use crate::op::{Binary, Op};

pub(super) fn training(graph: &Graph, found: &mut Violations) {
    match &graph.training {
        None => no_training(graph, found),
        Some(training) => {
            if training.micro_batches == 0 {
                found.add("training-only", "the step", "has no micro-batches, expected at least one");
            }
            carried(graph, training, found);
            phases(graph, found);
        }
    }
}

fn no_training(graph: &Graph, found: &mut Violations) {
    for (index, value) in graph.values.iter().enumerate() {
        if matches!(value.source, Source::State(_)) {
            found.add("training-only", format_args!("%{index}"), "a state outside a training step");
        }
    }
    for node in graph.nodes.iter().filter(|node| node.phase != Phase::Forward) {
        let message = format!("phase {} outside a training step", node.phase.name());
        found.add("training-only", name(node), message);
    }
}

fn carried(graph: &Graph, training: &Training, found: &mut Violations) {
    let is_state = |value: &ValueId| matches!(graph.value(*value).source, Source::State(_));
    let states: Vec<ValueId> = graph.value_ids().filter(is_state).collect();
    let carried: Vec<ValueId> = training.carried.iter().map(|it| it.state).collect();
    if states != carried {
        let message =
            format!("{} states become something, expected all {}, in order", carried.len(), states.len());
        found.add("carried-once", "the step", message);
        return;
    }
    for &Carried { state, next } in &training.carried {
        let id = format!("%{}", state.0);
        let (Source::State(it), Some(after)) = (&graph.value(state).source, graph.values.get(next.0)) else {
            found.add("carried-once", id, format!("becomes %{}, which does not exist", next.0));
            continue;
        };
        let type_ = graph.type_of(state);
        if after.type_ != *type_ {
            found.add("carried-once", &id, format!("is {type_} and becomes {}", after.type_));
        }
        let made_in = match after.source {
            Source::Result { node, .. } => graph.nodes.get(node.0).map(|node| node.phase),
            _ => None,
        };
        let suits = made_in.is_some_and(|phase| (phase == Phase::Update) != it.kind.is_summed());
        if !suits {
            let expected = if it.kind.is_summed() { "a micro-batch" } else { "the update" };
            found.add("carried-once", &id, format!("becomes %{}, which {expected} does not make", next.0));
        } else if it.kind.is_summed() && training.micro_batches > 1 && !adds_to(graph, it.kind, state, next) {
            let message =
                format!("becomes %{}, to which what micro-batches before made is not added", next.0);
            found.add("carried-once", &id, message);
        }
    }
}

/// Whether a value is what a state was with something added, or nothing; of the largest, what is larger.
fn adds_to(graph: &Graph, kind: StateKind, state: ValueId, value: ValueId) -> bool {
    let joins = if kind == StateKind::Largest { Binary::Max } else { Binary::Add };
    let operands = |value: ValueId| -> Option<Vec<ValueId>> {
        let Source::Result { node, .. } = graph.values.get(value.0)?.source else { return None };
        graph.nodes.get(node.0).map(|it| match joins {
            Binary::Add => it.addends().into_iter().filter(|it| it.1 == value).map(|it| it.0).collect(),
            _ if it.op == Op::Binary(joins) => it.operands.clone(),
            _ => vec![],
        })
    };
    let (mut seen, mut values) = (BTreeSet::new(), vec![value]);
    while let Some(value) = values.pop() {
        if value == state {
            return true;
        }
        if seen.insert(value) {
            values.extend(operands(value).into_iter().flatten());
        }
    }
    false
}

fn phases(graph: &Graph, found: &mut Violations) {
    let mut updating = false;
    for node in &graph.nodes {
        let update = node.phase == Phase::Update;
        if updating && !update {
            let message = format!("phase {} after an update", node.phase.name());
            found.add("phases", name(node), message);
        }
        updating |= update;
        for &operand in node.operands.iter().filter(|_| update) {
            if !may_update_use(graph, operand) {
                let message = format!("an update uses %{}, which one micro-batch makes", operand.0);
                found.add("phases", name(node), message);
            }
        }
    }
}

/// Whether a value is there after all micro-batches.
fn may_update_use(graph: &Graph, value: ValueId) -> bool {
    match graph.values.get(value.0).map(|it| &it.source) {
        Some(Source::Result { node, .. }) => {
            let updates = graph.nodes.get(node.0).is_some_and(|node| node.phase == Phase::Update);
            updates || becomes_total(graph, value)
        }
        _ => true,
    }
}

/// Whether a summed state becomes this value.
fn becomes_total(graph: &Graph, value: ValueId) -> bool {
    let kind = |state: ValueId| match &graph.values.get(state.0)?.source {
        Source::State(it) => Some(it.kind),
        _ => None,
    };
    let carried = graph.training.iter().flat_map(|training| &training.carried);
    carried.filter(|it| it.next == value).any(|it| kind(it.state).is_some_and(StateKind::is_summed))
}
