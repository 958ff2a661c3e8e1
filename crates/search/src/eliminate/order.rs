//! The order in which nodes are eliminated.
//!
//! Three greedy orders are tried: the node first whose table is smallest (least weight), the one
//! that joins the fewest neighbours (least fill), and the one whose table is smallest beside those
//! that it replaces (least growth). The one with the least work in all is taken. Ties go to the
//! lower index, so that the order is a function of the problem.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::MOST_ENTRIES;
use crate::problem::{Problem, real_size};

/// The nodes to eliminate, in order, and those to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The nodes to eliminate, first to last; where a table would be far too large, those before it.
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

/// Entries of a table that no nodes of classes bring down to [`MOST_ENTRIES`]: an order that comes to such a table ends
/// there, as joining ever more neighbours would take longer than all before.
const HOPELESS: f64 = MOST_ENTRIES * MOST_ENTRIES * MOST_ENTRIES * MOST_ENTRIES;

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

/// How large an elimination may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most entries of a table.
    pub(crate) entries: f64,
    /// The most additions in all.
    pub(crate) work: f64,
}

impl Limits {
    /// None but that a table must not be hopeless.
    const NONE: Self = Self { entries: HOPELESS, work: f64::INFINITY };

    /// Whether an order keeps them.
    pub(crate) fn hold(self, order: &Order) -> bool {
        order.entries <= self.entries && order.work <= self.work
    }
}

/// A good order for eliminating all nodes but `kept`, which are all different.
pub fn order(problem: &Problem, kept: &[usize]) -> Order {
    Shape::of(problem).order(kept)
}

/// The order of least work among those tried that keep these limits, if there is one: it is given up where it
/// comes to more, which may be long before its end.
pub(crate) fn order_within(problem: &Problem, kept: &[usize], limits: Limits) -> Option<Order> {
    Some(Shape::of(problem).least(kept, limits)).filter(|it| limits.hold(it))
}

impl Order {
    /// Whether it comes to a table that is far too large, and ends there.
    pub(super) fn is_hopeless(&self) -> bool {
        self.entries > HOPELESS
    }
}

impl Shape {
    pub(super) fn of(problem: &Problem) -> Self {
        Self {
            domains: problem.domains(),
            edges: problem.edges.iter().map(|edge| [edge.from, edge.to]).collect(),
            classes_of: vec![None; problem.times.len()],
        }
    }

    /// The pairs of nodes that have a choice: what has none is in no table.
    pub(super) fn joins(&self) -> impl Iterator<Item = [usize; 2]> + '_ {
        self.edges.iter().copied().filter(|both| both.iter().all(|&at| self.domains[at] != 1))
    }

    /// See [`order`].
    pub(super) fn order(&self, kept: &[usize]) -> Order {
        self.least(kept, Limits::NONE)
    }

    /// Of the orders that keep these limits that of least work; if none does, what there is of one.
    fn least(&self, kept: &[usize], limits: Limits) -> Order {
        let by = |greed, limits| Greedy::new(self, kept, greed).run(limits);
        // Where nothing is chosen every order makes tables of one entry.
        if self.joins().next().is_none() {
            return by(Greed::Weight, limits);
        }
        let [first, others @ ..] = Greed::ALL;
        others.into_iter().fold(by(first, limits), |best, greed| {
            let holds = limits.hold(&best);
            let other = by(greed, Limits { work: if holds { best.work } else { limits.work }, ..limits });
            let is_better = limits.hold(&other) && (!holds || other.work < best.work);
            if is_better { other } else { best }
        })
    }

    /// One of the three orders, or what there is of it when its work is more than `most`.
    pub(super) fn greedy(&self, kept: &[usize], greed: Greed, most: f64) -> Order {
        Greedy::new(self, kept, greed).run(Limits { work: most, ..Limits::NONE })
    }

    /// The least work of these orders, or more than `most` if there is none of no more (additions).
    pub(super) fn work(&self, kept: &[usize], most: f64, greeds: &[Greed]) -> f64 {
        let by = |greed, most| self.greedy(kept, greed, most).work;
        greeds.iter().fold(f64::INFINITY, |least, &greed| least.min(by(greed, least.min(most))))
    }
}

/// How good it is to eliminate a node next: the less the better; of equal ones the second says.
#[derive(Clone, Copy, Debug)]
struct Score(f64, f64);

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.total_cmp(&other.1))
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

/// Up to here products of whole numbers are exact, in whichever order.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What is known of a node's neighbours.
#[derive(Clone, Debug, Default)]
struct Around {
    joined: BTreeSet<usize>,
    /// The product of their sizes, in their order.
    weight: f64,
    /// The sum of their sizes.
    sum: f64,
    /// How many pairs of them are joined, where that is asked for.
    links: usize,
}

/// An order in the making. What a node's score depends on is kept up to date: a node that many are
/// joined to is not looked through for each of them.
struct Greedy<'a> {
    shape: &'a Shape,
    /// For each node, how many choices it has.
    sizes: Vec<f64>,
    around: Vec<Around>,
    /// For each node its score, if it is to be eliminated.
    scores: Vec<Option<Score>>,
    queue: BTreeSet<(Score, usize)>,
    greed: Greed,
    order: Order,
}

