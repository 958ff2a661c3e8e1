//! What a device does in a part of a step, in order, and what may run beside it.
//!
//! Sums say how long a part takes at least ([`Load`]). They would be enough if all that may run beside something could
//! do so at any time. But a gradient is summed after it was made, and a weight is fetched before it is used: the sums of
//! what is made last have little computed beside them, and so have the first fetches. And what computing waits for has
//! beside it gradients of parameters that can be computed by then, the last ones first. Rows that are routed have beside
//! them what neither comes of them nor leads to them, and then such gradients.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Meanwhile, NodeId, Phase, Source, ValueId};

use crate::clocks::{Beside, Clock, Load, Overlap};
use crate::plan::{Assignment, Copy, Exchanged, Hidden, Plan};

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
    /// What of that is exchanged (seconds).
    pub blocking: f64,
    /// For how long all exchanges have links for themselves that all use (seconds).
    pub links: f64,
    /// How much less that is for what is computed while something is waited for (seconds).
    pub within: f64,
    /// Weights that are fetched, in the order in which they are used.
    pub ahead: Vec<Exchange>,
    /// Gradients that are summed, in the order in which they are made.
    pub behind: Vec<Exchange>,
    /// Gradients of parameters that are computed while rows are exchanged, and the operation that these are of.
    pub kept: Vec<(NodeId, NodeId)>,
    /// Whether what follows goes on beside the last of them: the update of a step of one micro-batch, whose operations
    /// wait each for a gradient of its own.
    pub goes_on: bool,
}

impl Lanes {
    /// What is on both.
    #[must_use]
    pub fn load(&self) -> Load {
        let sum = |exchanges: &[Exchange]| exchanges.iter().map(|it| it.seconds).sum();
        let (ahead, behind) = (sum(&self.ahead), sum(&self.behind));
        Load { alone: self.alone, ahead, behind, blocking: self.blocking, ..Load::default() }
    }

    /// Adds an exchange beside what stands in the way.
    fn push(&mut self, exchange: Exchange, is: Beside) {
        match is {
            Beside::Ahead => self.ahead.push(Exchange { at: self.alone, ..exchange }),
            Beside::Behind => self.behind.push(exchange),
        }
    }

    /// How much less than the sum both take, if a second of either costs the other so much; nothing where they do not
    /// run beside each other (seconds).
    ///
    /// The part takes no less than, for each exchange behind, what stands in the way until it could begin, and it and
    /// all after it, one after another, without the last where what follows goes on beside that; and for each ahead, it
    /// and all before it, and what stands in the way from its use on. What runs beside that meanwhile makes both longer.
    /// And it takes no less than links that all exchanges use are busy.
    #[must_use]
    pub fn hidden(&self, overlap: Option<Overlap>) -> f64 {
        let Some(Overlap { cost, latency }) = overlap else { return 0.0 };
        let load = self.load();
        let all = load.alone + load.beside();
        let mut takes = all - load.hidden(Some(Overlap::costs(cost)));
        if latency.is_some() && cost < 1.0 {
            takes = takes.max(self.links + cost * (load.alone + self.within - load.blocking));
        }
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
        (all + self.within - takes).max(0.0)
    }
}

/// What a device does in a part of a step.
#[derive(Clone, Copy, Debug)]
enum Does {
    Node(NodeId),
    Transfer(usize),
}

/// How it takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It stands in the way.
    Alone,
    /// It is an exchange that computing waits for.
    Waited,
    /// It computes the gradient of a parameter.
    Apart,
    /// Rows go to an operation and come back.
    Routed,
    /// It may be computed while they do.
    Meanwhile,
    /// It runs beside all that.
    Beside(Beside),
}

/// Something that a device does, how it takes its time, and how much (seconds).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happens {
    does: Does,
    way: Way,
    seconds: f64,
    /// How much of that is exchanged and not computed, and for how long that has links for itself that all use.
    exchanged: f64,
    links: f64,
}

impl Happens {
    /// The operation that it is of.
    fn node(&self) -> Option<NodeId> {
        match self.does {
            Does::Node(node) => Some(node),
            Does::Transfer(_) => None,
        }
    }

    /// The same where gradients of parameters are computed by themselves.
    fn by_itself(self) -> Self {
        let way = match self.way {
            Way::Waited | Way::Apart => Way::Alone,
            way => way,
        };
        Self { way, ..self }
    }
}

