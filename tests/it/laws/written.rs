//! Plans that are written otherwise, some of which are as right as they were.

use plan::{Assignment, Copy, Plan, Transfer};
use planner_ir::{Digit, Layout, Move};

use super::programs::Dice;

/// The plan with something in it written otherwise; nothing where it has no such thing.
pub(super) fn otherwise(plan: &Plan, dice: &mut Dice) -> Option<Plan> {
    let mut plan = plan.clone();
    match dice.below(7) {
        0 => {
            let at = dice.below(plan.layouts.len());
            turned(&mut plan.layouts[at], dice)?;
        }
        1 => {
            let at = transfer(&plan, dice)?;
            turned(&mut plan.transfers[at].layout, dice)?;
        }
        2 => {
            let at = dice.below(plan.assignments.len());
            let Assignment::Computed { partition, .. } = &mut plan.assignments[at] else { return None };
            let digits: Vec<&mut Digit> = partition.loops.iter_mut().flatten().collect();
            rewritten(digits, dice)?;
        }
        // Two moves the other way round.
        3 => {
            let at = transfer(&plan, dice)?;
            let moves = plan.transfers[at].moves.len().checked_sub(1).filter(|&it| it > 0)?;
            let first = dice.below(moves);
            plan.transfers[at].moves.swap(first, first + 1);
            counted(&mut plan, at);
        }
        // A copy is made from another one of the value, or there and back.
        4 => {
            let at = transfer(&plan, dice)?;
            let value = plan.transfers[at].value;
            let others = (0..at).filter(|&it| plan.transfers[it].value == value);
            let others: Vec<Copy> = others.map(Copy::Transferred).chain([Copy::Made]).collect();
            plan.transfers[at].from = others[dice.below(others.len())];
            counted(&mut plan, at);
        }
        5 => {
            let at = transfer(&plan, dice)?;
            let Transfer { value, layout, .. } = plan.transfers[at].clone();
            let type_ = plan.graph.type_of(value).clone();
            let detours: Vec<[Move; 2]> = detours(&plan, &layout);
            let detour = detours.get(dice.below(detours.len().max(1)))?.clone();
            let there = detour[0].apply(&plan.mesh, &type_, &layout).ok()?;
            detour[1].apply(&plan.mesh, &type_, &there).ok()?;
            plan.transfers[at].moves.extend(detour);
            counted(&mut plan, at);
        }
        // Another copy of the value is read.
        _ => {
            let at = dice.below(plan.assignments.len());
            let node = &plan.graph.nodes[at];
            let operand = dice.below(node.operands.len().max(1));
            let value = *node.operands.get(operand)?;
            let copies = (0..plan.transfers.len()).filter(|&it| plan.transfers[it].value == value);
            let copies: Vec<Copy> = copies.map(Copy::Transferred).chain([Copy::Made]).collect();
            let Assignment::Computed { operands, .. } = &mut plan.assignments[at] else { return None };
            operands[operand] = copies[dice.below(copies.len())];
        }
    }
    settle(&mut plan);
    Some(plan)
}

fn transfer(plan: &Plan, dice: &mut Dice) -> Option<usize> {
    (!plan.transfers.is_empty()).then(|| dice.below(plan.transfers.len()))
}

/// A slice by each axis, and what undoes it.
fn detours(plan: &Plan, layout: &Layout) -> Vec<[Move; 2]> {
    let along = |dim: usize| {
        let one = move |axis| {
            let digits = vec![Digit::axis(&plan.mesh, axis)];
            [Move::Slice { dim, digits }, Move::AllGather { dim, digits: 1 }]
        };
        plan.mesh.axis_ids().map(one)
    };
    (0..layout.dims.len()).flat_map(along).collect()
}

fn turned(layout: &mut Layout, dice: &mut Dice) -> Option<()> {
    rewritten(layout.dims.iter_mut().flatten().collect(), dice)
}

/// A digit with the same values on all devices, or with others.
fn rewritten(digits: Vec<&mut Digit>, dice: &mut Dice) -> Option<()> {
    let (count, mut digits) = (digits.len(), digits.into_iter());
    let digit = digits.nth(dice.below(count.max(1)))?;
    let size = i64::try_from(digit.size).ok()?;
    match dice.below(4) {
        0 => digit.offset += size,
        1 => digit.offset += 1,
        2 => digit.terms.first_mut()?.1 += size,
        _ => digit.terms.first_mut()?.1 *= -1,
    }
    Some(())
}

/// Says the bytes of a transfer's moves, as far as they can be made.
fn counted(plan: &mut Plan, at: usize) {
    let Transfer { value, from, moves, .. } = plan.transfers[at].clone();
    let type_ = plan.graph.type_of(value);
    let mut layout = match from {
        Copy::Transferred(it) if it >= at => return,
        from => plan.layout(value, from).clone(),
    };
    let mut bytes = vec![0; moves.len()];
    for (step, bytes) in moves.iter().zip(&mut bytes) {
        let Ok(after) = step.apply(&plan.mesh, type_, &layout) else { break };
        *bytes = step.bytes(&plan.mesh, type_, &layout, &after);
        layout = after;
    }
    plan.transfers[at].bytes = bytes;
}

/// Says what the plan holds.
fn settle(plan: &mut Plan) {
    if let Ok(memory) = lower::memory(plan) {
        plan.memory = memory;
    }
    plan.capacity = u64::MAX;
}
