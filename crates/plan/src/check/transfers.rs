//! Rules of transfers. Equal transfers of equal values are looked at once.

use std::collections::BTreeMap;

use planner_ir::{Layout, Mesh, Move, Type};

use super::Violations;
use super::blocks::{canonical, same};
use super::moves::Held;
use super::totals;
use crate::plan::{Copy, Plan};

/// What a transfer does, whatever value it is of.
type Kind<'a> = (&'a Type, &'a Layout, &'a [Move], &'a Layout, &'a [u64]);

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    let (_, read) = totals::read(plan);
    let beside = plan.may_run_beside();
    let mut known: BTreeMap<Kind<'_>, Vec<(&'static str, String)>> = BTreeMap::new();
    for (index, transfer) in plan.transfers.iter().enumerate() {
        let place = format!("transfer {index} of %{}", transfer.value.0);
        if !read.contains(&index) {
            found.add("transfer-read", &place, "nothing reads the copy: it is not made".to_owned());
        }
        if transfer.waits && beside[index].is_none() {
            let message = "is said to wait, and is none that could run beside computing".to_owned();
            found.add("transfer-waits", &place, message);
        }
        let type_ = plan.graph.type_of(transfer.value);
        if let Err(error) = transfer.layout.check(&plan.mesh, type_) {
            found.add("layout-form", place, error);
            continue;
        }
        if let Copy::Transferred(from) = transfer.from {
            let source = &plan.transfers[from];
            if from >= index {
                let message = format!("copies transfer {from}, expected an earlier one");
                found.add("transfer-source", &place, message);
            }
            if source.value != transfer.value {
                let message = format!("copies a copy of %{}", source.value.0);
                found.add("transfer-source", &place, message);
                continue;
            }
        }
        let before = plan.layout(transfer.value, transfer.from);
        if before.check(&plan.mesh, type_).is_err() {
            // That is said where the layout stands.
            continue;
        }
        let kind = (type_, before, &transfer.moves[..], &transfer.layout, &transfer.bytes[..]);
        let wrong = known.entry(kind).or_insert_with(|| violated(&plan.mesh, kind));
        for (rule, message) in wrong {
            found.add(rule, &place, message);
        }
    }
}

fn violated(mesh: &Mesh, (type_, before, moves, after, bytes): Kind<'_>) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let mut held =
        Held { dims: before.dims.iter().cloned().map(canonical).collect(), owed: before.owed.clone() };
    for (index, (step, &claimed)) in moves.iter().zip(bytes).enumerate() {
        match held.make(mesh, type_, step) {
            Ok(lacked) if lacked == claimed => {}
            Ok(lacked) => {
                wrong.push((
                    "bytes",
                    format!("move {index} ({}) of {claimed} bytes, expected {lacked}", step.name()),
                ));
            }
            Err(message) => {
                wrong.push(("move", format!("move {index} ({}): {message}", step.name())));
                return wrong;
            }
        }
    }
    if !same(mesh, &held.dims, &after.dims, &type_.shape) || held.owed != after.owed {
        let held = Layout { dims: held.dims, owed: held.owed };
        let message = format!("moves lead to {}, expected {}", held.display(mesh), after.display(mesh));
        wrong.push(("transfer-layout", message));
    }
    wrong
}
