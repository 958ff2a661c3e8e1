//! Rules of what a user has fixed.

use super::{Violations, operation_name};
use crate::plan::{Assignment, Plan};

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    for (number, pin) in plan.pins.iter().enumerate() {
        let mut any = false;
        for (node, assignment) in plan.assignments.iter().enumerate() {
            let Assignment::Computed { partition, .. } = assignment else { continue };
            if !pin.is_of(&plan.graph.nodes[node], partition.loops.len()) {
                continue;
            }
            any = true;
            if !pin.is_kept(partition) {
                let [is, pinned] = [partition, &pin.partition].map(|it| it.display(&plan.mesh).to_string());
                let message = format!("is computed as `{is}`, pinned is `{pinned}`");
                found.add("pin", operation_name(plan, node), message);
            }
        }
        if !any {
            let message = format!("no operation is called `{}` and has as many loops", pin.operations);
            found.add("pin", format_args!("pin {number}"), message);
        }
    }
}
