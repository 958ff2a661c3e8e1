//! Nodes that stand for what neighbours see of a choice.
//!
//! Two choices of an operation that need the same layout of an operand have equal rows in the
//! table that joins it to the operand: they are of one *class* there. Where few classes are seen
//! by some neighbours, a node of its own for the class keeps these neighbours apart from the rest:
//!
//! ```text
//! x ── v ── u        x ── v ══ c ── u        every choice of v allows one choice of c
//! ```
//!
//! `v` can now be eliminated before anything joins `u` to `x`, into a table over `x` and the few
//! classes, at no more than the work for `x` alone, because each choice is of one class. Nothing
//! else changes: costs and allowed choices of all other nodes are what they were.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::order::{Greed, Order, Shape};
use crate::problem::{Edge, Problem, Table, real_size};

/// Work of an elimination that is not worth lessening (additions).
const WORTH: f64 = 1e6;

/// The most nodes of classes that are added.
const MOST_CLASSES: usize = 24;

/// What is left of the work by a node of classes that is worth it, at most.
const GAIN: f64 = 0.8;

/// The most edges of a node whose sets are all tried; of others, single edges and pairs are.
const MOST_EDGES: usize = 6;

/// How many additions take as long as a step of an order.
const STEP: f64 = 64.0;

/// How many steps of orders take hardly any time.
const FEW_STEPS: f64 = 1e5;

/// The most sets of edges that are looked at for a node of classes.
const MOST_LOOKS: usize = 1 << 14;

/// A node and some of its edges.
#[derive(Clone, Debug)]
struct Seen {
    node: usize,
    edges: Vec<usize>,
    /// For each choice of the node, its class, numbered as they first occur.
    classes: Vec<usize>,
    /// How many classes there are.
    count: usize,
}

/// The problem with nodes of classes, after its own nodes, and the order to eliminate all but
/// `kept` in.
pub fn with_classes(problem: Problem, kept: &[usize]) -> (Problem, Order) {
    lessened(problem, kept, WORTH)
}

/// The same, where less work than `worth` is left as it is (additions).
pub(super) fn lessened(problem: Problem, kept: &[usize], worth: f64) -> (Problem, Order) {
    let mut problem = problem;
    let mut shape = Shape::of(&problem);
    let mut order = shape.order(kept);
    let mut rows = Rows::default();
    for _ in 0..MOST_CLASSES {
        if order.work <= worth || order.is_hopeless() {
            break;
        }
        let found = candidates(&problem, &mut rows, &shape, &order);
        let most = GAIN * order.work;
        let best = |greeds: &[Greed]| {
            let work = |seen: &Seen| shape.with(seen).work(kept, most, greeds);
            let tried: Vec<f64> = found.par_iter().map(work).collect();
            let best = found.iter().zip(tried).min_by(|a, b| a.1.total_cmp(&b.1))?;
            (best.1 <= most).then_some(best.0)
        };
        // The others are tried where this order's own way gains nothing.
        let Some(seen) = best(&[order.greed]).or_else(|| best(&Greed::ALL)) else { break };
        problem.split(seen);
        shape = shape.with(seen);
        order = shape.order(kept);
    }
    (problem, order)
}

/// Nodes of the heaviest step with sets of edges through which few classes are seen: no more than are tried
/// with the work that there is to be lessened.
fn candidates(problem: &Problem, rows: &mut Rows, shape: &Shape, order: &Order) -> Vec<Seen> {
    let mut found = Vec::new();
    let mut left = looks(shape, order);
    for &node in &order.heaviest {
        if order.kept.contains(&node) || shape.classes_of[node].is_some() {
            continue;
        }
        let is_class = |edge: &Edge| shape.classes_of[edge.from].or(shape.classes_of[edge.to]) == Some(node);
        let own = problem.edges.iter().enumerate();
        let own = own.filter(|(_, edge)| (edge.from == node || edge.to == node) && !is_class(edge));
        let own: Vec<usize> = own.map(|(index, _)| index).collect();
        for edges in sets(&own) {
            let Some(less) = left.checked_sub(1) else { return found };
            left = less;
            let seen = Seen::through((problem, &mut *rows), node, edges);
            if 2 * seen.count <= problem.times[node].len() {
                found.push(seen);
            }
        }
    }
    found
}

/// How many sets of edges are looked at: an order with each takes about as many steps as there are nodes and
/// edges, and all of them together are not to take longer than the elimination, or hardly any time.
pub(super) fn looks(shape: &Shape, order: &Order) -> usize {
    let each = real_size(shape.domains.len() + shape.edges.len());
    let most = (order.work / STEP).max(FEW_STEPS);
    (0..MOST_LOOKS).take_while(|&looks| real_size(looks) * each < most).count()
}

