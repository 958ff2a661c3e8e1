//! What a device does in a part of a step, in order, and what may run beside it.
//!
//! Two sums say how long a part takes at least ([`Load`]). They would be enough if all that may run beside computing
//! could do so at any time. But a gradient is summed after it was made, and a weight is fetched before it is used: the
//! sums of what is made last have little computed beside them, and so have the first fetches.

use std::collections::BTreeSet;

use planner_ir::{NodeId, Source, ValueId};

use crate::clocks::{Beside, Clock, Load};
use crate::plan::{Assignment, Copy, Plan};

/// An exchange that may run beside computing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// What it is made from.
    pub source: (ValueId, Copy),
    /// What it makes.
    pub result: (ValueId, Copy),
    /// What stands in the way before what uses it first, or until it could begin (seconds).
    pub at: f64,
    /// How long it takes (seconds).
    pub seconds: f64,
}

/// A part of a step: what stands in the way one after the other, and what may run beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lanes {
    /// The operations, and what stands in the way before each (seconds).
    pub starts: Vec<(f64, NodeId)>,
    /// What stands in the way (seconds).
    pub alone: f64,
    /// Weights that are fetched, in the order in which they are used.
    pub ahead: Vec<Exchange>,
    /// Gradients that are summed, in the order in which they are made.
    pub behind: Vec<Exchange>,
    /// Whether what follows goes on beside the last of them: the update of a step of one micro-batch, whose operations
    /// wait each for a gradient of its own.
    pub goes_on: bool,
}

impl Lanes {
    /// What is on both.
    #[must_use]
    pub fn load(&self) -> Load {
        let sum = |exchanges: &[Exchange]| exchanges.iter().map(|it| it.seconds).sum();
        Load { alone: self.alone, ahead: sum(&self.ahead), behind: sum(&self.behind) }
    }

    /// How much less than the sum both take, if a second of either costs the other so much; nothing where they do not
    /// run beside each other (seconds).
    ///
    /// The part takes no less than, for each exchange behind, what stands in the way until it could begin, and it and
    /// all after it, one after another, without the last where what follows goes on beside that; and for each ahead, it
    /// and all before it, and what stands in the way from its use on. What runs beside that meanwhile makes both longer.
    #[must_use]
    pub fn hidden(&self, cost: Option<f64>) -> f64 {
        let Some(cost) = cost else { return 0.0 };
        let load = self.load();
        let all = load.alone + load.beside();
        let mut takes = all - load.hidden(Some(cost));
        // What is under way when what follows begins.
        let last = self.behind.last().filter(|_| self.goes_on).map_or(0.0, |it| it.seconds);
        let mut over = 0.0;
        for it in &self.behind {
            let from = it.at.min(load.alone);
            let after = load.behind - over - last;
            takes = takes.max(from + cost * (load.ahead + over) + after + cost * (load.alone - from));
            over += it.seconds;
        }
        over = 0.0;
        for it in &self.ahead {
            over += it.seconds;
            let after = load.alone - it.at.min(load.alone);
            takes = takes.max(over + cost * (load.alone - after) + after + cost * (load.beside() - over));
        }
        (all - takes).max(0.0)
    }
}

impl Plan {
    /// What each part of a step has on its lanes, in the order of [`Clock::ALL`].
    #[must_use]
    pub fn lanes(&self) -> [Lanes; 2] {
        let graph = &self.graph;
        let (beside, phases) = (self.beside(), self.transfer_phases());
        let goes_on = graph.training.as_ref().is_some_and(|it| it.micro_batches == 1);
        let mut lanes = [Lanes::default(), Lanes { goes_on, ..Lanes::default() }];
        // When what each operation makes is there.
        let mut made = vec![0.0; graph.nodes.len()];
        let mut done = BTreeSet::new();
        let transfer = |lanes: &mut [Lanes; 2], made: &[f64], index: usize| {
            let (it, Some(clock)) = (&self.transfers[index], Clock::of(phases[index])) else { return };
            let lane = &mut lanes[clock as usize];
            let Some(is) = beside[index] else {
                lane.alone += it.seconds;
                return;
            };
            let made = match graph.value(it.value).source {
                Source::Result { node, .. } => made[node.0],
                _ => 0.0,
            };
            let at = if is == Beside::Ahead { lane.alone } else { made };
            let (source, result) = ((it.value, it.from), (it.value, Copy::Transferred(index)));
            let exchange = Exchange { source, result, at, seconds: it.seconds };
            if is == Beside::Ahead { lane.ahead.push(exchange) } else { lane.behind.push(exchange) }
        };
        for (node, assignment) in graph.node_ids().zip(&self.assignments) {
            let Assignment::Computed { operands, seconds, .. } = assignment else { continue };
            for &copy in operands {
                self.first_made(copy, &mut done).into_iter().for_each(|it| transfer(&mut lanes, &made, it));
            }
            if let Some(clock) = Clock::of(graph.node(node).phase) {
                let lane = &mut lanes[clock as usize];
                lane.starts.push((lane.alone, node));
                lane.alone += seconds;
                made[node.0] = lane.alone;
            }
        }
        // What takes the place of a state, or is returned.
        for index in 0..self.transfers.len() {
            let copies = self.first_made(Copy::Transferred(index), &mut done);
            copies.into_iter().for_each(|it| transfer(&mut lanes, &made, it));
        }
        lanes.iter_mut().for_each(|it| it.behind.sort_by(|one, other| one.at.total_cmp(&other.at)));
        lanes
    }

    /// The transfers that make a copy and were not made before, in order.
    fn first_made(&self, mut copy: Copy, done: &mut BTreeSet<usize>) -> Vec<usize> {
        let mut made = Vec::new();
        while let Copy::Transferred(index) = copy {
            if !done.insert(index) {
                break;
            }
            made.push(index);
            copy = self.transfers[index].from;
        }
        made.reverse();
        made
    }
}

#[cfg(test)]
mod tests;
