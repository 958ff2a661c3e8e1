//! Plans made wrong in one place, and the rules one of which finds each.

mod steps; // what only plans with partitions in time have
mod training; // what only plans of training steps have
mod written; // what is written otherwise

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{AxisId, Digit, Layout, Mesh, Move, Partition, Phase, Source, Type, ValueId};

use super::elements::equal;
use crate::{Assignment, Copy, Exchanged, LeftOut, Pin, Plan, Proof, Transfer};

/// Makes a plan wrong; whether it could.
type Mutate = fn(&mut Plan, &mut Unstructured<'_>) -> Result<bool>;

/// One, with its name and the rules.
type Mutant = (&'static str, &'static [&'static str], Mutate);

/// All of them.
pub(super) fn mutants() -> Vec<Mutant> {
    [ANY, steps::STEPS, training::TRAINING, written::WRITTEN].concat()
}

const ANY: &[Mutant] = &[
    ("an axis of another size", &["devices"], |plan, u| {
        let axis = u.choose_index(plan.mesh.axes.len())?;
        plan.mesh.axes[axis].size += 1;
        Ok(true)
    }),
    ("an axis without devices", &["mesh"], |plan, _| {
        plan.mesh.axes[0].size = 0;
        Ok(true)
    }),
    ("too many devices", &["mesh"], |plan, _| {
        plan.mesh.axes[0].size = u64::MAX;
        Ok(true)
    }),
    ("axes of one name", &["mesh"], |plan, _| {
        let Some(axis) = plan.mesh.axes.get_mut(1) else { return Ok(false) };
        axis.name = "a".to_owned();
        Ok(true)
    }),
    ("a machine with more devices", &["devices"], |plan, _| {
        plan.machine.devices += 1;
        Ok(true)
    }),
    ("a value of another type", &["graph", "count"], |plan, u| {
        let Some(value) = results(plan, u)? else { return Ok(false) };
        plan.graph.values[value.0].type_.shape.push(2);
        Ok(true)
    }),
    ("an operand that comes later", &["graph"], |plan, _| {
        let Some(node) = plan.graph.nodes.first_mut() else { return Ok(false) };
        let Some(operand) = node.operands.first_mut() else { return Ok(false) };
        *operand = node.results[0];
        Ok(true)
    }),
    ("a space from which something was left out, called saturated", &["space"], |plan, u| {
        let all = [LeftOut::Stripes, LeftOut::Skews, LeftOut::Steps, LeftOut::Splits];
        plan.space.left_out = vec![*u.choose(&all)?];
        plan.space.saturated = true;
        Ok(true)
    }),
    ("a pin that is not kept", &["pin"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let partition = partition(plan, node).clone();
        plan.graph.nodes[node].origin = "/fixed".to_owned();
        let pin = Pin { operations: "*fix*".to_owned(), partition };
        let other = Partition { steps: pin.partition.steps + 1, ..pin.partition.clone() };
        plan.pins = vec![Pin { partition: other, ..pin }];
        Ok(plan.graph.nodes[node].phase == Phase::Forward)
    }),
    ("a pin of no operation", &["pin"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let partition = partition(plan, node).clone();
        plan.pins = vec![Pin { operations: "no operation".to_owned(), partition }];
        Ok(true)
    }),
    ("a layout too few", &["count"], |plan, _| Ok(plan.layouts.pop().is_some())),
    ("an assignment too few", &["count"], |plan, _| Ok(plan.assignments.pop().is_some())),
    ("an output too few", &["count"], |plan, _| Ok(plan.outputs.pop().is_some())),
    ("an operand too few", &["count"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        Ok(operands(plan, node).pop().is_some())
    }),
    ("a result in another layout", &["result-layout", "result-owed"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let value = *u.choose(&plan.graph.nodes[node].results)?;
        let Some(layout) = other_layout(plan, value, &plan.layouts[value.0], u)? else { return Ok(false) };
        let before = std::mem::replace(&mut plan.layouts[value.0], layout);
        // Addends of skewed blocks may lie along either of two axes: both are right.
        let blocks = |layout: &Layout| Layout { owed: vec![], ..layout.clone() };
        let after = blocks(&plan.layouts[value.0]);
        let others = !equal(&plan.mesh, &plan.graph.type_of(value).shape, &blocks(&before), &after);
        Ok(others || partition(plan, node).steps == 1)
    }),
    (
        "a value at rest in another layout",
        &["operand-layout", "operand-owed", "move", "transfer-layout", "bytes", "memory"],
        |plan, u| {
            let Some(node) = computed(plan, u)? else { return Ok(false) };
            let Some(&value) = plan.graph.nodes[node].operands.first() else { return Ok(false) };
            let rests = !matches!(plan.graph.value(value).source, Source::Result { .. });
            let layout = other_layout(plan, value, &plan.layouts[value.0], u)?;
            let Some(layout) = layout.filter(|layout| rests && layout.owed.is_empty()) else {
                return Ok(false);
            };
            plan.layouts[value.0] = layout;
            // The first operand reads the value itself, or a copy that cannot be made any more.
            let read = operands(plan, node)[0];
            let moved =
                |it: &usize| plan.transfers[*it].value == value && plan.transfers[*it].from == Copy::Made;
            let moved = (0..plan.transfers.len()).filter(moved).any(|it| !is_right(plan, it));
            Ok(read == Copy::Made || moved)
        },
    ),
    ("a sum owed at rest", &["rest"], |plan, u| {
        let axis = AxisId(u.choose_index(plan.mesh.axes.len())?);
        let layout = &mut plan.layouts[0];
        layout.owed.push(axis);
        Ok(!layout.axes().contains(&axis))
    }),
    ("a layout out of form", &["layout-form"], |plan, u| {
        let value = u.choose_index(plan.layouts.len())?;
        let Some(dim) = plan.layouts[value].dims.first_mut() else { return Ok(false) };
        dim.push(Digit::free(2));
        Ok(true)
    }),
    ("a layout of an axis that the mesh lacks", &["reference"], |plan, u| {
        let value = u.choose_index(plan.layouts.len())?;
        plan.layouts[value].owed.push(AxisId(9));
        Ok(true)
    }),
    ("an operation on inputs that is prepared", &["prepared"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        plan.assignments[node] = Assignment::Prepared;
        Ok(true)
    }),
    ("a prepared operation that is computed", &["estimate"], |plan, _| {
        let Some(node) = plan.assignments.iter().position(|it| *it == Assignment::Prepared) else {
            return Ok(false);
        };
        let it = &plan.graph.nodes[node];
        let loops = it.op.loops(&plan.graph.types_of(&it.operands), &plan.graph.types_of(&it.results));
        let operands = vec![Copy::Made; it.operands.len()];
        let partition = Partition::replicated(&loops);
        let (bytes, exchanged) = (vec![], Exchanged::default());
        plan.assignments[node] = Assignment::Computed { partition, operands, bytes, seconds: 1.0, exchanged };
        Ok(true)
    }),
    (
        "another partition",
        &["operand-layout", "operand-owed", "result-layout", "result-owed", "count"],
        |plan, u| {
            let Some(node) = computed(plan, u)? else { return Ok(false) };
            let Some(partition) = other_partition(plan, node, u)? else { return Ok(false) };
            *self::partition(plan, node) = partition;
            Ok(true)
        },
    ),
    ("time steps without a digit of time", &["partition", "count"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let partition = partition(plan, node);
        let one = partition.steps == 1;
        partition.steps = *u.choose(&[0, 2, u64::MAX])?;
        Ok(one || partition.steps != 2)
    }),
    ("a loop too few", &["partition"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        Ok(partition(plan, node).loops.pop().is_some())
    }),
    ("an axis passed that is split over", &["partition"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let partition = partition(plan, node);
        let Some(&axis) = partition.axes().first() else { return Ok(false) };
        partition.passed.insert(0, axis);
        Ok(true)
    }),
    ("a partition of an axis that the mesh lacks", &["reference"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        partition(plan, node).passed.push(AxisId(7));
        Ok(true)
    }),
    ("a copy of another value is read", &["operand-copy"], |plan, u| {
        let Some((node, operand, transfer)) = operand_and_transfer(plan, u)? else { return Ok(false) };
        let value = plan.graph.nodes[node].operands[operand];
        operands(plan, node)[operand] = Copy::Transferred(transfer);
        Ok(plan.transfers[transfer].value != value)
    }),
    ("a copy in another layout is read", &["operand-layout", "operand-owed"], |plan, u| {
        let Some((node, operand, transfer)) = operand_and_transfer(plan, u)? else { return Ok(false) };
        let value = plan.graph.nodes[node].operands[operand];
        let copy = if u.arbitrary()? { Copy::Made } else { Copy::Transferred(transfer) };
        let old = operands(plan, node)[operand];
        operands(plan, node)[operand] = copy;
        let right = copy == Copy::Made || plan.transfers[transfer].value == value;
        let shape = &plan.graph.type_of(value).shape;
        Ok(right && !equal(&plan.mesh, shape, plan.layout(value, copy), plan.layout(value, old)))
    }),
    ("a copy that there is not is read", &["reference"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        let count = plan.transfers.len();
        let Some(first) = operands(plan, node).first_mut() else { return Ok(false) };
        *first = Copy::Transferred(count);
        Ok(true)
    }),
    ("an operation that takes another time", &["estimate"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        if let Assignment::Computed { seconds, .. } = &mut plan.assignments[node] {
            *seconds *= 1.5;
        }
        Ok(true)
    }),
    ("an operation that takes no time there is", &["seconds"], |plan, u| {
        let Some(node) = computed(plan, u)? else { return Ok(false) };
        if let Assignment::Computed { seconds, .. } = &mut plan.assignments[node] {
            *seconds = *u.choose(&[f64::NAN, f64::INFINITY, -1.0])?;
        }
        Ok(true)
    }),
    ("a transfer that takes another time", &["estimate"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers[transfer].seconds.iter_mut().for_each(|it| *it *= 1.5);
        Ok(true)
    }),
    (
        "a transfer of another value",
        &["transfer-source", "operand-copy", "output", "carried-copy"],
        |plan, u| {
            let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
            let value = ValueId(u.choose_index(plan.graph.values.len())?);
            let changed = plan.transfers[transfer].value != value;
            plan.transfers[transfer].value = value;
            Ok(changed)
        },
    ),
    ("a transfer that nothing reads", &["transfer-read"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers.push(plan.transfers[transfer].clone());
        Ok(true)
    }),
    ("a transfer of a value that there is not", &["reference"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers[transfer].value = ValueId(plan.graph.values.len());
        Ok(true)
    }),
    ("a transfer of itself, or of a later one", &["transfer-source"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        let from = u.int_in_range(transfer..=plan.transfers.len() - 1)?;
        plan.transfers[transfer].from = Copy::Transferred(from);
        Ok(true)
    }),
    ("a transfer of another copy", &["move", "transfer-layout", "bytes", "transfer-source"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        if transfer == 0 {
            return Ok(false);
        }
        let from = u.choose_index(transfer)?;
        plan.transfers[transfer].from = Copy::Transferred(from);
        let same = plan.transfers[from].value == plan.transfers[transfer].value;
        Ok(!(same && is_right(plan, transfer)))
    }),
    ("a move too few", &["move", "transfer-layout", "bytes"], |plan, u| {
        let Some(index) = transfer(plan, u)? else { return Ok(false) };
        let transfer = &mut plan.transfers[index];
        let place = u.choose_index(transfer.moves.len())?;
        transfer.moves.remove(place);
        transfer.bytes.remove(place);
        transfer.seconds.remove(place);
        Ok(!is_right(plan, index))
    }),
    ("another move", &["move", "transfer-layout", "bytes"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        let step = random_move(&plan.mesh, u)?;
        let place = u.choose_index(plan.transfers[transfer].moves.len())?;
        plan.transfers[transfer].moves[place] = step;
        Ok(!is_right(plan, transfer))
    }),
    ("moves in another order", &["move", "transfer-layout", "bytes"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers[transfer].moves.reverse();
        Ok(!is_right(plan, transfer))
    }),
    ("a move more", &["count"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers[transfer].moves.push(Move::AllReduce { axes: vec![AxisId(0)] });
        Ok(true)
    }),
    ("a move along an axis that the mesh lacks", &["reference"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers[transfer].moves[0] = Move::AllReduce { axes: vec![AxisId(4)] };
        Ok(true)
    }),
    ("a transfer to another layout", &["transfer-layout"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        let Transfer { value, layout, .. } = &plan.transfers[transfer];
        let Some(layout) = other_layout(plan, *value, layout, u)? else { return Ok(false) };
        plan.transfers[transfer].layout = layout;
        Ok(true)
    }),
    ("a transfer to a layout out of form", &["layout-form"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        plan.transfers[transfer].layout.dims.push(vec![]);
        Ok(true)
    }),
    ("other bytes", &["bytes"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        let bytes = &mut plan.transfers[transfer].bytes;
        let place = u.choose_index(bytes.len())?;
        bytes[place] = *u.choose(&[bytes[place] + 1, bytes[place] * 2 + 4])?;
        Ok(true)
    }),
    ("another value is returned", &["output"], |plan, u| {
        let Some(transfer) = transfer(plan, u)? else { return Ok(false) };
        let output = u.choose_index(plan.outputs.len())?;
        plan.outputs[output] = Copy::Transferred(transfer);
        Ok(plan.graph.outputs[output].value != plan.transfers[transfer].value)
    }),
    ("a sum owed is returned", &["output"], |plan, _| {
        let owes = |output: &planner_ir::Output| !plan.layouts[output.value.0].owed.is_empty();
        let Some(output) = plan.graph.outputs.iter().position(owes) else { return Ok(false) };
        plan.outputs[output] = Copy::Made;
        Ok(true)
    }),
    ("a copy that there is not is returned", &["reference"], |plan, _| {
        plan.outputs[0] = Copy::Transferred(plan.transfers.len());
        Ok(true)
    }),
    ("a term of another time", &["estimate"], |plan, u| {
        if plan.estimate.is_empty() {
            return Ok(false);
        }
        let term = u.choose_index(plan.estimate.len())?;
        plan.estimate[term].seconds *= 1.0 + 1e-6;
        Ok(plan.estimate[term].seconds > plan.seconds() * 0.01)
    }),
    ("a term too few", &["estimate"], |plan, _| {
        let term = plan.estimate.pop();
        Ok(term.is_some_and(|term| term.seconds > 0.0))
    }),
    ("a term of no time there is", &["seconds"], |plan, _| {
        let Some(term) = plan.estimate.first_mut() else { return Ok(false) };
        term.seconds = f64::NAN;
        Ok(true)
    }),
    ("other memory", &["memory"], |plan, u| {
        // What comes and goes is for the programs to say.
        let at_rest = ["weights", "masters", "optimizer", "gradients", "inputs"];
        let mut held: Vec<_> =
            plan.memory.iter_mut().filter(|it| at_rest.contains(&it.kind.as_str())).collect();
        let holding = u.choose_index(held.len())?;
        let bytes = &mut held[holding].bytes;
        *bytes = if u.arbitrary()? { bytes.wrapping_sub(1) } else { *bytes + 1 };
        Ok(true)
    }),
    ("a kind of memory too few", &["memory"], |plan, _| Ok(plan.memory.remove(0).bytes > 0)),
    ("a kind of memory twice", &["memory"], |plan, _| {
        plan.memory.push(plan.memory[0].clone());
        Ok(true)
    }),
    ("another kind of memory", &["memory"], |plan, _| {
        plan.memory.push(crate::Holding { kind: "luggage".to_owned(), bytes: 0 });
        Ok(true)
    }),
    ("less capacity", &["capacity"], |plan, _| {
        let total: u64 = plan.memory.iter().map(|it| it.bytes).sum();
        plan.capacity = total.wrapping_sub(1);
        Ok(total > 0)
    }),
    ("a lower bound above the time", &["proof"], |plan, u| {
        let lower_bound = *u.choose(&[plan.seconds() * 1.01 + 1e-9, f64::NAN, -1.0])?;
        plan.proof = Proof::Gap { lower_bound };
        Ok(true)
    }),
    ("another hash", &["model"], |plan, _| {
        plan.model.sha256 = "ABC".to_owned();
        Ok(true)
    }),
    ("dimensions out of order", &["model"], |plan, _| {
        plan.model.dims.reverse();
        Ok(true)
    }),
];

fn computed(plan: &Plan, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
    let is = |it: &usize| plan.assignments[*it] != Assignment::Prepared;
    let all: Vec<usize> = (0..plan.assignments.len()).filter(is).collect();
    if all.is_empty() { Ok(None) } else { u.choose(&all).map(|&it| Some(it)) }
}

fn results(plan: &Plan, u: &mut Unstructured<'_>) -> Result<Option<ValueId>> {
    let all: Vec<ValueId> = plan.graph.nodes.iter().flat_map(|node| node.results.clone()).collect();
    if all.is_empty() { Ok(None) } else { u.choose(&all).map(|&it| Some(it)) }
}

fn transfer(plan: &Plan, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
    if plan.transfers.is_empty() { Ok(None) } else { u.choose_index(plan.transfers.len()).map(Some) }
}

fn operand_and_transfer(plan: &Plan, u: &mut Unstructured<'_>) -> Result<Option<(usize, usize, usize)>> {
    let (Some(node), Some(transfer)) = (computed(plan, u)?, transfer(plan, u)?) else { return Ok(None) };
    let count = plan.graph.nodes[node].operands.len();
    Ok(if count == 0 { None } else { Some((node, u.choose_index(count)?, transfer)) })
}

fn operands(plan: &mut Plan, node: usize) -> &mut Vec<Copy> {
    let Assignment::Computed { operands, .. } = &mut plan.assignments[node] else { panic!("prepared") };
    operands
}

fn partition(plan: &mut Plan, node: usize) -> &mut Partition {
    let Assignment::Computed { partition, .. } = &mut plan.assignments[node] else { panic!("prepared") };
    partition
}

/// Another layout that suits the value, with other elements or sums owed.
fn other_layout(
    plan: &Plan,
    value: ValueId,
    layout: &Layout,
    u: &mut Unstructured<'_>,
) -> Result<Option<Layout>> {
    let type_: &Type = plan.graph.type_of(value);
    let mut other = Layout::replicated(type_.rank());
    for axis in plan.mesh.axis_ids() {
        match u.int_in_range(0..=2)? {
            0 if type_.rank() > 0 => {
                other.dims[u.choose_index(type_.rank())?].push(Digit::axis(&plan.mesh, axis));
            }
            1 => other.owed.push(axis),
            _ => {}
        }
    }
    let other = other.canonical();
    let right = other.check(&plan.mesh, type_).is_ok();
    Ok((right && !equal(&plan.mesh, &type_.shape, layout, &other)).then_some(other))
}

/// Another partition of an operation, with other layouts of an operand or a result.
fn other_partition(plan: &Plan, node: usize, u: &mut Unstructured<'_>) -> Result<Option<Partition>> {
    let it = &plan.graph.nodes[node];
    let (operands, results) = (plan.graph.types_of(&it.operands), plan.graph.types_of(&it.results));
    let loops = it.op.loops(&operands, &results);
    let all = crate::samples::partitions(&plan.mesh, &loops);
    let other: &Partition = u.choose(&all)?;
    let Assignment::Computed { partition, .. } = &plan.assignments[node] else { return Ok(None) };
    let differs = |type_: &Type, a: Layout, b: Layout| !equal(&plan.mesh, &type_.shape, &a, &b);
    let operand = |(index, type_): (usize, &Type)| {
        differs(type_, partition.operand(&loops, index), other.operand(&loops, index))
    };
    let result = |(index, type_): (usize, &Type)| {
        differs(type_, partition.result(&loops, index), other.result(&loops, index))
    };
    let differs = operands.iter().enumerate().any(operand) || results.iter().enumerate().any(result);
    Ok(differs.then(|| other.clone()))
}

/// Whether moves may lead from layout to layout and receive those bytes, by the moves' own
/// arithmetic: blocks that a permutation leaves where they are can be numbered in many ways.
fn is_right(plan: &Plan, transfer: usize) -> bool {
    let Transfer { value, from, moves, layout, bytes, .. } = &plan.transfers[transfer];
    let skewed = |layout: &Layout| {
        layout.dims.iter().flatten().any(|digit| !digit.is_free() && digit.plain().is_none())
    };
    if skewed(layout) || skewed(plan.layout(*value, *from)) {
        return true;
    }
    let type_ = plan.graph.type_of(*value);
    let mut held = plan.layout(*value, *from).clone();
    for (step, &bytes) in moves.iter().zip(bytes) {
        // Blocks that are where they are to be are not moved, by whatever digits.
        if let Move::Permute { dims } = step {
            let there = Layout { dims: dims.clone(), ..held.clone() };
            if bytes == 0 && equal(&plan.mesh, &type_.shape, &held, &there) {
                held = there;
                continue;
            }
        }
        let Ok(after) = step.apply(&plan.mesh, type_, &held) else { return false };
        if step.bytes(&plan.mesh, type_, &held, &after) != bytes {
            return false;
        }
        held = after;
    }
    equal(&plan.mesh, &type_.shape, &held, layout)
}

fn random_move(mesh: &Mesh, u: &mut Unstructured<'_>) -> Result<Move> {
    let axis = AxisId(u.choose_index(mesh.axes.len())?);
    let (dim, other) = (u.int_in_range(0..=2)?, u.int_in_range(0..=2)?);
    let digits = vec![Digit::axis(mesh, axis)];
    Ok(match u.int_in_range(0..=4)? {
        0 => Move::Slice { dim, digits },
        1 => Move::AllGather { dim, digits: u.int_in_range(0..=3)? },
        2 => Move::AllReduce { axes: vec![axis] },
        3 => Move::ReduceScatter { dim, digits },
        _ => Move::AllToAll { from: dim, to: other, digits },
    })
}