/// Sets of some of these edges, not of all.
fn sets(edges: &[usize]) -> Box<dyn Iterator<Item = Vec<usize>> + '_> {
    if edges.len() <= MOST_EDGES {
        let set = move |bits: usize| {
            let picked = edges.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
            picked.map(|(_, &edge)| edge).collect()
        };
        return Box::new((1..(1usize << edges.len()).saturating_sub(1)).map(set));
    }
    let pairs = edges.iter().enumerate().flat_map(|(at, &a)| edges[at..].iter().map(move |&b| (a, b)));
    Box::new(pairs.map(|(a, b)| if a == b { vec![a] } else { vec![a, b] }))
}

/// For tables and each of their sides, which rows are equal: each has the number of the first that it equals.
#[derive(Debug, Default)]
struct Rows(BTreeMap<(usize, bool), Vec<usize>>);

impl Rows {
    /// Those of an edge, as seen from one of its ends.
    fn of(&mut self, problem: &Problem, edge: usize, node: usize) -> &[usize] {
        let Edge { from, table, .. } = problem.edges[edge];
        self.0.entry((table, from == node)).or_insert_with(|| {
            let row = |choice: usize| problem.row(edge, node, choice).map(f64::to_bits).collect::<Vec<u64>>();
            numbered((0..problem.times[node].len()).map(row)).0
        })
    }
}

/// Each of some things as the number of those that equal it, in the order in which they first occur; and how many
/// differ.
fn numbered<T: Ord>(all: impl Iterator<Item = T>) -> (Vec<usize>, usize) {
    let mut numbers = BTreeMap::new();
    let number = |it: T| {
        let next = numbers.len();
        *numbers.entry(it).or_insert(next)
    };
    let numbered = all.map(number).collect();
    (numbered, numbers.len())
}

impl Seen {
    fn through((problem, rows): (&Problem, &mut Rows), node: usize, edges: Vec<usize>) -> Self {
        let mut seen: Vec<Vec<usize>> = vec![Vec::new(); problem.times[node].len()];
        for &edge in &edges {
            let of_edge = seen.iter_mut().zip(rows.of(problem, edge, node));
            of_edge.for_each(|(seen, &row)| seen.push(row));
        }
        let (classes, count) = numbered(seen.into_iter());
        Self { node, edges, classes, count }
    }
}

impl Shape {
    /// The shape with a node of classes.
    fn with(&self, seen: &Seen) -> Self {
        let mut shape = self.clone();
        let class = shape.domains.len();
        shape.domains.push(seen.count);
        shape.classes_of.push(Some(seen.node));
        for &edge in &seen.edges {
            let ends = &mut shape.edges[edge];
            ends.iter_mut().filter(|end| **end == seen.node).for_each(|end| *end = class);
        }
        shape.edges.push([seen.node, class]);
        shape
    }
}

impl Problem {
    /// The costs of an edge for one choice of one of its ends.
    fn row(&self, edge: usize, node: usize, choice: usize) -> impl Iterator<Item = f64> {
        let edge = self.edges[edge];
        let table = &self.tables[edge.table];
        let is_row = edge.from == node;
        let many = if is_row { table.columns } else { table.rows() };
        (0..many).map(move |other| if is_row { table.at(choice, other) } else { table.at(other, choice) })
    }

    /// Adds a node of classes, between a node and what lies beyond some of its edges.
    fn split(&mut self, seen: &Seen) {
        let class = self.times.len();
        self.times.push(vec![0.0; seen.count]);
        let first = |class: usize| seen.classes.iter().position(|&it| it == class);
        let firsts: Vec<usize> = (0..seen.count).filter_map(first).collect();
        for &index in &seen.edges {
            let edge = self.edges[index];
            let table = Table {
                columns: self.row(index, seen.node, 0).count(),
                entries: firsts.iter().flat_map(|&choice| self.row(index, seen.node, choice)).collect(),
            };
            let other = edge.other(seen.node);
            self.edges[index] = Edge { from: class, to: other, table: self.tables.len() };
            self.tables.push(table.into());
        }
        let of = |choice: usize| {
            let allowed = seen.classes[choice];
            (0..seen.count).map(move |class| if class == allowed { 0.0 } else { f64::INFINITY })
        };
        let entries = (0..seen.classes.len()).flat_map(of).collect();
        self.edges.push(Edge { from: seen.node, to: class, table: self.tables.len() });
        self.tables.push(Table { columns: seen.count, entries }.into());
    }
}
