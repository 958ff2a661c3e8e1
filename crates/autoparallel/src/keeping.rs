//! What a step costs in which nothing is done again: what keeping less of it is weighed by.

use plan::{Assignment, Copy, Plan};
use planner_ir::{Phase, Source, ValueId};
use train::Costs;

/// What a device holds of each value of a plan, and what each operation would take once more: its
/// own time, and that of the moves of what it reads of the step. States are moved for the backward
/// part anyway.
pub(crate) fn costs(plan: &Plan) -> Costs {
    let graph = &plan.graph;
    let local = |value: ValueId| plan.layouts[value.0].local_bytes(graph.type_of(value));
    let moved = |copy: &Copy| -> f64 {
        let mut copy = *copy;
        let mut seconds = 0.0;
        while let Copy::Transferred(transfer) = copy {
            let transfer = &plan.transfers[transfer];
            if matches!(graph.value(transfer.value).source, Source::Result { .. }) {
                seconds += transfer.seconds;
            }
            copy = transfer.from;
        }
        seconds
    };
    let seconds = graph.nodes.iter().zip(&plan.assignments).map(|(node, assignment)| match assignment {
        Assignment::Computed { operands, seconds, .. } if node.phase == Phase::Forward => {
            seconds + operands.iter().map(moved).sum::<f64>()
        }
        _ => 0.0,
    });
    Costs { bytes: graph.value_ids().map(local).collect(), seconds: seconds.collect() }
}
