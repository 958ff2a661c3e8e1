//! Dense tables over several nodes, and the minimisation of one node out of a sum of them.

use std::borrow::Cow;

use pulp::Arch;
use rayon::prelude::*;

/// Work below which threads cost more than they bring (additions).
pub(crate) const WORTH_THREADS: usize = 1 << 20;

/// A table over the nodes of a scope, the last one running fastest.
#[derive(Clone, Debug)]
pub(crate) struct Factor<'a> {
    pub(crate) scope: Vec<usize>,
    pub(crate) entries: Cow<'a, [f64]>,
}

/// A factor laid out for one elimination: `entries[offset(outer) + choice * width + column]`.
struct Laid<'a> {
    scope: Vec<usize>,
    /// For each outer node, the distance between its choices; 0 if the factor lacks it.
    strides: Vec<usize>,
    entries: Cow<'a, [f64]>,
}

/// The factor over the neighbours of a node that is the least sum over its choices.
pub(crate) fn eliminate<'a>(
    node: usize,
    factors: &[Factor<'_>],
    domains: &[usize],
    classes_of: &[Option<usize>],
) -> Factor<'a> {
    let neighbours = neighbours(node, factors);
    let is_class = |at: usize| classes_of[at] == Some(node);
    let Some(column) = column(&neighbours, factors, domains, is_class) else {
        let mut sums = vec![0.0; domains[node]];
        factors.iter().for_each(|factor| add(&mut sums, &factor.entries));
        let least = sums.into_iter().fold(f64::INFINITY, least);
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
    let mut entries = vec![f64::INFINITY; rows.count() * width];
    // What does not change from row to row of a run is added up once.
    let (varying, fixed): (Vec<&Laid<'_>>, Vec<&Laid<'_>>) =
        narrow.iter().partition(|factor| factor.strides.last().is_some_and(|&stride| stride > 0));
    let arch = Arch::new();
    let fill = |scratch: &mut Scratch, (run, best): (usize, &mut [f64])| {
        let Scratch { common, addends, sums, places } = scratch;
        places.clear();
        places.extend(varying.iter().copied().chain(&wide).map(|it| rows.places(&it.strides, run)));
        let (varying_places, wide_places) = places.split_at(varying.len());
        arch.dispatch(|| {
            common.fill(0.0);
            for factor in &fixed {
                let (start, _) = rows.places(&factor.strides, run);
                add(common, &factor.entries[start..start + choices]);
            }
            for (row, best) in best.chunks_exact_mut(width).enumerate() {
                addends.copy_from_slice(common);
                for (factor, &(start, stride)) in varying.iter().zip(varying_places) {
                    add(addends, &factor.entries[start + row * stride..][..choices]);
                }
                if let ([only], [(start, stride)]) = (wide.as_slice(), wide_places) {
                    lower_by_rows(best, addends, &only.entries[start + row * stride..][..choices * width]);
                    continue;
                }
                sums.resize(choices * width, 0.0);
                // Few choices may be finite: the others are never looked at.
                let finite = |choice: &usize| addends[*choice] < f64::INFINITY;
                for (number, (factor, &(start, stride))) in wide.iter().zip(wide_places).enumerate() {
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
                lower_by_rows(best, addends, sums);
            }
        });
    };
    let scratch = || {
        let (sums, places) = (Vec::new(), Vec::new());
        Scratch { common: vec![0.0; choices], addends: vec![0.0; choices], sums, places }
    };
    let run = (rows.in_run * width).max(1);
    if entries.len() * choices < WORTH_THREADS {
        let mut scratch = scratch();
        entries.chunks_mut(run).enumerate().for_each(|run| fill(&mut scratch, run));
    } else {
        entries.par_chunks_mut(run).enumerate().for_each_init(scratch, fill);
    }

    let scope = outer.into_iter().chain([column]).collect();
    Factor { scope, entries: Cow::Owned(entries) }
}

/// What a thread needs in between.
struct Scratch {
    /// For each choice, what is the same in all rows of a run.
    common: Vec<f64>,
    /// The same with what is a row's own.
    addends: Vec<f64>,
    /// For each choice, a row of several factors added up.
    sums: Vec<f64>,
    /// For each factor that changes from row to row, where a run begins and how far its rows are apart.
    places: Vec<(usize, usize)>,
}

/// The assignments of some nodes, the last one running fastest, in runs in which only that one changes:
/// within a run a place in a table is a stride from the one before.
struct Rows<'a> {
    runs: &'a [usize],
    in_run: usize,
}

impl<'a> Rows<'a> {
    /// Of nodes of these sizes.
    fn of(sizes: &'a [usize]) -> Self {
        match sizes.split_last() {
            Some((&in_run, runs)) => Self { runs, in_run },
            None => Self { runs: &[], in_run: 1 },
        }
    }

    fn count(&self) -> usize {
        self.runs.iter().product::<usize>() * self.in_run
    }

