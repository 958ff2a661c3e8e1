//! Exact minimisation of time by bucket elimination, memory left aside.
//!
//! A node is eliminated by replacing every table that names it with one table over its neighbours:
//! the least sum over its choices. What remains at the end is one number, or a table over the
//! nodes that are kept. The choices are recovered backwards from the buckets, that is from the
//! tables that each eliminated node was in.

mod classes;
mod factor;
mod laid;
mod least;
mod order;
mod prune;

pub use classes::with_classes;
pub(crate) use factor::WORTH_THREADS;
pub(crate) use least::LeastByRows;
pub(crate) use order::{Limits, order_within};
pub use order::{Order, order};
pub(crate) use prune::restrict;
pub use prune::{Pruned, prune};

use std::borrow::Cow;
use std::sync::Arc;

use crate::problem::{Edge, Problem, Proof, SearchError, Solution, Table};
use factor::Nodes;
use laid::Factor;

/// The most entries that a table of an elimination may have.
pub const MOST_ENTRIES: f64 = 67_108_864.0;

/// What is minimised: the times of a problem, or other numbers in their place.
#[derive(Clone, Debug)]
pub struct Objective<'a> {
    /// For each node, the cost of each choice.
    pub costs: Cow<'a, [Vec<f64>]>,
    /// The pairs of nodes.
    pub edges: &'a [Edge],
    /// The costs of pairs of choices.
    pub tables: &'a [Arc<Table>],
}

/// A problem reduced to the nodes that were kept.
#[derive(Clone, Debug)]
pub struct Reduced<'a> {
    /// For each assignment of the kept nodes, in the order of [`Order::kept`] with the last one
    /// running fastest, the least cost over all other nodes.
    pub table: Vec<f64>,
    kept: Vec<usize>,
    buckets: Vec<Bucket<'a>>,
    domains: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Bucket<'a> {
    node: usize,
    factors: Vec<Factor<'a>>,
}

/// The assignment of least time, whatever memory it takes.
pub fn solve(problem: &Problem) -> Result<Solution, SearchError> {
    let pruned = prune(problem, &[]);
    let small = &pruned.problem;
    let reduced = reduce(&Objective::time(small), &order(small, &[]))?;
    if reduced.table[0].is_infinite() {
        return Err(SearchError::Contradiction);
    }
    let choices = pruned.restore(&reduced.recover(&[]));
    let time = problem.time(&choices);
    Ok(Solution { choices, time, proof: Proof::Optimal })
}

/// The least cost for each assignment of the kept nodes.
pub fn reduce<'a>(objective: &Objective<'a>, order: &Order) -> Result<Reduced<'a>, SearchError> {
    if order.entries > MOST_ENTRIES {
        return Err(SearchError::TooWide { entries: order.entries, limit: MOST_ENTRIES });
    }
    let domains: Vec<usize> = objective.costs.iter().map(Vec::len).collect();
    if domains.iter().all(|&domain| domain == 1) {
        // Nothing is chosen: to join what is to be added up would only make long lists of nodes.
        let table = vec![factors(objective).iter().flat_map(|factor| factor.entries.iter()).sum()];
        return Ok(Reduced { table, kept: order.kept.clone(), buckets: Vec::new(), domains });
    }
    let mut pool: Vec<Option<Factor<'a>>> = factors(objective).into_iter().map(Some).collect();
    let mut touching: Vec<Vec<usize>> = vec![Vec::new(); domains.len()];
    for (index, factor) in pool.iter().enumerate() {
        for &node in factor.iter().flat_map(|factor| &factor.scope) {
            touching[node].push(index);
        }
    }

    let mut turns = vec![order.nodes.len(); domains.len()];
    for (turn, &node) in order.nodes.iter().enumerate() {
        turns[node] = turn;
    }
    let nodes = Nodes { domains: &domains, turns: &turns, classes_of: &order.classes_of };
    let mut buckets = Vec::with_capacity(order.nodes.len());
    for &node in &order.nodes {
        let factors: Vec<Factor<'a>> =
            std::mem::take(&mut touching[node]).into_iter().filter_map(|at| pool[at].take()).collect();
        let message = factor::eliminate(node, &factors, &nodes);
        for &neighbour in &message.scope {
            touching[neighbour].push(pool.len());
        }
        pool.push(Some(message));
        buckets.push(Bucket { node, factors });
    }

    let rest: Vec<Factor<'a>> = pool.into_iter().flatten().collect();
    let table = factor::total(&order.kept, &rest, &domains);
    Ok(Reduced { table, kept: order.kept.clone(), buckets, domains })
}

