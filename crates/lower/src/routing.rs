//! How an operation's rows are routed, as programs need it.

use planner_ir::{Layout, LoopId, Loops, Partition, Route, RoutedRows, Routing, Type};

use crate::action::Rows;
use crate::exchange::dealt;
use crate::storage::BufferId;
use crate::strided::Strided;

/// An operation whose rows are routed.
pub(crate) struct Routed {
    /// How it is partitioned.
    pub(crate) partition: Partition,
    /// The same with all rows everywhere.
    pub(crate) met: Partition,
    /// Its loops.
    pub(crate) loops: Loops,
    /// Those of rows and parts.
    routing: Routing,
}

impl Routed {
    pub(crate) fn of(partition: &Partition, loops: &Loops) -> Option<Self> {
        let routing = loops.routed.filter(|_| !partition.routed.is_empty())?;
        let (partition, met) = (partition.clone(), partition.met());
        Some(Self { partition, met, loops: loops.clone(), routing })
    }

    pub(crate) fn route(&self, dims: &[Vec<LoopId>]) -> Route {
        self.partition.route(&self.loops, dims)
    }

    /// The dimension of rows of a value with these dimensions.
    pub(crate) fn rows(&self, dims: &[Vec<LoopId>]) -> usize {
        self.routing.dim_of_rows(dims).unwrap_or(0)
    }

    /// The copies before and after an exchange of gates in a layout at rest: to where the parts are, or back.
    pub(crate) fn dealt(
        &self,
        dims: &[Vec<LoopId>],
        type_: &Type,
        at_rest: &Layout,
        back: bool,
    ) -> [Strided; 2] {
        let parts = dims.iter().position(|dim| dim.contains(&self.routing.parts)).unwrap_or(0);
        let split = &self.partition.loops[self.routing.parts.0];
        dealt(type_, at_rest, (self.rows(dims), &self.partition.routed), (parts, split), back)
    }

    /// Which rows go, by gates as they were exchanged.
    pub(crate) fn which(&self, type_: &Type, at_rest: &Layout, [own, others]: [BufferId; 2]) -> Rows {
        let Routing { parts, used, .. } = self.routing;
        let parts = self.loops.get(parts).size;
        let count = at_rest.local_type(type_).elements() / parts.max(1);
        Rows { routed: RoutedRows { count, used, parts, by: self.partition.routed_by }, own, others }
    }
}
