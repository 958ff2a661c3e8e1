//! The integer program against exhaustive search.

use super::*;
use crate::exhaustive;
use crate::problem::tests::{Dice, close, random, small_domains};

#[test]
fn the_program_agrees_with_exhaustive_search_on_solutions_and_refusals() {
    let (mut solved, mut bound, mut refused) = (0, 0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 6);
        for capacity in [u64::MAX >> 20, 150, 110, 80, 50, 0] {
            match (solve(&problem, capacity), exhaustive::solve(&problem, capacity)) {
                (Ok(ours), Ok(truth)) => {
                    assert!(close(ours.time, truth.time), "seed {seed}: {ours:?} {truth:?}");
                    assert!(close(ours.time, problem.time(&ours.choices)));
                    assert!(problem.peak(&ours.choices) <= capacity);
                    solved += 1;
                    let free = exhaustive::solve(&problem, u64::MAX).unwrap();
                    bound += usize::from(!close(free.time, truth.time));
                }
                (Err(ours), Err(truth)) => {
                    assert_eq!(least(&ours), least(&truth), "seed {seed} {capacity}");
                    refused += 1;
                }
                (ours, truth) => panic!("seed {seed} {capacity}: {ours:?} {truth:?}"),
            }
        }
    }
    assert!(solved > 50 && bound > 20 && refused > 50, "{solved} {bound} {refused}");
}

fn least(refusal: &SearchError) -> Option<u64> {
    match refusal {
        SearchError::DoesNotFit { least, .. } | SearchError::DoesNotFitTogether { least, .. } => Some(*least),
        SearchError::Contradiction => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_assignment_that_exceeds_the_memory_by_one_byte_is_not_taken() {
    const TERABYTE: u64 = 1_000_000_000_000;
    let problem = Problem {
        times: vec![vec![1.0, 2.0]],
        bytes: vec![vec![TERABYTE + 1, TERABYTE]],
        resident: vec![Held { node: 0, bytes: 0 }],
        ..Problem::default()
    };
    assert_eq!(solve(&problem, TERABYTE).unwrap().choices, vec![1]);
    assert_eq!(solve(&problem, TERABYTE + 1).unwrap().choices, vec![0]);
}
