//! Tests of which of two plans is taken, and of what is proven of it.

use plan::{Plan, Proof};

use super::{bound, faster, or_of_more};
use crate::rows::tests::of_seconds;

const GAP: Proof = Proof::Gap { lower_bound: 6.0 };

fn plan(seconds: f64, proof: Proof) -> Plan {
    Plan { proof, ..of_seconds(seconds) }
}

/// What a plan takes and what is proven of it (seconds).
fn told(plan: &Plan) -> (f64, f64) {
    (plan.seconds(), bound(plan))
}

#[test]
fn a_faster_plan_among_more_is_taken_with_its_own_proof() {
    assert_eq!(or_of_more(plan(8.0, Proof::Optimal), plan(7.0, Proof::Optimal)), plan(7.0, Proof::Optimal));
    assert_eq!(or_of_more(plan(8.0, Proof::Optimal), plan(7.0, GAP)), plan(7.0, GAP));
}

#[test]
fn a_plan_that_is_kept_has_no_more_proven_than_both_searches_say() {
    // The search among more has proven nothing below what is kept.
    assert_eq!(or_of_more(plan(8.0, Proof::Optimal), plan(8.0, Proof::Optimal)), plan(8.0, Proof::Optimal));
    assert_eq!(told(&or_of_more(plan(8.0, Proof::Optimal), plan(9.0, Proof::Optimal))), (8.0, 8.0));
    // Among more there may be a faster one than it has found.
    assert_eq!(or_of_more(plan(8.0, Proof::Optimal), plan(9.0, GAP)), plan(8.0, GAP));
    assert_eq!(or_of_more(plan(8.0, GAP), plan(9.0, Proof::Optimal)), plan(8.0, GAP));
}

#[test]
fn of_plans_alike_the_first_is_kept_and_of_others_the_faster() {
    assert_eq!(faster(plan(8.0, GAP), plan(8.0, Proof::Optimal)), plan(8.0, GAP));
    assert_eq!(told(&faster(plan(8.0, GAP), plan(7.0, Proof::Optimal))), (7.0, 6.0));
}
