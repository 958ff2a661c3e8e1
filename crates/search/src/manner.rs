//! How work in time steps is done, which layouts do not show.
//!
//! Rings whose blocks all go one way and those of which half go the other start and end in the same
//! layouts, and hold as much. So one choice stands for both, and has the manner that takes less time:
//! neither spaces nor problems grow.
//!
//! Rings with one slot do too, but hold less and take more time. What blocks hold while they move is
//! counted when a plan is written, so that is when they are chosen: where a plan that would hold too much
//! holds little enough with one slot in some operations, they have one.

use std::collections::BTreeMap;
use std::sync::Arc;

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
        let Node { op, operands, results, .. } = self.graph.node(self.id);
        let local = |(&value, &layout): (&ValueId, &usize)| {
            layouts[value.0][layout].local_type(self.graph.type_of(value))
        };
        prices.work(&Work {
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

/// Lets blocks go both ways wherever they can and it is faster.
pub(crate) fn settle(section: &Section, space: &mut Arc<Space>, mesh: &Mesh, prices: &dyn Prices) {
    if prices.ways() == Ways::One {
        return;
    }
    // What is faster so, for each list of choices: operations that are alike have one.
    let mut settled: BTreeMap<*const Choice, Option<Arc<[Choice]>>> = BTreeMap::new();
    let lists = section.graph.node_ids().zip(&space.choices);
    let lists: Vec<Option<Arc<[Choice]>>> = lists
        .map(|(id, choices)| {
            let faster = || {
                let whole = choices.iter().any(is_ring).then(|| Whole::of(&section.graph, id));
                both_ways(&whole?, &space.layouts, choices, (mesh, prices))
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

/// Whether blocks go round rings that have two ways.
fn is_ring(choice: &Choice) -> bool {
    choice.partition.steps >= LEAST_STEPS
}

/// The choices of an operation, in which blocks go both ways round rings where that is faster; none if it never
/// is.
fn both_ways(
    whole: &Whole<'_>,
    layouts: &[Arc<[Layout]>],
    choices: &[Choice],
    (mesh, prices): (&Mesh, &dyn Prices),
) -> Option<Arc<[Choice]>> {
    let is_faster = |choice: &Choice| {
        let both = Partition { ways: Ways::Both, ..choice.partition.clone() };
        let time = |it: &Partition| whole.time(layouts, choice, it, prices);
        // Most are no faster, and to check them all takes longer than to price them.
        is_ring(choice) && time(&both) < time(&choice.partition) && both.check(mesh, &whole.loops).is_ok()
    };
    let faster: Vec<bool> = choices.iter().map(is_faster).collect();
    let settled = |(choice, is_faster): (&Choice, &bool)| {
        let mut choice = choice.clone();
        if *is_faster {
            choice.partition.ways = Ways::Both;
        }
        choice
    };
    faster.contains(&true).then(|| choices.iter().zip(&faster).map(settled).collect())
}

/// An operation with one slot for what rotates.
#[derive(Clone, Debug)]
pub(crate) struct InPlace {
    pub(crate) partition: Partition,
    /// What it takes then, each time that it runs (seconds).
    pub(crate) seconds: f64,
}
