//! The order in which nodes are eliminated.
//!
//! Three greedy orders are tried: the node first whose table is smallest (least weight), the one
//! that joins the fewest neighbours (least fill), and the one whose table is smallest beside those
//! that it replaces (least growth). The one with the least work in all is taken. Ties go to the
//! lower index, so that the order is a function of the problem.

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
    /// For each node, the node whose classes it stands for, if it does: see [`super::classes`].
    pub(super) classes_of: Vec<Option<usize>>,
    /// The node with the most work, and its neighbours then.
    pub(super) heaviest: Vec<usize>,
}

/// What an order depends on.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// For each node, how many choices it has.
    pub(super) domains: Vec<usize>,
    pub(super) edges: Vec<[usize; 2]>,
    /// For each node, the node whose classes it stands for.
    pub(super) classes_of: Vec<Option<usize>>,
}

/// Which node is eliminated first.
#[derive(Clone, Copy)]
enum Greed {
    Weight,
    Fill,
    Growth,
}

/// A good order for eliminating all nodes but `kept`, which are all different.
pub fn order(problem: &Problem, kept: &[usize]) -> Order {
    Shape::of(problem).order(kept)
}

impl Shape {
    pub(super) fn of(problem: &Problem) -> Self {
        Self {
            domains: problem.domains(),
            edges: problem.edges.iter().map(|edge| [edge.from, edge.to]).collect(),
            classes_of: vec![None; problem.times.len()],
        }
    }

    /// See [`order`].
    pub(super) fn order(&self, kept: &[usize]) -> Order {
        let weight = self.order_by(Greed::Weight, kept);
        let others = [Greed::Fill, Greed::Growth].map(|greed| self.order_by(greed, kept));
        others.into_iter().fold(weight, |best, other| if other.work < best.work { other } else { best })
    }

    fn order_by(&self, greed: Greed, kept: &[usize]) -> Order {
        Greedy::new(self, kept, greed).run()
    }
}

/// An order in the making.
struct Greedy<'a> {
    shape: &'a Shape,
    joined: Vec<BTreeSet<usize>>,
    left: BTreeSet<usize>,
    greed: Greed,
    order: Order,
}

impl<'a> Greedy<'a> {
    fn new(shape: &'a Shape, kept: &[usize], greed: Greed) -> Self {
        let nodes = shape.domains.len();
        let mut joined: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); nodes];
        for &[from, to] in &shape.edges {
            joined[from].insert(to);
            joined[to].insert(from);
        }
        let kept_size: f64 = kept.iter().map(|&at| real_size(shape.domains[at])).product();
        let order = Order {
            nodes: Vec::new(),
            kept: kept.to_vec(),
            entries: kept_size,
            work: kept_size,
            classes_of: shape.classes_of.clone(),
            heaviest: Vec::new(),
        };
        Self { shape, joined, greed, left: (0..nodes).filter(|at| !kept.contains(at)).collect(), order }
    }

    fn run(mut self) -> Order {
        let nodes = self.shape.domains.len();
        let mut scores: Vec<(f64, f64)> = (0..nodes).map(|at| self.score(at)).collect();
        let mut most = 0.0;
        while let Some(node) = first_least(&self.left, &scores) {
            self.left.remove(&node);
            let neighbours = std::mem::take(&mut self.joined[node]);
            let entries = self.size(neighbours.iter());
            let work = self.work(node, &neighbours);
            if work > most {
                most = work;
                self.order.heaviest = neighbours.iter().copied().chain([node]).collect();
            }
            self.order.entries = self.order.entries.max(entries);
            self.order.work += work;
            self.order.nodes.push(node);

            for &neighbour in &neighbours {
                self.joined[neighbour].remove(&node);
                self.joined[neighbour].extend(neighbours.iter().filter(|&&other| other != neighbour));
            }
            let mut changed = neighbours.clone();
            for &neighbour in &neighbours {
                changed.extend(&self.joined[neighbour]);
            }
            for at in changed {
                scores[at] = self.score(at);
            }
        }
        self.order
    }

    fn size<'b>(&self, nodes: impl Iterator<Item = &'b usize>) -> f64 {
        nodes.map(|&at| real_size(self.shape.domains[at])).product()
    }

    /// Additions to eliminate a node: each of its choices is of one class, so that its own classes
    /// do not multiply them.
    fn work(&self, node: usize, neighbours: &BTreeSet<usize>) -> f64 {
        let is_class = |at: &&usize| self.shape.classes_of[**at] == Some(node);
        let others = self.size(neighbours.iter().filter(|at| !is_class(at)));
        let classes = self.size(neighbours.iter().filter(is_class));
        others * real_size(self.shape.domains[node]).max(classes)
    }

    fn score(&self, node: usize) -> (f64, f64) {
        let weight = self.size(self.joined[node].iter());
        let sizes = self.joined[node].iter().map(|&at| real_size(self.shape.domains[at]));
        let replaced = sizes.sum::<f64>() * real_size(self.shape.domains[node]);
        let growth = weight / replaced.max(1.0);
        match self.greed {
            Greed::Weight => (weight, growth),
            Greed::Fill => (self.fill(node), weight),
            Greed::Growth => (growth, weight),
        }
    }

    /// The pairs of neighbours that are not joined.
    fn fill(&self, node: usize) -> f64 {
        let neighbours = &self.joined[node];
        let missing =
            |&at: &usize| neighbours.range(at + 1..).filter(|it| !self.joined[at].contains(it)).count();
        real_size(neighbours.iter().map(missing).sum())
    }
}

fn first_least(left: &BTreeSet<usize>, scores: &[(f64, f64)]) -> Option<usize> {
    let less = |a: (f64, f64), b: (f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
    left.iter().copied().min_by(|&a, &b| less(scores[a], scores[b]).then(a.cmp(&b)))
}
