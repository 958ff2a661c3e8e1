//! Minimisation of time where elimination is too wide: sequential tree-reweighted message passing.
//!
//! ```text
//! θ̂_i = θ_i + Σ_j M_ji                       what a node costs with what its neighbours say
//! M_ij(z) = min_y ( γ_i θ̂_i(y) − M_ji(y) + θ_ij(y, z) ),    γ_i = 1 / max(links to earlier, to later nodes)
//! bound = Σ_i min_y (1 − γ_i earlier_i) θ̂_i(y)
//!       + Σ_(j<i) min_yz ( γ_i θ̂_i(z) + θ_ji(y, z) − M_ij(y) − M_ji(z) )
//! ```
//!
//! Messages only move costs about, so that the terms of the bound always add up to what choices cost, and their
//! minima to no more. By how much a choice exceeds the minima of its terms, every assignment that has it
//! exceeds the bound: it is dropped for good where that is more than the best assignment costs. What is left in
//! the end is eliminated, if that is narrow. A choice that is forbidden sends and takes no messages.
//!
//! Source: Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 2006.

mod decode;
mod network;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::eliminate::{Objective, order, prune, reduce};
use network::{Messages, Network};

/// The most sweeps for the bounds of all assignments of what is kept.
const SWEEPS: usize = 30;

/// The most sweeps for one of them.
const SWEEPS_OF_ONE: usize = 60;

/// Which parts of the gap choices may exceed the bound by, to be among the few that are eliminated for a better
/// assignment; the first that is narrow.
const NEAR: [f64; 4] = [0.1, 0.03, 0.01, 0.001];

/// How many sweeps there are between two looks at what they have come to.
const TURN: usize = 5;

/// A part of the bound by which it has to rise in a turn for another one to be worth it.
const WORTH: f64 = 1e-7;

/// The most entries of a table of an elimination of what is left.
const NARROW: f64 = 1_048_576.0;

/// What rounding may add to a bound, as a part of all that is added up for it.
const ROUNDING: f64 = 1e-11;

/// A problem that is too wide, with bounds for every assignment of the nodes that are kept.
#[derive(Debug)]
pub(crate) struct Wide {
    network: Network,
    messages: Messages,
    kept: Vec<usize>,
    domains: Vec<usize>,
    bound: f64,
    /// For each node and choice, by how much more than the bound it costs at least; infinite if forbidden.
    excess: Vec<Vec<f64>>,
    /// What was asked for.
    known: Mutex<BTreeMap<Vec<usize>, Arc<Interval>>>,
}

/// What the best assignment of some costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    /// At least this; infinite if there is none.
    pub(crate) bound: f64,
    /// The best one found, and its cost.
    pub(crate) found: Option<(Vec<usize>, f64)>,
}

impl Wide {
    /// Sends messages until the bound rises no more.
    pub(crate) fn new(objective: &Objective<'_>, kept: &[usize]) -> Self {
        let network = Network::new(objective);
        let mut messages = Messages::new(&network);
        let (mut bound, mut excess) = (f64::INFINITY, messages.forbidden());
        if messages.settle(&network) {
            bound = f64::NEG_INFINITY;
            for _ in 0..SWEEPS / TURN {
                (0..TURN).for_each(|_| messages.sweep(&network));
                let (next, over) = messages.bound(&network);
                let worth = next - bound > WORTH * next.abs();
                if next > bound {
                    (bound, excess) = (next, over);
                }
                if !worth {
                    break;
                }
            }
        }
        let domains = objective.costs.iter().map(Vec::len).collect();
        let known = Mutex::default();
        Self { network, messages, kept: kept.to_vec(), domains, bound, excess, known }
    }

    /// For each assignment of the kept nodes, the last one running fastest, a bound of what it costs.
    pub(crate) fn table(&self) -> Vec<f64> {
        let mut table = vec![self.bound];
        for &node in &self.kept {
            let over = &self.excess[node];
            table = table.iter().flat_map(|bound| over.iter().map(move |over| bound + over)).collect();
        }
        table
    }

