//! In which part of a training step copies are made: for every micro-batch, or in the update.

use planner_ir::{Phase, Source, ValueId};

use super::{Violations, operation_name};
use crate::plan::{Assignment, Copy, Plan};

/// Who reads a copy.
#[derive(Clone, Copy)]
enum Reader {
    Operation(usize),
    Transfer(usize),
    State(ValueId),
    Output(usize),
}

/// In which parts of a step something reads a copy.
#[derive(Clone, Copy, Default)]
struct Parts {
    micro_batch: bool,
    update: bool,
}

/// Adds what is violated.
///
/// A copy that is made anew for every micro-batch is nothing that an update may read, unless it is
/// of what a gradient or total becomes: that is complete after the last one.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    if plan.graph.training.is_none() {
        return;
    }
    inputs(plan, found);
    let (readers, parts) = (readers(plan), parts(plan));
    for (index, transfer) in plan.transfers.iter().enumerate() {
        if !parts[index].micro_batch || is_total(plan, transfer.value) {
            continue;
        }
        for &reader in readers[index].iter().filter(|&&reader| !repeats(plan, &parts, reader)) {
            let place = match reader {
                Reader::Operation(node) => operation_name(plan, node),
                Reader::Transfer(other) => format!("transfer {other}"),
                Reader::State(state) => format!("state %{}", state.0),
                Reader::Output(output) => format!("output `{}`", plan.graph.outputs[output].name),
            };
            let value = transfer.value.0;
            let message = format!(
                "reads in the update transfer {index} of %{value}, which is made for every micro-batch, \
                 expected a copy made in the update"
            );
            found.add("part", place, message);
        }
    }
}

/// An input is given for every micro-batch or once, for the update.
fn inputs(plan: &Plan, found: &mut Violations) {
    let graph = &plan.graph;
    for value in graph.value_ids() {
        let Source::Input(name) = &graph.value(value).source else { continue };
        let reads = |update: bool| {
            graph.nodes.iter().any(|it| it.operands.contains(&value) && (it.phase == Phase::Update) == update)
        };
        if reads(true) && reads(false) {
            let message = "is read by micro-batches and by the update, expected by one of them";
            found.add("part", format!("input `{name}`"), message);
        }
    }
}

/// How often each transfer is made in a step.
pub(super) fn runs(plan: &Plan) -> Vec<u64> {
    let micro_batches = plan.graph.training.as_ref().map_or(1, |training| training.micro_batches);
    parts(plan).iter().map(|it| if it.micro_batch { micro_batches } else { 1 }).collect()
}

/// Who reads each transfer.
fn readers(plan: &Plan) -> Vec<Vec<Reader>> {
    let mut readers: Vec<Vec<Reader>> = plan.transfers.iter().map(|_| Vec::new()).collect();
    let mut read = |copy: Copy, reader: Reader| {
        if let Copy::Transferred(it) = copy {
            readers[it].push(reader);
        }
    };
    for (node, assignment) in plan.assignments.iter().enumerate() {
        if let Assignment::Computed { operands, .. } = assignment {
            operands.iter().for_each(|&copy| read(copy, Reader::Operation(node)));
        }
    }
    for (index, transfer) in plan.transfers.iter().enumerate() {
        read(transfer.from, Reader::Transfer(index));
    }
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    for (it, &copy) in carried.zip(&plan.carried) {
        read(copy, Reader::State(it.state));
    }
    for (index, &copy) in plan.outputs.iter().enumerate() {
        read(copy, Reader::Output(index));
    }
    readers
}

/// In which parts of a step each transfer is read; one that nothing reads is where its value is.
fn parts(plan: &Plan) -> Vec<Parts> {
    let readers = readers(plan);
    let mut parts = vec![Parts::default(); plan.transfers.len()];
    // Copies of a copy come later: those of this one are complete.
    for (index, readers) in readers.iter().enumerate().rev() {
        for &reader in readers {
            if repeats(plan, &parts, reader) {
                parts[index].micro_batch = true;
            } else {
                parts[index].update = true;
            }
        }
        if !parts[index].micro_batch && !parts[index].update {
            let once = is_once(plan, plan.transfers[index].value);
            parts[index] = Parts { micro_batch: !once, update: once };
        }
    }
    parts
}

/// Whether a reader reads for every micro-batch.
fn repeats(plan: &Plan, parts: &[Parts], reader: Reader) -> bool {
    match reader {
        Reader::Operation(node) => plan.graph.nodes[node].phase != Phase::Update,
        Reader::Transfer(other) => parts[other].micro_batch,
        Reader::State(state) => is_summed(plan, state),
        Reader::Output(output) => {
            // What a stage gives others is given for every micro-batch, unless the update makes it, or it is
            // a sum over them.
            let value = plan.graph.outputs[output].value;
            plan.graph.training.is_none() || !is_once(plan, value) && !is_total(plan, value)
        }
    }
}

/// Whether a value is made, or kept, once in a step.
fn is_once(plan: &Plan, value: ValueId) -> bool {
    match &plan.graph.value(value).source {
        Source::Result { node, .. } => plan.graph.node(*node).phase == Phase::Update,
        Source::State(state) => !state.kind.is_summed(),
        Source::Input(_) | Source::Weight(_) => false,
    }
}

fn is_summed(plan: &Plan, state: ValueId) -> bool {
    matches!(&plan.graph.value(state).source, Source::State(it) if it.kind.is_summed())
}

/// Whether a summed state becomes this value.
fn is_total(plan: &Plan, value: ValueId) -> bool {
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    carried.filter(|it| it.next == value).any(|it| is_summed(plan, it.state))
}

/// The phase of what reads each transfer first: an operation, or one that reads a copy of the copy; of what
/// nothing reads in the micro-batches, that of the gradients of parameters if it is made for each, or else of the
/// update.
pub(super) fn first_read(plan: &Plan) -> Vec<Phase> {
    let (readers, parts) = (readers(plan), parts(plan));
    let mut first: Vec<Phase> = Vec::new();
    for (index, readers) in readers.iter().enumerate().rev() {
        let of = |reader: &Reader| match *reader {
            Reader::Operation(node) => Some(plan.graph.nodes[node].phase),
            // Those after this one, from the last; others are refused as what they are.
            Reader::Transfer(other) => first.get(plan.transfers.len() - 1 - other).copied(),
            Reader::State(_) | Reader::Output(_) => None,
        };
        let last = if parts[index].micro_batch { Phase::Gradient } else { Phase::Update };
        first.push(readers.iter().filter_map(of).min().map_or(last, |it| it.min(last)));
    }
    first.reverse();
    first
}
