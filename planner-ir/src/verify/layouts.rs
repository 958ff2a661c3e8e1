//! The layouts around an operation.

use super::Violations;
use crate::data::Type;
use crate::layout::{Digit, Layout, LayoutError, canonical_digits};
use crate::loops::{LoopId, Loops};
use crate::mesh::{AxisId, Mesh};
use crate::op::Op;
use crate::partition::{Partition, PartitionError};

/// The partition with which each device computes its piece of the results from its pieces of the
/// operands, by the operation's kernel alone: if there is one, there is only one.
pub fn verify_layouts(
    mesh: &Mesh,
    op: &Op,
    operand_types: &[Type],
    result_types: &[Type],
    operand_layouts: &[Layout],
    result_layouts: &[Layout],
) -> Result<Partition, Violations> {
    let mut found = Violations(Vec::new());
    let sides = [("operand", operand_types, operand_layouts), ("result", result_types, result_layouts)];
    for (side, types, layouts) in sides {
        if types.len() != layouts.len() {
            found.add(
                "rank",
                op.name(),
                format!("{} {side} layouts, expected {}", layouts.len(), types.len()),
            );
        }
        for (index, (type_, layout)) in types.iter().zip(layouts).enumerate() {
            if let Err(error) = layout.check(mesh, type_) {
                found.add(rule_of(&error), format_args!("{side} {index}"), error.to_string());
            }
        }
    }
    // What follows is said of layouts that are well formed.
    let mut found = found.none_or(Violations(Vec::new()))?;
    let loops = op.loops(operand_types, result_types);
    let mut partition = Partition::replicated(&loops);
    partition.loops = split_loops(mesh, &loops, operand_layouts, result_layouts, &mut found);
    (partition.passed, partition.through) = passed(mesh, &partition, &loops, operand_layouts, &mut found);
    owed_sums(mesh, &partition, &loops, result_layouts, &mut found);
    // What is wrong with the parts is said of them above.
    let partition = found.none_or(partition)?;
    let mut found = Violations(Vec::new());
    if let Err(error) = partition.check(mesh, &loops) {
        let rule = match &error {
            PartitionError::NotOnto => "onto",
            PartitionError::Whole(_) => "whole-loop",
            PartitionError::Strided(_) => "contiguous",
            PartitionError::Passed(_) => "one-use",
            PartitionError::Uneven(..) => "even-split",
            PartitionError::Digits(_) => "axes",
            PartitionError::Sums => "owed-sum",
            PartitionError::Loops(..)
            | PartitionError::Steps(_)
            | PartitionError::Ways
            | PartitionError::Slots
            | PartitionError::Routed
            | PartitionError::RoutedBy(..) => "form",
        };
        found.add(rule, op.name(), error.to_string());
    }
    for (index, layout) in operand_layouts.iter().enumerate() {
        let used = partition.operand(&loops, index);
        if used != *layout {
            expected(mesh, "operand", index, layout, &used, &mut found);
        }
    }
    for (index, layout) in result_layouts.iter().enumerate() {
        let made = partition.result(&loops, index);
        if made != *layout {
            expected(mesh, "result", index, layout, &made, &mut found);
        }
    }
    found.none_or(partition)
}

fn rule_of(error: &LayoutError) -> &'static str {
    match error {
        LayoutError::Rank(..) => "rank",
        LayoutError::Axis(_) | LayoutError::Size(..) => "axes",
        LayoutError::Uneven(..) => "even-split",
        LayoutError::NotOnto => "onto",
        LayoutError::Owed(_) => "one-use",
        LayoutError::NoSums => "sums",
        LayoutError::Temporal => "at-rest",
        LayoutError::Form(_) => "form",
    }
}

fn expected(mesh: &Mesh, side: &str, index: usize, is: &Layout, should: &Layout, found: &mut Violations) {
    let message = format!("is {}, should be {}", is.display(mesh), should.display(mesh));
    found.add("agree", format_args!("{side} {index}"), message);
}

