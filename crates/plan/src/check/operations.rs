//! Rules of values and operations.

use planner_ir::{AxisId, Digit, Layout, LoopId, Loops, Mesh, Partition, Role, Source, ValueId};

use super::blocks::{Cover, agree, all_held, canonical, coordinate, cover, same};
use super::{Violations, operation_name};
use crate::plan::{Assignment, Copy, Plan};

/// How many time steps a partition has at most.
const MAX_STEPS: u64 = 1 << 16;

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    values(plan, found);
    for (node, assignment) in plan.assignments.iter().enumerate() {
        match assignment {
            Assignment::Prepared => prepared(plan, node, found),
            Assignment::Computed { partition, operands, .. } => {
                computed(plan, node, partition, operands, found);
            }
        }
    }
}

/// The operation that makes a value when a step is run, if one does.
fn maker(plan: &Plan, value: ValueId) -> Option<usize> {
    match plan.graph.value(value).source {
        Source::Result { node, .. } if plan.assignments[node.0] != Assignment::Prepared => Some(node.0),
        _ => None,
    }
}

fn values(plan: &Plan, found: &mut Violations) {
    for value in plan.graph.value_ids() {
        let layout = &plan.layouts[value.0];
        let place = format!("%{}", value.0);
        if let Err(error) = layout.check(&plan.mesh, plan.graph.type_of(value)) {
            found.add("layout-form", &place, error);
        }
        let summed = matches!(&plan.graph.value(value).source, Source::State(it) if it.kind.is_summed());
        if maker(plan, value).is_none() && !summed && !layout.owed.is_empty() {
            let owed = owed_text(&plan.mesh, &layout.owed);
            found.add("rest", &place, format_args!("owes sums over {owed} at rest, expected none"));
        }
    }
}

fn prepared(plan: &Plan, node: usize, found: &mut Violations) {
    for &operand in &plan.graph.nodes[node].operands {
        let input = matches!(plan.graph.value(operand).source, Source::Input(_) | Source::State(_));
        if input || maker(plan, operand).is_some() {
            let message = format!("is prepared from %{}, expected weights and constants", operand.0);
            found.add("prepared", operation_name(plan, node), message);
        }
    }
}

/// The value that a transfer copies.
pub(super) fn copied(plan: &Plan, copy: Copy) -> Option<ValueId> {
    match copy {
        Copy::Made => None,
        Copy::Transferred(transfer) => Some(plan.transfers[transfer].value),
    }
}

fn computed(plan: &Plan, node: usize, partition: &Partition, operands: &[Copy], found: &mut Violations) {
    let place = operation_name(plan, node);
    let mesh = &plan.mesh;
    let node = &plan.graph.nodes[node];
    let loops = node.op.loops(&plan.graph.types_of(&node.operands), &plan.graph.types_of(&node.results));
    if partition.steps > MAX_STEPS {
        let message = format!("{} steps, expected {MAX_STEPS} at most", partition.steps);
        found.add("partition", place, message);
        return;
    }
    if let Err(error) = partition.check(mesh, &loops) {
        found.add("partition", place, error);
        return;
    }
    // What is added to a sum once is added to the first result's.
    let mut left: Vec<AxisId> = Vec::new();
    for (index, &result) in node.results.iter().enumerate() {
        let what = format!("{place}, result {index}");
        let layout = &plan.layouts[result.0];
        let dims = dims(partition, &loops, &loops.results[index]);
        blocks(plan, ("result-layout", &what), result, layout, &dims, found);
        match sum_left(mesh, partition, &loops, index, &layout.owed) {
            Ok(axes) if index == 0 => left = axes,
            Ok(_) => {}
            Err(message) => found.add("result-owed", what, message),
        }
    }
    for (index, (&operand, &copy)) in node.operands.iter().zip(operands).enumerate() {
        let what = format!("{place}, operand {index}");
        if let Some(other) = copied(plan, copy).filter(|&it| it != operand) {
            let message = format!("reads a copy of %{}, expected one of %{}", other.0, operand.0);
            found.add("operand-copy", what, message);
            continue;
        }
        let layout = plan.layout(operand, copy);
        let dims = dims(partition, &loops, &loops.operands[index]);
        blocks(plan, ("operand-layout", &what), operand, layout, &dims, found);
        let mut owed: Vec<AxisId> = Vec::new();
        if loops.linear.get(partition.through).is_some_and(|set| set.contains(&index)) {
            owed.extend(&partition.passed);
        }
        if loops.added.contains(&index) {
            owed.extend(&left);
        }
        owed.sort_unstable();
        if owed != layout.owed {
            let (found_, expected) = (owed_text(mesh, &layout.owed), owed_text(mesh, &owed));
            let message = format!("owes sums over {found_}, expected over {expected}");
            found.add("operand-owed", what, message);
        }
    }
}

