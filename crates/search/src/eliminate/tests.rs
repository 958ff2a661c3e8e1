//! Elimination against exhaustive search.

use std::collections::BTreeSet;

use planner_ir::advance;

use super::*;
use crate::exhaustive;
use crate::problem::real_size;
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
            if !advance(&mut choices, &domains) {
                break;
            }
        }
        let mut at = vec![0; kept.len()];
        for (entry, &least) in reduced.table.iter().enumerate() {
            assert!(close(least, truth[entry]), "seed {seed}");
            let choices = reduced.recover(&at);
            assert!(kept.iter().zip(&at).all(|(&node, &choice)| choices[node] == choice));
            assert!(close(least, problem.time(&choices)), "seed {seed}");
            advance(&mut at, &kept_domains);
        }
    }
}

#[test]
fn an_order_takes_the_work_that_it_says_and_is_known_to_take_more_than_there_may_be() {
    let (mut within, mut beyond) = (0, 0);
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let domains: Vec<usize> = (0..dice.between(3, 80)).map(|_| dice.between(1, 6)).collect();
        let shape = sparse(&mut dice, &domains);
        let kept: Vec<usize> = (0..domains.len()).filter(|_| dice.below(9) == 0).collect();
        let order = shape.order(&kept);

        let size = |nodes: &BTreeSet<usize>| nodes.iter().map(|&at| real_size(domains[at])).product::<f64>();
        let mut joined = vec![BTreeSet::new(); domains.len()];
        for [from, to] in shape.joins() {
            joined[from].insert(to);
            joined[to].insert(from);
        }
        let first = size(&kept.iter().copied().collect());
        let (mut entries, mut work) = (first, first);
        for &node in &order.nodes {
            let neighbours = std::mem::take(&mut joined[node]);
            entries = size(&neighbours).max(entries);
            work += size(&neighbours) * real_size(domains[node]);
            for &at in &neighbours {
                joined[at].extend(neighbours.iter().filter(|&&other| other != at));
                joined[at].remove(&node);
            }
        }
        let mut all: Vec<usize> = order.nodes.iter().chain(&kept).copied().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..domains.len()), "seed {seed}");
        assert_eq!((order.entries, order.work), (entries, work), "seed {seed}");

        for most in [order.work, order.work * 0.99, order.work * 0.25] {
            let known = shape.work(&kept, most, &order::Greed::ALL);
            if order.work <= most {
                within += 1;
                assert_eq!(known.to_bits(), order.work.to_bits(), "seed {seed}");
            } else {
                beyond += 1;
                assert!(known > most, "seed {seed}: {known} and {most}");
            }
        }
    }
    assert!(within >= 200 && beyond > 200, "{within} {beyond}");
}

#[test]
fn where_nothing_is_chosen_nothing_is_joined() {
    let mut dice = Dice(1);
    for nodes in [1, 5, 30] {
        let problem = random(&mut dice, &vec![1; nodes], 8);
        let kept: Vec<usize> = (0..nodes).filter(|at| at % 4 == 0).collect();
        let order = order(&problem, &kept);
        assert_eq!((order.nodes.len() + kept.len(), order.entries), (nodes, 1.0));
        let reduced = reduce(&Objective::time(&problem), &order).unwrap();
        assert_eq!((reduced.table.len(), reduced.steps()), (1, 0));
        assert!(close(reduced.table[0], problem.time(&vec![0; nodes])));
        assert_eq!(reduced.recover(&vec![0; kept.len()]), vec![0; nodes]);
    }
}

#[test]
fn what_has_no_choice_is_in_no_table_with_others() {
    for seed in 0..50 {
        let mut dice = Dice(seed);
        let domains: Vec<usize> =
            (0..40).map(|at| if at % 8 == 0 { dice.between(1, 4) } else { 1 }).collect();
        let problem = random(&mut dice, &domains, 80);
        let reduced = reduce(&Objective::time(&problem), &order(&problem, &[])).unwrap();
        let scopes = reduced.buckets.iter().flat_map(|bucket| bucket.factors.iter().map(|it| &it.scope));
        let is_alone = |scope: &Vec<usize>| scope.len() == 1 || scope.iter().all(|&at| domains[at] > 1);
        assert!(scopes.clone().all(is_alone), "seed {seed}: {:?}", scopes.collect::<Vec<_>>());
        let choices = reduced.recover(&[]);
        assert!(close(reduced.table[0], problem.time(&choices)), "seed {seed}");
    }
}

