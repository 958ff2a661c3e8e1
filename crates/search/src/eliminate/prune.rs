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
    let all = &choices[node];
    let edges: Vec<Own> = uses.edges.iter().map(|&edge| Own::of(problem, node, edge, choices)).collect();
    let times: Vec<f64> = all.iter().map(|&choice| problem.times[node][choice]).collect();
    let held = |&choice: &usize| uses.bytes.iter().map(move |&at| problem.bytes[at][choice]);
    let bytes: Vec<Vec<u64>> = all.iter().map(|choice| held(choice).collect()).collect();
    let favourites: Vec<Vec<usize>> =
        edges.iter().map(|edge| (0..all.len()).map(|choice| edge.favourite(choice)).collect()).collect();
    // The time of a choice with the favourite neighbours of each: one is not dominated by another whose is more,
    // by more than rounding.
    let alone = |choice: usize| {
        let at_favourites =
            edges.iter().zip(&favourites).map(|(edge, best)| edge.of_choice(choice)[best[choice]]);
        times[choice] + at_favourites.sum::<f64>()
    };
    let alone: Vec<f64> = (0..all.len()).map(alone).collect();
    // What dominates others is most often among the fastest.
    let mut fastest: Vec<usize> = (0..all.len()).collect();
    fastest.sort_by(|&a, &b| alone[a].total_cmp(&alone[b]));
    let (mut is_left, mut left) = (vec![true; all.len()], all.len());
    for choice in (0..all.len()).rev() {
        if left == 1 {
            break;
        }
        let most = alone[choice] + ROUNDING * alone[choice].abs();
        let gained = |by: usize| difference(times[by], times[choice]);
        let takes_more = |by: usize| bytes[by].iter().zip(&bytes[choice]).any(|(by, own)| by > own);
        // What the favourite neighbours of `choice` lose is a bound on the whole sum, and decides
        // nearly always.
        let loses = |by: usize| {
            let at_favourites = edges.iter().zip(&favourites);
            let lost = at_favourites.map(|(edge, best)| {
                let best = best[choice];
                lost(edge.of_choice(choice)[best], edge.of_choice(by)[best])
            });
            gained(by) + lost.sum::<f64>() > 0.0
        };
        let dominated = |by: usize| {
            let most = edges.iter().map(|edge| edge.most_lost(choice, by));
            gained(by) + most.sum::<f64>() <= 0.0
        };
        let mut faster = fastest.iter().copied().take_while(|&by| alone[by] <= most);
        let needless = times[choice].is_infinite()
            || faster.any(|by| by != choice && is_left[by] && !takes_more(by) && !loses(by) && dominated(by));
        if needless {
            is_left[choice] = false;
            left -= 1;
        }
    }
    let mut is_left = is_left.into_iter();
    choices[node].retain(|_| is_left.next().unwrap_or(true));
}

/// An edge as seen from one of its ends: the times of the choices that are left, those of a choice of this end
/// one after another.
struct Own {
    /// How many choices the neighbour has left.
    width: usize,
    times: Vec<f64>,
}

impl Own {
    fn of(problem: &Problem, node: usize, edge: usize, choices: &[Vec<usize>]) -> Self {
        let edge = problem.edges[edge];
        let table = &problem.tables[edge.table];
        let (own, others) = (&choices[node], &choices[edge.other(node)]);
        let mut times = Vec::with_capacity(own.len() * others.len());
        for &choice in own {
            if edge.from == node {
                let row = &table.entries[choice * table.columns..][..table.columns];
                times.extend(others.iter().map(|&other| row[other]));
            } else {
                times.extend(others.iter().map(|&other| table.at(other, choice)));
            }
        }
        Self { width: others.len(), times }
    }

    /// The times of a choice, by the choices of the neighbour.
    fn of_choice(&self, choice: usize) -> &[f64] {
        &self.times[choice * self.width..][..self.width]
    }

    /// The choice of the neighbour that suits a choice best, the first of several.
    fn favourite(&self, choice: usize) -> usize {
        let (mut best, mut least) = (0, f64::INFINITY);
        for (other, &time) in self.of_choice(choice).iter().enumerate() {
            if time < least {
                (best, least) = (other, time);
            }
        }
        best
    }

    /// What is lost at most by replacing `choice`, over the choices of the neighbour.
    fn most_lost(&self, choice: usize, by: usize) -> f64 {
        let times = self.of_choice(choice).iter().zip(self.of_choice(by));
        times.fold(f64::NEG_INFINITY, |most, (&own, &by)| most.max(lost(own, by)))
    }
}

/// What is lost by taking a time instead of one's own. Not +∞, so that it can be added to −∞.
fn lost(own: f64, by: f64) -> f64 {
    difference(by, own).min(f64::MAX)
}

/// `a − b`, where nothing is worse than what is forbidden already.
fn difference(a: f64, b: f64) -> f64 {
    if b.is_infinite() { f64::NEG_INFINITY } else { a - b }
}
