//! What is found out once for operations that are partitioned alike.
//!
//! The partitions of an operation, and the layouts between which it works in each, depend on its loops, on
//! the kinds of its operands and results, on the mesh and on what is offered, and on nothing else. A block
//! has many operations of a kind: projections, additions, norms, and the gradients of each. Blocks of one
//! program have most in common. Everything here is a number in one of the tables: which number is told by
//! the order in which things come up, and nothing that is handed on depends on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use planner_ir::{Layout, Loops, Mesh, Partition, Type};

use super::Splits;
use super::tables::{Grid, Table};

/// What is known of operations on a mesh.
#[derive(Clone, Debug, Default)]
pub(super) struct Alike {
    pub(super) layouts: Table<Layout>,
    pub(super) partitions: Table<Partition>,
    /// Types whose splits may begin alike.
    pub(super) values: Table<(Type, Vec<BTreeSet<u64>>)>,
    pub(super) operations: Table<Kind>,
    /// The layouts between which operations of a kind work in a partition.
    pub(super) ends: Grid<Arc<Ends>>,
    /// The partitions that split one of a kind further.
    pub(super) further: Grid<Arc<[usize]>>,
    /// What it holds for: along how many loops an operation may be split, how long the sequences are whose
    /// tokens may lie in stripes, and whether nothing is held skewed.
    on: Option<(Mesh, Splits, Option<u64>, bool)>,
}

/// Whether a rule offers to pass sums owed through an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Passing {
    /// It touches each element once: what is owed costs nothing to keep.
    Offered,
    /// It is a product: doing it on addends multiplies the work.
    Withheld,
}

/// What the partitions of an operation depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) loops: Loops,
    /// The kinds of its operands, then those of its results.
    pub(super) values: Vec<usize>,
    pub(super) passes_sums: Passing,
    /// Whether it may be done in time steps here.
    pub(super) takes_time: bool,
}

/// The layouts between which an operation works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) operands: Vec<usize>,
    pub(super) results: Vec<usize>,
}

impl Alike {
    /// The same, if it holds there; else nothing is known.
    pub(super) fn on(self, mesh: &Mesh, splits: Splits, striped: Option<u64>, unskewed: bool) -> Self {
        let on = Some((mesh.clone(), splits, striped, unskewed));
        if self.on == on { self } else { Self { on, ..Self::default() } }
    }
}
