//! Elimination against exhaustive search.

use super::*;
use crate::exhaustive;
use crate::problem::tests::{Dice, close, random, small_domains};

#[test]
fn the_least_time_is_that_of_exhaustive_search() {
    let mut forbidden = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let odds = dice.between(1, 8) as u64;
        let problem = random(&mut dice, &domains, odds);
        match (solve(&problem), exhaustive::solve(&problem, u64::MAX)) {
            (Ok(ours), Ok(truth)) => {
                assert!(close(ours.time, truth.time), "seed {seed}: {ours:?} {truth:?}");
                assert!(close(ours.time, problem.time(&ours.choices)));
            }
            (ours, truth) => {
                forbidden += 1;
                assert_eq!(ours, truth, "seed {seed}");
            }
        }
    }
    assert!(forbidden > 5 && forbidden < 390, "{forbidden}");
}

#[test]
fn every_entry_of_a_reduced_table_is_the_least_over_the_other_nodes() {
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 6);
        let mut kept: Vec<usize> = (0..domains.len()).filter(|_| dice.below(3) == 0).collect();
        kept.reverse();
        let reduced = reduce(&Objective::time(&problem), &order(&problem, &kept)).unwrap();

        let kept_domains: Vec<usize> = kept.iter().map(|&node| domains[node]).collect();
        let mut truth = vec![f64::INFINITY; kept_domains.iter().product()];
        let mut choices = vec![0; domains.len()];
        loop {
            let entry = kept.iter().fold(0, |entry, &node| entry * domains[node] + choices[node]);
            truth[entry] = problem.time(&choices).min(truth[entry]);
            if !exhaustive::advance(&mut choices, &domains) {
                break;
            }
        }
        let mut at = vec![0; kept.len()];
        for (entry, &least) in reduced.table.iter().enumerate() {
            assert!(close(least, truth[entry]), "seed {seed}");
            let choices = reduced.recover(&at);
            assert!(kept.iter().zip(&at).all(|(&node, &choice)| choices[node] == choice));
            assert!(close(least, problem.time(&choices)), "seed {seed}");
            exhaustive::advance(&mut at, &kept_domains);
        }
    }
}

#[test]
fn wide_rows_and_threads_change_nothing() {
    let mut dice = Dice(7);
    let domains = [130, 1, 129, 131];
    let mut problem = random(&mut dice, &domains, 3);
    problem.edges.clear();
    problem.tables.clear();
    for (from, to) in [(0, 2), (2, 3), (3, 0), (1, 2)] {
        let entries = (0..domains[from] * domains[to]).map(|_| dice.time(5)).collect();
        problem.tables.push(Table { columns: domains[to], entries });
        problem.edges.push(Edge { from, to, table: problem.tables.len() - 1 });
    }
    let truth = exhaustive::solve(&problem, u64::MAX).unwrap();
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let kept = order(&problem, &[0]);
        pool.install(|| {
            let reduced = reduce(&Objective::time(&problem), &kept).unwrap();
            let best = (0..130).min_by(|&a, &b| reduced.table[a].total_cmp(&reduced.table[b]));
            (reduced.recover(&[best.unwrap()]), reduced.table)
        })
    };
    assert!(close(problem.time(&on(1).0), truth.time));
    assert_eq!(on(1), on(3));
}

#[test]
fn pruning_drops_choices_and_keeps_the_best_under_every_bound() {
    let mut dropped = 0;
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 8);
        let pruned = prune(&problem, &[0]);
        assert_eq!(pruned.choices[0].len(), domains[0]);
        dropped += domains.iter().sum::<usize>() - pruned.choices.iter().map(Vec::len).sum::<usize>();
        for capacity in [40, 70, 100, 150, u64::MAX] {
            let whole = exhaustive::solve(&problem, capacity);
            let small = exhaustive::solve(&pruned.problem, capacity);
            match (whole, small) {
                (Ok(whole), Ok(small)) => {
                    assert!(close(whole.time, small.time), "seed {seed}");
                    let choices = pruned.restore(&small.choices);
                    assert!(close(problem.time(&choices), small.time));
                    assert_eq!(problem.memory(&choices), pruned.problem.memory(&small.choices));
                }
                (whole, small) => assert_eq!(whole.unwrap_err(), small.unwrap_err()),
            }
        }
    }
    assert!(dropped > 100, "{dropped}");
}

#[test]
fn a_problem_that_is_too_wide_is_refused() {
    let nodes = 12;
    let mut problem = Problem { times: vec![vec![0.0; 10]; nodes], ..Problem::default() };
    problem.tables.push(Table { columns: 10, entries: (0..100u32).map(f64::from).collect() });
    for from in 0..nodes {
        problem.edges.extend((0..from).map(|to| Edge { from, to, table: 0 }));
    }
    // Needless choices are not dropped here, as they are in `solve`.
    let refusal = reduce(&Objective::time(&problem), &order(&problem, &[])).unwrap_err();
    assert_eq!(refusal, SearchError::TooWide { entries: 1e11, limit: MOST_ENTRIES });
}

#[test]
fn a_choice_that_is_worse_for_some_choice_of_a_neighbour_does_not_dominate() {
    let problem = Problem {
        times: vec![vec![0.0, 0.0], vec![0.0, 0.0]],
        edges: vec![Edge { from: 0, to: 1, table: 0 }],
        tables: vec![Table { columns: 2, entries: vec![0.0, 1.25, 0.0, 1.0] }],
        ..Problem::default()
    };
    assert_eq!(prune(&problem, &[1]).choices, vec![vec![1], vec![0, 1]]);
}
