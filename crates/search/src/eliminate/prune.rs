//! Choices that another choice of the same node makes needless.

use std::collections::BTreeMap;

use crate::problem::{Held, Live, Problem, Table};

/// A problem without its needless choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Pruned {
    /// The smaller problem: the same nodes, with fewer choices.
    pub problem: Problem,
    /// For each node, the choices that are left.
    pub choices: Vec<Vec<usize>>,
}

/// Drops the choices that are infinite and those that are dominated.
///
/// Choice `i` is dominated by `j` of the same node if `j` takes no more bytes in any term, and
/// replacing `i` with `j` takes no more time whatever the neighbours choose:
///
/// ```text
/// t_v[j] − t_v[i]  +  Σ_e max_x (t_e[j, x] − t_e[i, x])  ≤  0
/// ```
///
/// The least time, the least memory and the least of any sum of both with weights that are not
/// negative stay what they are. The nodes in `kept` keep all their choices.
pub fn prune(problem: &Problem, kept: &[usize]) -> Pruned {
    let mut choices: Vec<Vec<usize>> =
        problem.domains().into_iter().map(|count| (0..count).collect()).collect();
    let uses = uses(problem);
    // Fewer choices of a neighbour may make more of a node's needless; nothing else does.
    let mut waiting: Vec<bool> = (0..choices.len()).map(|node| !kept.contains(&node)).collect();
    while waiting.contains(&true) {
        for node in 0..choices.len() {
            if !std::mem::take(&mut waiting[node]) {
                continue;
            }
            let before = choices[node].len();
            drop_needless(problem, node, &uses[node], &mut choices);
            if choices[node].len() < before {
                let neighbours = uses[node].edges.iter().map(|&edge| problem.edges[edge].other(node));
                neighbours.filter(|it| !kept.contains(it)).for_each(|it| waiting[it] = true);
            }
        }
    }
    Pruned { problem: restrict(problem, &choices), choices }
}

/// A problem in which each node has only the given choices.
pub(crate) fn restrict(problem: &Problem, choices: &[Vec<usize>]) -> Problem {
    let mut tables = Vec::new();
    let mut table_of = BTreeMap::new();
    let mut edges = problem.edges.clone();
    for edge in &mut edges {
        let (rows, columns) = (&choices[edge.from], &choices[edge.to]);
        edge.table = *table_of.entry((edge.table, rows, columns)).or_insert_with(|| {
            let whole = &problem.tables[edge.table];
            let row = |&row: &usize| columns.iter().map(move |&column| whole.at(row, column));
            let entries = rows.iter().flat_map(row).collect();
            tables.push(Table { columns: columns.len(), entries }.into());
            tables.len() - 1
        });
    }

    let mut bytes = Vec::new();
    let mut bytes_of = BTreeMap::new();
    let mut restricted = |held: &Held| {
        let left = &choices[held.node];
        let index = *bytes_of.entry((held.bytes, left)).or_insert_with(|| {
            bytes.push(left.iter().map(|&choice| problem.bytes[held.bytes][choice]).collect());
            bytes.len() - 1
        });
        Held { node: held.node, bytes: index }
    };
    let resident = problem.resident.iter().map(&mut restricted).collect();
    let live = problem.live.iter().map(|live| Live { held: restricted(&live.held), ..*live }).collect();

    let times = problem
        .times
        .iter()
        .zip(choices)
        .map(|(times, left)| left.iter().map(|&choice| times[choice]).collect())
        .collect();
    Problem { times, edges, tables, bytes, resident, windows: problem.windows.clone(), live }
}

impl Pruned {
    /// A problem with all its choices.
    pub(crate) fn whole(problem: Problem) -> Self {
        let choices = problem.domains().into_iter().map(|count| (0..count).collect()).collect();
        Self { problem, choices }
    }

    /// An assignment of the smaller problem as one of the whole.
    pub fn restore(&self, choices: &[usize]) -> Vec<usize> {
        self.choices.iter().zip(choices).map(|(left, &choice)| left[choice]).collect()
    }
}

/// Where a node occurs: its edges, and the lists of bytes that it holds.
#[derive(Clone, Default)]
struct Uses {
    edges: Vec<usize>,
    bytes: Vec<usize>,
}