impl<'a> Greedy<'a> {
    fn new(shape: &'a Shape, kept: &[usize], greed: Greed) -> Self {
        let nodes = shape.domains.len();
        let mut joined = vec![BTreeSet::new(); nodes];
        for [from, to] in shape.joins() {
            joined[from].insert(to);
            joined[to].insert(from);
        }
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
        let around = |joined: BTreeSet<usize>| Around {
            weight: product(&sizes, &joined),
            sum: joined.iter().map(|&at| sizes[at]).sum(),
            joined,
            links: 0,
        };
        let around: Vec<Around> = joined.into_iter().map(around).collect();
        let (scores, queue) = (vec![None; nodes], BTreeSet::new());
        let mut greedy = Self { shape, sizes, around, scores, queue, greed, order };
        if greed == Greed::Fill {
            // Each pair once, however many edges it has.
            let pairs: BTreeSet<(usize, usize)> = shape.joins().map(|[a, b]| (a.min(b), a.max(b))).collect();
            for (a, b) in pairs {
                for at in greedy.common(a, b) {
                    greedy.around[at].links += 1;
                }
            }
        }
        let is_kept: BTreeSet<usize> = kept.iter().copied().collect();
        for node in (0..nodes).filter(|it| !is_kept.contains(it)) {
            let score = greedy.score(node);
            greedy.scores[node] = Some(score);
            greedy.queue.insert((score, node));
        }
        greedy
    }

    /// The order, or what there is of it when it comes to more than these limits.
    fn run(mut self, limits: Limits) -> Order {
        let mut heaviest = 0.0;
        while limits.hold(&self.order)
            && let Some((_, node)) = self.queue.pop_first()
        {
            self.scores[node] = None;
            let neighbours: Vec<usize> = self.around[node].joined.iter().copied().collect();
            let entries = self.around[node].weight;
            let work = self.work(node, &neighbours);
            if work > heaviest {
                heaviest = work;
                self.order.heaviest = neighbours.iter().copied().chain([node]).collect();
            }
            self.order.entries = self.order.entries.max(entries);
            self.order.work += work;
            self.order.nodes.push(node);
            for at in self.eliminated(node, &neighbours) {
                self.update(at);
            }
        }
        self.order
    }

    /// Takes a node away and joins its neighbours: the nodes whose scores that may change.
    fn eliminated(&mut self, node: usize, neighbours: &[usize]) -> BTreeSet<usize> {
        let mut changed: BTreeSet<usize> = neighbours.iter().copied().collect();
        for &at in neighbours {
            if self.greed == Greed::Fill {
                let lost = self.common(node, at).len();
                self.around[at].links -= lost;
            }
        }
        for &at in neighbours {
            self.part(at, node);
        }
        for (place, &a) in neighbours.iter().enumerate() {
            for &b in &neighbours[place + 1..] {
                if self.around[a].joined.contains(&b) {
                    continue;
                }
                if self.greed == Greed::Fill {
                    // Whether neighbours are joined is seen by those that have them both.
                    let common = self.common(a, b);
                    self.around[a].links += common.len();
                    self.around[b].links += common.len();
                    common.iter().for_each(|&at| self.around[at].links += 1);
                    changed.extend(common);
                }
                self.join(a, b);
                self.join(b, a);
            }
        }
        changed
    }

    fn join(&mut self, at: usize, to: usize) {
        let size = self.sizes[to];
        let around = &mut self.around[at];
        around.joined.insert(to);
        around.sum += size;
        around.weight = if around.weight * size < EXACT && size >= 1.0 {
            around.weight * size
        } else {
            product(&self.sizes, &around.joined)
        };
    }

    fn part(&mut self, at: usize, from: usize) {
        let size = self.sizes[from];
        let around = &mut self.around[at];
        around.joined.remove(&from);
        around.sum -= size;
        around.weight = if around.weight < EXACT && size >= 1.0 {
            around.weight / size
        } else {
            product(&self.sizes, &around.joined)
        };
    }

    /// The neighbours that two nodes have in common.
    fn common(&self, a: usize, b: usize) -> Vec<usize> {
        let [a, b] = [a, b].map(|at| &self.around[at].joined);
        let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
        few.iter().copied().filter(|at| many.contains(at)).collect()
    }

    fn update(&mut self, node: usize) {
        let Some(before) = self.scores[node] else { return };
        let score = self.score(node);
        if score != before {
            self.queue.remove(&(before, node));
            self.queue.insert((score, node));
            self.scores[node] = Some(score);
        }
    }

    /// Additions to eliminate a node: each of its choices is of one class, so that its own classes
    /// do not multiply them.
    fn work(&self, node: usize, neighbours: &[usize]) -> f64 {
        let is_class = |at: &&usize| self.shape.classes_of[**at] == Some(node);
        let size = |nodes: &mut dyn Iterator<Item = &usize>| nodes.map(|&at| self.sizes[at]).product::<f64>();
        let others = size(&mut neighbours.iter().filter(|at| !is_class(at)));
        let classes = size(&mut neighbours.iter().filter(is_class));
        others * self.sizes[node].max(classes)
    }

    fn score(&self, node: usize) -> Score {
        let Around { joined, weight, sum, links } = &self.around[node];
        let growth = weight / (sum * self.sizes[node]).max(1.0);
        match self.greed {
            Greed::Weight => Score(*weight, growth),
            // The pairs of neighbours that are not joined.
            Greed::Fill => {
                Score(real_size(joined.len() * joined.len().saturating_sub(1) / 2 - links), *weight)
            }
            Greed::Growth => Score(growth, *weight),
        }
    }
}

/// The product of the sizes of some nodes, in their order.
fn product(sizes: &[f64], nodes: &BTreeSet<usize>) -> f64 {
    let mut product = 1.0;
    for &at in nodes {
        product *= sizes[at];
        if product == f64::INFINITY {
            break;
        }
    }
    product
}
