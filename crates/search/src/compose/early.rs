//! What exchanges beside computing hold besides.
//!
//! A plan counts on weights that are fetched while something else is computed, and on gradients that are summed
//! meanwhile. What is fetched has its place from then on, what is summed until then. Both follow from the clocks of the
//! plan ([`Plan::loads`]): each part of a step takes as long as what stands in the way, or as what may run beside it if
//! that takes longer; fetched is as late as all comes in time, one exchange after another, and summed as early as can
//! be.

use std::collections::BTreeSet;

use plan::{Assignment, Beside, Clock, Copy, Plan};
use planner_ir::{NodeId, ValueId};

use super::memory::Walk;
use crate::live::Live;

/// How much more there is at the fullest moment (bytes), with these micro-batches under way.
pub(crate) fn early(plan: &Plan, live: Live) -> u64 {
    if plan.hidden_seconds() <= 0.0 {
        return 0;
    }
    let mut walk = Walk::over(plan);
    let most = |walk: &Walk<'_>| walk.most(live).iter().sum::<u64>();
    let before = most(&walk);
    for clock in Clock::ALL {
        let part = Part::of(plan, clock);
        let length = part.length();
        let (mut due, mut over) = (length, 0.0_f64);
        for exchange in part.exchanges.iter().rev().filter(|it| it.is == Beside::Ahead) {
            due = due.min(exchange.at * part.pace) - exchange.seconds;
            walk.there_from(exchange.result, part.during(due));
        }
        for exchange in part.exchanges.iter().filter(|it| it.is == Beside::Behind) {
            over = over.max(exchange.at * part.pace) + exchange.seconds;
            walk.there_until(exchange.source, part.during(over));
        }
    }
    most(&walk).saturating_sub(before)
}

/// A copy of a value.
type Of = (ValueId, Copy);

/// An exchange that may run beside computing.
struct Exchange {
    is: Beside,
    source: Of,
    result: Of,
    /// When what uses it first starts (seconds).
    at: f64,
    seconds: f64,
}

/// A part of a step: what stands in the way one after the other, from 0.
struct Part {
    /// The operations, and when each starts (seconds).
    starts: Vec<(f64, NodeId)>,
    exchanges: Vec<Exchange>,
    /// When the last operation is over (seconds).
    end: f64,
    /// How much longer it takes for what runs beside it.
    pace: f64,
}

impl Part {
    fn of(plan: &Plan, clock: Clock) -> Self {
        let beside = plan.beside();
        let mut part = Self { starts: Vec::new(), exchanges: Vec::new(), end: 0.0, pace: 1.0 };
        let mut done = BTreeSet::new();
        for (node, assignment) in plan.graph.node_ids().zip(&plan.assignments) {
            let Assignment::Computed { operands, seconds, .. } = assignment else { continue };
            let is_of = Clock::of(plan.graph.node(node).phase) == Some(clock);
            for &copy in operands {
                let mut copy = copy;
                while let Copy::Transferred(index) = copy {
                    if !done.insert(index) {
                        break;
                    }
                    let transfer = &plan.transfers[index];
                    copy = transfer.from;
                    match beside[index] {
                        _ if !is_of => {}
                        Some(is) => part.exchanges.push(Exchange {
                            is,
                            source: (transfer.value, transfer.from),
                            result: (transfer.value, Copy::Transferred(index)),
                            at: part.end,
                            seconds: transfer.seconds,
                        }),
                        None => part.end += transfer.seconds,
                    }
                }
            }
            if is_of {
                part.starts.push((part.end, node));
                part.end += seconds;
            }
        }
        let exchanged: f64 = part.exchanges.iter().map(|it| it.seconds).sum();
        if part.end > 0.0 {
            part.pace = (exchanged / part.end).max(1.0);
        }
        part
    }

    /// How long it takes (seconds).
    fn length(&self) -> f64 {
        self.end * self.pace
    }

    /// The operation that is under way then, or the nearest.
    fn during(&self, seconds: f64) -> Option<NodeId> {
        let after = self.starts.partition_point(|it| it.0 * self.pace <= seconds);
        self.starts.get(after.saturating_sub(1)).map(|it| it.1)
    }
}
