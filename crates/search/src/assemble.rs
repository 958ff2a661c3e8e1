//! A section's space and prices as a problem in plain numbers.
//!
//! | node of the problem | its choices | its time |
//! |---|---|---|
//! | an operation, with those of its gradients that are chosen with it | their partitions | their work |
//! | a value that comes from outside, a weight, a state, an input, a prepared value | its layouts at rest | 0 |
//! | a value that is used more than once | the layout in which one copy is held | 0 |
//! | a value that is handed on or returned | the layout in which it is handed on | 0 |
//! | a value that is shared besides | the layout in which it is shared | 0 |
//!
//! An edge joins what makes a copy to what uses it: its table has the time of the cheapest moves
//! from each layout to each other one. A value that is used more than once is first moved into
//! the layout in which it is held, once, and from there to each use. So the time of an assignment
//! is exactly that of the plan that is written from it. Of a training step, it is the time of all
//! micro-batches: work and moves count as often as they run.
//!
//! What a state becomes takes its place: its copy has the layout of the state at rest. A sum over
//! micro-batches is held there, and what uses the whole sum takes it from there; several from a copy
//! that is made of it once, so that what devices owe is summed once.
//!
//! A sum over micro-batches takes nothing by itself: a table of it and the product that it adds has its time, or what
//! the product takes longer where it adds to the sum itself ([`rewrite::Added`]).

mod faster; // partitions in time that are worth a place
mod groups; // operations that are chosen together
mod layouts; // the layouts in which a value may be
mod memory; // what certainly is there
mod sums; // products that add to sums over micro-batches
mod weigh; // the problem where seconds count so
mod when; // when a value is used, how often, and how much its moves count

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::Exchanged;
use planner_ir::{Graph, Layout, Mesh, NodeId, Phase, Source, ValueId};
use rewrite::{Added, Space};

use crate::beside::AtRest;
use crate::clocks::Weights;
use crate::manner::Whole;
use crate::prices::Prices;
use crate::problem::{Problem, real};
use crate::section::Section;
use crate::ways::{Found, Ways};
use sums::Joint;
use weigh::{Joined, Moved, Pace};

pub(crate) use memory::Counted;
pub(crate) use sums::priced;

/// What a section's problem is made of, and what its nodes stand for.
#[derive(Debug, PartialEq)]
pub(crate) struct Assembled {
    /// The problem without work and moves, which are weighed.
    pub(crate) frame: Problem,
    /// For each operation its node; nothing for prepared ones.
    pub(crate) work: Vec<Option<Done>>,
    /// For each value that is at rest or comes from outside, its node.
    pub(crate) rest: Vec<Option<Held>>,
    /// For each value of which a copy is held, its node.
    pub(crate) held: Vec<Option<Held>>,
    /// For each sum over micro-batches of which several read what it comes to, the node of the copy that they
    /// read.
    pub(crate) settled: Vec<Option<Held>>,
    /// For each value that is handed on or returned, its node.
    pub(crate) delivered: Vec<Option<Held>>,
    /// For each value that is shared from here on and handed on or taken in besides, the node of the copy
    /// that is shared.
    pub(crate) given: Vec<Option<Held>>,
    /// For each operation, the time of each of its partitions, each time that it runs (seconds).
    pub(crate) seconds: Vec<Vec<f64>>,
    /// What of that is exchanged.
    pub(crate) exchanged: Vec<Vec<Exchanged>>,
    /// For each operation, whether it may be computed meanwhile.
    meanwhile: Vec<bool>,
    /// For each value, the number of its ways.
    pub(crate) ways: Vec<usize>,
    /// The ways.
    pub(crate) found: Vec<Arc<Ways>>,
    /// What nodes are joined by, in order.
    joined: Vec<Joined>,
    /// What tables of moves are made of.
    moved: Vec<Moved>,
    /// What sums over micro-batches take, by how what they add was made.
    joints: Vec<Joint>,
}

