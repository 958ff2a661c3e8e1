//! How work in time steps is done, which layouts do not show.
//!
//! Rings whose blocks all go one way and those of which half go the other start and end in the same
//! layouts, and hold as much. So one choice stands for both, and has the manner that takes less time:
//! neither spaces nor problems grow.
//!
//! So do rows that go straight to the devices that use them, and rows that pass through one device of a node.
//!
//! Rings with one slot do too, but hold less and take more time. What blocks hold while they move is
//! counted when a plan is written, so that is when they are chosen: where a plan that would hold too much
//! holds little enough with one slot in some operations, they have one.

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::Exchanged;
use planner_ir::{Graph, Layout, Loops, Mesh, Node, NodeId, Partition, Type, ValueId, Ways};
use rewrite::{Choice, Space};

use crate::prices::{Prices, Work};
use crate::section::Section;

/// Of how many steps rings are whose two neighbours are two devices.
const LEAST_STEPS: u64 = 3;

/// An operation with its whole operands, to be priced as it may be partitioned.
pub(crate) struct Whole<'a> {
    graph: &'a Graph,
    id: NodeId,
    operands: Vec<Type>,
    loops: Loops,
}

impl<'a> Whole<'a> {
    pub(crate) fn of(graph: &'a Graph, id: NodeId) -> Self {
        let node = graph.node(id);
        let operands = graph.types_of(&node.operands);
        let loops = node.op.loops(&operands, &graph.types_of(&node.results));
        Self { graph, id, operands, loops }
    }

    /// The time that the work takes between the layouts of a choice, partitioned so (seconds).
    pub(crate) fn time(
        &self,
        layouts: &[Arc<[Layout]>],
        choice: &Choice,
        partition: &Partition,
        prices: &dyn Prices,
    ) -> f64 {
        self.priced(layouts, choice, partition, |work| prices.work(work))
    }

    /// What of that is exchanged.
    pub(crate) fn exchanged(
        &self,
        layouts: &[Arc<[Layout]>],
        choice: &Choice,
        partition: &Partition,
        prices: &dyn Prices,
    ) -> Exchanged {
        if !partition.moves() {
            return Exchanged::default();
        }
        self.priced(layouts, choice, partition, |work| prices.exchanged(work))
    }

    fn priced<T>(
        &self,
        layouts: &[Arc<[Layout]>],
        choice: &Choice,
        partition: &Partition,
        price: impl Fn(&Work<'_>) -> T,
    ) -> T {
        let Node { op, operands, results, .. } = self.graph.node(self.id);
        let local = |(&value, &layout): (&ValueId, &usize)| {
            layouts[value.0][layout].local_type(self.graph.type_of(value))
        };
        price(&Work {
            op,
            whole: &self.operands,
            operands: &operands.iter().zip(&choice.operands).map(local).collect::<Vec<Type>>(),
            results: &results.iter().zip(&choice.results).map(local).collect::<Vec<Type>>(),
            node: self.id,
            partition,
            loops: &self.loops,
        })
    }
}

/// Lets blocks go both ways, and rows pass through one device of a node, wherever they can and it is faster.
pub(crate) fn settle(section: &Section, space: &mut Arc<Space>, mesh: &Mesh, prices: &dyn Prices) {
    let ways = prices.ways();
    // What is faster so, for each list of choices: operations that are alike have one.
    let mut settled: BTreeMap<*const Choice, Option<Arc<[Choice]>>> = BTreeMap::new();
    let lists = section.graph.node_ids().zip(&space.choices);
    let lists: Vec<Option<Arc<[Choice]>>> = lists
        .map(|(id, choices)| {
            let faster = || {
                let others: Vec<Option<Partition>> =
                    choices.iter().map(|it| otherwise(&it.partition, ways, prices)).collect();
                let whole = others.iter().any(Option::is_some).then(|| Whole::of(&section.graph, id));
                faster(&whole?, &space.layouts, (choices, others), (mesh, prices))
            };
            settled.entry(choices.as_ptr()).or_insert_with(faster).clone()
        })
        .collect();
    // Others may share the space.
    if lists.iter().any(Option::is_some) {
        let all = Arc::make_mut(space).choices.iter_mut().zip(lists);
        all.for_each(|(choices, settled)| *choices = settled.unwrap_or_else(|| Arc::clone(choices)));
    }
}

/// The same partition in another manner, if there is one that may be faster: blocks that go both ways round rings that
/// have two, or rows that pass through one device of a node.
fn otherwise(partition: &Partition, ways: Ways, prices: &dyn Prices) -> Option<Partition> {
    if partition.steps >= LEAST_STEPS && ways == Ways::Both {
        return Some(Partition { ways, ..partition.clone() });
    }
    let near = if partition.routed.is_empty() { 1 } else { prices.near(&partition.routed_axes()) };
    (near > 1).then(|| Partition { routed_by: near, ..partition.clone() })
}

/// The choices of an operation, each in its other manner where that can be and is faster; none if it never is.
fn faster(
    whole: &Whole<'_>,
    layouts: &[Arc<[Layout]>],
    (choices, others): (&[Choice], Vec<Option<Partition>>),
    (mesh, prices): (&Mesh, &dyn Prices),
) -> Option<Arc<[Choice]>> {
    let is_faster = |choice: &Choice, other: &Partition| {
        let time = |it: &Partition| whole.time(layouts, choice, it, prices);
        // Most are no faster, and to check them all takes longer than to price them.
        time(other) < time(&choice.partition) && other.check(mesh, &whole.loops).is_ok()
    };
    let mut any = false;
    let settled = choices.iter().zip(others).map(|(choice, other)| {
        let other = other.filter(|it| is_faster(choice, it));
        any |= other.is_some();
        Choice { partition: other.unwrap_or_else(|| choice.partition.clone()), ..choice.clone() }
    });
    let settled: Arc<[Choice]> = settled.collect();
    any.then_some(settled)
}

/// An operation with one slot for what rotates.
#[derive(Clone, Debug)]
pub(crate) struct InPlace {
    pub(crate) partition: Partition,
    /// What it takes then, each time that it runs (seconds).
    pub(crate) seconds: f64,
    pub(crate) exchanged: Exchanged,
}
