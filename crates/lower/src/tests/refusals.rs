//! Plans that have no programs.

use expect_test::{Expect, expect};
use plan::{Assignment, Copy, Plan};
use planner_ir::{AxisId, Digit, Mesh, Move};

use super::{f32, two_layers};
use crate::lower;
use crate::tests::sketch::Sketch;

fn check(plan: &Plan, expected: &Expect) {
    expected.assert_eq(&lower(plan).unwrap_err().to_string());
}

/// The plan of two layers, changed.
fn changed(change: impl FnOnce(&mut Plan)) -> Plan {
    let mut plan = two_layers(2).plan;
    change(&mut plan);
    plan
}

#[test]
fn plans_that_do_not_fit_their_graph_are_refused() {
    check(&changed(|plan| drop(plan.layouts.pop())), &expect!["plan has 5 layouts, expected 6"]);
    check(&changed(|plan| plan.outputs.clear()), &expect!["plan has 0 outputs, expected 1"]);
    let copies = changed(|plan| match &mut plan.assignments[0] {
        Assignment::Computed { operands, .. } => drop(operands.pop()),
        Assignment::Prepared => {}
    });
    check(&copies, &expect!["plan has 1 copies, expected 2"]);
}

#[test]
fn layouts_of_another_partition_are_refused() {
    check(
        &changed(|plan| plan.layouts[1].dims.swap(0, 1)),
        &expect!["`node0`: the plan's layout of operand 1 is not the one of its partition"],
    );
    let result = changed(|plan| plan.layouts[3].dims.swap(0, 1));
    check(&result, &expect!["`node0`: the plan's layout of result 0 is not the one of its partition"]);
}

#[test]
fn what_depends_on_inputs_is_not_prepared() {
    check(
        &changed(|plan| plan.assignments[0] = Assignment::Prepared),
        &expect!["`node0` is prepared but depends on what is computed at every step"],
    );
}

#[test]
fn operations_in_time_steps_are_refused() {
    let steps = changed(|plan| match &mut plan.assignments[0] {
        Assignment::Computed { partition, .. } => partition.steps = 2,
        Assignment::Prepared => {}
    });
    check(&steps, &expect!["`node0` is computed in 2 time steps, expected 1"]);
}

#[test]
fn transfers_that_lead_elsewhere_are_refused() {
    check(
        &changed(|plan| plan.transfers[0].moves.clear()),
        &expect!["the moves of transfer 0 do not lead to its layout"],
    );
    check(
        &changed(|plan| plan.transfers[0].from = Copy::Transferred(0)),
        &expect!["transfer 0 is not one of that value from an earlier copy"],
    );
    let gather = Move::AllGather { dim: 0, digits: 1 };
    check(
        &changed(|plan| plan.transfers[0].moves = vec![gather]),
        &expect!["move 0 of transfer 0 cannot be made: dimension 0 lacks the digits that go"],
    );
    check(
        &changed(|plan| plan.outputs[0] = Copy::Made),
        &expect!["a sum of `y` is owed, expected a copy that owes none"],
    );
    check(
        &changed(|plan| plan.outputs[0] = Copy::Transferred(7)),
        &expect!["transfer 7 is not one of that value from an earlier copy"],
    );
}

#[test]
fn unequal_blocks_within_a_dimension_are_refused() {
    let mesh = Mesh::of_sizes(&[4]);
    let mut sketch = Sketch::new(&mesh);
    let a = Digit::axis(&mesh, AxisId(0));
    let x = sketch.input("x", f32(&[8]), vec![vec![a.clone()]]);
    let stripes = vec![Digit::free(2), a];
    let mut moves = vec![Move::AllToAll { from: 0, to: 0, digits: stripes.clone() }].into_iter();
    sketch.output("y", x, vec![stripes], &mut |_, _, _, _| moves.next());
    check(
        &sketch.plan,
        &expect!["move 0 of transfer 0 exchanges unequal blocks within a dimension, expected equal ones"],
    );
}