/// What is on a clock.
pub(crate) fn load(happens: &[Happens]) -> Load {
    let mut load = Load::default();
    for it in happens {
        load.links += it.links;
        if matches!(it.way, Way::Alone | Way::Apart | Way::Meanwhile) {
            load.blocking += it.exchanged;
        }
        let sum = match it.way {
            Way::Alone => &mut load.alone,
            Way::Waited => &mut load.waited,
            Way::Apart => &mut load.apart,
            Way::Routed => &mut load.routed,
            Way::Meanwhile => &mut load.meanwhile,
            Way::Beside(Beside::Ahead) => &mut load.ahead,
            Way::Beside(Beside::Behind) => &mut load.behind,
        };
        *sum += it.seconds;
    }
    load
}

/// What of each runs beside what: of what computing waits for and of what is computed then (seconds), and gradients of
/// parameters that are computed while rows are exchanged, each with these; given what else may be computed then.
fn beside_what_is_waited_for(
    happens: &[Happens],
    meanwhile: &[Meanwhile],
) -> (Vec<f64>, Vec<(NodeId, NodeId)>) {
    let mut kept = Vec::new();
    let mut beside = vec![0.0; happens.len()];
    let mut both = |one: usize, other: usize| {
        let both = (happens[one].seconds - beside[one]).min(happens[other].seconds - beside[other]);
        beside[one] += both;
        beside[other] += both;
        (both > 0.0, beside[other] < happens[other].seconds)
    };
    let places: BTreeMap<NodeId, usize> = (0..)
        .zip(happens)
        .filter(|(_, it)| it.way == Way::Meanwhile)
        .filter_map(|(index, it)| Some((it.node()?, index)))
        .collect();
    let mut apart: Vec<usize> = Vec::new();
    for (index, it) in happens.iter().enumerate() {
        match it.way {
            Way::Apart => apart.push(index),
            Way::Waited | Way::Routed => {
                let own = meanwhile.iter().find(|own| Some(own.routed) == it.node());
                for place in own.iter().flat_map(|own| &own.computed).filter_map(|node| places.get(node)) {
                    both(index, *place);
                }
                while let Some(&last) = apart.last() {
                    let (any, is_left) = both(index, last);
                    if let (true, Some(gradient), Some(routed)) = (any, happens[last].node(), it.node()) {
                        kept.push((gradient, routed));
                    }
                    if is_left {
                        break;
                    }
                    apart.pop();
                }
            }
            Way::Alone | Way::Meanwhile | Way::Beside(_) => {}
        }
    }
    (beside, kept)
}

impl Plan {
    /// What is on each clock, in the order of [`Clock::ALL`].
    #[must_use]
    pub fn loads(&self, overlap: Option<Overlap>) -> [Load; 2] {
        let overlap = overlap.map(|it| it.of(&self.graph));
        self.happens(&self.graph.meanwhile(), overlap).map(|it| load(&it))
    }

    /// What runs beside computing, where both run beside each other so.
    #[must_use]
    pub fn hidden_at(&self, overlap: Option<Overlap>) -> Hidden {
        let overlap = overlap.map(|it| it.of(&self.graph));
        let [forward, backward] = self.lanes(overlap).map(|it| it.hidden(overlap));
        Hidden { forward, backward }
    }

    /// The same where gradients of parameters are computed by themselves, beside nothing that is waited for.
    #[must_use]
    pub fn hidden_apart(&self, overlap: Option<Overlap>) -> Hidden {
        let overlap = overlap.map(|it| it.of(&self.graph));
        let [forward, backward] = self.lanes_of(overlap, Happens::by_itself).map(|it| it.hidden(overlap));
        Hidden { forward, backward }
    }

    /// What each part of a step has on its lanes, in the order of [`Clock::ALL`], where computing and exchanges run beside
    /// each other so; nothing runs beside what is waited for without.
    #[must_use]
    pub fn lanes(&self, overlap: Option<Overlap>) -> [Lanes; 2] {
        self.lanes_of(overlap, |it| it)
    }

