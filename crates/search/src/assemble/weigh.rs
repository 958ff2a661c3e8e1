//! The problem of a section where seconds count so: what work and moves take depends on weights, all else does not.

use std::collections::BTreeMap;

use plan::Exchanged;
use planner_ir::{Graph, NodeId, Phase};

use super::{Assembled, scaled};
use crate::clocks::Weights;
use crate::problem::{Edge, Problem, Table, real};
use crate::section::Section;

/// How much a second counts of moves of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pace {
    /// It is used first in this phase; exchanges may run beside what stands in the way, or not.
    Used { phase: Phase, is_beside: bool },
    /// Other sections use it, when is not known; it is made in this phase, if it is made while the program runs.
    Unknown { made: Option<Phase> },
}

impl Pace {
    /// How much a second counts of what devices do alone, of exchanges, and on links that all of these use: where it is not
    /// known when, no more than it can be then.
    fn at(self, weights: &Weights) -> [f64; 3] {
        let at = |phase: Phase, is_beside: bool| {
            [weights.alone(phase), weights.exchanged(phase, is_beside), weights.on_links(phase)]
        };
        match self {
            Self::Used { phase, is_beside } => at(phase, is_beside),
            // What is made for the loss is used for that first.
            Self::Unknown { made: Some(Phase::Forward) } => {
                let [alone, _, links] = at(Phase::Backward, false);
                least([at(Phase::Forward, false), [alone, alone, links]])
            }
            // What is made for the gradient of a parameter, or is at rest, may travel beside computing.
            Self::Unknown { made } => {
                let phases = Phase::ALL
                    .into_iter()
                    .filter(|&it| made != Some(Phase::Backward) || it >= Phase::Backward);
                let is_beside = |phase| phase == Phase::Gradient || made != Some(Phase::Backward);
                least(phases.map(|phase| at(phase, is_beside(phase))))
            }
        }
    }
}

/// What counts no more than any of these: of an exchange, whatever part of it is on links.
fn least(all: impl IntoIterator<Item = [f64; 3]>) -> [f64; 3] {
    let none = [f64::INFINITY; 3];
    let [alone, exchanged, both] = all.into_iter().fold(none, |[alone, exchanged, both], it| {
        [alone.min(it[0]), exchanged.min(it[1]), both.min(it[1] + it[2])]
    });
    [alone, exchanged, both - exchanged]
}

/// What a table of moves is made of: the ways, the layouts on both sides, how often, and how much a second counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moved {
    pub(super) ways: usize,
    pub(super) from: Vec<usize>,
    pub(super) to: Vec<usize>,
    pub(super) runs: u64,
    pub(super) pace: Pace,
}

/// Two nodes, or one, and the number of the moves from the layouts of the one to those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) moved: usize,
}

impl Assembled {
    /// The problem of the section where seconds count so.
    pub(crate) fn problem(&self, section: &Section, weights: &Weights) -> Problem {
        let mut problem = self.frame.clone();
        let graph = &section.graph;
        for (node, done) in graph.node_ids().zip(&self.work) {
            let Some(done) = done.as_ref().filter(|_| !self.joints.iter().any(|it| it.has(node))) else {
                continue;
            };
            let times = problem.times[done.node].iter_mut().zip(&done.choices);
            times.for_each(|(time, &choice)| *time += self.weighed(graph, node, choice, weights));
        }
        for joint in &self.joints {
            let pace = weights.alone(graph.node(joint.sum).phase) * real(graph.runs(joint.sum));
            problem.tables.push(joint.table(pace).into());
            problem.edges.push(Edge { from: joint.from, to: joint.to, table: problem.tables.len() - 1 });
        }
        // Moves that take the same at these weights have one table.
        let mut tables = BTreeMap::new();
        for &Joined { from, to, moved } in &self.joined {
            let Moved { ways, from: before, to: after, runs, pace } = &self.moved[moved];
            let pace = pace.at(weights);
            let found = &self.found[*ways];
            let [alone, exchanged, on_links] = pace;
            let time = |before: usize, after: usize| {
                let seconds = found.time(before, after);
                match found.exchanges(before, after) {
                    0 => alone * scaled(seconds, *runs),
                    _ if on_links <= 0.0 || !seconds.is_finite() => exchanged * scaled(seconds, *runs),
                    moves => {
                        let links = weights.links_for(seconds, moves);
                        exchanged * scaled(seconds, *runs) + on_links * scaled(links, *runs)
                    }
                }
            };
            if from == to {
                let pairs = before.iter().zip(after);
                let times = problem.times[from].iter_mut().zip(pairs);
                times.for_each(|(sum, (&before, &after))| *sum += time(before, after));
                continue;
            }
            let key = (ways, before, after, runs, pace.map(f64::to_bits));
            let table = *tables.entry(key).or_insert_with(|| {
                let row = |&from: &usize| after.iter().map(move |&to| time(from, to));
                let entries = before.iter().flat_map(row).collect();
                problem.tables.push(Table { columns: after.len(), entries }.into());
                problem.tables.len() - 1
            });
            problem.edges.push(Edge { from, to, table });
        }
        problem
    }

    /// What a choice of an operation takes where seconds count so (seconds).
    pub(super) fn weighed(&self, graph: &Graph, node: NodeId, choice: usize, weights: &Weights) -> f64 {
        let (phase, runs) = (graph.node(node).phase, real(graph.runs(node)));
        let weight = if self.meanwhile[node.0] { weights.meanwhile(phase) } else { weights.alone(phase) };
        let (seconds, Exchanged { rows, links }) =
            (self.seconds[node.0][choice], self.exchanged[node.0][choice]);
        if rows > 0.0 && rows < f64::INFINITY {
            let routed = weights.routed(phase) * (runs * rows) + weights.on_links(phase) * (runs * links);
            weight * (runs * (seconds - rows)) + routed
        } else if links > 0.0 && seconds < f64::INFINITY {
            weight * (runs * seconds) + weights.in_steps(phase) * (runs * links)
        } else {
            weight * (runs * seconds)
        }
    }
}
