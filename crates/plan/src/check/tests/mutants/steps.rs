//! Mutants of plans with partitions in time.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{AxisId, Mesh, Partition};

use super::super::elements::equal;
use super::Mutant;
use crate::{Assignment, Plan, bytes_of_steps};

pub(super) const STEPS: &[Mutant] = &[
    ("other bytes during steps", &["bytes"], |plan, u| {
        let Some(node) = timed(plan, u)? else { return Ok(false) };
        let bytes = bytes(plan, node);
        let place = u.choose_index(bytes.len())?;
        bytes[place] = *u.choose(&[bytes[place] + 1, bytes[place] * 2 + 4])?;
        Ok(true)
    }),
    ("nothing is received during steps", &["bytes"], |plan, u| {
        let Some(node) = timed(plan, u)? else { return Ok(false) };
        let bytes = bytes(plan, node);
        let received = bytes.iter().any(|&it| it > 0);
        bytes.fill(0);
        Ok(received)
    }),
    ("longer on links than it takes", &["seconds"], |plan, u| {
        let Some(node) = timed(plan, u)? else { return Ok(false) };
        if let Assignment::Computed { seconds, exchanged, .. } = &mut plan.assignments[node] {
            exchanged.links = *u.choose(&[*seconds * 2.0 + 1e-6, f64::NAN, -1.0])?;
        }
        Ok(true)
    }),
    ("on links with nothing that moves", &["seconds"], |plan, _| {
        for assignment in &mut plan.assignments {
            if let Assignment::Computed { partition, seconds, exchanged, .. } = assignment
                && !partition.moves()
                && *seconds > 0.0
            {
                exchanged.links = *seconds / 2.0;
                return Ok(true);
            }
        }
        Ok(false)
    }),
    ("bytes of what is received too few", &["count"], |plan, u| {
        let Some(node) = timed(plan, u)? else { return Ok(false) };
        Ok(bytes(plan, node).pop().is_some())
    }),
    ("bytes of steps that there are not", &["count"], |plan, _| {
        for assignment in &mut plan.assignments {
            if let Assignment::Computed { partition, bytes, .. } = assignment
                && partition.steps == 1
            {
                bytes.push(0);
                return Ok(true);
            }
        }
        Ok(false)
    }),
    ("blocks that come later", LAYOUTS, |plan, u| {
        changed(plan, u, |partition, u| {
            let digits: Vec<_> =
                partition.loops.iter_mut().flatten().filter(|digit| digit.step != 0).collect();
            let place = u.choose_index(digits.len())?;
            digits.into_iter().nth(place).into_iter().for_each(|digit| digit.offset += 1);
            Ok(())
        })
    }),
    ("blocks that come the other way round", LAYOUTS, |plan, u| {
        changed(plan, u, |partition, u| {
            let digits: Vec<_> =
                partition.loops.iter_mut().flatten().filter(|digit| digit.step != 0).collect();
            let place = u.choose_index(digits.len())?;
            digits.into_iter().nth(place).into_iter().for_each(|digit| digit.step = -digit.step);
            Ok(())
        })
    }),
    ("blocks of other devices", LAYOUTS, |plan, u| {
        let axis = AxisId(u.choose_index(plan.mesh.axes.len())?);
        let size = plan.mesh.size(axis);
        changed(plan, u, |partition, u| {
            let digits: Vec<_> =
                partition.loops.iter_mut().flatten().filter(|digit| digit.size == size).collect();
            if digits.is_empty() {
                return Ok(());
            }
            let place = u.choose_index(digits.len())?;
            for digit in digits.into_iter().skip(place).take(1) {
                match digit.terms.iter().position(|term| term.0 == axis) {
                    Some(term) => drop(digit.terms.remove(term)),
                    None => digit.terms.push((axis, 1)),
                }
                digit.terms.sort_unstable();
            }
            Ok(())
        })
    }),
    ("streams over other axes", LAYOUTS, |plan, u| {
        let axis = AxisId(u.choose_index(plan.mesh.axes.len())?);
        changed(plan, u, |partition, _| {
            partition.streams = if partition.streams == [axis] { vec![] } else { vec![axis] };
            Ok(())
        })
    }),
];