#[test]
fn of_the_orders_within_limits_that_of_least_work_is_taken() {
    let (mut none, mut other) = (0, 0);
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let domains: Vec<usize> = (0..dice.between(6, 14)).map(|_| dice.between(1, 5)).collect();
        let problem = random(&mut dice, &domains, 3);
        let kept: Vec<usize> = (0..domains.len()).filter(|_| dice.below(5) == 0).collect();
        let shape = order::Shape::of(&problem);
        let all = order::Greed::ALL.map(|greed| shape.greedy(&kept, greed, f64::INFINITY));
        let limit = &all[dice.between(0, 2)];
        let less = [1.0, 0.999][dice.between(0, 1)];
        let limits =
            Limits { entries: limit.entries * less, work: [limit.work, f64::INFINITY][dice.between(0, 1)] };
        let within = all.iter().filter(|it| limits.hold(it));
        let expected = within.min_by(|a, b| a.work.total_cmp(&b.work));
        none += usize::from(expected.is_none());
        other += usize::from(expected.is_some_and(|it| it.work > order(&problem, &kept).work));
        assert_eq!(order_within(&problem, &kept, limits).as_ref(), expected, "seed {seed}");
    }
    assert!(none > 20 && none < 380 && other > 0, "{none} {other}");
}

#[test]
fn each_next_node_is_the_best_by_its_order() {
    let mut ended = 0;
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let most = if seed % 4 == 0 { 1 << 30 } else { 6 };
        let domains: Vec<usize> = (0..dice.between(3, 60)).map(|_| dice.between(1, most)).collect();
        let shape = sparse(&mut dice, &domains);
        let kept: Vec<usize> = (0..domains.len()).filter(|_| dice.below(9) == 0).collect();
        for greed in order::Greed::ALL {
            let mut joined = vec![BTreeSet::new(); domains.len()];
            for [from, to] in shape.joins() {
                joined[from].insert(to);
                joined[to].insert(from);
            }
            let mut left: BTreeSet<usize> = (0..domains.len()).filter(|at| !kept.contains(at)).collect();
            let order = shape.greedy(&kept, greed, f64::INFINITY);
            let is_hopeless = order.is_hopeless();
            ended += usize::from(is_hopeless);
            for node in order.nodes {
                let score = |at: usize| {
                    let sizes = || joined[at].iter().map(|&other| real_size(domains[other]));
                    let weight = sizes().product::<f64>();
                    let growth = weight / (sizes().sum::<f64>() * real_size(domains[at])).max(1.0);
                    let missing =
                        |a: &&usize| joined[at].iter().filter(|b| !joined[**a].contains(b)).count() - 1;
                    let fill = joined[at].iter().map(|a| missing(&a)).sum::<usize>() / 2;
                    match greed {
                        order::Greed::Weight => (weight, growth),
                        order::Greed::Fill => (real_size(fill), weight),
                        order::Greed::Growth => (growth, weight),
                    }
                };
                let less = |a: (f64, f64), b: (f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
                let best = left.iter().min_by(|&&a, &&b| less(score(a), score(b)).then(a.cmp(&b)));
                assert_eq!(best, Some(&node), "seed {seed}, {greed:?}");
                left.remove(&node);
                let neighbours = std::mem::take(&mut joined[node]);
                for &at in &neighbours {
                    joined[at].extend(neighbours.iter().filter(|&&other| other != at));
                    joined[at].remove(&node);
                }
            }
            assert!(left.is_empty() || is_hopeless, "seed {seed}, {greed:?}");
        }
    }
    assert!(ended > 0 && ended < 200, "{ended}");
}

/// Nodes in a row, each joined to some of those after it.
fn sparse(dice: &mut Dice, domains: &[usize]) -> order::Shape {
    let mut edges = Vec::new();
    for from in 0..domains.len() - 1 {
        for _ in 0..dice.between(1, 3) {
            edges.push([from, dice.between(from + 1, (from + 9).min(domains.len() - 1))]);
        }
    }
    order::Shape { domains: domains.to_vec(), edges, classes_of: vec![None; domains.len()] }
}

/// A problem whose nodes are seen as few classes through each table.
fn of_few_classes(dice: &mut Dice, domains: &[usize]) -> Problem {
    let mut problem = random(dice, domains, 6);
    for edge in &mut problem.edges {
        let of = [edge.from, edge.to].map(|node| -> Vec<usize> {
            let classes = dice.between(1, domains[node].div_ceil(2));
            (0..domains[node]).map(|_| dice.index(classes)).collect()
        });
        let table = &problem.tables[edge.table];
        let entries = of[0].iter().flat_map(|&row| of[1].iter().map(move |&column| table.at(row, column)));
        let table = Table { columns: table.columns, entries: entries.collect() };
        edge.table = problem.tables.len();
        problem.tables.push(table.into());
    }
    problem
}

