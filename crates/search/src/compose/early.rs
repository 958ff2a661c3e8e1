//! What exchanges beside computing hold besides.
//!
//! A plan counts on weights that are fetched while something else is computed, and on gradients that are summed
//! meanwhile. What is fetched has its place from then on, what is summed until then; and what gradients of parameters are
//! computed from that are kept for rows that are routed, until these have come. All follow from the lanes of the plan
//! ([`Plan::lanes`]): each part of a step takes as long as what stands in the way, or as what may run beside it if
//! that takes longer; fetched is as late as all comes in time, one exchange after another, and summed as early as can
//! be.

use plan::{Assignment, Lanes, Plan};
use planner_ir::NodeId;

use super::memory::Walk;
use crate::cluster::Kept;
use crate::live::Live;

/// What exchanges beside computing, which a plan says are hidden, hold besides at the fullest moment (bytes): with these
/// micro-batches under way.
pub fn early(plan: &Plan, live: Live) -> u64 {
    if plan.hidden_seconds() > 0.0 { in_order(Walk::over(plan), plan, live) } else { 0 }
}

/// For each of so many blocks, where each operation belongs to one of them, what it keeps of a micro-batch
/// while others are under way, and the most that is there at once while it is at work (bytes): but for what other
/// blocks keep and for the update, and with what is there early. What moves counts where it is made first.
pub fn kept(plan: &Plan, homes: &[usize], blocks: usize) -> Vec<(Kept, u64)> {
    let walk = Walk::over(plan);
    let mut kept = super::memory::kept(&walk, homes, blocks);
    if plan.hidden_seconds() > 0.0 {
        let early = in_order(walk, plan, Live::ONE);
        kept.iter_mut().for_each(|(_, most)| *most = most.saturating_add(early));
    }
    kept
}

/// The same of a plan that hides something, whose values are followed so.
fn in_order(mut walk: Walk<'_>, plan: &Plan, live: Live) -> u64 {
    let most = |walk: &Walk<'_>| walk.most(live).iter().sum::<u64>();
    let before = most(&walk);
    for lanes in plan.lanes(Some(0.0)) {
        let load = lanes.load();
        // How much longer it takes for what runs beside it.
        let pace = if load.alone > 0.0 { (load.beside() / load.alone).max(1.0) } else { 1.0 };
        let (mut due, mut over) = (load.alone * pace, 0.0_f64);
        for exchange in lanes.ahead.iter().rev() {
            due = due.min(exchange.at * pace) - exchange.seconds;
            walk.there_from(exchange.result, during(&lanes, due / pace));
        }
        for &(gradient, routed) in &lanes.kept {
            if let Assignment::Computed { operands, .. } = &plan.assignments[gradient.0] {
                let values = plan.graph.node(gradient).operands.iter().copied();
                values.zip(operands).for_each(|(value, &copy)| walk.there_until((value, copy), Some(routed)));
            }
        }
        for exchange in &lanes.behind {
            over = over.max(exchange.at * pace) + exchange.seconds;
            walk.there_until(exchange.source, during(&lanes, over / pace));
        }
    }
    most(&walk).saturating_sub(before)
}

/// The operation that is under way then, or the nearest.
fn during(lanes: &Lanes, seconds: f64) -> Option<NodeId> {
    let after = lanes.starts.partition_point(|it| it.0 <= seconds);
    lanes.starts.get(after.saturating_sub(1)).map(|it| it.1)
}
