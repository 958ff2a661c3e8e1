//! How layouts are written.
//!
//! Devices may hold the same blocks by digits that differ, and get them by moves that cannot be told from
//! the digits. Programs are made from digits as they stand, so a plan that is right in every other way has
//! to write each layout as the partition or the move that it comes of.

use planner_ir::Layout;

use super::{Violations, operation_name};
use crate::plan::{Assignment, Plan, Transfer};

/// Adds what is violated by a plan that is right otherwise.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    for node in 0..plan.assignments.len() {
        operation(plan, node, found);
    }
    for (index, transfer) in plan.transfers.iter().enumerate() {
        if let Err(message) = moves(plan, transfer) {
            found.add("written", format!("transfer {index} of %{}", transfer.value.0), message);
        }
    }
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    for (it, &copy) in carried.zip(&plan.carried) {
        let (rest, next) = (&plan.layouts[it.state.0], plan.layout(it.next, copy));
        if let Err(message) = same(plan, next, rest) {
            found.add("written", format!("state %{}", it.state.0), message);
        }
    }
}

/// The layouts of an operation's operands and results.
fn operation(plan: &Plan, node: usize, found: &mut Violations) {
    let Assignment::Computed { partition, operands, .. } = &plan.assignments[node] else { return };
    let node_ = &plan.graph.nodes[node];
    let (takes, makes) = (plan.graph.types_of(&node_.operands), plan.graph.types_of(&node_.results));
    let loops = node_.op.loops(&takes, &makes);
    let used = node_.operands.iter().zip(operands).enumerate();
    let used = used.map(|(at, (&value, &copy))| {
        ("operand", at, plan.layout(value, copy), partition.operand(&loops, at))
    });
    let made = node_.results.iter().enumerate();
    let made = made.map(|(at, value)| ("result", at, &plan.layouts[value.0], partition.result(&loops, at)));
    for (what, at, is, expected) in used.chain(made) {
        if let Err(message) = same(plan, is, &expected) {
            found.add("written", format!("{}, {what} {at}", operation_name(plan, node)), message);
        }
    }
    let merging = node_.op.merging().filter(|_| partition.steps > 1 && partition.merges(&loops));
    if let Some(merging) = merging {
        let made = merging.part.infer(&takes);
        if !made.is_ok_and(|made| made.starts_with(&makes)) {
            let message = "is done in parts that make other results than it does";
            found.add("written", operation_name(plan, node), message);
        }
    }
}

/// Moves of what is held lead to the layout, digit by digit.
fn moves(plan: &Plan, transfer: &Transfer) -> Result<(), String> {
    let type_ = plan.graph.type_of(transfer.value);
    let mut layout = plan.layout(transfer.value, transfer.from).clone();
    for (index, step) in transfer.moves.iter().enumerate() {
        let after = step.apply(&plan.mesh, type_, &layout);
        layout = after.map_err(|error| {
            format!("move {index} ({}) of {}: {error}", step.name(), layout.display(&plan.mesh))
        })?;
    }
    same(plan, &transfer.layout, &layout)
}

fn same(plan: &Plan, is: &Layout, expected: &Layout) -> Result<(), String> {
    if is == expected {
        return Ok(());
    }
    let (is, expected) = (is.display(&plan.mesh), expected.display(&plan.mesh));
    Err(format!("the layout is written {is}, expected {expected}, which is as right"))
}