fn uses(problem: &Problem) -> Vec<Uses> {
    let mut uses = vec![Uses::default(); problem.times.len()];
    for (index, edge) in problem.edges.iter().enumerate() {
        uses[edge.from].edges.push(index);
        uses[edge.to].edges.push(index);
    }
    let held = problem.live.iter().map(|live| &live.held).chain(&problem.resident);
    for held in held {
        uses[held.node].bytes.push(held.bytes);
    }
    for uses in &mut uses {
        uses.bytes.sort_unstable();
        uses.bytes.dedup();
    }
    uses
}

/// What rounding adds to a sum of times at most, as a part of it.
const ROUNDING: f64 = 1e-9;

/// Drops needless choices of one node, but for one.
fn drop_needless(problem: &Problem, node: usize, uses: &Uses, choices: &mut [Vec<usize>]) {
    let edges: Vec<Own<'_>> = uses.edges.iter().map(|&edge| own(problem, node, edge)).collect();
    let favourites: Vec<Vec<usize>> = edges
        .iter()
        .map(|edge| {
            let favourite = |&choice: &usize| edge.favourite(choice, &choices[edge.neighbour]);
            choices[node].iter().map(favourite).collect()
        })
        .collect();
    let all = choices[node].clone();
    // The time of a choice with the favourite neighbours of each: one is not dominated by another whose is more,
    // by more than rounding.
    let mut alone = vec![f64::INFINITY; problem.times[node].len()];
    for (index, &choice) in all.iter().enumerate() {
        let at_favourites = edges.iter().zip(&favourites).map(|(edge, best)| edge.at(choice, best[index]));
        alone[choice] = problem.times[node][choice] + at_favourites.sum::<f64>();
    }
    for (index, &choice) in all.iter().enumerate().rev() {
        if choices[node].len() == 1 {
            break;
        }
        let most = alone[choice] + ROUNDING * alone[choice].abs();
        let gained = |by: usize| difference(problem.times[node][by], problem.times[node][choice]);
        let takes_more =
            |by: usize| uses.bytes.iter().any(|&at| problem.bytes[at][by] > problem.bytes[at][choice]);
        // What the favourite neighbours of `choice` lose is a bound on the whole sum, and decides
        // nearly always.
        let loses = |by: usize| {
            let at_favourites = edges.iter().zip(&favourites);
            let lost = at_favourites.map(|(edge, best)| edge.lost(choice, by, best[index]));
            gained(by) + lost.sum::<f64>() > 0.0
        };
        let dominated = |by: usize| {
            let most = edges.iter().map(|edge| edge.most_lost(choice, by, &choices[edge.neighbour]));
            gained(by) + most.sum::<f64>() <= 0.0
        };
        let needless = problem.times[node][choice].is_infinite()
            || choices[node].iter().any(|&by| {
                by != choice && alone[by] <= most && !takes_more(by) && !loses(by) && dominated(by)
            });
        if needless {
            choices[node].retain(|&other| other != choice);
        }
    }
}

/// An edge as seen from one of its ends.
struct Own<'a> {
    neighbour: usize,
    table: &'a Table,
    /// Distance in the table between own choices, and between those of the neighbour.
    strides: (usize, usize),
}

fn own(problem: &Problem, node: usize, edge: usize) -> Own<'_> {
    let edge = problem.edges[edge];
    let table = &problem.tables[edge.table];
    if edge.from == node {
        Own { neighbour: edge.to, table, strides: (table.columns, 1) }
    } else {
        Own { neighbour: edge.from, table, strides: (1, table.columns) }
    }
}

impl Own<'_> {
    fn at(&self, own: usize, other: usize) -> f64 {
        self.table.entries[own * self.strides.0 + other * self.strides.1]
    }

    /// The choice of the neighbour that suits a choice best.
    fn favourite(&self, choice: usize, others: &[usize]) -> usize {
        let by_time = |a: &&usize, b: &&usize| self.at(choice, **a).total_cmp(&self.at(choice, **b));
        others.iter().min_by(by_time).copied().unwrap_or(0)
    }

    /// What is lost at one choice of the neighbour by replacing `choice`. Not +∞, so that it can
    /// be added to −∞.
    fn lost(&self, choice: usize, by: usize, other: usize) -> f64 {
        difference(self.at(by, other), self.at(choice, other)).min(f64::MAX)
    }

    fn most_lost(&self, choice: usize, by: usize, others: &[usize]) -> f64 {
        let lost = others.iter().map(|&other| self.lost(choice, by, other));
        lost.fold(f64::NEG_INFINITY, f64::max)
    }
}

/// `a − b`, where nothing is worse than what is forbidden already.
fn difference(a: f64, b: f64) -> f64 {
    if b.is_infinite() { f64::NEG_INFINITY } else { a - b }
}
