//! Blocks that may be one of several problems: the same boundary, other insides.
//!
//! ```text
//!            ┌ mirror of it ─ variant 0 ┐
//! boundary ──┤                          ├── selector
//!            └ mirror of it ─ variant 1 ┘
//! ```
//!
//! Together they are one problem, so that what a block costs and holds, and every solver, is as
//! without variants. Each variant's nodes have one choice more: not in use, which costs and holds
//! nothing, and is taken if and only if the *selector* says another variant. Mirrors in use agree
//! with the boundary. Where a segment is reduced to a table, each variant is reduced by itself and
//! the least taken, which is the same and needs no such nodes.

use std::collections::BTreeMap;

use super::{Segment, Shared};
use crate::problem::{Edge, Held, Live, Problem, Table, align};

/// One of the problems that a block may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The problem.
    pub problem: Problem,
    /// Its entry, exit and shared nodes, like those of a segment.
    pub entry: Vec<usize>,
    /// See `entry`.
    pub exit: Vec<usize>,
    /// See `entry`.
    pub shared: Vec<Shared>,
    /// The number of its first node in the problem of all, whose windows are its own.
    pub first: usize,
}

/// A problem with its boundary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interface<'a> {
    pub(super) problem: &'a Problem,
    pub(super) entry: &'a [usize],
    pub(super) exit: &'a [usize],
    pub(super) shared: &'a [Shared],
}

/// The node of the problem of all that says which variant it is, after those of the boundary.
fn selector(segment: &Segment) -> usize {
    segment.variants.first().map_or(0, |variant| variant.first - 1)
}

/// Blocks each of which is one of these segments' problems; the first one's if it is the only one.
///
/// # Panics
/// If their boundaries differ in how many nodes they have, or choices of these.
pub fn unite(mut segments: Vec<Segment>) -> Segment {
    if segments.len() == 1
        && let Some(only) = segments.pop()
    {
        return only;
    }
    align(segments.iter_mut().map(|it| &mut it.problem).collect());
    let first = &segments[0];
    let mut all = Problem::default();
    let add = |times: Vec<f64>, all: &mut Problem| {
        all.times.push(times);
        all.times.len() - 1
    };
    let mut boundary = |nodes: &[usize]| -> Vec<usize> {
        nodes.iter().map(|&node| add(vec![0.0; first.problem.times[node].len()], &mut all)).collect()
    };
    let (entry, exit) = (boundary(&first.entry), boundary(&first.exit));
    let mut globals: BTreeMap<usize, usize> = BTreeMap::new();
    for segment in &segments {
        for shared in &segment.shared {
            let choices = segment.problem.times[shared.node].len();
            globals.entry(shared.global).or_insert_with(|| add(vec![0.0; choices], &mut all));
        }
    }
    let selector = add(vec![0.0; segments.len()], &mut all);
    let (count, variants) = (first.count, segments.len());
    let mut found = Vec::new();
    for (number, segment) in segments.into_iter().enumerate() {
        let Segment { problem, entry: own_entry, exit: own_exit, shared, .. } = segment;
        let first = all.times.len();
        all.include(&problem, selector, number, variants);
        let ends = entry.iter().zip(&own_entry).chain(exit.iter().zip(&own_exit));
        let ends = ends.map(|(&outer, &own)| (outer, own));
        let mirrors = ends.chain(shared.iter().map(|it| (globals[&it.global], it.node)));
        for (outer, own) in mirrors.collect::<Vec<_>>() {
            assert_eq!(all.times[outer].len(), problem.times[own].len(), "boundaries of variants agree");
            all.mirror(outer, first + own);
        }
        found.push(Variant { problem, entry: own_entry, exit: own_exit, shared, first });
    }
    let shared = globals.into_iter().map(|(global, node)| Shared { node, global }).collect();
    Segment { problem: all, entry, exit, shared, count, variants: found }
}

