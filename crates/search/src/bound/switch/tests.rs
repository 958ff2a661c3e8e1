//! Parts of assignments, and what is packed of them.

use super::*;
use crate::problem::Held;
use crate::problem::tests::{Dice, close, random, small_domains};

#[test]
fn parts_change_the_time_by_as_much_whatever_is_done_about_the_others() {
    let mut several = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 50);
        let (own, other) = (dice.choices(&domains), dice.choices(&domains));
        if problem.time(&own) == f64::INFINITY || problem.time(&other) == f64::INFINITY {
            continue;
        }
        let state = State::new(&problem, u64::MAX >> 1, own.clone());
        let parts = parts(&problem, &state, &other);
        let picked: Vec<&Part> = parts.iter().filter(|_| dice.below(2) == 0).collect();
        let mut choices = own.clone();
        for &(node, choice) in picked.iter().flat_map(|part| &part.nodes) {
            choices[node] = choice;
        }
        let expected = problem.time(&own) - picked.iter().map(|part| part.gain).sum::<f64>();
        assert!(close(problem.time(&choices), expected), "seed {seed}: {expected}");
        let differ = own.iter().zip(&other).filter(|(a, b)| a != b).count();
        assert_eq!(parts.iter().map(|it| it.nodes.len()).sum::<usize>(), differ, "seed {seed}");
        several += usize::from(!picked.is_empty() && picked.len() < parts.len());
    }
    assert!(several > 50, "{several}");
}

#[test]
fn what_is_packed_fits_and_never_takes_more_time() {
    let mut better = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 50);
        let own = dice.choices(&domains);
        let others: Vec<Vec<usize>> = (0..3).map(|_| dice.choices(&domains)).collect();
        let is_allowed = |choices: &Vec<usize>| problem.time(choices) < f64::INFINITY;
        if !is_allowed(&own) || !others.iter().all(is_allowed) {
            continue;
        }
        let capacity = problem.peak(&own) + dice.below(20);
        let found = improved(&problem, capacity, &own, &others);
        assert!(problem.peak(&found) <= capacity, "seed {seed}");
        assert!(problem.time(&found) <= problem.time(&own) + 1e-9, "seed {seed}");
        better += usize::from(problem.time(&found) < problem.time(&own));
    }
    assert!(better > 50, "{better}");
}

/// Of three nodes that gain by the choice of the other assignment there is room for one; another one gains more
/// than the first loses that is switched back for it.
#[test]
fn what_loses_little_makes_room_for_what_gains_more() {
    let bytes = vec![vec![0, 10], vec![0, 9]];
    let resident = vec![Held { node: 0, bytes: 0 }, Held { node: 1, bytes: 1 }];
    let times = vec![vec![5.0, 1.0], vec![3.0, 0.0]];
    let problem = Problem { times, bytes, resident, ..Problem::default() };
    assert_eq!(improved(&problem, 10, &[0, 1], &[vec![1, 0]]), [1, 0]);
    assert_eq!(improved(&problem, 9, &[0, 1], &[vec![1, 0]]), [0, 1]);
    assert_eq!(improved(&problem, 19, &[0, 1], &[vec![1, 0]]), [1, 1]);
}