impl<'a> Objective<'a> {
    /// The times of a problem.
    pub fn time(problem: &'a Problem) -> Self {
        Self { costs: Cow::Borrowed(&problem.times), edges: &problem.edges, tables: &problem.tables }
    }
}

impl Reduced<'_> {
    /// The same with tables of its own.
    pub(crate) fn owned(self) -> Reduced<'static> {
        let bucket = |it: Bucket<'_>| Bucket {
            node: it.node,
            factors: it.factors.into_iter().map(Factor::owned).collect(),
        };
        let Self { table, kept, buckets, domains } = self;
        Reduced { table, kept, buckets: buckets.into_iter().map(bucket).collect(), domains }
    }

    /// The least cost for one assignment of the kept nodes.
    pub(crate) fn least(&self, kept: &[usize]) -> f64 {
        let place = |place: usize, (&node, choice): (&usize, &usize)| place * self.domains[node] + choice;
        self.table[self.kept.iter().zip(kept).fold(0, place)]
    }

    /// The best choices of all nodes for one assignment of the kept ones, ties to the first.
    pub fn recover(&self, kept: &[usize]) -> Vec<usize> {
        let mut choices = vec![0; self.domains.len()];
        for (&node, &choice) in self.kept.iter().zip(kept) {
            choices[node] = choice;
        }
        for bucket in self.buckets.iter().rev() {
            let sums = factor::sums(bucket.node, &bucket.factors, &mut choices, &self.domains);
            choices[bucket.node] = first_least(sums.into_iter());
        }
        choices
    }

    /// The number of eliminated nodes.
    pub(crate) fn steps(&self) -> usize {
        self.buckets.len()
    }

    /// The node eliminated in a step and, for each of its choices, the least cost of what was in
    /// its bucket, given the choices of the nodes eliminated later.
    ///
    /// The least of these is what the bucket adds to the least cost in all.
    pub(crate) fn sums(&self, step: usize, choices: &mut [usize]) -> (usize, Vec<f64>) {
        let Bucket { node, factors } = &self.buckets[step];
        (*node, factor::sums(*node, factors, choices, &self.domains))
    }
}

/// The place of the first of the least numbers.
pub(crate) fn first_least(costs: impl Iterator<Item = f64>) -> usize {
    let mut best = (f64::INFINITY, 0);
    for (at, cost) in costs.enumerate() {
        if cost < best.0 {
            best = (cost, at);
        }
    }
    best.1
}

/// One factor for each node and one for each edge, over its nodes with a choice: a node that many are joined to
/// would be in a table over all of them.
fn factors<'a>(objective: &Objective<'a>) -> Vec<Factor<'a>> {
    let chooses = |node: &usize| objective.costs[*node].len() != 1;
    let nodes = objective
        .costs
        .iter()
        .enumerate()
        .map(|(node, costs)| Factor { scope: vec![node], entries: Cow::Owned(costs.clone()) });
    let edges = objective.edges.iter().map(|edge| Factor {
        scope: [edge.from, edge.to].into_iter().filter(chooses).collect(),
        entries: Cow::Borrowed(objective.tables[edge.table].entries.as_slice()),
    });
    nodes.chain(edges).collect()
}

#[cfg(test)]
mod tests;
