//! Dense tables over several nodes, and the minimisation of one node out of a sum of them.

use std::borrow::Cow;
use std::cmp::Reverse;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::laid::{Factor, Laid, Rows, add, are_one, lay_out, scope_in, strides};
use super::least::least_by_rows;
use crate::problem::real_size;

/// Work below which threads cost more than they bring (additions).
pub(crate) const WORTH_THREADS: usize = 1 << 20;

/// What an elimination of several nodes knows of all of them.
pub(super) struct Nodes<'a> {
    /// For each node, how many choices it has.
    pub(super) domains: &'a [usize],
    /// For each node, when it is eliminated: those that are kept, last.
    pub(super) turns: &'a [usize],
    /// For each node, the node whose classes it stands for.
    pub(super) classes_of: &'a [Option<usize>],
}

/// The factor over the neighbours of a node that is the least sum over its choices.
///
/// Neighbours stand in it in the reverse order of their turns, so that the next one to be eliminated is
/// beside the one that runs fastest, which is where its elimination wants it.
pub(super) fn eliminate<'a>(node: usize, factors: &[Factor<'_>], nodes: &Nodes<'_>) -> Factor<'a> {
    let domains = nodes.domains;
    let neighbours = neighbours(node, factors, nodes);
    let Some(column) = column(node, &neighbours, factors, nodes) else {
        let mut sums = vec![0.0; domains[node]];
        factors.iter().for_each(|factor| add(&mut sums, &factor.entries));
        let least = sums.into_iter().fold(f64::INFINITY, f64::min);
        return Factor { scope: Vec::new(), entries: Cow::Owned(vec![least]) };
    };

    let outer: Vec<usize> = neighbours.into_iter().filter(|&at| at != column).collect();
    let sizes: Vec<usize> = outer.iter().map(|&at| domains[at]).collect();
    let (wide, narrow): (Vec<&Factor<'_>>, Vec<&Factor<'_>>) =
        factors.iter().partition(|factor| factor.scope.contains(&column));
    let wide = lay_out(&wide, &outer, &[node, column], domains);
    let narrow = lay_out(&narrow, &outer, &[node], domains);

    let (choices, width) = (domains[node], domains[column]);
    let rows = Rows::of(&sizes);
    let mut entries = vec![0.0; rows.count() * width];
    // What does not change from row to row of a run is added up once.
    let (varying, fixed): (Vec<&Laid<'_>>, Vec<&Laid<'_>>) =
        narrow.iter().partition(|factor| factor.strides.last().is_some_and(|&stride| stride > 0));
    let wide: Vec<&Laid<'_>> = wide.iter().collect();
    let arch = Arch::new();
    let fill = |scratch: &mut Scratch, (run, least): (usize, &mut [f64])| {
        let of_run = |factors: &[&Laid<'_>], places: &mut Vec<(usize, usize)>| {
            places.clear();
            places.extend(factors.iter().map(|it| rows.places(&it.strides, run)));
        };
        of_run(&fixed, &mut scratch.fixed);
        of_run(&varying, &mut scratch.varying);
        of_run(&wide, &mut scratch.wide);
        let (fixed, varying, wide) = (&fixed, &varying, &wide);
        arch.dispatch(Run { fixed, varying, wide, choices, width, scratch, least });
    };
    let run = (rows.in_run * width).max(1);
    if entries.len() * choices < WORTH_THREADS {
        let mut scratch = Scratch::default();
        entries.chunks_mut(run).enumerate().for_each(|run| fill(&mut scratch, run));
    } else {
        entries.par_chunks_mut(run).enumerate().for_each_init(Scratch::default, fill);
    }

    let scope = outer.into_iter().chain([column]).collect();
    Factor { scope, entries: Cow::Owned(entries) }
}

/// What a thread needs in between.
#[derive(Default)]
struct Scratch {
    /// For each choice, what is the same in all rows of a run.
    common: Vec<f64>,
    /// The same with what is a row's own.
    addends: Vec<f64>,
    /// For each choice, a row of several factors added up.
    sums: Vec<f64>,
    /// For each factor, where a run begins and how far its rows are apart.
    fixed: Vec<(usize, usize)>,
    varying: Vec<(usize, usize)>,
    wide: Vec<(usize, usize)>,
}

/// The rows of one run.
struct Run<'a> {
    fixed: &'a [&'a Laid<'a>],
    varying: &'a [&'a Laid<'a>],
    wide: &'a [&'a Laid<'a>],
    choices: usize,
    width: usize,
    scratch: &'a mut Scratch,
    least: &'a mut [f64],
}

impl WithSimd for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { fixed, varying, wide, choices, width, scratch, least } = self;
        let Scratch { common, addends, sums, .. } = scratch;
        common.clear();
        common.resize(choices, 0.0);
        for (factor, &(start, _)) in fixed.iter().zip(&scratch.fixed) {
            add(common, &factor.entries[start..start + choices]);
        }
        for (row, least) in least.chunks_exact_mut(width).enumerate() {
            addends.clone_from(common);
            for (factor, &(start, stride)) in varying.iter().zip(&scratch.varying) {
                add(addends, &factor.entries[start + row * stride..][..choices]);
            }
            if let ([only], [(start, stride)]) = (wide, &scratch.wide[..]) {
                least_by_rows(simd, least, addends, &only.entries[start + row * stride..][..choices * width]);
                continue;
            }
            sums.resize(choices * width, 0.0);
            // Few choices may be finite: the others are never looked at.
            let finite = |choice: &usize| addends[*choice] < f64::INFINITY;
            for (number, (factor, &(start, stride))) in wide.iter().zip(&scratch.wide).enumerate() {
                let entries = &factor.entries[start + row * stride..][..choices * width];
                for choice in (0..choices).filter(finite) {
                    let row = choice * width..(choice + 1) * width;
                    if number == 0 {
                        sums[row.clone()].copy_from_slice(&entries[row]);
                    } else {
                        add(&mut sums[row.clone()], &entries[row]);
                    }
                }
            }
            least_by_rows(simd, least, addends, sums);
        }
    }
}

