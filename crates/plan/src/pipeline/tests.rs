//! Tests of what the parts of a step take.

use planner_ir::Phase;

use crate::plan::exact;
use crate::samples::steps::{Ways, step};
use crate::{Assignment, Copy, Hidden, Plan, shared};

/// Lets the copies of gradients that the update reads take the places of those.
fn carry_what_is_read(plan: &mut Plan) -> usize {
    let mut count = 0;
    for (index, carried) in plan.graph.training.clone().unwrap().carried.into_iter().enumerate() {
        for (node, assignment) in plan.graph.nodes.iter().zip(&plan.assignments) {
            let Assignment::Computed { operands, .. } = assignment else { continue };
            let place = node.operands.iter().position(|&it| it == carried.next);
            if let Some(copy @ Copy::Transferred(_)) = place.map(|it| operands[it])
                && node.phase == Phase::Update
            {
                plan.carried[index] = copy;
                count += 1;
            }
        }
    }
    count
}

/// What takes the place of a gradient is made for every micro-batch, though the update reads it first.
#[test]
fn phases_take_as_long_as_all_operations_and_transfers() {
    let data = Ways { data: Some("a"), ..Ways::NONE };
    let moments = Ways { moments: Some("a"), ..data };
    let gradients = Ways { gradients: Some("a"), ..moments };
    let mut read = 0;
    for ways in [Ways::NONE, data, moments, gradients, Ways { parameters: Some("a"), ..gradients }] {
        let mut plan = step("a=2", ways, 3);
        plan.hidden = Hidden::default();
        read += carry_what_is_read(&mut plan);
        let seconds = |number: usize| f64::from(u32::try_from(number).unwrap()) + 1.0;
        for (number, transfer) in plan.transfers.iter_mut().enumerate() {
            transfer.seconds = shared(100.0 * seconds(number), &transfer.bytes);
        }
        for (number, it) in plan.assignments.iter_mut().enumerate() {
            if let Assignment::Computed { seconds: own, .. } = it {
                *own = seconds(number);
            }
        }
        let transfers = plan.transfers.iter().zip(plan.runs()).map(|(it, runs)| exact(runs) * it.takes());
        let operations = plan.graph.node_ids().zip(&plan.assignments).map(|(node, it)| match it {
            Assignment::Computed { seconds, .. } => exact(plan.graph.runs(node)) * seconds,
            Assignment::Prepared => 0.0,
        });
        let all: f64 = transfers.chain(operations).sum();
        let (times, update) = plan.phases(false);
        let found = 3.0 * (times.forward + times.backward + times.weight) + update;
        assert!((found - all).abs() < 1e-6, "{ways:?}: {found} {all}");
    }
    assert!(read > 3, "{read}");
}