    /// Where a run begins in a table in which the nodes have these strides, and how far its rows are
    /// apart.
    fn places(&self, strides: &[usize], run: usize) -> (usize, usize) {
        match strides.split_last() {
            Some((&stride, strides)) => (offset(strides, run, self.runs), stride),
            None => (0, 0),
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
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum += factor.entries[start + row * between];
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

/// `best[j] = min(best[j], min_i addends[i] + matrix[i][j])`, skipping infinite addends.
#[inline(always)]
pub(crate) fn lower_by_rows(best: &mut [f64], addends: &[f64], matrix: &[f64]) {
    let width = best.len();
    let row = |choice: usize| &matrix[choice * width..][..width];
    let mut finite = (0..addends.len()).filter(|&choice| addends[choice] < f64::INFINITY);
    while let Some(a) = finite.next() {
        let (Some(b), Some(c), Some(d)) = (finite.next(), finite.next(), finite.next()) else {
            lower_by_rest(best, addends, matrix);
            return;
        };
        let (add_a, add_b, add_c, add_d) = (addends[a], addends[b], addends[c], addends[d]);
        let rows = row(a).iter().zip(row(b)).zip(row(c).iter().zip(row(d)));
        for (best, ((a, b), (c, d))) in best.iter_mut().zip(rows) {
            let left = least(a + add_a, b + add_b);
            let right = least(c + add_c, d + add_d);
            *best = least(*best, least(left, right));
        }
    }
}

/// The last up to three finite addends, one by one.
#[inline(always)]
fn lower_by_rest(best: &mut [f64], addends: &[f64], matrix: &[f64]) {
    let width = best.len();
    let finite = (0..addends.len()).rev().filter(|&choice| addends[choice] < f64::INFINITY);
    for choice in finite.take(3) {
        for (best, entry) in best.iter_mut().zip(&matrix[choice * width..][..width]) {
            *best = least(*best, entry + addends[choice]);
        }
    }
}

impl Factor<'_> {
    fn at(&self, choices: &[usize], domains: &[usize]) -> f64 {
        let index = self.scope.iter().fold(0, |index, &node| index * domains[node] + choices[node]);
        self.entries[index]
    }
}

/// The lesser of two numbers that are not NaN; one machine instruction, unlike `f64::min`.
fn least(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

#[inline(always)]
fn add(sums: &mut [f64], addends: &[f64]) {
    for (sum, addend) in sums.iter_mut().zip(addends) {
        *sum += addend;
    }
}

/// All nodes of the factors but one, ascending.
fn neighbours(node: usize, factors: &[Factor<'_>]) -> Vec<usize> {
    let mut all: Vec<usize> =
        factors.iter().flat_map(|factor| &factor.scope).copied().filter(|&at| at != node).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The neighbour to run fastest: in as few factors as can be, then with the most choices. A node of
/// classes only if there is no other: as an outer node it says which choices need not be looked at.
fn column(
    neighbours: &[usize],
    factors: &[Factor<'_>],
    domains: &[usize],
    is_class: impl Fn(usize) -> bool,
) -> Option<usize> {
    let uses = |node: usize| factors.iter().filter(|factor| factor.scope.contains(&node)).count();
    let key = |at: &usize| (is_class(*at), uses(*at), std::cmp::Reverse(domains[*at]), *at);
    neighbours.iter().copied().min_by_key(key)
}

/// The factors with their outer nodes first and the `inner` ones last; those over the same nodes
/// are added up.
fn lay_out<'a>(
    factors: &[&'a Factor<'_>],
    outer: &[usize],
    inner: &[usize],
    domains: &[usize],
) -> Vec<Laid<'a>> {
    let mut laid: Vec<Laid<'a>> = Vec::new();
    for factor in factors {
        let own_outer = outer.iter().filter(|at| factor.scope.contains(at));
        let scope: Vec<usize> = own_outer.chain(inner).copied().collect();
        let entries = permuted(factor, &scope, domains);
        if let Some(same) = laid.iter_mut().find(|other| other.scope == scope) {
            add(same.entries.to_mut(), &entries);
        } else {
            let strides = strides(&scope, outer, domains);
            laid.push(Laid { scope, strides, entries });
        }
    }
    laid
}

/// The entries of a factor for another order of its nodes.
fn permuted<'a>(factor: &'a Factor<'_>, scope: &[usize], domains: &[usize]) -> Cow<'a, [f64]> {
    if factor.scope == scope {
        return Cow::Borrowed(&factor.entries);
    }
    let strides = strides(&factor.scope, scope, domains);
    let (Some((&stride, outer_strides)), Some((&last, outer))) = (strides.split_last(), scope.split_last())
    else {
        return Cow::Borrowed(&factor.entries);
    };
    let sizes: Vec<usize> = outer.iter().map(|&node| domains[node]).collect();
    let rows = Rows::of(&sizes);
    let mut entries = Vec::with_capacity(factor.entries.len());
    for run in 0..rows.count() / rows.in_run.max(1) {
        let (first, between) = rows.places(outer_strides, run);
        for row in 0..rows.in_run {
            let own = factor.entries[first + row * between..].iter();
            if stride == 1 {
                entries.extend(own.take(domains[last]));
            } else {
                entries.extend(own.step_by(stride.max(1)).take(domains[last]));
            }
        }
    }
    Cow::Owned(entries)
}

/// For each node of `of`, the distance between its choices in a table over `scope`, or 0.
fn strides(scope: &[usize], of: &[usize], domains: &[usize]) -> Vec<usize> {
    let stride = |node: &usize| match scope.iter().position(|at| at == node) {
        Some(position) => scope[position + 1..].iter().map(|&after| domains[after]).product(),
        None => 0,
    };
    of.iter().map(stride).collect()
}

/// Where the `row`-th assignment of nodes of the given sizes begins in a table.
fn offset(strides: &[usize], row: usize, sizes: &[usize]) -> usize {
    let mut rest = row;
    let mut offset = 0;
    for (stride, size) in strides.iter().zip(sizes).rev() {
        offset += rest % size * stride;
        rest /= size;
    }
    offset
}
