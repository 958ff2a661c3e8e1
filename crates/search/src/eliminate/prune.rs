//! Choices that another choice of the same node makes needless.

use std::collections::BTreeMap;

use crate::problem::{Held, Problem, Table, Window};

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
    let mut choices: Vec<Vec<usize>> = problem
        .domains()
        .into_iter()
        .map(|count| (0..count).collect())
        .collect();
    let uses = uses(problem);
    loop {
        let before: usize = choices.iter().map(Vec::len).sum();
        for node in (0..choices.len()).filter(|node| !kept.contains(node)) {
            drop_needless(problem, node, &uses[node], &mut choices);
        }
        if choices.iter().map(Vec::len).sum::<usize>() == before {
            break;
        }
    }
    Pruned {
        problem: restrict(problem, &choices),
        choices,
    }
}

/// A problem in which each node has only the given choices.
pub(crate) fn restrict(problem: &Problem, choices: &[Vec<usize>]) -> Problem {
    let mut tables = Vec::new();
    let mut table_of = BTreeMap::new();
    let mut edges = problem.edges.clone();
    for edge in &mut edges {
        let (rows, columns) = (&choices[edge.from], &choices[edge.to]);
        edge.table = *table_of
            .entry((edge.table, rows, columns))
            .or_insert_with(|| {
                let whole = &problem.tables[edge.table];
                let row = |&row: &usize| columns.iter().map(move |&column| whole.at(row, column));
                let entries = rows.iter().flat_map(row).collect();
                tables.push(Table {
                    columns: columns.len(),
                    entries,
                });
                tables.len() - 1
            });
    }

    let mut bytes = Vec::new();
    let mut bytes_of = BTreeMap::new();
    let mut restricted = |held: &[Held]| -> Vec<Held> {
        let one = |held: &Held| {
            let left = &choices[held.node];
            let index = *bytes_of.entry((held.bytes, left)).or_insert_with(|| {
                bytes.push(
                    left.iter()
                        .map(|&choice| problem.bytes[held.bytes][choice])
                        .collect(),
                );
                bytes.len() - 1
            });
            Held {
                node: held.node,
                bytes: index,
            }
        };
        held.iter().map(one).collect()
    };
    let resident = restricted(&problem.resident);
    let windows = problem
        .windows
        .iter()
        .map(|window| Window {
            constant: window.constant,
            held: restricted(&window.held),
        })
        .collect();

    let times = problem
        .times
        .iter()
        .zip(choices)
        .map(|(times, left)| left.iter().map(|&choice| times[choice]).collect())
        .collect();
    Problem {
        times,
        edges,
        tables,
        bytes,
        resident,
        windows,
    }
}

impl Pruned {
    /// An assignment of the smaller problem as one of the whole.
    pub fn restore(&self, choices: &[usize]) -> Vec<usize> {
        self.choices
            .iter()
            .zip(choices)
            .map(|(left, &choice)| left[choice])
            .collect()
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
    let held = problem
        .windows
        .iter()
        .flat_map(|window| &window.held)
        .chain(&problem.resident);
    for held in held {
        uses[held.node].bytes.push(held.bytes);
    }
    for uses in &mut uses {
        uses.bytes.sort_unstable();
        uses.bytes.dedup();
    }
    uses
}

/// Drops needless choices of one node, but for one.
fn drop_needless(problem: &Problem, node: usize, uses: &Uses, choices: &mut [Vec<usize>]) {
    let mut index = choices[node].len();
    while index > 0 && choices[node].len() > 1 {
        index -= 1;
        let choice = choices[node][index];
        let others = choices[node].iter().filter(|&&other| other != choice);
        let forbidden = problem.times[node][choice].is_infinite();
        if forbidden
            || others
                .into_iter()
                .any(|&by| dominated(problem, node, choice, by, uses, choices))
        {
            choices[node].remove(index);
        }
    }
}

fn dominated(
    problem: &Problem,
    node: usize,
    choice: usize,
    by: usize,
    uses: &Uses,
    choices: &[Vec<usize>],
) -> bool {
    let more_bytes = |&bytes: &usize| problem.bytes[bytes][by] > problem.bytes[bytes][choice];
    if uses.bytes.iter().any(more_bytes) {
        return false;
    }
    let mut gained = difference(problem.times[node][by], problem.times[node][choice]);
    for &edge in &uses.edges {
        let edge = problem.edges[edge];
        let table = &problem.tables[edge.table];
        let neighbour = if edge.from == node {
            edge.to
        } else {
            edge.from
        };
        let at = |own: usize, other: usize| {
            if edge.from == node {
                table.at(own, other)
            } else {
                table.at(other, own)
            }
        };
        let mut most = f64::NEG_INFINITY;
        for &other in &choices[neighbour] {
            most = most.max(difference(at(by, other), at(choice, other)));
            if most == f64::INFINITY {
                return false;
            }
        }
        gained += most;
    }
    gained <= 0.0
}

/// `a − b`, where nothing is worse than what is forbidden already.
fn difference(a: f64, b: f64) -> f64 {
    if b.is_infinite() {
        f64::NEG_INFINITY
    } else {
        a - b
    }
}
