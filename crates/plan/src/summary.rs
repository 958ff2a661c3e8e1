//! What a plan comes to.

use std::collections::BTreeMap;

use planner_ir::ValueId;

use crate::plan::Plan;
use crate::steps::exchanges;

/// What moves of a kind come to, over a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The moves' name: that of a [`Move`](planner_ir::Move), or `ring shift`, `broadcast` or
    /// `reduce` of what moves during the steps of a partition in time.
    pub name: &'static str,
    /// How many there are.
    pub count: u64,
    /// What all devices together receive in them (bytes).
    pub bytes: u64,
}

/// What is moved, by the kind of move, by name.
pub fn communication(plan: &Plan) -> Vec<Traffic> {
    let mut kinds: BTreeMap<&'static str, Traffic> = BTreeMap::new();
    for (_, traffic) in moved(plan) {
        kinds.entry(traffic.name).or_insert(Traffic::none(traffic.name)).add(traffic);
    }
    kinds.into_values().collect()
}

/// Everything that is moved, and of which value: transfers, then what moves during operations.
pub(crate) fn moved(plan: &Plan) -> Vec<(ValueId, Traffic)> {
    let mut moved = Vec::new();
    for (transfer, runs) in plan.transfers.iter().zip(plan.runs()) {
        for (step, &bytes) in transfer.moves.iter().zip(&transfer.bytes) {
            let bytes = bytes.saturating_mul(runs);
            moved.push((transfer.value, Traffic { name: step.name(), count: runs, bytes }));
        }
    }
    for node in plan.graph.node_ids() {
        let runs = plan.graph.runs(node);
        for it in exchanges(plan, node) {
            let (count, bytes) = (it.count.saturating_mul(runs), it.bytes.saturating_mul(runs));
            moved.push((it.value, Traffic { name: it.name, count, bytes }));
        }
    }
    moved
}

impl Traffic {
    pub(crate) fn none(name: &'static str) -> Self {
        Self { name, count: 0, bytes: 0 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}