/// The sum of all factors as one dense table over the given nodes, the last running fastest.
pub(crate) fn total(nodes: &[usize], factors: &[Factor<'_>], domains: &[usize]) -> Vec<f64> {
    let sizes: Vec<usize> = nodes.iter().map(|&node| domains[node]).collect();
    let mut table = vec![0.0; sizes.iter().product()];
    let rows = Rows::of(&sizes);
    for factor in factors {
        let strides = strides(&factor.scope, nodes, domains);
        for (run, sums) in table.chunks_mut(rows.in_run.max(1)).enumerate() {
            let (start, between) = rows.places(&strides, run);
            match between {
                0 => sums.iter_mut().for_each(|sum| *sum += factor.entries[start]),
                1 => add(sums, &factor.entries[start..][..sums.len()]),
                _ => {
                    let own = factor.entries[start..].iter().step_by(between);
                    sums.iter_mut().zip(own).for_each(|(sum, entry)| *sum += entry);
                }
            }
        }
    }
    table
}

/// For each choice of a node, the sum of the factors, the choices of its neighbours being given.
///
/// `choices[node]` is overwritten.
pub(crate) fn sums(
    node: usize,
    factors: &[Factor<'_>],
    choices: &mut [usize],
    domains: &[usize],
) -> Vec<f64> {
    let sum = |choice: usize| {
        choices[node] = choice;
        factors.iter().map(|factor| factor.at(choices, domains)).sum()
    };
    (0..domains[node]).map(sum).collect()
}

impl Factor<'_> {
    /// The same with a table of its own.
    pub(crate) fn owned(self) -> Factor<'static> {
        Factor { scope: self.scope, entries: Cow::Owned(self.entries.into_owned()) }
    }

    fn at(&self, choices: &[usize], domains: &[usize]) -> f64 {
        let index = self.scope.iter().fold(0, |index, &node| index * domains[node] + choices[node]);
        self.entries[index]
    }
}

/// All nodes of the factors but one: those of one choice, then the others, last to be eliminated first.
fn neighbours(node: usize, factors: &[Factor<'_>], nodes: &Nodes<'_>) -> Vec<usize> {
    let mut all: Vec<usize> =
        factors.iter().flat_map(|factor| &factor.scope).copied().filter(|&at| at != node).collect();
    all.sort_unstable_by_key(|&at| (nodes.domains[at] > 1, Reverse(nodes.turns[at]), at));
    all.dedup();
    all
}

/// The neighbour to run fastest: that with which the elimination takes least. A node of classes only if
/// there is no other: as an outer node it says which choices need not be looked at.
fn column(node: usize, neighbours: &[usize], factors: &[Factor<'_>], nodes: &Nodes<'_>) -> Option<usize> {
    let is_class = |at: usize| nodes.classes_of[at] == Some(node);
    let cost = |&at: &usize| (is_class(at), cost(node, at, neighbours, factors, nodes));
    let costs = neighbours.iter().map(|at| (cost(at), *at));
    let less = |a: &(bool, f64), b: &(bool, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
    costs.min_by(|a, b| less(&a.0, &b.0).then(a.1.cmp(&b.1))).map(|(_, at)| at)
}

/// About how many instructions it takes to eliminate a node with this column, on vectors of eight.
fn cost(node: usize, column: usize, neighbours: &[usize], factors: &[Factor<'_>], nodes: &Nodes<'_>) -> f64 {
    let domains = nodes.domains;
    let outer: Vec<usize> = neighbours.iter().copied().filter(|&at| at != column).collect();
    let rows: f64 = outer.iter().map(|&at| real_size(domains[at])).product();
    let vectors = |many: usize| real_size(many.div_ceil(8));
    let choices = real_size(domains[node]);
    let is_wide = |factor: &&Factor<'_>| factor.scope.contains(&column);
    let wide = real_size(factors.iter().filter(is_wide).count());
    let narrow = real_size(factors.len()) - wide;
    let row = ROW
        + narrow * (vectors(domains[node]) + 4.0)
        + choices * (2.0 + 2.0 * vectors(domains[column]))
        + if wide > 1.0 { wide * choices * (4.0 + vectors(domains[column])) } else { 0.0 };
    let moved = |factor: &&Factor<'_>| {
        let inner = if is_wide(factor) { &[node, column][..] } else { &[node][..] };
        !are_one(&factor.scope, &scope_in(factor, &outer, inner), domains)
    };
    let moved: usize = factors.iter().filter(moved).map(|factor| factor.entries.len()).sum();
    rows * row + MOVED * real_size(moved)
}

/// What a row takes whatever it holds, and what it takes to move an entry (instructions).
const ROW: f64 = 20.0;
/// See [`ROW`].
const MOVED: f64 = 4.0;
