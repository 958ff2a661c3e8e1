//! What a program's instructions are on a device.
//!
//! Operations that one kernel computes are one task ([`crate::group`]), and so are a loss and its gradient
//! ([`crate::classifier`]), and the squares of many values ([`crate::squares`]). Each other operation, and each
//! copy within a rank, is a task of its own.

use std::collections::BTreeSet;

use kernels::cuda::{self, Copying, Work};
use lower::{Action, Compute, Copied, Direction, Program, Strided};

use crate::classifier::classifiers;
use crate::group::{Group, joined};
use crate::order::Order;
use crate::orders::Orders;
use crate::squares::squares;
use crate::task::{Task, buffers, named};
use crate::uses::Uses;

/// What the instructions of a program are on a device, but for exchanges, in the order in which they are
/// issued.
pub fn tasks(program: &Program) -> Vec<Task> {
    let uses = Uses::of(program);
    let orders = Orders::of(program);
    let mut order = Order::of(program);
    let mut tasks = classifiers(program, &uses, &mut order);
    tasks.extend(squares(program, &uses, &mut order));
    let taken: BTreeSet<usize> = tasks.iter().flat_map(|task| task.instructions.iter().copied()).collect();
    let mut groups: Vec<Group> = Vec::new();
    let mut open: Option<Group> = None;
    for (number, instruction) in program.instructions.iter().enumerate() {
        if taken.contains(&number) {
            groups.extend(open.take());
            continue;
        }
        if instruction.stream.exchanges() {
            if let Action::Copy(copied) = &instruction.action {
                tasks.push(copy(program, number, copied));
            }
            continue;
        }
        if let Some(group) = open.take() {
            if let Some(more) = group.followed(number) {
                open = Some(more);
                continue;
            }
            groups.push(group);
        }
        match &instruction.action {
            Action::Compute(compute) => match Group::of(program, &uses, &orders, number) {
                Some(group) => open = Some(group),
                None => tasks.push(alone(&orders, number, compute)),
            },
            Action::Copy(copied) => tasks.push(copy(program, number, copied)),
            Action::Collective(_) | Action::Message(_) | Action::Send(_) | Action::Receive(_) => {}
        }
    }
    groups.extend(open);
    tasks.extend(joined(groups, &mut order).into_iter().map(|group| group.task(&order)));
    tasks.sort_by_key(|task| task.at);
    tasks
}

fn alone(orders: &Orders, number: usize, compute: &Compute) -> Task {
    let (operands, results) = (orders.pieces(&compute.operands), orders.pieces(&compute.results));
    let kernels = if orders.writes_in_place(compute) { cuda::write } else { cuda::kernels };
    Task {
        instructions: vec![number],
        at: number,
        what: named(&compute.op),
        operands: buffers(&compute.operands),
        results: buffers(&compute.results),
        work: kernels(&compute.op, &operands, &results),
    }
}

/// The kernel of a copy of elements of so many bytes, between two orders of them.
pub(crate) fn strided(strided: &Strided, direction: Direction, bytes: u64) -> Work {
    let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    let turned = direction == Direction::Put;
    let pair =
        |from: u64, to: u64| if turned { [signed(to), signed(from)] } else { [signed(from), signed(to)] };
    cuda::copied(&Copying {
        bytes,
        starts: pair(strided.start, 0),
        loops: strided.loops.iter().map(|it| (it.count, pair(it.from, it.to))).collect(),
    })
}

fn copy(program: &Program, number: usize, copied: &Copied) -> Task {
    let bytes = program.buffer(copied.to).type_.dtype.bytes();
    Task {
        instructions: vec![number],
        at: number,
        what: "copy".to_owned(),
        operands: vec![copied.from],
        results: vec![copied.to],
        work: Ok(strided(&copied.strided, copied.direction, bytes)),
    }
}
