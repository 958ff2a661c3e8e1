//! The order in which nodes are eliminated.
//!
//! Three greedy orders are tried: the node first whose table is smallest (least weight), the one
//! that joins the fewest neighbours (least fill), and the one whose table is smallest beside those
//! that it replaces (least growth). The one with the least work in all is taken. Ties go to the
//! lower index, so that the order is a function of the problem.

use fixedbitset::FixedBitSet;

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
    /// By which of the three it was found.
    pub(super) greed: Greed,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greed {
    Weight,
    Fill,
    Growth,
}

impl Greed {
    pub(super) const ALL: [Self; 3] = [Self::Weight, Self::Fill, Self::Growth];
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
        let by = |greed, most| Greedy::new(self, kept, greed).run(most);
        let [first, others @ ..] = Greed::ALL;
        others.into_iter().fold(by(first, f64::INFINITY), |best, greed| {
            let other = by(greed, best.work);
            if other.work < best.work { other } else { best }
        })
    }

    /// The least work of these orders, or more than `most` if there is none of no more (additions).
    pub(super) fn work(&self, kept: &[usize], most: f64, greeds: &[Greed]) -> f64 {
        let by = |greed, most| Greedy::new(self, kept, greed).run(most).work;
        greeds.iter().fold(f64::INFINITY, |least, &greed| least.min(by(greed, least.min(most))))
    }
}

/// An order in the making.
struct Greedy<'a> {
    shape: &'a Shape,
    /// For each node, how many choices it has.
    sizes: Vec<f64>,
    joined: Vec<FixedBitSet>,
    left: FixedBitSet,
    greed: Greed,
    order: Order,
}

impl<'a> Greedy<'a> {
    fn new(shape: &'a Shape, kept: &[usize], greed: Greed) -> Self {
        let nodes = shape.domains.len();
        let mut joined = vec![FixedBitSet::with_capacity(nodes); nodes];
        for &[from, to] in &shape.edges {
            joined[from].insert(to);
            joined[to].insert(from);
        }
        let mut left = FixedBitSet::with_capacity(nodes);
        left.insert_range(..);
        kept.iter().for_each(|&at| left.remove(at));
        let sizes: Vec<f64> = shape.domains.iter().map(|&domain| real_size(domain)).collect();
        let kept_size: f64 = kept.iter().map(|&at| sizes[at]).product();
        let order = Order {
            nodes: Vec::new(),
            kept: kept.to_vec(),
            entries: kept_size,
            work: kept_size,
            classes_of: shape.classes_of.clone(),
            heaviest: Vec::new(),
            greed,
        };
        Self { shape, sizes, joined, left, greed, order }
    }

    /// The order, or what there is of it when its work is more than `most`.
    fn run(mut self, most: f64) -> Order {
        let nodes = self.shape.domains.len();
        let mut scores: Vec<(f64, f64)> = (0..nodes).map(|at| self.score(at)).collect();
        let mut heaviest = 0.0;
        while let Some(node) = first_least(&self.left, &scores) {
            self.left.remove(node);
            let neighbours = std::mem::take(&mut self.joined[node]);
            let entries = self.size(neighbours.ones());
            let work = self.work(node, &neighbours);
            if work > heaviest {
                heaviest = work;
                self.order.heaviest = neighbours.ones().chain([node]).collect();
            }
            self.order.entries = self.order.entries.max(entries);
            self.order.work += work;
            self.order.nodes.push(node);
            if self.order.work > most {
                break;
            }

            for neighbour in neighbours.ones() {
                let joined = &mut self.joined[neighbour];
                joined.union_with(&neighbours);
                joined.remove(node);
                joined.remove(neighbour);
            }
            let mut changed = neighbours.clone();
            // Whether neighbours are joined is seen by those that have them both.
            if matches!(self.greed, Greed::Fill) {
                neighbours.ones().for_each(|neighbour| changed.union_with(&self.joined[neighbour]));
            }
            for at in changed.ones() {
                scores[at] = self.score(at);
            }
        }
        self.order
    }

    fn size(&self, nodes: impl Iterator<Item = usize>) -> f64 {
        nodes.map(|at| self.sizes[at]).product()
    }

    /// Additions to eliminate a node: each of its choices is of one class, so that its own classes
    /// do not multiply them.
    fn work(&self, node: usize, neighbours: &FixedBitSet) -> f64 {
        let is_class = |at: &usize| self.shape.classes_of[*at] == Some(node);
        let others = self.size(neighbours.ones().filter(|at| !is_class(at)));
        let classes = self.size(neighbours.ones().filter(is_class));
        others * self.sizes[node].max(classes)
    }

    fn score(&self, node: usize) -> (f64, f64) {
        let weight = self.size(self.joined[node].ones());
        let sizes = self.joined[node].ones().map(|at| self.sizes[at]);
        let replaced = sizes.sum::<f64>() * self.sizes[node];
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
        // Of each pair both ends miss the other one, and each neighbour itself.
        let missing = |at: usize| neighbours.difference_count(&self.joined[at]) - 1;
        real_size(neighbours.ones().map(missing).sum::<usize>() / 2)
    }
}

fn first_least(left: &FixedBitSet, scores: &[(f64, f64)]) -> Option<usize> {
    let less = |a: (f64, f64), b: (f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
    left.ones().min_by(|&a, &b| less(scores[a], scores[b]).then(a.cmp(&b)))
}