/// The node that chooses an operation's partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) node: usize,
    /// For each choice of the node, the partition: a number of the operation's choices.
    pub(crate) choices: Vec<usize>,
}

/// The node that chooses the layout of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) node: usize,
    /// For each choice of the node, the layout: a number of the value's layouts in the space.
    pub(crate) layouts: Vec<usize>,
}

/// What uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// An operand of an operation.
    Operand(NodeId, usize),
    /// Handing on, or returning.
    Delivery,
    /// Sharing what is handed on or taken in besides.
    Giving,
    /// Taking the place of a state.
    Carried(ValueId),
}

struct Assembly<'a> {
    section: &'a Section,
    space: &'a Space,
    mesh: &'a Mesh,
    assembled: Assembled,
    /// The products that may add to sums.
    added: Vec<Added>,
    /// How much a second counts.
    weights: Weights,
    /// The numbers of moves.
    moved: BTreeMap<Moved, usize>,
    /// For each value, what uses it.
    uses: Vec<Vec<Use>>,
    /// For each value, whether it is a sum over micro-batches.
    summed: Vec<bool>,
    /// For each value, whether a micro-batch may have it before it begins.
    known_before: Vec<bool>,
    /// For each value, whether sums of gradients are all that becomes of it.
    for_sums: Vec<bool>,
    /// For each value and layout, whether a copy may be held in it: not if only choices that were
    /// left out work on it.
    useful: Vec<Vec<bool>>,
    /// The layout of values that have one already.
    fixed: Fixed<'a>,
}

/// The layouts in which values are at rest or returned.
type Fixed<'a> = BTreeMap<ValueId, &'a Layout>;

/// The problem of a section, with these micro-batches under way, where another program has some of it at rest.
pub(crate) fn assemble<'a>(
    section: &'a Section,
    space: &'a Space,
    mesh: &Mesh,
    (prices, found, weights): (&dyn Prices, &Found<'a>, Weights),
    (counted, live, there): (&Counted, crate::live::Live, &AtRest),
    fixed: Fixed<'_>,
) -> Assembled {
    let graph = &section.graph;
    let none = || vec![None; graph.values.len()];
    let mut assembly = Assembly {
        section,
        space,
        mesh,
        assembled: Assembled {
            frame: Problem::default(),
            work: vec![None; graph.nodes.len()],
            rest: none(),
            held: none(),
            settled: none(),
            delivered: none(),
            given: none(),
            seconds: vec![Vec::new(); graph.nodes.len()],
            exchanged: vec![Vec::new(); graph.nodes.len()],
            meanwhile: vec![false; graph.nodes.len()],
            ways: Vec::new(),
            found: Vec::new(),
            joined: Vec::new(),
            moved: Vec::new(),
            joints: Vec::new(),
        },
        added: sums::of(section, space),
        weights,
        moved: BTreeMap::new(),
        uses: uses(section, &space.prepared),
        summed: graph.sums().iter().map(Option::is_some).collect(),
        known_before: graph.known_before(),
        for_sums: graph.for_sums(),
        useful: space.layouts.iter().map(|layouts| vec![true; layouts.len()]).collect(),
        fixed,
    };
    for value in graph.value_ids() {
        let between = (graph.type_of(value), &space.layouts[value.0][..], &space.moves[value.0][..]);
        let ways = found.ways(between, prices);
        let own = &mut assembly.assembled.found;
        let number = own.iter().position(|it| Arc::ptr_eq(it, &ways)).unwrap_or_else(|| {
            own.push(ways);
            own.len() - 1
        });
        assembly.assembled.ways.push(number);
    }
    assembly.add_work(prices);
    assembly.add_values();
    assembly.add_rests(prices);
    assembly.add_edges();
    assembly.add_joints(prices);
    assembly.add_memory(counted, live, there);
    assembly.assembled
}