    /// What the best assignment costs that has these choices of the kept nodes.
    pub(crate) fn solve(&self, kept: &[usize]) -> Arc<Interval> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(interval) = known().get(kept) {
            return Arc::clone(interval);
        }
        let interval = Arc::new(self.solved(kept));
        known().insert(kept.to_vec(), Arc::clone(&interval));
        interval
    }

    fn solved(&self, kept: &[usize]) -> Interval {
        let network = &self.network;
        let mut messages = self.messages.clone();
        for (&node, &choice) in self.kept.iter().zip(kept) {
            messages.only(node, choice);
        }
        let over: f64 = self.kept.iter().zip(kept).map(|(&node, &choice)| self.excess[node][choice]).sum();
        let mut interval = Interval { bound: self.bound + over, found: None };
        if interval.bound == f64::INFINITY || !messages.settle(network) {
            return Interval { bound: f64::INFINITY, found: None };
        }
        for turn in 0..SWEEPS_OF_ONE / TURN {
            (0..TURN).for_each(|_| messages.sweep(network));
            let (bound, excess) = messages.bound(network);
            let rise = bound - interval.bound;
            interval.bound = interval.bound.max(bound);
            let before = interval.cost();
            interval.offer(messages.decoded(network));
            if turn % 4 == 1 && interval.cost() > bound {
                interval.offer(self.among_few(&messages, &excess, &interval));
            }
            let least = interval.cost();
            // Nothing of what costs more than what is found is in a better assignment.
            if least < f64::INFINITY && !messages.spare(network, (bound, &excess), least) {
                interval.bound = interval.bound.max(least);
                break;
            }
            if interval.bound >= least {
                break;
            }
            let stays = rise <= WORTH * bound.abs() && least >= before;
            if (stays || turn % 2 == 1)
                && let Some(exact) = self.eliminated(&messages)
            {
                // What was dropped costs more than what was found before.
                interval.offer(exact);
                interval.bound = interval.bound.max(interval.cost());
                break;
            }
            if stays {
                break;
            }
        }
        if let Some((_, least)) = &interval.found {
            interval.bound = interval.bound.min(*least);
        }
        interval
    }

    /// The best assignment of the choices that exceed the bound by little and those found.
    fn among_few(
        &self,
        messages: &Messages,
        excess: &[Vec<f64>],
        interval: &Interval,
    ) -> Option<(Vec<usize>, f64)> {
        let (found, cost) = interval.found.as_ref()?;
        let few = |part: f64| {
            let mut few = messages.clone();
            let most = part * (cost - interval.bound);
            for ((alive, excess), found) in few.alive.iter_mut().zip(excess).zip(found) {
                let near = excess.iter().enumerate().map(|(choice, over)| *over <= most || choice == *found);
                alive.iter_mut().zip(near).for_each(|(alive, near)| *alive &= near);
            }
            few.settle(&self.network).then(|| self.eliminated(&few)).flatten()
        };
        NEAR.into_iter().find_map(few).flatten()
    }

    /// The best assignment of the choices that are left, by elimination where that is narrow; of none, that
    /// there is none.
    fn eliminated(&self, messages: &Messages) -> Option<Option<(Vec<usize>, f64)>> {
        let (left, problem) = self.network.left(messages);
        let pruned = prune(&problem, &[]);
        let order = order(&pruned.problem, &[]);
        if order.entries > NARROW {
            return None;
        }
        let reduced = reduce(&Objective::time(&pruned.problem), &order).ok()?;
        if reduced.table[0] == f64::INFINITY {
            return Some(None);
        }
        let free = pruned.restore(&reduced.recover(&[]));
        let choices = left.restore(&free, &self.domains);
        let cost = self.network.cost(&choices);
        Some((cost < f64::INFINITY).then_some((choices, cost)))
    }

    /// Choices for these of the kept nodes: those found, or any that may be forbidden.
    pub(crate) fn recover(&self, kept: &[usize]) -> Vec<usize> {
        if let Some((choices, _)) = &self.solve(kept).found {
            return choices.clone();
        }
        let mut choices = vec![0; self.domains.len()];
        for (&node, &choice) in self.kept.iter().zip(kept) {
            choices[node] = choice;
        }
        choices
    }
}

impl Interval {
    /// What the best one found costs.
    pub(crate) fn cost(&self) -> f64 {
        self.found.as_ref().map_or(f64::INFINITY, |(_, cost)| *cost)
    }

    fn offer(&mut self, found: Option<(Vec<usize>, f64)>) {
        if let Some((choices, cost)) = found
            && cost < self.cost()
        {
            self.found = Some((choices, cost));
        }
    }
}

#[cfg(test)]
mod tests;
