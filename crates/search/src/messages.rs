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
mod few;
mod network;
mod shifts;

use std::collections::BTreeMap;

use planner_ir::advance;

use crate::eliminate::{Limits, Objective, order_within, prune, reduce};
use few::Few;
pub(crate) use network::Wiring;
use network::{Messages, Network};
use shifts::Shifts;

/// The most sweeps for the bounds of all assignments of what is kept.
const SWEEPS: usize = 200;

/// The sweeps for those of some of them.
const SWEEPS_OF_SOME: usize = 3;

/// The most sweeps for one of them.
const SWEEPS_OF_ONE: usize = 60;

/// Which parts of the gap choices may exceed the bound by, to be among the few that are eliminated for a better
/// assignment; the first that is narrow.
const NEAR: [f64; 4] = [0.1, 0.03, 0.01, 0.001];

/// Which parts of the bound choices may exceed it by, to be among those of which all assignments are eliminated; the
/// first that is narrow.
const PARTS: [f64; 6] = [0.3, 0.1, 0.03, 0.01, 0.003, 0.001];

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
pub(crate) struct Wide<'a> {
    network: Network<'a>,
    messages: Messages,
    kept: Vec<usize>,
    domains: Vec<usize>,
    shifts: Shifts,
    /// For how many turns messages were sent at these costs, and whether that is over.
    turns: usize,
    is_swept: bool,
    bound: f64,
    /// For each node and choice, by how much more than the bound it costs at least; infinite if forbidden.
    excess: Vec<Vec<f64>>,
    /// The best found for assignments of what is kept.
    known: BTreeMap<Vec<usize>, Found>,
    /// All assignments of choices that exceed the bound by no more than this.
    few: Option<(Few, f64)>,
    /// The number of the part of the bound that this is, or of all parts if none is narrow.
    part: usize,
}

/// An assignment, and what it costs.
pub(crate) type Found = (Vec<usize>, f64);

/// What the best assignment of some costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    /// At least this; infinite if there is none.
    pub(crate) bound: f64,
    /// The best one found.
    pub(crate) found: Option<Found>,
}

/// What assignments cost at least: the bound, and for each kept node and choice, how much more.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    bound: f64,
    over: Vec<Vec<f64>>,
}

impl Bounds {
    /// What assignments of the kept nodes cost at least.
    pub(crate) fn of(&self, kept: &[usize]) -> f64 {
        self.bound + self.over.iter().zip(kept).map(|(over, &choice)| over[choice]).sum::<f64>()
    }
}

/// What messages begin with: those of the same problem with other costs.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// For each link, what was said to its earlier and to its later end.
    said: Vec<[Vec<f64>; 2]>,
    shifts: Shifts,
    /// Which part of the bound choices could exceed it by, to be few.
    part: usize,
}

