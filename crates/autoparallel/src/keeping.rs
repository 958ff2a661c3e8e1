//! What a step costs in which nothing is done again: what keeping less of it is weighed by.

use plan::{Assignment, Copy, Plan};
use planner_ir::{Graph, Phase, Source, ValueId};
use rewrite::{Joined, joined_as};
use train::Costs;

/// What a device holds of each value of the step that a plan is of, and what each operation would take once more: its
/// own time, and that of the moves of what it reads of the step. States are moved for the backward
/// part anyway.
pub(crate) fn costs(plan: &Plan, step: &Graph) -> Costs {
    let graph = &plan.graph;
    let local = |value: ValueId| plan.layouts[value.0].local_bytes(graph.type_of(value));
    let moved = |copy: &Copy| -> f64 {
        let mut copy = *copy;
        let mut seconds = 0.0;
        while let Copy::Transferred(transfer) = copy {
            let transfer = &plan.transfers[transfer];
            if matches!(graph.value(transfer.value).source, Source::Result { .. }) {
                seconds += transfer.takes();
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
    let mut costs = Costs { bytes: vec![0; step.values.len()], seconds: vec![0.0; step.nodes.len()] };
    let Joined { nodes, values, .. } = joined_as(step, graph);
    nodes.iter().zip(seconds).for_each(|(it, seconds)| costs.seconds[it.0] = seconds);
    values.iter().zip(graph.value_ids()).for_each(|(it, value)| costs.bytes[it.0] = local(value));
    costs
}
