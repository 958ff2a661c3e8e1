//! Tables over several nodes with the nodes in another order.

use std::borrow::Cow;

/// A table over the nodes of a scope, the last one running fastest.
#[derive(Clone, Debug)]
pub(crate) struct Factor<'a> {
    pub(crate) scope: Vec<usize>,
    pub(crate) entries: Cow<'a, [f64]>,
}

/// A factor laid out for one elimination: `entries[offset(outer) + choice * width + column]`.
pub(super) struct Laid<'a> {
    scope: Vec<usize>,
    /// For each outer node, the distance between its choices; 0 if the factor lacks it.
    pub(super) strides: Vec<usize>,
    pub(super) entries: Cow<'a, [f64]>,
}

/// The assignments of some nodes, the last one running fastest, in runs in which only that one changes:
/// within a run a place in a table is a stride from the one before.
pub(super) struct Rows<'a> {
    runs: &'a [usize],
    pub(super) in_run: usize,
}

impl<'a> Rows<'a> {
    /// Of nodes of these sizes.
    pub(super) fn of(sizes: &'a [usize]) -> Self {
        match sizes.split_last() {
            Some((&in_run, runs)) => Self { runs, in_run },
            None => Self { runs: &[], in_run: 1 },
        }
    }

    pub(super) fn count(&self) -> usize {
        self.runs.iter().product::<usize>() * self.in_run
    }

    /// Where a run begins in a table in which the nodes have these strides, and how far its rows are
    /// apart.
    pub(super) fn places(&self, strides: &[usize], run: usize) -> (usize, usize) {
        match strides.split_last() {
            Some((&stride, strides)) => (offset(strides, run, self.runs), stride),
            None => (0, 0),
        }
    }
}

/// Adds a table to another.
#[inline(always)]
pub(super) fn add(sums: &mut [f64], addends: &[f64]) {
    for (sum, addend) in sums.iter_mut().zip(addends) {
        *sum += addend;
    }
}

/// The factors with their outer nodes first and the `inner` ones last; those over the same nodes
/// are added up.
pub(super) fn lay_out<'a>(
    factors: &[&'a Factor<'_>],
    outer: &[usize],
    inner: &[usize],
    domains: &[usize],
) -> Vec<Laid<'a>> {
    let mut laid: Vec<Laid<'a>> = Vec::new();
    for factor in factors {
        let scope = scope_in(factor, outer, inner);
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

/// The nodes of a factor with these outer nodes first and these inner ones last.
pub(super) fn scope_in(factor: &Factor<'_>, outer: &[usize], inner: &[usize]) -> Vec<usize> {
    let own_outer = outer.iter().filter(|at| factor.scope.contains(at));
    own_outer.chain(inner).copied().collect()
}

/// Whether two orders of nodes are one where those of one choice are left out: then a table over them
/// is the same.
pub(super) fn are_one(a: &[usize], b: &[usize], domains: &[usize]) -> bool {
    let many = |&&at: &&usize| domains[at] > 1;
    a.iter().filter(many).eq(b.iter().filter(many))
}

/// The entries of a factor for another order of its nodes.
fn permuted<'a>(factor: &'a Factor<'_>, scope: &[usize], domains: &[usize]) -> Cow<'a, [f64]> {
    if are_one(&factor.scope, scope, domains) {
        return Cow::Borrowed(&factor.entries);
    }
    let own = strides(&factor.scope, scope, domains);
    let wanted = strides(scope, scope, domains);
    let last = scope.len() - 1;
    // The node that runs fastest in the factor: its choices lie side by side there, those of the last
    // node here. Both are gone through at once, so that every line of memory is used while it is near.
    let many = (0..scope.len()).filter(|&at| domains[scope[at]] > 1);
    let fastest = many.min_by_key(|&at| own[at]).unwrap_or(last);
    let others = (0..scope.len()).filter(|&at| at != last && at != fastest);
    let others: Vec<usize> = others.collect();
    let sizes: Vec<usize> = others.iter().map(|&at| domains[scope[at]]).collect();
    let picked = |of: &[usize]| others.iter().map(|&at| of[at]).collect::<Vec<_>>();
    let rows = Rows::of(&sizes);
    let (own_strides, wanted_strides) = (picked(&own), picked(&wanted));
    let (along, across) = (domains[scope[last]], domains[scope[fastest]]);
    let across = if fastest == last { 1 } else { across };
    let mut entries = vec![0.0; factor.entries.len()];
    for run in 0..rows.count() / rows.in_run.max(1) {
        let (from, between) = rows.places(&own_strides, run);
        let (to, apart) = rows.places(&wanted_strides, run);
        for row in 0..rows.in_run {
            let (from, to) = (from + row * between, to + row * apart);
            for step in 0..across {
                let source = &factor.entries[from + step * own[fastest]..];
                let target = &mut entries[to + step * wanted[fastest]..][..along];
                let source = source.iter().step_by(own[last].max(1));
                target.iter_mut().zip(source).for_each(|(target, &source)| *target = source);
            }
        }
    }
    Cow::Owned(entries)
}

/// For each node of `of`, the distance between its choices in a table over `scope`, or 0.
pub(super) fn strides(scope: &[usize], of: &[usize], domains: &[usize]) -> Vec<usize> {
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
