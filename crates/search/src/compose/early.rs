//! What exchanges beside computing hold besides.
//!
//! A plan counts on weights that are fetched while something else is computed, and on gradients that are summed
//! meanwhile. What is fetched has its place from then on, what is summed until then; and what gradients of parameters are
//! computed from that are kept for rows that are routed, until these have come. All follow from the lanes of the plan
//! ([`Plan::lanes`]): each part of a step takes as long as what stands in the way, or as what may run beside it if
//! that takes longer; fetched is as late as all comes in time, one exchange after another, and summed as early as can
//! be.

use std::ops::Range;

use plan::{Assignment, Copy, Lanes, Overlap, Plan};
use planner_ir::{NodeId, ValueId};

use super::memory::Walk;
use crate::cluster::Kept;
use crate::live::Live;
use crate::problem::real;

/// How often exchanges are made to wait.
const ROUNDS: usize = 8;

/// What exchanges beside computing, which a plan says are hidden, hold besides at the fullest moment (bytes): with these
/// micro-batches under way.
pub fn early(plan: &Plan, live: Live) -> u64 {
    if plan.hidden_seconds() > 0.0 { longer(Walk::over(plan), plan, live) } else { 0 }
}

/// For each of so many blocks, where each operation belongs to one of them, what it keeps of a micro-batch
/// while others are under way, and the most that is there at once while it is at work (bytes): but for what other
/// blocks keep and for the update, and with what is there early. What moves counts where it is made first.
pub fn kept(plan: &Plan, homes: &[usize], blocks: usize) -> Vec<(Kept, u64)> {
    let walk = Walk::over(plan);
    let mut kept = super::memory::kept(&walk, homes, blocks);
    if plan.hidden_seconds() > 0.0 {
        let early = longer(walk, plan, Live::ONE);
        kept.iter_mut().for_each(|(_, most)| *most = most.saturating_add(early));
    }
    kept
}

/// How much more is there at the fullest moment for what moves beside computing (bytes).
fn longer(mut walk: Walk<'_>, plan: &Plan, live: Live) -> u64 {
    let before = most(&walk, live);
    beside_computing(&mut walk, plan);
    most(&walk, live).saturating_sub(before)
}

/// Lets exchanges wait until what they make is used, or be over when what they are of is made, where more is there than
/// so much besides what is without any of them (bytes): those that lose the least time for a byte. Whether that is enough.
pub(crate) fn wait(plan: &mut Plan, live: Live, room: u64) -> bool {
    for _ in 0..ROUNDS {
        let mut walk = Walk::over(plan);
        let allowed = i128::from(most(&walk, live)) + i128::from(room);
        let mut moved = beside_computing(&mut walk, plan);
        let mut held = walk.held(live);
        if held.iter().all(|it| *it <= allowed) {
            return true;
        }
        let lost = |it: &Moved| plan.transfers[it.transfer].takes() / real(it.bytes.max(1));
        moved.sort_by(|a, b| lost(a).total_cmp(&lost(b)).then(a.transfer.cmp(&b.transfer)));
        let mut waits: Vec<&Moved> = Vec::new();
        for it in &moved {
            if held[it.moments.clone()].iter().any(|it| *it > allowed) {
                held[it.moments.clone()].iter_mut().for_each(|held| *held -= i128::from(it.bytes));
                waits.push(it);
            }
        }
        // What lost most for a byte need not, where others made room enough.
        let mut any = false;
        for it in waits.into_iter().rev() {
            let (held, bytes) = (&mut held[it.moments.clone()], i128::from(it.bytes));
            if held.iter().all(|held| held + bytes <= allowed) {
                held.iter_mut().for_each(|held| *held += bytes);
            } else {
                plan.transfers[it.transfer].waits = true;
                any = true;
            }
        }
        if !any {
            return false;
        }
    }
    false
}

/// What is there longer for an exchange beside computing.
struct Moved {
    transfer: usize,
    /// At which moments it would not be there else.
    moments: Range<usize>,
    /// How much (bytes).
    bytes: u64,
}

fn most(walk: &Walk<'_>, live: Live) -> u64 {
    walk.most(live).iter().sum()
}

/// Has all that moves beside computing there as long as that takes.
fn beside_computing(walk: &mut Walk<'_>, plan: &Plan) -> Vec<Moved> {
    let mut all = Vec::new();
    let mut add = |(_, copy): (ValueId, Copy), longer: Option<(Range<usize>, u64)>| {
        if let (Copy::Transferred(transfer), Some((moments, bytes))) = (copy, longer) {
            all.push(Moved { transfer, moments, bytes });
        }
    };
    for lanes in plan.lanes(Some(Overlap::costs(0.0))) {
        let load = lanes.load();
        // How much longer it takes for what runs beside it.
        let pace = if load.alone > 0.0 { (load.beside() / load.alone).max(1.0) } else { 1.0 };
        let (mut due, mut over) = (load.alone * pace, 0.0_f64);
        for exchange in lanes.ahead.iter().rev() {
            due = due.min(exchange.at * pace) - exchange.seconds;
            let longer = walk.there_from(exchange.result, during(&lanes, due / pace));
            add(exchange.result, longer);
        }
        for &(gradient, routed) in &lanes.kept {
            if let Assignment::Computed { operands, .. } = &plan.assignments[gradient.0] {
                let values = plan.graph.node(gradient).operands.iter().copied();
                values.zip(operands).for_each(|(value, &copy)| {
                    walk.there_until((value, copy), Some(routed));
                });
            }
        }
        for exchange in &lanes.behind {
            over = over.max(exchange.at * pace) + exchange.seconds;
            let longer = walk.there_until(exchange.source, during(&lanes, over / pace));
            add(exchange.result, longer);
        }
    }
    all
}

/// The operation that is under way then, or the nearest.
fn during(lanes: &Lanes, seconds: f64) -> Option<NodeId> {
    let after = lanes.starts.partition_point(|it| it.0 <= seconds);
    lanes.starts.get(after.saturating_sub(1)).map(|it| it.1)
}