#[test]
fn nodes_of_classes_change_nothing_but_the_work() {
    let mut added = 0;
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let domains: Vec<usize> = (0..dice.between(4, 8)).map(|_| dice.between(2, 7)).collect();
        let problem = of_few_classes(&mut dice, &domains);
        let kept: Vec<usize> = (0..domains.len()).filter(|_| dice.below(4) == 0).collect();
        let plain = reduce(&Objective::time(&problem), &order(&problem, &kept)).unwrap();
        let (split, with) = classes::lessened(problem.clone(), &kept, 0.0);
        assert!(with.work <= order(&problem, &kept).work);
        added += split.times.len() - problem.times.len();
        let reduced = reduce(&Objective::time(&split), &with).unwrap();
        let mut at = vec![0; kept.len()];
        for (&ours, &truth) in reduced.table.iter().zip(&plain.table) {
            assert!(close(ours, truth), "seed {seed}");
            if truth < f64::INFINITY {
                let choices = reduced.recover(&at);
                assert!(close(problem.time(&choices[..domains.len()]), truth), "seed {seed}");
            }
            advance(&mut at, &kept.iter().map(|&node| domains[node]).collect::<Vec<_>>());
        }
    }
    assert!(added > 100, "{added}");
}

/// A node with very many edges has very many pairs of them, each of which takes an order of all nodes to look at.
#[test]
fn what_is_looked_at_for_nodes_of_classes_grows_no_faster_than_the_problem() {
    let looked = |leaves: usize| {
        let mut problem = of_few_classes(&mut Dice(3), &[12, 12]);
        problem.times.resize(leaves + 1, vec![0.0; 12]);
        problem.edges = (1..=leaves).map(|to| Edge { from: 0, to, table: 0 }).collect();
        let shape = order::Shape::of(&problem);
        let order = shape.order(&[]);
        classes::looks(&shape, &order) * (shape.domains.len() + shape.edges.len())
    };
    let [few, many] = [2_000, 16_000].map(looked);
    assert!(many <= 8 * few + 100_000, "{few} {many}");
}

/// Of many nodes that are all joined no order makes tables that can be filled: it is not looked for to the end.
#[test]
fn an_order_ends_where_a_table_is_far_too_large() {
    for (nodes, steps) in [(20, 20), (400, 1)] {
        let mut problem = Problem { times: vec![vec![0.0; 8]; nodes], ..Problem::default() };
        problem.tables.push(Table { columns: 8, entries: vec![0.0; 64] }.into());
        let pairs = (0..nodes).flat_map(|from| (from + 1..nodes).map(move |to| [from, to]));
        problem.edges = pairs.map(|[from, to]| Edge { from, to, table: 0 }).collect();
        let order = order(&problem, &[]);
        assert_eq!(order.nodes.len(), steps);
        assert!(order.entries > MOST_ENTRIES);
        assert!(matches!(reduce(&Objective::time(&problem), &order), Err(SearchError::TooWide { .. })));
    }
}

/// Queries and keys are turned by the same angles, and used together: without classes, the copies of
/// the angles join the many ways to turn the ones to those to turn the others.
#[test]
fn what_two_operations_share_does_not_join_all_their_choices() {
    let [cosines, sines, queries, keys, use_, input] = [0, 1, 2, 3, 4, 5];
    let domains = [16, 16, 200, 200, 60, 40];
    let mut dice = Dice(3);
    let mut problem = Problem { times: domains.map(|it| vec![0.0; it]).to_vec(), ..Problem::default() };
    for (from, to) in [(queries, use_), (keys, use_), (queries, input), (keys, input)] {
        let entries = (0..domains[from] * domains[to]).map(|_| dice.time(5)).collect();
        problem.edges.push(Edge { from, to, table: problem.tables.len() });
        problem.tables.push(Table { columns: domains[to], entries }.into());
    }
    for (from, to) in [(queries, cosines), (queries, sines), (keys, cosines), (keys, sines)] {
        let moved = |row: usize| (0..16).map(move |held| if row % 8 == held { 0.0 } else { 1.0 });
        problem.edges.push(Edge { from, to, table: problem.tables.len() });
        problem.tables.push(Table { columns: 16, entries: (0..200).flat_map(moved).collect() }.into());
    }
    let plain = order(&problem, &[]);
    let (split, with) = classes::lessened(problem.clone(), &[], 0.0);
    assert!(4.0 * with.work < plain.work, "{} {}", with.work, plain.work);
    let least = |problem: &Problem, order: &Order| reduce(&Objective::time(problem), order).unwrap().table[0];
    assert!(close(least(&split, &with), least(&problem, &plain)));
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
        problem.tables.push(Table { columns: domains[to], entries }.into());
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
    problem.tables.push(Table { columns: 10, entries: (0..100u32).map(f64::from).collect() }.into());
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
        tables: vec![Table { columns: 2, entries: vec![0.0, 1.25, 0.0, 1.0] }.into()],
        ..Problem::default()
    };
    assert_eq!(prune(&problem, &[1]).choices, vec![vec![1], vec![0, 1]]);
}
