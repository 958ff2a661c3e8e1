//! Less memory where a plan holds too much: one slot for what rotates.

use plan::{Assignment, Plan};
use planner_ir::Partition;

use super::memory::below_the_most;
use crate::manner::InPlace;
use crate::slots::slots;

/// Gives operations one slot during which the plan holds too much, if it is to hold so much less at the
/// fullest moment (bytes).
pub(crate) fn save(plan: &mut Plan, in_place: &[Option<InPlace>], bytes: u64) {
    for (node, below) in below_the_most(plan) {
        let Some(to) = in_place[node.0].as_ref().filter(|_| below < bytes) else { continue };
        let held = |it: &Partition| slots(&plan.graph, plan.graph.node(node), it);
        if let Assignment::Computed { partition, seconds, exchanged, .. } = &mut plan.assignments[node.0]
            && held(&to.partition) < held(partition)
        {
            (*partition, *seconds, *exchanged) = (to.partition.clone(), to.seconds, to.exchanged);
        }
    }
}
