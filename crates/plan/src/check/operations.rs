//! Rules of values and operations.

use planner_ir::{AxisId, Digit, Layout, LoopId, Loops, Mesh, Node, Partition, Role, Source, ValueId};

use super::blocks::{Cover, Factor, agree, all_held, canonical, coordinate, cover, same, share};
use super::routed::Routed;
use super::steps::{Rest, Timetable};
use super::{Violations, operation_name, owed_text};
use crate::plan::{Assignment, Copy, Plan};

/// How many time steps a partition has at most, over all devices: each is looked at.
const MAX_STEPS: u64 = 1 << 22;

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    values(plan, found);
    for (node, assignment) in plan.assignments.iter().enumerate() {
        match assignment {
            Assignment::Prepared => prepared(plan, node, found),
            Assignment::Computed { partition, operands, bytes, .. } => {
                let computed = Computed::new(plan, node, partition);
                if computed.is_one(found) {
                    match partition.steps {
                        1 if !partition.routed.is_empty() => computed.routed(operands, bytes, found),
                        1 => computed.at_once(operands, found),
                        _ => computed.in_time(operands, bytes, found),
                    }
                }
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

/// An operation that is computed when a step is run.
struct Computed<'a> {
    plan: &'a Plan,
    node: &'a Node,
    place: String,
    loops: Loops,
    partition: &'a Partition,
}

impl<'a> Computed<'a> {
    fn new(plan: &'a Plan, node: usize, partition: &'a Partition) -> Self {
        let place = operation_name(plan, node);
        let node = &plan.graph.nodes[node];
        let types = [&node.operands, &node.results].map(|values| plan.graph.types_of(values));
        Self { plan, node, place, loops: node.op.loops(&types[0], &types[1]), partition }
    }

    /// Whether the partition is one of the operation.
    fn is_one(&self, found: &mut Violations) -> bool {
        let (steps, devices) = (self.partition.steps, self.plan.mesh.devices());
        if steps.checked_mul(devices).is_none_or(|all| all > MAX_STEPS) {
            let most = MAX_STEPS / devices;
            found.add("partition", &self.place, format_args!("{steps} steps, expected {most} at most"));
            return false;
        }
        match self.partition.check(&self.plan.mesh, &self.loops) {
            Ok(()) => true,
            Err(error) => {
                found.add("partition", &self.place, error);
                false
            }
        }
    }

    /// Each operand with its copy, where that is one of it.
    fn copies(&self, operands: &[Copy], found: &mut Violations) -> Vec<(usize, ValueId, &'a Layout)> {
        let mut right = Vec::new();
        for (index, (&operand, &copy)) in self.node.operands.iter().zip(operands).enumerate() {
            if let Some(other) = copied(self.plan, copy).filter(|&it| it != operand) {
                let message = format!("reads a copy of %{}, expected one of %{}", other.0, operand.0);
                found.add("operand-copy", self.operand(index), message);
                continue;
            }
            right.push((index, operand, self.plan.layout(operand, copy)));
        }
        right
    }

    fn operand(&self, index: usize) -> String {
        format!("{}, operand {index}", self.place)
    }

    fn result(&self, index: usize) -> String {
        format!("{}, result {index}", self.place)
    }

    /// The rules of a partition of one step.
    fn at_once(&self, operands: &[Copy], found: &mut Violations) {
        let Self { plan, partition, loops, .. } = self;
        let mesh = &plan.mesh;
        // What is added to a sum once owes what the operation leaves owed in it.
        let mut left: Vec<Vec<AxisId>> = vec![Vec::new(); self.node.results.len()];
        for (index, &result) in self.node.results.iter().enumerate() {
            let what = self.result(index);
            let layout = &plan.layouts[result.0];
            let dims = dims(partition, loops, &loops.results[index]);
            blocks(plan, ("result-layout", &what), result, layout, &dims, found);
            match sum_left(mesh, partition, loops, index, &layout.owed) {
                Ok(axes) => left[index] = axes,
                Err(message) => found.add("result-owed", what, message),
            }
        }
        for (index, operand, layout) in self.copies(operands, found) {
            let what = self.operand(index);
            let dims = dims(partition, loops, &loops.operands[index]);
            blocks(plan, ("operand-layout", &what), operand, layout, &dims, found);
            let mut owed: Vec<AxisId> = Vec::new();
            if loops.linear.get(partition.through).is_some_and(|set| set.contains(&index)) {
                owed.extend(&partition.passed);
            }
            owed.extend(added_to(loops, index, &left));
            owed.sort_unstable();
            operand_owed(mesh, &what, &layout.owed, &owed, found);
        }
    }

    /// The rules of a partition whose rows are routed.
    fn routed(&self, operands: &[Copy], bytes: &[u64], found: &mut Violations) {
        let Self { plan, partition, loops, .. } = self;
        let mesh = &plan.mesh;
        let Some(routed) = Routed::of(mesh, partition, loops) else {
            let message = "routes rows over other axes than those that split the parts they use, each once, or by sets of \
                           devices that are no part of these";
            found.add("partition", &self.place, message);
            return;
        };
        let is_at_rest = |(rule, what): (&'static str, &str),
                          (value, layout, dims): (ValueId, &Layout, &[Vec<LoopId>]),
                          claimed: u64,
                          found: &mut Violations| {
            blocks(plan, (rule, what), value, layout, &routed.at_rest(dims), found);
            let expected = routed.received(dims, plan.graph.type_of(value));
            // Shares are rounded at every part that a row uses.
            if claimed.abs_diff(expected) > 2 * mesh.devices() * (1 + routed.used) {
                let message = format!("{claimed} bytes are received, expected {expected}");
                found.add("bytes", what, message);
            }
        };
        let mut left: Vec<Vec<AxisId>> = vec![Vec::new(); self.node.results.len()];
        for (index, &result) in self.node.results.iter().enumerate() {
            let (what, layout, dims) = (self.result(index), &plan.layouts[result.0], &loops.results[index]);
            let claimed = bytes[self.node.operands.len() + index];
            is_at_rest(("result-layout", &what), (result, layout, dims), claimed, found);
            let added = routed.added(dims);
            let twice = added.iter().any(|axis| layout.owed.contains(axis));
            let mut all: Vec<AxisId> = layout.owed.iter().chain(added).copied().collect();
            all.sort_unstable();
            match sum_left(mesh, partition, loops, index, &all) {
                _ if twice => {
                    let message = format!("owes sums over {}, which are made", owed_text(mesh, added));
                    found.add("result-owed", what, message);
                }
                Ok(axes) => left[index] = axes,
                Err(message) => found.add("result-owed", what, message),
            }
        }
        for (index, operand, layout) in self.copies(operands, found) {
            let what = self.operand(index);
            let value = (operand, layout, &loops.operands[index][..]);
            is_at_rest(("operand-layout", &what), value, bytes[index], found);
            operand_owed(mesh, &what, &layout.owed, added_to(loops, index, &left), found);
        }
    }

    /// The rules of a partition of several steps.
    fn in_time(&self, operands: &[Copy], bytes: &[u64], found: &mut Violations) {
        let mesh = &self.plan.mesh;
        let summed = |it: &LoopId| self.loops.loops[it.0].role == Role::Sum;
        let in_parts = |it: LoopId| summed(&it) && !self.partition.loops[it.0].iter().all(all_held);
        let again = !self.loops.added.is_empty() && self.loops.ids().any(in_parts);
        if !self.partition.passed.is_empty() || again {
            let message = "passes sums, or adds something to each addend of one, at several steps";
            found.add("partition", &self.place, message);
            return;
        }
        let timetable = Timetable::new(mesh, &self.loops, self.partition);
        for (index, &result) in self.node.results.iter().enumerate() {
            let (what, layout) = (self.result(index), &self.plan.layouts[result.0]);
            match timetable.result(index, &layout.owed) {
                Ok(rest) => {
                    self.at_rest(("result-layout", &what), result, layout, &rest, found);
                    let claimed = bytes[self.node.operands.len() + index];
                    self.received(&what, result, &rest, claimed, found);
                }
                Err(message) => found.add("result-owed", what, message),
            }
        }
        for (index, operand, layout) in self.copies(operands, found) {
            let what = self.operand(index);
            operand_owed(mesh, &what, &layout.owed, &[], found);
            match timetable.operand(index) {
                Ok(rest) => {
                    self.at_rest(("operand-layout", &what), operand, layout, &rest, found);
                    self.received(&what, operand, &rest, bytes[index], found);
                }
                Err(message) => found.add("operand-layout", what, message),
            }
        }
    }

    /// Whether devices hold exactly what they work on, at rest.
    fn at_rest(
        &self,
        (rule, place): (&'static str, &str),
        value: ValueId,
        layout: &Layout,
        rest: &Rest,
        found: &mut Violations,
    ) {
        let (mesh, type_) = (&self.plan.mesh, self.plan.graph.type_of(value));
        // Where a layout has no form, that is said elsewhere.
        if layout.check(mesh, type_).is_err() {
            return;
        }
        let held = |coordinates: &[u64]| -> Vec<Vec<Factor>> {
            let dims = layout.dims.iter().zip(&type_.shape);
            dims.map(|(digits, &extent)| share(digits, extent, coordinates)).collect()
        };
        // A dimension that no loop indexes is all there at every step.
        let at_rest = |shares: &Vec<Vec<Factor>>| -> Vec<Vec<Factor>> {
            let dims = shares.iter().zip(&type_.shape);
            dims.map(|(it, &extent)| if it.is_empty() { share(&[], extent, &[]) } else { it.clone() })
                .collect()
        };
        let other = (0..mesh.devices()).zip(&rest.shares);
        let mut other = other.filter(|(device, shares)| held(&mesh.coordinates(*device)) != at_rest(shares));
        if let Some((device, _)) = other.next() {
            let partition = self.partition.display(mesh);
            let message = format!(
                "held as {}, expected what device {device} has at rest in `{partition}`",
                layout.display(mesh)
            );
            found.add(rule, place, message);
        }
    }

    /// Whether all that is received during the steps is what the plan says.
    fn received(&self, place: &str, value: ValueId, rest: &Rest, claimed: u64, found: &mut Violations) {
        let type_ = self.plan.graph.type_of(value);
        let elements: u128 = type_.shape.iter().map(|&extent| u128::from(extent)).product();
        let dtype = if rest.sums { type_.dtype.accumulated() } else { type_.dtype };
        let expected = elements / rest.blocks * u128::from(dtype.bytes()) * u128::from(rest.received);
        if u128::from(claimed) != expected {
            let message = format!("{claimed} bytes are received during the steps, expected {expected}");
            found.add("bytes", place, message);
        }
    }
}

/// The axes over which the operation leaves sums owed in what an operand is added to; none if it is to nothing.
fn added_to<'a>(loops: &Loops, operand: usize, left: &'a [Vec<AxisId>]) -> &'a [AxisId] {
    let to = loops.added.iter().find(|it| it.0 == operand);
    to.map_or(&[], |it| &left[it.1])
}

fn operand_owed(mesh: &Mesh, place: &str, owed: &[AxisId], expected: &[AxisId], found: &mut Violations) {
    if owed != expected {
        let (owed, expected) = (owed_text(mesh, owed), owed_text(mesh, expected));
        found.add("operand-owed", place, format_args!("owes sums over {owed}, expected over {expected}"));
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
