//! What a plan comes to.

use std::collections::BTreeMap;

use crate::plan::Plan;

/// What moves of a kind come to, over a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The moves' name.
    pub name: &'static str,
    /// How many there are.
    pub count: u64,
    /// What all devices together receive in them (bytes).
    pub bytes: u64,
}

/// What is moved, by the kind of move, by name.
pub fn communication(plan: &Plan) -> Vec<Traffic> {
    let mut kinds: BTreeMap<&'static str, Traffic> = BTreeMap::new();
    for (transfer, runs) in plan.transfers.iter().zip(plan.runs()) {
        for (step, &bytes) in transfer.moves.iter().zip(&transfer.bytes) {
            let name = step.name();
            let traffic = kinds.entry(name).or_insert(Traffic { name, count: 0, bytes: 0 });
            traffic.count = traffic.count.saturating_add(runs);
            traffic.bytes = traffic.bytes.saturating_add(bytes.saturating_mul(runs));
        }
    }
    kinds.into_values().collect()
}
