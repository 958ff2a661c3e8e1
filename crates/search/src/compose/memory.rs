//! What a device holds of a plan, by kind.

use std::collections::BTreeSet;

use plan::{Assignment, Copy, Holding, Plan};
use planner_ir::{Layout, Source, StateKind, ValueId};

/// What a device holds by kind (bytes): weights and prepared values, of a training step its other
/// states, inputs, and the most that is live at once of values and of copies, from their making to
/// their last use. What a state becomes is in its place.
pub(crate) fn memory(plan: &Plan) -> Vec<Holding> {
    let graph = &plan.graph;
    let prepared = graph.prepared();
    let local = |value: ValueId, layout: &Layout| layout.local_type(graph.type_of(value)).bytes();
    let uses = Lifetimes::of(plan);
    let (mut weights, mut masters, mut optimizer, mut gradients, mut inputs) = (0, 0, 0, 0, 0);
    for value in graph.value_ids() {
        let bytes = local(value, &plan.layouts[value.0]);
        match graph.value(value).source {
            Source::Input(_) => inputs += bytes,
            Source::State(ref state) => match state.kind {
                StateKind::Parameter => weights += bytes,
                StateKind::Master => masters += bytes,
                StateKind::FirstMoment | StateKind::SecondMoment => optimizer += bytes,
                StateKind::Gradient | StateKind::Total => gradients += bytes,
            },
            _ if prepared[value.0] && uses.made[value.0].is_some() => weights += bytes,
            _ => {}
        }
    }
    let steps = graph.nodes.len() + 1;
    let mut values = vec![0i128; steps + 1];
    let mut copies = vec![0i128; steps + 1];
    let add = |live: &mut Vec<i128>, (first, last): (usize, usize), bytes: u64| {
        live[first] += i128::from(bytes);
        live[last + 1] -= i128::from(bytes);
    };
    for (value, span) in uses.made.iter().enumerate() {
        let result = matches!(graph.values[value].source, Source::Result { .. }) && !prepared[value];
        let made = result && !uses.in_place.contains(&(ValueId(value), Copy::Made));
        if let (Some(span), true) = (span, made) {
            add(&mut values, *span, local(ValueId(value), &plan.layouts[value]));
        }
    }
    for (index, (transfer, span)) in plan.transfers.iter().zip(&uses.copies).enumerate() {
        let in_place = uses.in_place.contains(&(transfer.value, Copy::Transferred(index)));
        if let Some(span) = span.filter(|_| !in_place) {
            add(&mut copies, span, local(transfer.value, &transfer.layout));
        }
    }
    let (mut live, mut moved, mut most) = (0, 0, (0, 0));
    for (value, copy) in values.iter().zip(&copies) {
        live += value;
        moved += copy;
        if live + moved > most.0 + most.1 {
            most = (live, moved);
        }
    }
    let holding = |kind: &str, bytes: u64| Holding { kind: kind.to_owned(), bytes };
    let size = |bytes: i128| u64::try_from(bytes).unwrap_or(0);
    let mut holdings = vec![holding("weights", weights)];
    if graph.training.is_some() {
        let states = [("masters", masters), ("optimizer", optimizer), ("gradients", gradients)];
        holdings.extend(states.map(|(kind, bytes)| holding(kind, bytes)));
    }
    holdings.push(holding("inputs", inputs));
    holdings.push(holding("activations", size(most.0)));
    holdings.push(holding("communication", size(most.1)));
    holdings
}

/// From when to when values and copies are needed, as positions of operations; the last position
/// is after all of them.
struct Lifetimes {
    made: Vec<Option<(usize, usize)>>,
    copies: Vec<Option<(usize, usize)>>,
    /// The copies that take the place of states.
    in_place: BTreeSet<(ValueId, Copy)>,
}

impl Lifetimes {
    fn of(plan: &Plan) -> Self {
        let graph = &plan.graph;
        let mut lifetimes = Self {
            made: vec![None; graph.values.len()],
            copies: vec![None; plan.transfers.len()],
            in_place: BTreeSet::new(),
        };
        // What a state becomes is read by nothing: it is there as early as it can be.
        let carried = graph.training.iter().flat_map(|training| &training.carried);
        for (it, &copy) in carried.zip(&plan.carried) {
            lifetimes.in_place.insert((it.next, copy));
            if let Source::Result { node, .. } = graph.value(it.next).source {
                lifetimes.use_at(plan, it.next, copy, node.0);
            }
        }
        for (position, (node, assignment)) in graph.nodes.iter().zip(&plan.assignments).enumerate() {
            if let Assignment::Computed { operands, .. } = assignment {
                for (&value, &copy) in node.operands.iter().zip(operands) {
                    lifetimes.use_at(plan, value, copy, position);
                }
                for &result in &node.results {
                    lifetimes.use_at(plan, result, Copy::Made, position);
                }
            }
        }
        for (output, &copy) in graph.outputs.iter().zip(&plan.outputs) {
            lifetimes.use_at(plan, output.value, copy, graph.nodes.len());
        }
        lifetimes
    }

    /// A use of a copy is a use of what it is made from, at the same time or before.
    fn use_at(&mut self, plan: &Plan, value: ValueId, copy: Copy, position: usize) {
        let span = match copy {
            Copy::Made => &mut self.made[value.0],
            Copy::Transferred(it) => &mut self.copies[it],
        };
        let fresh = span.is_none();
        let (first, last) = span.unwrap_or((position, position));
        *span = Some((first.min(position), last.max(position)));
        if let (Copy::Transferred(it), true) = (copy, fresh) {
            self.use_at(plan, value, plan.transfers[it].from, position);
        }
    }
}