impl<'a> Wide<'a> {
    /// Sends messages until the bound rises no more.
    ///
    /// The ends are pairs of nodes that stand for the same in problems that follow each other. Costs are moved
    /// from the one to the other, so that what is cheapest is what begins as it ends.
    pub(crate) fn new(
        problem: (&'a Wiring, Vec<Vec<f64>>),
        kept: &[usize],
        ends: &[[usize; 2]],
        start: Option<&Start>,
    ) -> Self {
        Self::resting(problem, kept, ends, start).swept()
    }

    /// The same with messages as they ended at other costs: their bound holds, and is the better the less costs
    /// have changed.
    pub(crate) fn resting(
        (wiring, costs): (&'a Wiring, Vec<Vec<f64>>),
        kept: &[usize],
        ends: &[[usize; 2]],
        start: Option<&Start>,
    ) -> Self {
        let domains: Vec<usize> = costs.iter().map(Vec::len).collect();
        let mut network = Network::new(costs, wiring);
        let mut messages = Messages::new(&network);
        let mut shifts = Shifts::new(ends, &domains);
        if let Some(start) = start {
            messages.said.clone_from(&start.said);
            shifts.clone_from(&start.shifts);
            network.shift(&shifts);
        }
        let (bound, excess) = match messages.settle(&network) {
            true => messages.bound(&network),
            false => (f64::INFINITY, messages.forbidden()),
        };
        Self {
            network,
            messages,
            kept: kept.to_vec(),
            domains,
            shifts,
            turns: 0,
            is_swept: bound == f64::INFINITY,
            bound,
            excess,
            known: BTreeMap::new(),
            few: None,
            part: start.map_or(0, |start| start.part),
        }
    }

    /// Whether messages were sent at these costs until the bound rises no more.
    pub(crate) fn is_swept(&self) -> bool {
        self.is_swept
    }

    /// Whether any messages were sent at these costs.
    #[cfg(test)]
    pub(crate) fn is_sent(&self) -> bool {
        self.turns > 0
    }

    /// The same, without what was found.
    pub(crate) fn rested(&self) -> Self {
        Self {
            network: self.network.clone(),
            messages: self.messages.clone(),
            kept: self.kept.clone(),
            domains: self.domains.clone(),
            shifts: self.shifts.clone(),
            excess: self.excess.clone(),
            known: BTreeMap::new(),
            few: None,
            ..*self
        }
    }

    /// The same after messages were sent until the bound rises no more.
    pub(crate) fn swept(mut self) -> Self {
        while !self.is_swept {
            self = self.turned();
        }
        self
    }

    /// The same after messages were sent for a turn, if the bound still rises.
    pub(crate) fn turned(mut self) -> Self {
        if self.is_swept {
            return self;
        }
        let mut messages = self.messages.clone();
        let mut network = self.network.clone();
        let mut shifts = self.shifts.clone();
        if self.turns > 0 {
            shifts.even(&self.excess);
            network.shift(&shifts);
        }
        (0..TURN).for_each(|_| messages.sweep(&network));
        let (next, over) = messages.bound(&network);
        let before = self.bound;
        if next > before {
            (self.bound, self.excess) = (next, over);
            (self.messages, self.network, self.shifts) = (messages, network, shifts);
        }
        self.turns += 1;
        self.is_swept = next - before <= WORTH * next.abs() || self.turns == SWEEPS / TURN;
        if self.is_swept { self.with_few() } else { self }
    }

    /// The same with all assignments of as many choices near the bound as are narrow: of fewer where those of this
    /// part are not, and of more where theirs is far from too wide.
    fn with_few(mut self) -> Self {
        let first = self.part.min(PARTS.len() - 1);
        let few = |part: usize| {
            let most = PARTS[part] * self.bound.abs();
            let mut few = self.messages.clone();
            for (alive, excess) in few.alive.iter_mut().zip(&self.excess) {
                alive.iter_mut().zip(excess).for_each(|(alive, over)| *alive &= *over <= most);
            }
            let is_any = few.settle(&self.network);
            is_any.then(|| Few::of(&self.network, &few, &self.kept)).flatten().map(|few| (few, most))
        };
        let narrow = |part: usize| few(part).map(|few| (few, part));
        let mut found = (first..PARTS.len()).find_map(narrow);
        while let Some(((few, _), part @ 1..)) = &found
            && *part <= first
            && few.is_small()
            && let Some(more) = narrow(part - 1)
        {
            found = Some(more);
        }
        (self.few, self.part) = match found {
            Some((few, part)) => (Some(few), part),
            None => (None, PARTS.len()),
        };
        self
    }

    /// What other costs begin with.
    pub(crate) fn start(&self) -> Start {
        Start { said: self.messages.said.clone(), shifts: self.shifts.clone(), part: self.part }
    }

    /// What all assignments cost at least.
    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds_of(self.bound, &self.excess)
    }

    fn bounds_of(&self, bound: f64, excess: &[Vec<f64>]) -> Bounds {
        let over = |&node: &usize| {
            let over = excess[node].iter().enumerate();
            over.map(|(choice, over)| over + self.shifts.back(node, choice)).collect()
        };
        Bounds { bound, over: self.kept.iter().map(over).collect() }
    }

    /// For each assignment of the kept nodes, the last one running fastest, a bound of what it costs, and the least that
    /// is known to be had.
    pub(crate) fn tables(&self) -> [Vec<f64>; 2] {
        let bounds = self.bounds();
        let domains: Vec<usize> = self.kept.iter().map(|&node| self.domains[node]).collect();
        let mut tables = [Vec::new(), Vec::new()];
        let mut kept = vec![0; domains.len()];
        loop {
            let (bound, found) = (bounds.of(&kept), self.near(&kept));
            // What has a choice of another node that is not near exceeds the bound by that.
            let others = bound + self.few.as_ref().map_or(0.0, |few| self.beyond(few.1, &kept));
            tables[0].push(bound.max(found.min(others)));
            tables[1].push(found);
            if !advance(&mut kept, &domains) {
                return tables;
            }
        }
    }

    /// What the best of all assignments of few choices costs with these choices of the kept nodes.
    fn near(&self, kept: &[usize]) -> f64 {
        let Some((few, _)) = &self.few else { return f64::INFINITY };
        let back = self.kept.iter().zip(kept).map(|(&node, &choice)| self.shifts.back(node, choice));
        few.cost(&self.fixed(kept)) + back.sum::<f64>()
    }

    /// By how much more than the bound others cost than those near it: by nothing where these choices of the kept nodes
    /// are not near it themselves.
    fn beyond(&self, most: f64, kept: &[usize]) -> f64 {
        let is_near = |(&node, &choice): (&usize, &usize)| self.excess[node][choice] <= most;
        if self.kept.iter().zip(kept).all(is_near) { most } else { 0.0 }
    }

    /// The kept nodes with their choices.
    fn fixed(&self, kept: &[usize]) -> Vec<(usize, usize)> {
        self.kept.iter().copied().zip(kept.iter().copied()).collect()
    }

    /// What assignments cost at least in which some kept nodes, by their place among these, have these choices;
    /// and one of them.
    pub(crate) fn given(&self, fixed: &[(usize, usize)]) -> (Bounds, Option<Found>) {
        let mut messages = self.messages.clone();
        for &(place, choice) in fixed {
            messages.only(self.kept[place], choice);
        }
        if !messages.settle(&self.network) {
            return (self.bounds_of(f64::INFINITY, &messages.forbidden()), None);
        }
        (0..SWEEPS_OF_SOME).for_each(|_| messages.sweep(&self.network));
        let (bound, excess) = messages.bound(&self.network);
        (self.bounds_of(bound, &excess), messages.decoded(&self.network))
    }

    /// The choices of the kept nodes in an assignment.
    pub(crate) fn kept_of(&self, choices: &[usize]) -> Vec<usize> {
        self.kept.iter().map(|&node| choices[node]).collect()
    }

    /// Remembers an assignment, if it is the best of those with these choices of the kept nodes.
    pub(crate) fn remember(&mut self, found: Found) {
        let kept = self.kept_of(&found.0);
        if self.known.get(&kept).is_none_or(|(_, cost)| found.1 < *cost) && found.1 < self.near(&kept) {
            self.known.insert(kept, found);
        }
    }

    /// The best assignment that is known for these choices of the kept nodes; if none is, any that has them.
    pub(crate) fn recover(&self, kept: &[usize]) -> Vec<usize> {
        if let Some((choices, _)) = self.known.get(kept) {
            return choices.clone();
        }
        let few = self.few.as_ref();
        if let Some(choices) = few.and_then(|(few, _)| few.recover(&self.fixed(kept), &self.domains)) {
            return choices;
        }
        let mut choices = vec![0; self.domains.len()];
        for (&node, &choice) in self.kept.iter().zip(kept) {
            choices[node] = choice;
        }
        choices
    }

    /// What the best assignment costs that has these choices of the kept nodes.
    pub(crate) fn solve(&self, kept: &[usize]) -> Interval {
        let network = &self.network;
        let mut messages = self.messages.clone();
        for (&node, &choice) in self.kept.iter().zip(kept) {
            messages.only(node, choice);
        }
        let back: f64 =
            self.kept.iter().zip(kept).map(|(&node, &choice)| self.shifts.back(node, choice)).sum();
        let mut interval = Interval { bound: self.bounds().of(kept), found: None };
        if interval.bound == f64::INFINITY || !messages.settle(network) {
            return Interval { bound: f64::INFINITY, found: None };
        }
        if self.near(kept) < f64::INFINITY {
            let near = self.recover(kept);
            let cost = network.cost(&near);
            interval.offer(Some((near, cost)));
        }
        for turn in 0..SWEEPS_OF_ONE / TURN {
            (0..TURN).for_each(|_| messages.sweep(network));
            let (bound, excess) = messages.bound(network);
            let bound = bound + back;
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
    fn among_few(&self, messages: &Messages, excess: &[Vec<f64>], interval: &Interval) -> Option<Found> {
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
    fn eliminated(&self, messages: &Messages) -> Option<Option<Found>> {
        let (left, problem, _) = self.network.left(messages);
        let pruned = prune(&problem, &[]);
        let limits = Limits { entries: NARROW, work: f64::INFINITY };
        let order = order_within(&pruned.problem, &[], limits)?;
        let reduced = reduce(&Objective::time(&pruned.problem), &order).ok()?;
        if reduced.table[0] == f64::INFINITY {
            return Some(None);
        }
        let free = pruned.restore(&reduced.recover(&[]));
        let choices = left.restore(&free, &self.domains);
        let cost = self.network.cost(&choices);
        Some((cost < f64::INFINITY).then_some((choices, cost)))
    }
}

impl Interval {
    /// What the best one found costs.
    pub(crate) fn cost(&self) -> f64 {
        self.found.as_ref().map_or(f64::INFINITY, |(_, cost)| *cost)
    }

    fn offer(&mut self, found: Option<Found>) {
        if let Some((choices, cost)) = found
            && cost < self.cost()
        {
            self.found = Some((choices, cost));
        }
    }
}

#[cfg(test)]
mod tests;