/// The digits of dimensions that products of loops index, at the first time step.
fn dims(partition: &Partition, loops: &Loops, index: &[Vec<LoopId>]) -> Vec<Vec<Digit>> {
    let dim = |dim: &Vec<LoopId>| {
        let mut digits = Vec::new();
        for it in dim {
            let own = &partition.loops[it.0];
            let blocks: u64 = own.iter().map(|digit| digit.size).product();
            digits.extend(own.iter().cloned().map(|digit| Digit { step: 0, ..digit }));
            digits.push(Digit::free(loops.loops[it.0].size / blocks));
        }
        canonical(digits)
    };
    index.iter().map(dim).collect()
}

/// Whether devices hold exactly those blocks.
fn blocks(
    plan: &Plan,
    (rule, place): (&'static str, &str),
    value: ValueId,
    layout: &Layout,
    dims: &[Vec<Digit>],
    found: &mut Violations,
) {
    let (mesh, type_) = (&plan.mesh, plan.graph.type_of(value));
    // Where a layout has no form, that is said elsewhere.
    if layout.check(mesh, type_).is_ok() && !same(mesh, &layout.dims, dims, &type_.shape) {
        let whole = |dims: &[Vec<Digit>]| Layout { dims: dims.to_vec(), owed: vec![] };
        let (held, expected) = (whole(&layout.dims), whole(dims));
        let message = format!("held as {}, expected {}", held.display(mesh), expected.display(mesh));
        found.add(rule, place, message);
    }
}

/// The axes over which the operation itself leaves a result's sum owed, if it may owe these: a
/// summed loop that the result does not index makes addends of it.
fn sum_left(
    mesh: &Mesh,
    partition: &Partition,
    loops: &Loops,
    result: usize,
    owed: &[AxisId],
) -> Result<Vec<AxisId>, String> {
    let is_passed = |axis: &&AxisId| partition.passed.contains(axis);
    if let Some(&missing) = partition.passed.iter().find(|axis| !owed.contains(axis)) {
        let missing = owed_text(mesh, &[missing]);
        return Err(format!("owes no sum over {missing}, which is passed through"));
    }
    let left: Vec<AxisId> = owed.iter().filter(|axis| !is_passed(axis)).copied().collect();
    let of = |summed: bool| -> Vec<&Digit> {
        let indexed = |it: LoopId| loops.results[result].iter().any(|dim| dim.contains(&it));
        let adds = |it: LoopId| loops.loops[it.0].role == Role::Sum && !indexed(it);
        let digits = (0..loops.loops.len()).map(LoopId).filter(|&it| adds(it) == summed);
        digits.flat_map(|it| &partition.loops[it.0]).filter(|digit| !all_held(digit)).collect()
    };
    let (summed, mapped) = (of(true), of(false));
    // Where each digit is a coordinate of its own, blocks are computed once along exactly those
    // axes; otherwise devices are asked.
    let mut axes: Vec<AxisId> = summed.iter().filter_map(|digit| coordinate(mesh, digit)).collect();
    axes.sort_unstable();
    let once = if axes.len() == summed.len() && axes.windows(2).all(|pair| pair[0] < pair[1]) {
        axes == left
    } else {
        cover(mesh, &left, &summed, partition.steps) == Cover::Once
    };
    if once && agree(mesh, &left, &mapped) {
        return Ok(left);
    }
    let (found, expected) = (owed_text(mesh, &left), owed_text(mesh, &axes));
    Err(format!("owes sums of its own over {found}, expected over {expected}"))
}

pub(super) fn owed_text(mesh: &Mesh, axes: &[AxisId]) -> String {
    let names: Vec<String> = axes.iter().map(|axis| format!("`{}`", mesh.axes[axis.0].name)).collect();
    if names.is_empty() { "no axis".to_owned() } else { names.join(", ") }
}
