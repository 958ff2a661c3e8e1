//! The order in which nodes are eliminated.
//!
//! Two greedy orders are tried, the one that makes the smallest tables first (least weight) and
//! the one that joins the fewest neighbours first (least fill), and the one with less work in all
//! is taken. Ties go to the lower index, so that the order is a function of the problem.

use std::collections::BTreeSet;

use crate::problem::{Problem, real_size};

/// The nodes to eliminate, in order, and those to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The nodes to eliminate, first to last.
    pub nodes: Vec<usize>,
    /// The nodes that stay.
    pub kept: Vec<usize>,
    /// Entries of the largest table that this order makes.
    pub entries: f64,
    /// Additions that this order takes in all.
    pub work: f64,
}

#[derive(Clone, Copy)]
enum Greed {
    Weight,
    Fill,
}

/// A good order for eliminating all nodes but `kept`, which are all different.
pub fn order(problem: &Problem, kept: &[usize]) -> Order {
    let weight = greedy(problem, kept, Greed::Weight);
    let fill = greedy(problem, kept, Greed::Fill);
    if fill.work < weight.work { fill } else { weight }
}

fn greedy(problem: &Problem, kept: &[usize], greed: Greed) -> Order {
    let domains = problem.domains();
    let mut joined: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); domains.len()];
    for edge in &problem.edges {
        joined[edge.from].insert(edge.to);
        joined[edge.to].insert(edge.from);
    }

    let size = |nodes: &BTreeSet<usize>| nodes.iter().map(|&at| real_size(domains[at])).product();
    let score = |node: usize, joined: &[BTreeSet<usize>]| -> (f64, f64) {
        let weight: f64 = size(&joined[node]);
        match greed {
            Greed::Weight => (weight, fill(node, joined)),
            Greed::Fill => (fill(node, joined), weight),
        }
    };
    let mut left: BTreeSet<usize> = (0..domains.len()).filter(|at| !kept.contains(at)).collect();
    let mut scores: Vec<(f64, f64)> = (0..domains.len()).map(|at| score(at, &joined)).collect();

    let kept_size: f64 = kept.iter().map(|&at| real_size(domains[at])).product();
    let mut order = Order { nodes: Vec::new(), kept: kept.to_vec(), entries: kept_size, work: kept_size };
    while let Some(node) = first_least(&left, &scores) {
        left.remove(&node);
        let neighbours = std::mem::take(&mut joined[node]);
        let entries: f64 = size(&neighbours);
        order.entries = order.entries.max(entries);
        order.work += entries * real_size(domains[node]);
        order.nodes.push(node);

        for &neighbour in &neighbours {
            joined[neighbour].remove(&node);
            joined[neighbour].extend(neighbours.iter().filter(|&&other| other != neighbour));
        }
        let mut changed = neighbours.clone();
        for &neighbour in &neighbours {
            changed.extend(&joined[neighbour]);
        }
        for at in changed {
            scores[at] = score(at, &joined);
        }
    }
    order
}

/// The pairs of neighbours that are not joined.
fn fill(node: usize, joined: &[BTreeSet<usize>]) -> f64 {
    let neighbours = &joined[node];
    let missing =
        |&at: &usize| neighbours.range(at + 1..).filter(|other| !joined[at].contains(other)).count();
    real_size(neighbours.iter().map(missing).sum())
}

fn first_least(left: &BTreeSet<usize>, scores: &[(f64, f64)]) -> Option<usize> {
    let less = |a: (f64, f64), b: (f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
    left.iter().copied().min_by(|&a, &b| less(scores[a], scores[b]).then(a.cmp(&b)))
}
