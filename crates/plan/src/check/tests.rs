//! Tests of the checker.

mod elements; // what devices hold, element by element
mod mutants; // plans made wrong in one place
mod pipelines; // pipelines made wrong in one place
mod routed; // rows that are routed
mod steps; // partitions in time, by counting and by their digits
mod training; // what is said of training steps

use std::collections::BTreeSet;

use arbtest::arbitrary::Unstructured;
use arbtest::arbtest;
use expect_test::expect;

use super::{RULES, check};
use crate::{Assignment, Copy, Plan, Proof, samples};
use mutants::mutants;

#[test]
fn right_plans_are_accepted() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        assert_eq!(check(&plan), Ok(()), "{}", crate::json::write(&plan));
        Ok(())
    })
    .budget_ms(1_000);
}

/// How often each mutant is made, and of how many plans at most.
const OFTEN: u64 = 10;
const MOST_PLANS: u64 = 20_000;

/// Bytes that a plan is drawn from: the generator splitmix64.
fn drawn(seed: u64) -> Vec<u8> {
    const LENGTH: u64 = 1 << 11;
    let number = |at: u64| {
        let z = (seed * LENGTH + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    };
    (0..LENGTH).flat_map(number).collect()
}

#[test]
fn every_mutant_is_found_by_its_rule() {
    let mutants = mutants();
    let mut applied = vec![0; mutants.len()];
    let mut rules = BTreeSet::new();
    let mut test =
        |u: &mut Unstructured<'_>, applied: &mut Vec<u64>| -> Result<(), arbtest::arbitrary::Error> {
            let plan = samples::random(u)?;
            for ((name, expected, mutate), applied) in mutants.iter().zip(applied) {
                let mut mutant = plan.clone();
                if !mutate(&mut mutant, u)? {
                    continue;
                }
                *applied += 1;
                let Err(violations) = check(&mutant) else {
                    panic!("{name} is not found:\n{}", crate::json::write(&mutant));
                };
                let found: Vec<&str> = violations.0.iter().map(|it| it.rule).collect();
                assert!(
                    expected.iter().any(|rule| found.contains(rule)),
                    "{name} is found by {found:?}, expected {expected:?}\n{violations}"
                );
                rules.extend(found);
            }
            Ok(())
        };
    for seed in 0..MOST_PLANS {
        // What does not fit into the bytes is another plan's turn.
        let _ = test(&mut Unstructured::new(&drawn(seed)), &mut applied);
        if applied.iter().all(|it| *it >= OFTEN) {
            break;
        }
    }
    for ((name, ..), applied) in mutants.iter().zip(applied) {
        assert!(applied > 0, "{name} was never made");
    }
    assert_eq!(rules, BTreeSet::from(RULES));
}

#[test]
fn violations_name_place_found_and_expected() {
    let right = samples::small();
    let shown = |change: &dyn Fn(&mut Plan)| {
        let mut plan = right.clone();
        change(&mut plan);
        check(&plan).unwrap_err().to_string()
    };
    expect!["mesh: 4 devices, expected the 8 of the machine [devices]"]
        .assert_eq(&shown(&|plan| plan.machine.devices = 8));
    expect![[r#"
        operation 1 (`/up/MatMul`): is prepared from %0, expected weights and constants [prepared]
        operation 3 (`/down/MatMul`), result 0: held as [-,data.model], expected [-,data] [result-layout]
        operation 3 (`/down/MatMul`), result 0: owes sums of its own over no axis, expected over `model` [result-owed]
        output `y`: a copy of %0, expected %7 [output]
        transfer 1 of %3: nothing reads the copy: it is not made [transfer-read]
        transfer 1 of %3: move 0 (all-gather) of 256 bytes, expected 512 [bytes]
        transfer 1 of %3: move 1 (all-to-all): gains digits of other axes than it loses [move]
        transfer 5 of %6: move 0 (reduce-scatter): adds up a sum that is not owed [move]
        transfer 7 of %7: nothing reads the copy: it is not made [transfer-read]
        estimate: terms add up to 0.001680937 seconds, expected 0.001642629333333333 [estimate]
        proof: a lower bound of 1 seconds, expected from 0 to 0.001642629333333333 [proof]
        memory: `weights` of 384 bytes, expected 256 [memory]
        memory: holds 832 bytes, expected 10 at most [capacity]"#]].assert_eq(&shown(&|plan| {
        plan.capacity = 10;
        plan.transfers[5].bytes[0] += 4;
        plan.transfers[1].moves.reverse();
        plan.assignments[1] = Assignment::Prepared;
        plan.outputs[0] = Copy::Transferred(0);
        plan.layouts[6] = plan.layouts[7].clone();
        plan.proof = Proof::Gap { lower_bound: 1.0 };
    }));
}
