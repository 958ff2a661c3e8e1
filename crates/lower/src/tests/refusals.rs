//! Plans that have no programs.

use expect_test::{Expect, expect};
use plan::{Assignment, Copy, Plan};
use planner_ir::{AxisId, Digit, Mesh, Move, Source, State, StateKind, ValueId};

use super::regression::{Parallel, Regression};
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
fn partitions_that_an_operation_cannot_have_are_refused() {
    let steps = changed(|plan| match &mut plan.assignments[0] {
        Assignment::Computed { partition, .. } => partition.steps = 2,
        Assignment::Prepared => {}
    });
    check(&steps, &expect!["`node0` cannot be partitioned so: 2 steps do not suit the digits"]);
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

/// The plan of a training step, changed.
fn changed_step(parallel: Parallel, change: impl FnOnce(&mut Plan)) -> Plan {
    let mut plan = Regression::new(parallel, 4, 3).sketch().plan;
    change(&mut plan);
    plan
}

/// Which value a state is.
fn state(plan: &Plan, kind: StateKind, name: &str) -> ValueId {
    let source = Source::State(State { kind, name: name.to_owned() });
    plan.graph.value_ids().find(|&value| plan.graph.value(value).source == source).unwrap()
}

#[test]
fn what_cannot_take_a_states_place_is_refused() {
    let few = changed_step(Parallel::Data, |plan| plan.carried.truncate(9));
    check(&few, &expect!["plan has 9 carried copies, expected 10"]);
    // The part that a device computes instead of the whole, and a transfer that there is not.
    for copy in [Copy::Made, Copy::Transferred(99)] {
        let other = changed_step(Parallel::Zero1, |plan| {
            let up = state(plan, StateKind::Parameter, "up");
            let carried = &plan.graph.training.as_ref().unwrap().carried;
            let place = carried.iter().position(|it| it.state == up).unwrap();
            plan.carried[place] = copy;
        });
        check(&other, &expect!["what `up` becomes is in another layout, expected the one of the state"]);
    }
    let without = changed_step(Parallel::Data, |plan| {
        plan.graph.training = None;
        plan.carried.clear();
    });
    check(&without, &expect!["`up` is prepared but depends on what is computed at every step"]);
}

#[test]
fn an_input_of_micro_batches_is_not_one_of_the_step() {
    let both = changed_step(Parallel::Data, |plan| {
        let is = |name: &str| Source::Input(name.to_owned());
        let of =
            |name: &str| plan.graph.value_ids().find(|&it| plan.graph.value(it).source == is(name)).unwrap();
        let (rate, scale) = (of("rate"), plan.graph.nodes[6].operands[0]);
        // The update's rate is the addend of a micro-batch too.
        assert_eq!(plan.graph.type_of(rate), plan.graph.type_of(scale));
        plan.graph.nodes[8].operands[1] = rate;
    });
    check(
        &both,
        &expect!["input `rate` is used by micro-batches and by the update, expected by one of them"],
    );
}