/// What finds blocks that are where they should not be.
const LAYOUTS: &[&str] = &["partition", "operand-layout", "result-layout", "result-owed", "bytes"];

/// An operation of several steps.
fn timed(plan: &Plan, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
    let is = |it: &usize| matches!(&plan.assignments[*it], Assignment::Computed { partition, .. } if partition.steps > 1);
    let all: Vec<usize> = (0..plan.assignments.len()).filter(is).collect();
    if all.is_empty() { Ok(None) } else { u.choose(&all).map(|&it| Some(it)) }
}

fn bytes(plan: &mut Plan, node: usize) -> &mut Vec<u64> {
    let Assignment::Computed { bytes, .. } = &mut plan.assignments[node] else { panic!("prepared") };
    bytes
}

/// Changes a partition of several steps; whether it is none then, or other blocks are at rest or
/// received, or other sums owed.
fn changed(
    plan: &mut Plan,
    u: &mut Unstructured<'_>,
    change: impl Fn(&mut Partition, &mut Unstructured<'_>) -> Result<()>,
) -> Result<bool> {
    let Some(node) = timed(plan, u)? else { return Ok(false) };
    let it = &plan.graph.nodes[node];
    let (operands, results) = (plan.graph.types_of(&it.operands), plan.graph.types_of(&it.results));
    let loops = it.op.loops(&operands, &results);
    let Assignment::Computed { partition, bytes, .. } = &mut plan.assignments[node] else { return Ok(false) };
    let before = partition.clone();
    change(partition, u)?;
    if partition.check(&plan.mesh, &loops).is_err() {
        return Ok(true);
    }
    let moved = bytes_of_steps(&plan.mesh, &loops, (&operands, &results), partition);
    let differs = |of: &dyn Fn(&Partition) -> planner_ir::Layout, shape: &[u64]| {
        let (old, new) = (of(&before), of(partition));
        let right = new.check(&plan.mesh, &planner_ir::Type::new(planner_ir::DType::F32, shape)).is_ok();
        !right || !equal(&plan.mesh, shape, &old, &new)
    };
    let operand = |(index, type_): (usize, &planner_ir::Type)| {
        differs(&|partition| partition.operand(&loops, index), &type_.shape)
    };
    // Sums over other axes are the same where the same addends are summed over the old ones.
    let result = |(index, type_): (usize, &planner_ir::Type)| {
        let owed = before.result(&loops, index).owed;
        let same = addends(&plan.mesh, &before, &owed) == addends(&plan.mesh, partition, &owed);
        let of = |it: &Partition| {
            let layout = it.result(&loops, index);
            if same { planner_ir::Layout { owed: owed.clone(), ..layout } } else { layout }
        };
        differs(&of, &type_.shape)
    };
    let other = operands.iter().enumerate().any(operand) || results.iter().enumerate().any(result);
    Ok(other || moved != *bytes)
}

/// What the devices that differ along axes work on together, for each device: the blocks of all
/// loops at all steps, in order.
fn addends(mesh: &Mesh, partition: &Partition, axes: &[AxisId]) -> Vec<Vec<Vec<u64>>> {
    let at = |device: u64, step: u64| -> Vec<u64> {
        let coordinates = mesh.coordinates(device);
        partition.loops.iter().flatten().map(|digit| digit.at(&coordinates, step)).collect()
    };
    let together = |device: u64| {
        let group = mesh.group(device, axes);
        let mut all: Vec<Vec<u64>> =
            (0..partition.steps).flat_map(|step| group.iter().map(move |&it| at(it, step))).collect();
        all.sort_unstable();
        all
    };
    (0..mesh.devices()).map(together).collect()
}
