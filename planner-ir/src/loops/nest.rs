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
