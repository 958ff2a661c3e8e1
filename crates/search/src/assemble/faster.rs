//! Which partitions in time are worth a place in the problem.
//!
//! There are many more of them than of those in space. One is left out if another way to do the
//! same work takes no more time, moving its operands from where the first would have had them and
//! its results to where the first would have left them: then no assignment of least time needs it.
//! It may still hold less, so what is said of a search under a memory bound is said of the
//! partitions that are left.

use plan::beside;
use planner_ir::{Node, NodeId, ValueId};

use super::Assembly;
use super::groups::Group;
use crate::clocks::{Routes, Weights};

impl Assembly<'_> {
    /// The choices of a group that are needed, in order: whatever seconds count.
    pub(super) fn needed(&self, group: &Group) -> Vec<usize> {
        let corners = self.weights.corners(Routes::of(&self.section.graph));
        let time = |weights: &Weights| -> Vec<f64> {
            (0..group.choices.len()).map(|choice| self.group_time(group, choice, weights)).collect()
        };
        let times: Vec<Vec<f64>> = corners.iter().map(time).collect();
        let timed = |&choice: &usize| {
            let nodes = group.nodes.iter().zip(&group.choices[choice]);
            nodes.into_iter().any(|(node, &it)| self.space.choices[node.0][it].partition.steps > 1)
        };
        // What takes forever is no choice, unless there is no other.
        let possible = |choice: &usize| times[0][*choice] < f64::INFINITY;
        let any = (0..group.choices.len()).any(|choice| possible(&choice));
        let all = (0..group.choices.len()).filter(|choice| !any || possible(choice));
        let (mut candidates, mut kept): (Vec<usize>, Vec<usize>) = all.partition(timed);
        candidates.sort_by(|&a, &b| times[0][a].total_cmp(&times[0][b]).then(a.cmp(&b)));
        for choice in candidates {
            let replaces = |&by: &usize| {
                let mut corners = corners.iter().zip(&times);
                corners.all(|(at, times)| self.replaced(group, (choice, by), (times[choice] - times[by], at)))
            };
            if !kept.iter().any(replaces) {
                kept.push(choice);
            }
        }
        kept.sort_unstable();
        kept
    }

    /// Leaves out layouts that only choices that are not needed work on.
    pub(super) fn leave_out(&mut self, groups: &[Group], kept: &[Vec<usize>]) {
        let (graph, space) = (&self.section.graph, self.space);
        let touched = |group: &Group, choice: usize| -> Vec<(usize, usize)> {
            let nodes = group.nodes.iter().zip(&group.choices[choice]);
            let of_node = |(&node, &it): (&NodeId, &usize)| {
                let (node_, choice) = (graph.node(node), &space.choices[node.0][it]);
                let operands = node_.operands.iter().zip(&choice.operands);
                let touched = operands.chain(node_.results.iter().zip(&choice.results));
                touched.map(|(value, &layout)| (value.0, layout)).collect::<Vec<_>>()
            };
            nodes.flat_map(of_node).collect()
        };
        for needed in [false, true] {
            for (group, kept) in groups.iter().zip(kept) {
                for choice in (0..group.choices.len()).filter(|it| kept.binary_search(it).is_ok() == needed) {
                    for (value, layout) in touched(group, choice) {
                        self.useful[value][layout] = needed;
                    }
                }
            }
        }
    }

    /// Whether one choice of a group can stand for another with moves that take no more than what it
    /// takes less (seconds).
    fn replaced(&self, group: &Group, (choice, by): (usize, usize), (less, at): (f64, &Weights)) -> bool {
        let mut left = less;
        let pairs = group.choices[choice].iter().zip(&group.choices[by]);
        for (&node, (&choice, &by)) in group.nodes.iter().zip(pairs) {
            if left < 0.0 {
                return false;
            }
            left -= self.moved(node, (choice, by), at);
        }
        left >= 0.0
    }

    /// What moves take at most if one choice of an operation stands for another (seconds).
    fn moved(&self, node: NodeId, (choice, by): (usize, usize), at: &Weights) -> f64 {
        let graph = &self.section.graph;
        let choices = &self.space.choices[node.0];
        let (own, other) = (&choices[choice], &choices[by]);
        let Node { operands, results, phase, .. } = graph.node(node);
        let way = |value: ValueId, from: usize, to: usize| {
            self.assembled.found[self.assembled.ways[value.0]].time(from, to)
        };
        let taken = |(&value, (&from, &to)): (&ValueId, (&usize, &usize))| {
            let beside = beside(graph, value, self.known(value), (*phase, true));
            (at.exchanged(*phase, beside.is_some()) + at.on_links(*phase)).max(at.alone(*phase))
                * way(value, from, to)
        };
        let taken: f64 = operands.iter().zip(own.operands.iter().zip(&other.operands)).map(taken).sum();
        // What uses results is not looked for.
        let given = results.iter().zip(own.results.iter().zip(&other.results));
        let given: f64 = given.map(|(&value, (&to, &from))| way(value, from, to)).sum();
        super::scaled(taken + at.most() * given, graph.runs(node))
    }
}