/// The digits of each loop, as the dimensions that it indexes have them.
fn split_loops(
    mesh: &Mesh,
    loops: &Loops,
    operands: &[Layout],
    results: &[Layout],
    found: &mut Violations,
) -> Vec<Vec<Digit>> {
    let mut known: Vec<Option<Vec<Digit>>> = vec![None; loops.loops.len()];
    let sides = [("operand", &loops.operands, operands), ("result", &loops.results, results)];
    for (side, index, layouts) in sides {
        for (number, (dims, layout)) in index.iter().zip(layouts).enumerate() {
            for (dim, (product, digits)) in dims.iter().zip(&layout.dims).enumerate() {
                let place = || format!("{side} {number}, dimension {dim}");
                let Some(parts) = cut(loops, product, digits) else {
                    let message = format!("{} reaches from one loop into another", layout.display(mesh));
                    found.add("nested", place(), message);
                    continue;
                };
                for (&it, digits) in product.iter().zip(parts) {
                    match &known[it.0] {
                        Some(known) if *known != digits => {
                            let shown = |digits: &Vec<Digit>| {
                                let layout = Layout { dims: vec![digits.clone()], owed: vec![] };
                                layout.display(mesh).to_string()
                            };
                            let message =
                                format!("splits a loop {}, should {}", shown(&digits), shown(known));
                            found.add("agree", place(), message);
                        }
                        Some(_) => {}
                        None => known[it.0] = Some(digits),
                    }
                }
            }
        }
    }
    let digits: Vec<Vec<Digit>> = known.into_iter().map(Option::unwrap_or_default).collect();
    for it in loops.ids() {
        let name = format!("loop {}", it.0);
        if !loops.get(it).role.splits_at_once() && !digits[it.0].is_empty() {
            found.add("whole-loop", &name, "is split, should be whole");
        }
        if !loops.tells(it, &digits[it.0]) {
            found.add("contiguous", &name, "has strided blocks, should have contiguous ones");
        }
    }
    digits
}

/// The digits of a dimension, cut into those of each loop whose product indexes it, unless one
/// reaches from one loop into another.
fn cut(loops: &Loops, product: &[LoopId], digits: &[Digit]) -> Option<Vec<Vec<Digit>>> {
    let mut digits = digits.iter().cloned();
    let mut next = digits.next();
    let mut parts = Vec::new();
    for &it in product {
        let mut rest = loops.get(it).size;
        let mut part = Vec::new();
        while rest > 1
            && let Some(digit) = next.take()
        {
            if rest.is_multiple_of(digit.size) {
                rest /= digit.size;
                part.push(digit);
                next = digits.next();
            } else if digit.is_free() && digit.size.is_multiple_of(rest) {
                next = Some(Digit::free(digit.size / rest));
                rest = 1;
            } else {
                return None;
            }
        }
        parts.push(canonical_digits(part));
    }
    Some(parts)
}

/// The axes over which operands owe sums that pass through, and through which set of them.
fn passed(
    mesh: &Mesh,
    partition: &Partition,
    loops: &Loops,
    operands: &[Layout],
    found: &mut Violations,
) -> (Vec<AxisId>, usize) {
    let left = |index: usize| partition.left_in_added(loops, index).unwrap_or_default();
    let passes = |(index, layout): (usize, &Layout)| -> Vec<AxisId> {
        let owed = left(index);
        layout.owed.iter().copied().filter(|axis| !owed.contains(axis)).collect()
    };
    for &(index, _) in &loops.added {
        let (owes, owed) = (&operands[index].owed, left(index));
        if owed.iter().any(|axis| !owes.contains(axis)) {
            let message = format!("owes sums {}, should owe {}", names(mesh, owes), names(mesh, &owed));
            found.add("added-once", format_args!("operand {index}"), message);
        }
    }
    let passes: Vec<Vec<AxisId>> = operands.iter().enumerate().map(passes).collect();
    let mut all: Vec<AxisId> = passes.concat();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return (all, 0);
    }
    let fits = |set: &Vec<usize>| {
        let right = |(index, passes): (usize, &Vec<AxisId>)| {
            if set.contains(&index) { *passes == all } else { passes.is_empty() }
        };
        passes.iter().enumerate().all(right)
    };
    let through = loops.linear.iter().position(fits);
    if through.is_none() {
        for (index, passes) in passes.iter().enumerate().filter(|(_, passes)| !passes.is_empty()) {
            let message = format!("owes sums {}, in which the results are not linear", names(mesh, passes));
            found.add("linear", format_args!("operand {index}"), message);
        }
    }
    (all, through.unwrap_or(0))
}

fn owed_sums(mesh: &Mesh, partition: &Partition, loops: &Loops, results: &[Layout], found: &mut Violations) {
    for (index, layout) in results.iter().enumerate() {
        let should = partition.result(loops, index).owed;
        if layout.owed != should {
            let message =
                format!("owes sums {}, should owe {}", names(mesh, &layout.owed), names(mesh, &should));
            found.add("owed-sum", format_args!("result {index}"), message);
        }
    }
}

fn names(mesh: &Mesh, axes: &[AxisId]) -> String {
    if axes.is_empty() {
        return "none".to_owned();
    }
    axes.iter().map(|axis| mesh.axes[axis.0].name.as_str()).collect::<Vec<_>>().join(", ")
}
