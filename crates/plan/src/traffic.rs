//! What moves in a step, by what it is: the sums that the literature has formulas for.

use std::collections::BTreeMap;
use std::fmt;

use planner_ir::{Graph, Phase, Source, StateKind, ValueId};

use crate::plan::{Assignment, Plan};
use crate::summary::{Traffic, moved};

/// What a value is to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueKind {
    /// An input.
    Input,
    /// A weight or parameter, also a new one, and what is computed from such alone.
    Parameter,
    /// What the forward operations make of inputs.
    Activation,
    /// What the backward operations make: gradients of activations, and activations made again.
    ActivationGradient,
    /// A gradient of a parameter: of one micro-batch, and the sum of all.
    Gradient,
    /// A moment, or a parameter in full precision where the model computes with less.
    OptimizerState,
    /// A total, such as the loss, and the numbers of an update, such as the norm of the gradient.
    Total,
}

/// What values of one kind come to in moves of one kind, over a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTraffic {
    /// Of what.
    pub kind: ValueKind,
    /// How much.
    pub traffic: Traffic,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "inputs",
            Self::Parameter => "parameters",
            Self::Activation => "activations",
            Self::ActivationGradient => "gradients of activations",
            Self::Gradient => "gradients",
            Self::OptimizerState => "optimizer states",
            Self::Total => "totals",
        })
    }
}

/// What is moved in a step, by kind of value and kind of move, in this order. Each transfer counts as often
/// as it is made, and what moves during the steps of an operation as often as that runs.
///
/// # Panics
/// If the plan names copies or values that there are not.
pub fn traffic(plan: &Plan) -> Vec<ValueTraffic> {
    let of_values = value_kinds(plan);
    let mut kinds: BTreeMap<(ValueKind, &'static str), Traffic> = BTreeMap::new();
    for (value, traffic) in moved(plan) {
        let (kind, name) = (of_values[value.0], traffic.name);
        kinds.entry((kind, name)).or_insert(Traffic::none(name)).add(traffic);
    }
    kinds.into_iter().map(|((kind, _), traffic)| ValueTraffic { kind, traffic }).collect()
}

/// The kind of each value.
fn value_kinds(plan: &Plan) -> Vec<ValueKind> {
    let graph = &plan.graph;
    let (stems, for_sums) = (stems(plan), graph.for_sums());
    let mut kinds: Vec<ValueKind> = Vec::new();
    for value in graph.value_ids() {
        kinds.push(match &graph.value(value).source {
            Source::Input(_) => ValueKind::Input,
            Source::State(state) => of_state(state.kind),
            _ if stems[value.0] => ValueKind::Parameter,
            Source::Weight(_) => ValueKind::Parameter,
            _ if for_sums[value.0] => ValueKind::Gradient,
            Source::Result { node, .. } => of_phase(graph, graph.node(*node).phase, value),
        });
    }
    for it in graph.training.iter().flat_map(|training| &training.carried) {
        kinds[it.next.0] = kinds[it.state.0];
    }
    kinds
}

fn of_state(kind: StateKind) -> ValueKind {
    match kind {
        StateKind::Parameter => ValueKind::Parameter,
        StateKind::Gradient => ValueKind::Gradient,
        StateKind::Master | StateKind::FirstMoment | StateKind::SecondMoment | StateKind::History => {
            ValueKind::OptimizerState
        }
        StateKind::Total | StateKind::Largest => ValueKind::Total,
    }
}

/// The kind of a result. An update's numbers are totals, and what else it makes on the way to new
/// parameters it makes of gradients.
fn of_phase(graph: &Graph, phase: Phase, value: ValueId) -> ValueKind {
    let number = graph.type_of(value).shape.iter().all(|&extent| extent == 1);
    match phase {
        Phase::Forward => ValueKind::Activation,
        Phase::Backward => ValueKind::ActivationGradient,
        Phase::Update if number => ValueKind::Total,
        Phase::Gradient | Phase::Update => ValueKind::Gradient,
    }
}

/// For each value, whether it is a weight, a parameter, or computed from such and constants alone,
/// in a micro-batch or before the first step.
pub(crate) fn stems(plan: &Plan) -> Vec<bool> {
    let graph = &plan.graph;
    let mut stems: Vec<bool> = vec![false; graph.values.len()];
    for (value, it) in graph.values.iter().enumerate() {
        stems[value] = match &it.source {
            Source::Weight(_) => true,
            Source::State(state) => state.kind == StateKind::Parameter,
            Source::Input(_) | Source::Result { .. } => false,
        };
    }
    for (node, assignment) in graph.nodes.iter().zip(&plan.assignments) {
        let all = node.operands.iter().all(|operand| stems[operand.0]);
        let prepared = *assignment == Assignment::Prepared;
        if prepared || (node.phase != Phase::Update && !node.operands.is_empty() && all) {
            node.results.iter().for_each(|result| stems[result.0] = true);
        }
    }
    stems
}

#[cfg(test)]
mod tests;