/// For each value, what uses it while the program runs.
fn uses(section: &Section, prepared: &[bool]) -> Vec<Vec<Use>> {
    let graph = &section.graph;
    let mut uses = vec![Vec::new(); graph.values.len()];
    for node in graph.node_ids() {
        if is_prepared(graph, node, prepared) {
            continue;
        }
        for (index, operand) in graph.node(node).operands.iter().enumerate() {
            uses[operand.0].push(Use::Operand(node, index));
        }
    }
    for value in graph.value_ids().filter(|&value| section.is_delivered(value)) {
        uses[value.0].push(Use::Delivery);
    }
    for value in graph.value_ids().filter(|&value| section.is_given(value)) {
        uses[value.0].push(Use::Giving);
    }
    for it in graph.training.iter().flat_map(|training| &training.carried) {
        uses[it.next.0].push(Use::Carried(it.state));
    }
    uses
}

pub(crate) fn is_prepared(graph: &Graph, node: NodeId, prepared: &[bool]) -> bool {
    graph.node(node).results.iter().all(|result| prepared[result.0])
}

impl Assembly<'_> {
    fn add_work(&mut self, prices: &dyn Prices) {
        let graph = &self.section.graph;
        for node in graph.meanwhile().into_iter().flat_map(|it| it.computed) {
            self.assembled.meanwhile[node.0] = true;
        }
        for node in graph.node_ids() {
            if !is_prepared(graph, node, &self.space.prepared) {
                let work = Whole::of(graph, node);
                let (layouts, choices) = (&self.space.layouts, &self.space.choices[node.0]);
                let time = |it: &rewrite::Choice| work.time(layouts, it, &it.partition, prices);
                self.assembled.seconds[node.0] = choices.iter().map(time).collect();
                let exchanged = |it: &rewrite::Choice| work.exchanged(layouts, it, &it.partition, prices);
                self.assembled.exchanged[node.0] = choices.iter().map(exchanged).collect();
            }
        }
        let groups = groups::groups(self.section, self.space, &self.assembled.seconds, &self.added);
        let mut kept = Vec::new();
        for group in &groups {
            let needed = self.needed(group);
            self.assembled.frame.times.push(vec![0.0; needed.len()]);
            for (place, node) in group.nodes.iter().enumerate() {
                let choices = needed.iter().map(|&it| group.choices[it][place]).collect();
                let done = Done { node: self.assembled.frame.times.len() - 1, choices };
                self.assembled.work[node.0] = Some(done);
            }
            kept.push(needed);
        }
        self.leave_out(&groups, &kept);
    }

    /// What a choice of a group takes where seconds count so (seconds).
    fn group_time(&self, group: &groups::Group, choice: usize, weights: &Weights) -> f64 {
        let graph = &self.section.graph;
        let one = |(node, &choice): (&NodeId, &usize)| self.assembled.weighed(graph, *node, choice, weights);
        group.nodes.iter().zip(&group.choices[choice]).map(one).sum()
    }

    fn add_values(&mut self) {
        let graph = &self.section.graph;
        let carried = || graph.training.iter().flat_map(|training| &training.carried);
        for value in graph.value_ids() {
            let made = self.section.is_made(value) && !self.space.prepared[value.0];
            let outside = self.section.is_outside(value);
            let tied = self.section.tied.iter().any(|&(_, it)| it == value);
            let uses = self.uses[value.0].len();
            let carries = carried().any(|it| it.state == value);
            let ends = || self.section.entry.contains(&value) || self.section.exit.contains(&value);
            if uses == 0 && !ends() && !carries {
                continue;
            }
            let handed = self.allowed(value, self.handed_layouts(value));
            if !made && !tied {
                let layouts = match (outside, self.section.enters(value)) {
                    (false, _) => self.rest_layouts(value),
                    (true, true) => self.crossing_layouts(value),
                    (true, false) => self.shared_layouts(value),
                };
                let layouts = self.allowed(value, layouts);
                self.assembled.rest[value.0] = Some(self.value_node(layouts));
            }
            // What is at rest is a copy that is held already, and so is a sum over micro-batches.
            let state = matches!(graph.value(value).source, Source::State(_));
            let total = carried().any(|it| it.next == value && self.summed[it.state.0]);
            if uses > 1 && (made || outside) && !state && !total {
                self.assembled.held[value.0] = Some(self.held_node(value));
            }
            if total && self.readers(value).len() > 1 {
                self.assembled.settled[value.0] = Some(self.held_node(value));
            }
            if self.uses[value.0].contains(&Use::Delivery) && !tied {
                self.assembled.delivered[value.0] = Some(self.value_node(handed));
            }
            if self.uses[value.0].contains(&Use::Giving) {
                let layouts = self.allowed(value, self.shared_layouts(value));
                self.assembled.given[value.0] = Some(self.value_node(layouts));
            }
        }
        for &(value, tied) in &self.section.tied {
            let node = self.end(value).map(|held| self.same_layouts(&held, value, tied));
            let end = if self.section.is_outside(tied) {
                &mut self.assembled.rest[tied.0]
            } else {
                &mut self.assembled.delivered[tied.0]
            };
            *end = node;
        }
        for it in carried().filter(|it| self.summed[it.state.0]) {
            let rest = self.assembled.rest[it.state.0].clone();
            self.assembled.held[it.next.0] = rest.map(|rest| self.same_layouts(&rest, it.state, it.next));
        }
    }

    /// What uses a value but to take the place of states.
    fn readers(&self, value: ValueId) -> Vec<Use> {
        let uses = self.uses[value.0].iter().copied();
        uses.filter(|it| !matches!(it, Use::Carried(_))).collect()
    }

    /// What it takes to keep states.
    fn add_rests(&mut self, prices: &dyn Prices) {
        for value in self.section.graph.value_ids() {
            let Source::State(state) = &self.section.graph.value(value).source else { continue };
            let Some(rest) = &self.assembled.rest[value.0] else { continue };
            let layouts = rest.layouts.iter().map(|&layout| &self.space.layouts[value.0][layout]);
            let mut times: Vec<f64> = layouts.clone().map(|it| prices.rest(state, it)).collect();
            if let Some(rules) = prices.rules().filter(|it| it.exact) {
                let shards: Vec<usize> = layouts.map(|it| rules.shards(state, it)).collect();
                let kept = shards.iter().zip(&times).filter(|(_, time)| time.is_finite());
                let most = kept.map(|(count, _)| *count).max().unwrap_or(0);
                let fewer = times.iter_mut().zip(shards).filter(|(_, count)| *count < most);
                fewer.for_each(|(time, _)| *time = f64::INFINITY);
            }
            self.assembled.frame.times[rest.node] = times;
        }
    }

    /// The node of the copy that is held; what is computed again is held as the first time.
    fn held_node(&mut self, value: ValueId) -> Held {
        let layouts = &self.space.layouts;
        let first = groups::original(self.section, value);
        match &self.assembled.held[first.0] {
            Some(held) if first != value && layouts[first.0] == layouts[value.0] => held.clone(),
            _ => {
                let handed = self.handed_layouts(value);
                let useful = |it: &usize| self.useful[value.0][*it] || handed.contains(it);
                self.value_node((0..layouts[value.0].len()).filter(useful).collect())
            }
        }
    }

    /// The node at which a value is handed on or taken from outside.
    fn end(&self, value: ValueId) -> Option<Held> {
        let rest = self.assembled.rest[value.0].clone().filter(|_| self.section.is_outside(value));
        rest.or_else(|| self.assembled.delivered[value.0].clone())
    }

    /// The node of one value as that of another, in the same layouts.
    ///
    /// # Panics
    /// If the other may not be held in one of them: both are boundary values.
    fn same_layouts(&self, held: &Held, value: ValueId, other: ValueId) -> Held {
        let (own, others) = (&self.space.layouts[value.0], &self.space.layouts[other.0]);
        let number = |&layout: &usize| match others.binary_search(&own[layout]) {
            Ok(number) => number,
            Err(_) => unreachable!("values that go together may be held alike"),
        };
        Held { node: held.node, layouts: held.layouts.iter().map(number).collect() }
    }

    fn value_node(&mut self, layouts: Vec<usize>) -> Held {
        self.assembled.frame.times.push(vec![0.0; layouts.len()]);
        Held { node: self.assembled.frame.times.len() - 1, layouts }
    }

    /// The node that makes a value, and the layouts it makes it in.
    fn made(&self, value: ValueId) -> Held {
        if let Some(rest) = &self.assembled.rest[value.0] {
            return rest.clone();
        }
        let Source::Result { node, index } = self.section.graph.value(value).source else {
            unreachable!("what is not computed is at rest")
        };
        self.by_choice(node, |choice| choice.results[index])
    }

    /// The node of an operation, and a layout that its partitions ask for.
    fn by_choice(&self, node: NodeId, layout: impl Fn(&rewrite::Choice) -> usize) -> Held {
        let Some(Done { node: work, choices }) = &self.assembled.work[node.0] else {
            unreachable!("prepared operations are not used at run time")
        };
        let layout = |&choice: &usize| layout(&self.space.choices[node.0][choice]);
        Held { node: *work, layouts: choices.iter().map(layout).collect() }
    }

    fn add_edges(&mut self) {
        for value in self.section.graph.value_ids() {
            let uses = self.uses[value.0].clone();
            let Some(&first) = uses.iter().min_by_key(|it| self.moment(it)) else { continue };
            let mut from = self.made(value);
            if let Some(held) = self.assembled.held[value.0].clone() {
                let total = uses.iter().any(|it| matches!(it, Use::Carried(_)));
                let runs = if total { self.made_runs(value) } else { self.runs(value, first) };
                self.edge(value, (&from, &held), (runs, self.pace(value, &uses)));
                from = held;
            }
            let mut read = from.clone();
            if let Some(settled) = self.assembled.settled[value.0].clone() {
                let pace = self.pace(value, &self.readers(value));
                self.edge(value, (&from, &settled), (1, pace));
                read = settled;
            }
            for it in uses {
                let to = match it {
                    Use::Operand(node, index) => self.by_choice(node, |choice| choice.operands[index]),
                    Use::Delivery => match self.assembled.delivered[value.0].clone() {
                        Some(delivered) => delivered,
                        None => continue,
                    },
                    Use::Giving => match self.assembled.given[value.0].clone() {
                        Some(given) => given,
                        None => continue,
                    },
                    Use::Carried(state) => match self.assembled.rest[state.0].clone() {
                        Some(rest) => self.same_layouts(&rest, state, value),
                        None => continue,
                    },
                };
                let from = if matches!(it, Use::Carried(_)) { &from } else { &read };
                self.edge(value, (from, &to), (self.runs(value, it), self.pace(value, &[it])));
            }
        }
    }

    /// Moves of a value from the layouts of one node's choices to those of another's, so often, and how much
    /// a second counts of them.
    fn edge(&mut self, value: ValueId, (from, to): (&Held, &Held), (runs, pace): (u64, Pace)) {
        let ways = self.assembled.ways[value.0];
        let moved = Moved { ways, from: from.layouts.clone(), to: to.layouts.clone(), runs, pace };
        let all = &mut self.assembled.moved;
        let moved = *self.moved.entry(moved).or_insert_with_key(|moved| {
            all.push(moved.clone());
            all.len() - 1
        });
        self.assembled.joined.push(Joined { from: from.node, to: to.node, moved });
    }

    /// The phase in which a value is made.
    fn phase(&self, value: ValueId) -> Option<Phase> {
        match self.section.graph.value(value).source {
            Source::Result { node, .. } => Some(self.section.graph.node(node).phase),
            _ => None,
        }
    }
}

/// A time so many times.
fn scaled(time: f64, runs: u64) -> f64 {
    if runs == 1 { time } else { time * real(runs) }
}