    fn lanes_of(&self, overlap: Option<Overlap>, own: impl Fn(Happens) -> Happens) -> [Lanes; 2] {
        let goes_on = self.graph.training.as_ref().is_some_and(|it| it.micro_batches == 1);
        let less = overlap.map_or(0.0, |it| (1.0 - it.cost).max(0.0));
        // When what each operation makes is there.
        let mut made = vec![0.0; self.graph.nodes.len()];
        let meanwhile = self.graph.meanwhile();
        let [forward, backward] = self.happens(&meanwhile, overlap);
        [(forward, false), (backward, goes_on)].map(|(happens, goes_on)| {
            let happens: Vec<Happens> = happens.into_iter().map(&own).collect();
            let (beside, kept) = beside_what_is_waited_for(&happens, &meanwhile);
            let mut lanes = Lanes { kept, goes_on, ..Lanes::default() };
            for (Happens { does, way, seconds, exchanged, links }, beside) in happens.into_iter().zip(beside)
            {
                lanes.links += links;
                if !matches!(way, Way::Beside(_)) {
                    lanes.blocking += exchanged;
                }
                // Of two that run beside each other, what is computed takes so much less.
                let is_computed = matches!(way, Way::Apart | Way::Meanwhile);
                let within = if is_computed { less * beside } else { 0.0 };
                match (does, way) {
                    (Does::Transfer(index), Way::Beside(is)) => lanes.push(self.exchange(index, &made), is),
                    (Does::Node(node), _) => {
                        if lanes.starts.last().is_none_or(|it| it.1 != node) {
                            lanes.starts.push((lanes.alone, node));
                        }
                        lanes.alone += seconds - within;
                        made[node.0] = lanes.alone;
                    }
                    (Does::Transfer(_), _) => lanes.alone += seconds - within,
                }
                lanes.within += within;
            }
            lanes.behind.sort_by(|one, other| one.at.total_cmp(&other.at));
            lanes
        })
    }

    /// An exchange that may run beside computing, which could begin when what it is of is made.
    fn exchange(&self, index: usize, made: &[f64]) -> Exchange {
        let it = &self.transfers[index];
        let at = match self.graph.value(it.value).source {
            Source::Result { node, .. } => made[node.0],
            _ => 0.0,
        };
        let (source, result) = ((it.value, it.from), (it.value, Copy::Transferred(index)));
        Exchange { source, result, at, seconds: it.takes() }
    }

    /// What happens in each part of a step, in order; given what may be computed while rows are exchanged, and how
    /// exchanges run beside computing.
    fn happens(&self, meanwhile: &[Meanwhile], overlap: Option<Overlap>) -> [Vec<Happens>; 2] {
        let graph = &self.graph;
        let meanwhile: BTreeSet<NodeId> =
            meanwhile.iter().flat_map(|it| it.computed.iter().copied()).collect();
        let (beside, phases) = (self.beside(), self.transfer_phases());
        let mut happens = [const { Vec::new() }; 2];
        let mut done = BTreeSet::new();
        let mut add = |phase: Phase, it: Happens| {
            if let Some(clock) = Clock::of(phase) {
                happens[clock as usize].push(it);
            }
        };
        let mut transfers = |copy: Copy, add: &mut dyn FnMut(Phase, Happens)| {
            for it in self.first_made(copy, &mut done) {
                let transfer = &self.transfers[it];
                let way = match (beside[it], phases[it]) {
                    (Some(beside), _) => Way::Beside(beside),
                    (None, _) if transfer.waits => Way::Alone,
                    (None, Phase::Gradient) => Way::Apart,
                    (None, Phase::Backward) if transfer.travels() => Way::Waited,
                    (None, Phase::Forward | Phase::Backward | Phase::Update) => Way::Alone,
                };
                let (seconds, count) = (transfer.takes(), transfer.exchanges());
                let exchanged = if count > 0 { seconds } else { 0.0 };
                let links = overlap.map_or(0.0, |overlap| overlap.on_links(exchanged, count));
                add(phases[it], Happens { does: Does::Transfer(it), way, seconds, exchanged, links });
            }
        };
        for (node, assignment) in graph.node_ids().zip(&self.assignments) {
            let Assignment::Computed { operands, seconds, exchanged, .. } = assignment else { continue };
            operands.iter().for_each(|&copy| transfers(copy, &mut add));
            let phase = graph.node(node).phase;
            let way = match phase {
                Phase::Gradient => Way::Apart,
                Phase::Forward | Phase::Backward if meanwhile.contains(&node) => Way::Meanwhile,
                Phase::Forward | Phase::Backward | Phase::Update => Way::Alone,
            };
            let Exchanged { rows, links } = *exchanged;
            let own =
                Happens { does: Does::Node(node), way, seconds: *seconds - rows, exchanged: 0.0, links: 0.0 };
            if rows > 0.0 {
                add(phase, Happens { way: Way::Routed, seconds: rows, exchanged: rows, links, ..own });
                add(phase, own);
            } else {
                add(phase, Happens { exchanged: links, links, ..own });
            }
        }
        // What takes the place of a state, or is returned.
        (0..self.transfers.len()).for_each(|it| transfers(Copy::Transferred(it), &mut add));
        happens
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