impl Segment {
    pub(super) fn interface(&self) -> Interface<'_> {
        let Self { problem, entry, exit, shared, .. } = self;
        Interface { problem, entry, exit, shared }
    }

    /// Choices of a variant, or of the only problem, as choices of the problem of all, at this
    /// boundary: the choices of entry and exit.
    pub(super) fn restore(&self, variant: usize, choices: Vec<usize>, ends: &[usize]) -> Vec<usize> {
        let Some(chosen) = self.variants.get(variant) else { return choices };
        // Not in use is the last choice of every node.
        let mut all: Vec<usize> = self.problem.times.iter().map(|times| times.len() - 1).collect();
        for (&node, &choice) in self.entry.iter().chain(&self.exit).zip(ends) {
            all[node] = choice;
        }
        for it in &chosen.shared {
            let outer = self.shared.iter().find(|outer| outer.global == it.global);
            if let Some(outer) = outer {
                all[outer.node] = choices[it.node];
            }
        }
        all[selector(self)] = variant;
        all[chosen.first..][..choices.len()].copy_from_slice(&choices);
        all
    }

    /// The variant that a block is, and its choices.
    pub fn variant(&self, choices: &[usize]) -> (usize, Vec<usize>) {
        if self.variants.is_empty() {
            return (0, choices.to_vec());
        }
        let variant = choices[selector(self)];
        let Variant { problem, first, .. } = &self.variants[variant];
        (variant, choices[*first..][..problem.times.len()].to_vec())
    }
}

impl Variant {
    pub(super) fn interface(&self) -> Interface<'_> {
        let Self { problem, entry, exit, shared, .. } = self;
        Interface { problem, entry, exit, shared }
    }
}

impl Problem {
    /// Adds a variant's problem, whose nodes are in use if the selector says its number.
    fn include(&mut self, variant: &Self, selector: usize, number: usize, variants: usize) {
        let first = self.times.len();
        let mut known = BTreeMap::new();
        for times in &variant.times {
            let node = self.times.len();
            self.times.push([&times[..], &[0.0]].concat());
            let columns = times.len() + 1;
            let allowed = |at: usize| (at / columns == number) != (at % columns == times.len());
            let table = *known.entry(columns).or_insert_with(|| self.allow([variants, columns], allowed));
            self.edges.push(Edge { from: selector, to: node, table });
        }
        let tables = self.tables.len();
        self.tables.extend(variant.tables.iter().map(|table| table.or_nothing().into()));
        let edge = |it: &Edge| Edge { from: first + it.from, to: first + it.to, table: tables + it.table };
        self.edges.extend(variant.edges.iter().map(edge));
        let bytes = self.bytes.len();
        self.bytes.extend(variant.bytes.iter().map(|bytes| [&bytes[..], &[0]].concat()));
        let held = |held: &Held| Held { node: first + held.node, bytes: bytes + held.bytes };
        self.resident.extend(variant.resident.iter().map(held));
        self.live.extend(variant.live.iter().map(|live| Live { held: held(&live.held), ..*live }));
        self.windows.resize(variant.windows.len(), 0);
        for (at, &constant) in variant.windows.iter().enumerate() {
            if constant > 0 {
                let held = Held { node: selector, bytes: self.bytes.len() };
                self.bytes.push((0..variants).map(|it| if it == number { constant } else { 0 }).collect());
                self.live.push(Live { held, from: at, until: at + 1 });
            }
        }
    }

    /// Makes a variant's node agree with one of the boundary, if it is in use.
    fn mirror(&mut self, outer: usize, own: usize) {
        let sizes = [self.times[outer].len(), self.times[own].len()];
        let table = self.allow(sizes, |at| at % sizes[1] == sizes[0] || at / sizes[1] == at % sizes[1]);
        self.edges.push(Edge { from: outer, to: own, table });
    }

    /// Adds a table that costs nothing and allows only some of its entries, and says its number.
    fn allow(&mut self, [rows, columns]: [usize; 2], allowed: impl Fn(usize) -> bool) -> usize {
        let entry = |at: usize| if allowed(at) { 0.0 } else { f64::INFINITY };
        self.tables.push(Table { columns, entries: (0..rows * columns).map(entry).collect() }.into());
        self.tables.len() - 1
    }
}

impl Table {
    /// The same with one choice more on both sides, which costs nothing.
    fn or_nothing(&self) -> Self {
        let mut entries = Vec::with_capacity((self.rows() + 1) * (self.columns + 1));
        for row in self.entries.chunks(self.columns) {
            entries.extend_from_slice(row);
            entries.push(0.0);
        }
        entries.resize((self.rows() + 1) * (self.columns + 1), 0.0);
        Self { columns: self.columns + 1, entries }
    }
}

#[cfg(test)]
pub(super) mod tests;
