//! What must hold before anything else can be looked at.

use planner_ir::{AxisId, Digit, Mesh, Move, ValueId, verify};

use super::{MAX_DEVICES, Violations, operation_name};
use crate::plan::{Assignment, Copy, Plan};

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    mesh(plan, found);
    if let Err(violations) = verify(&plan.graph) {
        for it in violations.0 {
            found.add("graph", it.place, format_args!("{} ({})", it.message, it.rule));
        }
    }
    counts(plan, found);
    let references = References { plan };
    for value in &plan.layouts {
        let axes = value.dims.iter().flatten().flat_map(named).chain(value.owed.iter().copied());
        references.axes("layout of a value", axes, found);
    }
    for (index, assignment) in plan.assignments.iter().enumerate() {
        let Assignment::Computed { partition, operands, .. } = assignment else { continue };
        let place = || match plan.graph.nodes.get(index) {
            Some(_) => operation_name(plan, index),
            None => format!("operation {index}"),
        };
        let axes = partition.loops.iter().flatten().flat_map(named).chain(partition.passed.iter().copied());
        references.axes(&place(), axes, found);
        for &copy in operands {
            references.copy(&place(), copy, found);
        }
    }
    for (index, transfer) in plan.transfers.iter().enumerate() {
        let place = format!("transfer {index}");
        references.value(&place, transfer.value, found);
        references.copy(&place, transfer.from, found);
        let layout = transfer.layout.dims.iter().flatten().flat_map(named);
        let layout = layout.chain(transfer.layout.owed.iter().copied());
        references.axes(&place, layout.chain(transfer.moves.iter().flat_map(axes_of)), found);
    }
    for &copy in &plan.outputs {
        references.copy("outputs", copy, found);
    }
    for &copy in &plan.carried {
        references.copy("states", copy, found);
    }
}

fn mesh(plan: &Plan, found: &mut Violations) {
    let axes = &plan.mesh.axes;
    if axes.len() > Mesh::MAX_AXES {
        found.add("mesh", "mesh", format_args!("{} axes, expected {} at most", axes.len(), Mesh::MAX_AXES));
    }
    for (index, axis) in axes.iter().enumerate() {
        if axis.size == 0 {
            found.add("mesh", "mesh", format_args!("axis `{}` has no devices, expected some", axis.name));
        }
        if axis.name.is_empty() || axes[..index].iter().any(|before| before.name == axis.name) {
            found.add("mesh", "mesh", format_args!("axis {index} has no name of its own"));
        }
    }
    let devices = axes.iter().try_fold(1u64, |devices, axis| devices.checked_mul(axis.size));
    match devices {
        Some(devices) if devices <= MAX_DEVICES => {
            if devices != plan.machine.devices {
                let expected = plan.machine.devices;
                let message = format!("{devices} devices, expected the {expected} of the machine");
                found.add("devices", "mesh", message);
            }
        }
        _ => found.add("mesh", "mesh", format_args!("too many devices, expected {MAX_DEVICES} at most")),
    }
}

fn counts(plan: &Plan, found: &mut Violations) {
    let mut same = |place: &dyn std::fmt::Display, what: &str, count: usize, expected: usize| {
        if count != expected {
            found.add("count", place, format_args!("{count} {what}, expected {expected}"));
        }
    };
    same(&"values", "layouts", plan.layouts.len(), plan.graph.values.len());
    same(&"operations", "assignments", plan.assignments.len(), plan.graph.nodes.len());
    same(&"outputs", "copies", plan.outputs.len(), plan.graph.outputs.len());
    let states = plan.graph.training.as_ref().map_or(0, |training| training.carried.len());
    same(&"states", "copies", plan.carried.len(), states);
    for (index, (node, assignment)) in plan.graph.nodes.iter().zip(&plan.assignments).enumerate() {
        if let Assignment::Computed { partition, operands, bytes, .. } = assignment {
            let place = operation_name(plan, index);
            same(&place, "copies", operands.len(), node.operands.len());
            let moving = if partition.moves() { node.operands.len() + node.results.len() } else { 0 };
            same(&place, "numbers of bytes", bytes.len(), moving);
        }
    }
    for (index, transfer) in plan.transfers.iter().enumerate() {
        let place = format!("transfer {index}");
        same(&place, "numbers of bytes", transfer.bytes.len(), transfer.moves.len());
        same(&place, "times", transfer.seconds.len(), transfer.moves.len());
    }
}

/// The axes that a digit names.
fn named(digit: &Digit) -> impl Iterator<Item = AxisId> {
    digit.terms.iter().map(|term| term.0)
}

/// The axes that a move names.
fn axes_of(step: &Move) -> Vec<AxisId> {
    match step {
        Move::AllGather { .. } => vec![],
        Move::AllReduce { axes } => axes.clone(),
        Move::Slice { digits, .. } | Move::ReduceScatter { digits, .. } | Move::AllToAll { digits, .. } => {
            digits.iter().flat_map(named).collect()
        }
        Move::Permute { dims } => dims.iter().flatten().flat_map(named).collect(),
    }
}

/// What names can stand for.
struct References<'a> {
    plan: &'a Plan,
}

impl References<'_> {
    fn value(&self, place: &str, value: ValueId, found: &mut Violations) {
        let count = self.plan.graph.values.len();
        if value.0 >= count {
            let message = format!("names value {}, expected one of {count}, from 0", value.0);
            found.add("reference", place, message);
        }
    }

    fn copy(&self, place: &str, copy: Copy, found: &mut Violations) {
        let count = self.plan.transfers.len();
        if let Copy::Transferred(transfer) = copy
            && transfer >= count
        {
            let message = format!("names transfer {transfer}, expected one of {count}, from 0");
            found.add("reference", place, message);
        }
    }

    fn axes(&self, place: &str, axes: impl Iterator<Item = AxisId>, found: &mut Violations) {
        let count = self.plan.mesh.axes.len();
        for axis in axes.filter(|axis| axis.0 >= count) {
            let message = format!("names axis {}, expected one of {count}, from 0", axis.0);
            found.add("reference", place, message);
        }
    }
}
