//! Loops declared one after another.

use super::{Loop, LoopId, Role};

/// For each dimension of a value, the loops that index it.
pub(super) type Dims = Vec<Vec<LoopId>>;

/// For each value its dimensions' loops.
pub(super) type Index = Vec<Dims>;

/// The loops declared so far.
#[derive(Default)]
pub(super) struct Nest {
    pub(super) loops: Vec<Loop>,
}

impl Nest {
    /// A loop over a dimension, none if its extent is 1.
    pub(super) fn dim(&mut self, size: u64, role: Role) -> Vec<LoopId> {
        if size == 1 {
            return vec![];
        }
        self.loops.push(Loop { size, role });
        vec![LoopId(self.loops.len() - 1)]
    }

    /// A loop over each dimension.
    pub(super) fn dims(&mut self, shape: &[u64], role: Role) -> Dims {
        shape.iter().map(|&size| self.dim(size, role)).collect()
    }

    /// A loop over each dimension, whole for those that `whole` names.
    pub(super) fn dims_where(&mut self, shape: &[u64], whole: impl Fn(usize) -> bool) -> Dims {
        let role = |it| if whole(it) { Role::Whole } else { Role::Map };
        shape.iter().enumerate().map(|(it, &size)| self.dim(size, role(it))).collect()
    }

    /// The loops of two dimensions that consist of runs of one length: each has a whole loop over
    /// its runs, and they share the one in a run, which is mapped.
    pub(super) fn runs_of(&mut self, run: u64, first: u64, second: u64) -> (Vec<LoopId>, Vec<LoopId>) {
        let inner = self.dim(run, Role::Map);
        let mut runs = |extent: u64| {
            let outer = self.dim(extent.checked_div(run).unwrap_or(0), Role::Whole);
            [outer, inner.clone()].concat()
        };
        (runs(first), runs(second))
    }

    /// The same, with the longest runs.
    pub(super) fn runs(&mut self, first: u64, second: u64) -> (Vec<LoopId>, Vec<LoopId>) {
        self.runs_of(gcd(first, second), first, second)
    }

    /// A mapped loop that does not index all results is summed in the others.
    pub(super) fn sum_where_missing(&mut self, results: &[Dims]) {
        for it in 0..self.loops.len() {
            let indexes = |dims: &Dims| dims.iter().flatten().any(|other| other.0 == it);
            if self.loops[it].role == Role::Map && !results.iter().all(indexes) {
                self.loops[it].role = Role::Sum;
            }
        }
    }

    /// Another role for the loops of a dimension.
    pub(super) fn set_role(&mut self, dim: &[LoopId], role: Role) {
        for it in dim {
            self.loops[it.0].role = role;
        }
    }
}

/// The loops of one operand and one result that have the same.
pub(super) fn same_dims(dims: Dims) -> (Index, Index) {
    (vec![dims.clone()], vec![dims])
}

/// The loops of an operand that is broadcast to a result with these.
pub(super) fn repeated(shape: &[u64], dims: &[Vec<LoopId>]) -> Dims {
    let offset = dims.len() - shape.len();
    let dim = |(it, &extent): (usize, &u64)| {
        if extent == 1 { vec![] } else { dims[offset + it].clone() }
    };
    shape.iter().enumerate().map(dim).collect()
}

/// The greatest common divisor; of 0 and a number, the number.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
