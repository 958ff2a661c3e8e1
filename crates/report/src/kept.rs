//! What blocks of a training step keep for their gradients, and what keeping less of it costs.

use std::collections::{BTreeMap, BTreeSet};

use cost_models::quantity;
use plan::{Assignment, Plan};
use planner_ir::{Graph, NodeId, Op, Phase, Source, ValueId};
use search::{Repetition, Section};

/// What a block keeps where some of it is recomputed.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// What the values that are kept are called: made by these operations, or before the block.
    pub names: Vec<String>,
    /// How many values gradients read.
    pub needed: usize,
    /// What a device holds of the values that are kept (bytes).
    pub bytes: u64,
    /// What it would hold of those that gradients read (bytes).
    pub whole: u64,
    /// What computing the others again takes, for a micro-batch (seconds).
    pub seconds: f64,
}

/// What a block keeps, at the place where it stands; nothing if nothing is recomputed in it.
pub fn of_block(plan: &Plan, section: &Section, place: &Repetition) -> Option<Kept> {
    let graph = &section.graph;
    let fixed = fixed(graph);
    let again = again(section, &fixed);
    let remade = |node: NodeId| graph.node(node).results.iter().any(|result| again.contains_key(result));
    let seconds: f64 =
        graph.node_ids().filter(|&node| remade(node)).map(|node| seconds(plan, place, node)).sum();
    // What the forward part made, here or before.
    let is_forward = |value: &ValueId| match plan.graph.value(place.values[value.0]).source {
        Source::Result { node, .. } => plan.graph.node(node).phase == Phase::Forward && !fixed[value.0],
        _ => false,
    };
    let mut kept = BTreeSet::new();
    let mut needed = BTreeSet::new();
    for id in graph.node_ids().filter(|id| graph.node(*id).phase != Phase::Forward) {
        let operands = || graph.node(id).operands.iter();
        kept.extend(operands().copied().filter(is_forward));
        if !remade(id) {
            let origin = |value: &ValueId| *again.get(value).unwrap_or(value);
            needed.extend(operands().map(origin).filter(is_forward));
        }
    }
    let bytes = |values: &BTreeSet<ValueId>| -> u64 {
        let whole = values.iter().map(|value| place.values[value.0]);
        whole.map(|it| plan.layouts[it.0].local_bytes(plan.graph.type_of(it))).sum()
    };
    let name = |value: &ValueId| match plan.graph.value(place.values[value.0]).source {
        Source::Result { node, .. } => plan.graph.node(node).origin.clone(),
        _ => String::new(),
    };
    (!again.is_empty()).then(|| Kept {
        names: kept.iter().map(name).collect(),
        needed: needed.len(),
        bytes: bytes(&kept),
        whole: bytes(&needed),
        seconds,
    })
}

impl Kept {
    /// Such as `keeps 2 values where gradients read 5, 1.5 MB instead of 4.0 MB, and computes 1 us
    /// again: a, b`.
    pub fn in_words(&self) -> String {
        let names = if self.names.is_empty() { "none".to_owned() } else { self.names.join(", ") };
        format!(
            "keeps {} values where gradients read {}, {} instead of {}, and computes {} again: {names}",
            self.names.len(),
            self.needed,
            quantity::bytes(self.bytes),
            quantity::bytes(self.whole),
            quantity::seconds(self.seconds)
        )
    }
}

fn seconds(plan: &Plan, place: &Repetition, node: NodeId) -> f64 {
    match plan.assignments[place.nodes[node.0].0] {
        Assignment::Computed { seconds, .. } => seconds,
        _ => 0.0,
    }
}

/// For each value, whether it depends on weights and states alone: parameters that are taken apart
/// are so for the gradients too, whatever is kept.
fn fixed(graph: &Graph) -> Vec<bool> {
    let mut fixed: Vec<bool> = graph
        .values
        .iter()
        .map(|value| matches!(value.source, Source::Weight(_) | Source::State(_)))
        .collect();
    for node in &graph.nodes {
        let all = node.operands.iter().all(|operand| fixed[operand.0]);
        for result in &node.results {
            fixed[result.0] = all;
        }
    }
    fixed
}

/// For each value of the backward part that was made before, forward, from the same: that one.
fn again(section: &Section, fixed: &[bool]) -> BTreeMap<ValueId, ValueId> {
    let graph = &section.graph;
    let mut again: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        let Some(forward) = section.forward[id.0].filter(|_| node.phase == Phase::Backward) else { continue };
        let made = graph.node(forward);
        let same = |(new, old): (&ValueId, &ValueId)| {
            let origin = again.get(new).unwrap_or(new);
            viewed(graph, *origin) == viewed(graph, *old) || fixed[new.0] && fixed[old.0]
        };
        // A norm's result is read by views of it, in both parts.
        let is_view = viewed(graph, node.results[0]) != node.results[0];
        let is_same = !is_view
            && node.op == made.op
            && node.operands.iter().zip(&made.operands).all(same)
            && !node.results.iter().all(|result| fixed[result.0]);
        if is_same {
            again.extend(node.results.iter().copied().zip(made.results.iter().copied()));
        }
    }
    again
}

/// A value without the views of it that have its shape.
fn viewed(graph: &Graph, value: ValueId) -> ValueId {
    let Source::Result { node, .. } = graph.value(value).source else { return value };
    let node = graph.node(node);
    let is_view =
        matches!(node.op, Op::Reshape { .. }) && graph.type_of(node.operands[0]) == graph.type_of(value);
    if is_view { node.operands[0] } else { value }
}
