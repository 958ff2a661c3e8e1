//! Bounds and assignments against exhaustive search and elimination.

use planner_ir::advance;

use super::*;
use crate::eliminate;
use crate::problem::tests::{Dice, close, random, small_domains};
use crate::problem::{Edge, Problem, Table};

fn wiring(problem: &Problem) -> Wiring {
    Wiring::new(&problem.domains(), &problem.edges, &problem.tables)
}

/// The least cost for each assignment of what is kept, the last one running fastest.
fn truths(problem: &Problem, kept: &[usize]) -> Vec<f64> {
    let domains = problem.domains();
    let mut truths = vec![f64::INFINITY; kept.iter().map(|&node| domains[node]).product()];
    let mut choices = vec![0; domains.len()];
    loop {
        let place = kept.iter().fold(0, |place, &node| place * domains[node] + choices[node]);
        truths[place] = truths[place].min(problem.time(&choices));
        if !advance(&mut choices, &domains) {
            return truths;
        }
    }
}

/// Each assignment of what is kept.
fn assignments(problem: &Problem, kept: &[usize]) -> Vec<Vec<usize>> {
    let domains: Vec<usize> = kept.iter().map(|&node| problem.times[node].len()).collect();
    let mut all = vec![vec![0; kept.len()]];
    let mut next = vec![0; kept.len()];
    while advance(&mut next, &domains) {
        all.push(next.clone());
    }
    all
}

#[test]
fn bounds_are_never_above_the_least_and_what_is_found_costs_what_it_says() {
    let (mut exact, mut loose, mut forbidden, mut few) = (0, 0, 0, 0);
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let odds = [3, 6, 50][dice.index(3)];
        let problem = random(&mut dice, &domains, odds);
        let kept: Vec<usize> = (0..domains.len()).filter(|_| dice.below(4) == 0).take(2).collect();
        let wiring = wiring(&problem);
        let wide = Wide::new((&wiring, problem.times.clone()), &kept, &[], None);
        let ([table, near], truths) = (wide.tables(), truths(&problem, &kept));
        assert_eq!([table.len(), near.len()], [truths.len(); 2], "seed {seed}");
        let all = table.iter().zip(&near).zip(&truths).zip(assignments(&problem, &kept));
        for (((bound, near), truth), kept_choices) in all {
            assert!(*bound <= truth + 1e-9, "seed {seed}: {bound} {truth}");
            assert!(*near >= truth - 1e-9, "seed {seed}: {near} {truth}");
            if *near < f64::INFINITY {
                let choices = wide.recover(&kept_choices);
                let as_kept = kept.iter().zip(&kept_choices).all(|(&node, &it)| choices[node] == it);
                assert!(as_kept && close(problem.time(&choices), *near), "seed {seed}: {near}");
                few += 1;
            }
            loose += usize::from(bound + 1e-6 < *truth && *truth < f64::INFINITY);
            let interval = wide.solve(&kept_choices);
            assert!(interval.bound <= truth + 1e-9, "seed {seed}: {interval:?} {truth}");
            match &interval.found {
                Some((choices, cost)) => {
                    let as_kept = kept.iter().zip(&kept_choices).all(|(&node, &it)| choices[node] == it);
                    assert!(as_kept && close(problem.time(choices), *cost), "seed {seed}");
                    assert!(*cost >= truth - 1e-9, "seed {seed}");
                    assert!(
                        close(*cost, *truth) && close(interval.bound, *truth),
                        "seed {seed}: {interval:?} {truth}"
                    );
                    exact += 1;
                }
                // What is left of a small problem is always eliminated.
                None => {
                    assert!(*truth == f64::INFINITY && interval.bound == f64::INFINITY, "seed {seed}");
                    forbidden += 1;
                }
            }
        }
    }
    assert!(exact > 600 && loose > 20 && forbidden > 50 && few > 500, "{exact} {loose} {forbidden} {few}");
}

#[test]
fn choices_of_a_best_assignment_are_never_dropped() {
    let (mut dropped, mut kept) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 50);
        let Ok(best) = crate::exhaustive::solve(&problem, u64::MAX) else { continue };
        let wiring = wiring(&problem);
        let network = Network::new(problem.times.clone(), &wiring);
        let mut messages = Messages::new(&network);
        assert!(messages.settle(&network), "seed {seed}");
        (0..dice.between(0, 3)).for_each(|_| messages.sweep(&network));
        let (bound, excess) = messages.bound(&network);
        assert!(messages.spare(&network, (bound, &excess), best.time), "seed {seed}");
        let alive = best.choices.iter().zip(&messages.alive).all(|(&choice, alive)| alive[choice]);
        assert!(alive, "seed {seed}: {:?} of {:?}", best.choices, messages.alive);
        let left = messages.alive.iter().flatten().filter(|it| **it).count();
        (dropped, kept) = (dropped + domains.iter().sum::<usize>() - left, kept + left);
    }
    assert!(dropped > 500 && kept > 1000, "{dropped} {kept}");
}

/// The best assignment as far as messages can tell.
fn solve(problem: &Problem) -> Interval {
    Wide::new((&wiring(problem), problem.times.clone()), &[], &[], None).solve(&[])
}

/// A grid of nodes, each joined to those beside and below.
fn grid(dice: &mut Dice, side: usize, choices: usize) -> Problem {
    let times = (0..side * side).map(|_| (0..choices).map(|_| dice.time(u64::MAX)).collect()).collect();
    let mut problem = Problem { times, ..Problem::default() };
    for node in 0..side * side {
        let beside = (node % side + 1 < side).then_some(node + 1);
        for to in [beside, Some(node + side)].into_iter().flatten().filter(|it| *it < side * side) {
            let entries = (0..choices * choices).map(|_| dice.time(30)).collect();
            problem.edges.push(Edge { from: node, to, table: problem.tables.len() });
            problem.tables.push(Table { columns: choices, entries }.into());
        }
    }
    problem
}

#[test]
fn grids_that_can_be_eliminated_have_the_same_least() {
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let problem = grid(&mut dice, 5, 3);
        let truth = eliminate::solve(&problem).unwrap().time;
        let Interval { bound, found } = solve(&problem);
        let (choices, cost) = found.unwrap();
        assert!(close(cost, truth) && close(bound, truth), "seed {seed}: {bound} {cost} {truth}");
        assert!(close(problem.time(&choices), cost), "seed {seed}");
    }
}

#[test]
fn what_is_too_wide_to_be_eliminated_has_a_bound_and_an_assignment_near_it() {
    for seed in 0..2 {
        let mut dice = Dice(seed);
        let problem = grid(&mut dice, 24, 6);
        assert!(eliminate::order(&problem, &[]).entries > eliminate::MOST_ENTRIES);
        let Interval { bound, found } = solve(&problem);
        let (choices, cost) = found.unwrap();
        assert!(close(problem.time(&choices), cost));
        assert!(bound <= cost && cost - bound < 0.1 * cost, "seed {seed}: {bound} {cost}");
        // The same again, from the same problem.
        assert_eq!(solve(&problem), Interval { bound, found: Some((choices, cost)) });
    }
}
