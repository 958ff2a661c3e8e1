//! Bounded search against exhaustive search.

use super::*;
use crate::chain::tests::random_chain;
use crate::exhaustive;
use crate::problem::tests::{Dice, close, random, small_domains};

/// What a run over many random problems met.
#[derive(Debug, Default)]
struct Tally {
    /// Proven optimal.
    optimal: usize,
    /// With a gap.
    gap: usize,
    /// Where the bound on memory costs time.
    priced: usize,
    /// Proven not to fit.
    refused: usize,
    /// Not found.
    unproven: usize,
}

/// Holds an answer against the truth about the same problem.
fn hold(ours: Answer, problem: &Problem, capacity: u64, tally: &mut Tally, name: &str) {
    let truth = exhaustive::solve(problem, capacity);
    let (choices, time, proof) = match ours {
        Ok(ours) => ours,
        Err(refusal) => {
            match least(&refusal) {
                Some(least_found) => {
                    let truth = least(&truth.unwrap_err()).unwrap();
                    assert!(capacity < least_found && least_found <= truth, "{name}: {refusal}");
                    tally.refused += 1;
                }
                None if refusal == SearchError::Contradiction => assert_eq!(truth, Err(refusal)),
                None => tally.unproven += 1,
            }
            return;
        }
    };

    assert!(close(time, problem.time(&choices)), "{name}");
    assert!(problem.peak(&choices) <= capacity, "{name}");
    let truth = truth.unwrap();
    let free = exhaustive::solve(problem, u64::MAX).unwrap();
    tally.priced += usize::from(!close(free.time, truth.time));
    match proof {
        Proof::Optimal => {
            assert!(close(time, truth.time), "{name}: {time} {truth:?}");
            tally.optimal += 1;
        }
        Proof::Gap { lower_bound } => {
            assert!(lower_bound <= truth.time, "{name}: {lower_bound} {truth:?}");
            assert!(truth.time <= time + 1e-9, "{name}: {time} {truth:?}");
            tally.gap += 1;
        }
    }
}

/// What a refusal that is a proof says is needed.
fn least(refusal: &SearchError) -> Option<u64> {
    match refusal {
        SearchError::DoesNotFit { least, .. } | SearchError::DoesNotFitTogether { least, .. } => Some(*least),
        _ => None,
    }
}

/// Capacities from just below to well above what any assignment of a problem takes.
fn capacities(problem: &Problem) -> Vec<u64> {
    let needed = exhaustive::solve(problem, 0).err().and_then(|refusal| least(&refusal));
    let least = needed.unwrap_or(0);
    let below = least.saturating_sub(1);
    vec![below, least, least + 5, least + 15, least + 30, 2 * least + 10, 1 << 40]
}

#[test]
fn answers_are_optimal_on_small_problems_and_refusals_right() {
    let mut tally = Tally::default();
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 6);
        for capacity in capacities(&problem) {
            let ours = solve(&problem, capacity).map(|at| (at.choices, at.time, at.proof));
            hold(ours, &problem, capacity, &mut tally, &format!("seed {seed} of {capacity} bytes"));
        }
    }
    assert!(tally.optimal > 500 && tally.priced > 300 && tally.refused > 100, "{tally:?}");
    assert_eq!((tally.gap, tally.unproven), (0, 0));
}

#[test]
fn bounds_hold_without_an_integer_program() {
    let mut tally = Tally::default();
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let chain = Chain::from(random(&mut dice, &domains, 6));
        let flat = chain.flat();
        for capacity in capacities(&flat.problem) {
            let ours = search(&chain, &flat, capacity).and_then(Search::answer);
            let name = format!("seed {seed} of {capacity} bytes");
            hold(ours, &flat.problem, capacity, &mut tally, &name);
        }
    }
    assert!(tally.optimal > 300 && tally.priced > 300 && tally.gap > 50, "{tally:?}");
    assert!(tally.refused > 100 && tally.unproven < 10, "{tally:?}");
}

#[test]
fn chains_are_optimal_when_small_and_refusals_right() {
    let mut tally = Tally::default();
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let flat = chain.flat();
        for capacity in capacities(&flat.problem) {
            let ours = solve_chain(&chain, capacity).map(|found| {
                assert!(close(found.time, chain.time(&found.choices)));
                assert!(chain.usage(&found.choices).peak() <= capacity);
                (flat.fold(&found.choices), found.time, found.proof)
            });
            let name = format!("seed {seed} of {capacity} bytes");
            hold(ours, &flat.problem, capacity, &mut tally, &name);
        }
    }
    assert!(tally.optimal > 500 && tally.priced > 100 && tally.refused > 100, "{tally:?}");
    assert_eq!((tally.gap, tally.unproven), (0, 0));
}

#[test]
fn bounds_of_chains_hold_without_an_integer_program() {
    let mut tally = Tally::default();
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let flat = chain.flat();
        for capacity in capacities(&flat.problem) {
            let ours = search(&chain, &flat, capacity).and_then(Search::answer);
            let name = format!("seed {seed} of {capacity} bytes");
            hold(ours, &flat.problem, capacity, &mut tally, &name);
        }
    }
    assert!(tally.optimal > 900 && tally.priced > 300 && tally.gap > 50, "{tally:?}");
    assert!(tally.refused > 150 && tally.unproven < 40, "{tally:?}");
}
