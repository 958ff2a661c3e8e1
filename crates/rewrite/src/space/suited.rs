//! Whether a partition suits an operation, and what its operands and results are held in.

use planner_ir::{Layout, NodeId, Partition, ValueId};

use super::term::Facts;

/// Along how many loops a partition splits, passing sums through counted as one.
pub(super) fn splits(partition: &Partition) -> usize {
    let split = partition.loops.iter().filter(|digits| !digits.is_empty()).count();
    split + usize::from(!partition.passed.is_empty())
}

/// Whether a partition suits the operation, its operands and its results.
pub(super) fn fits(facts: &Facts, node: NodeId, partition: &Partition) -> bool {
    let Some(loops) = facts.loops(node) else { return false };
    partition.check(&facts.mesh, loops).is_ok() && suits(facts, node, partition, |_| true)
}

/// Whether operands and results may be held in the layouts that a partition of the operation has for them,
/// each of which has to be `wanted`.
pub(super) fn suits(
    facts: &Facts,
    node: NodeId,
    partition: &Partition,
    wanted: impl Fn(&Layout) -> bool,
) -> bool {
    let Some(loops) = facts.loops(node) else { return false };
    let suits = |value: ValueId, layout: Layout| {
        wanted(&layout) && layout.check(&facts.mesh, &facts.types[value.0]).is_ok()
    };
    let mut operands = facts.operands(node).iter().enumerate();
    let mut results = facts.results(node).iter().enumerate();
    operands.all(|(index, &it)| suits(it, partition.operand(loops, index)))
        && results.all(|(index, &it)| suits(it, partition.result(loops, index)))
}

/// Whether a layout has digits that are not the coordinates along one axis.
pub(super) fn is_skewed(layout: &Layout) -> bool {
    layout.dims.iter().flatten().any(|digit| !digit.is_free() && digit.plain().is_none())
}
