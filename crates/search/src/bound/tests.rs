//! Bounded search against exhaustive search.

use super::*;
use crate::chain::Segment;
use crate::chain::tests::random_chain;
use crate::exhaustive;
use crate::problem::tests::{Dice, close, random, small_domains};
use crate::problem::{Edge, Held, Table};

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

/// A stage of the search that ends in an answer.
type Stage = for<'a> fn(Search<'a>) -> Answer;

/// Holds the answers of a stage against the truth, on problems and on chains.
fn tally(stage: Stage) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 6);
        for chain in [Chain::from(problem), random_chain(&mut dice)] {
            let flat = chain.flat();
            for capacity in capacities(&flat.problem) {
                let relaxation = Relaxation::new(&Arc::new(chain.clone()), Width::Narrow);
                let ours = started(&chain, &flat, &relaxation, capacity).followed().and_then(stage);
                let name = format!("seed {seed} of {capacity} bytes");
                hold(ours, &flat.problem, capacity, &mut tally, &name);
            }
        }
    }
    tally
}

#[test]
fn multipliers_alone_give_bounds_that_hold() {
    let tally = tally(|search| search.answer());
    assert!(tally.optimal > 800 && tally.priced > 500 && tally.gap > 300, "{tally:?}");
    assert!(tally.refused > 200 && tally.unproven < 40, "{tally:?}");
}

#[test]
fn enumeration_closes_small_gaps() {
    let tally = tally(|search| search.tightened()?.answer());
    assert!(tally.optimal > 1500 && tally.priced > 500 && tally.refused > 200, "{tally:?}");
    assert_eq!((tally.gap, tally.unproven), (0, 0));
}

/// A problem that is too large for an integer program, with tight windows.
fn large(seed: u64, nodes: usize, domain: usize) -> Problem {
    let mut dice = Dice(seed);
    let mut problem = Problem::default();
    for _ in 0..4 {
        let entries = (0..domain * domain).map(|_| dice.time(30)).collect();
        problem.tables.push(Table { columns: domain, entries }.into());
    }
    for node in 0..nodes {
        problem.times.push((0..domain).map(|_| dice.time(50)).collect());
        problem.bytes.push((0..domain).map(|_| dice.below(1000)).collect());
        problem.resident.push(Held { node, bytes: node });
        let near = node.saturating_sub(3)..node;
        let held: Vec<Held> = near.map(|node| Held { node, bytes: node }).collect();
        problem.push_window(dice.below(100), &held);
        for (distance, table) in [(1, node % 2), (4, 2 + node % 2)] {
            if let Some(from) = node.checked_sub(distance) {
                problem.edges.push(Edge { from, to: node, table });
            }
        }
    }
    problem
}

#[test]
fn large_problems_have_small_gaps_and_answers_that_do_not_depend_on_threads() {
    let problem = large(1, 60, 8);
    let free = solve(&problem, u64::MAX >> 12).unwrap();
    assert_eq!(free.proof, Proof::Optimal);
    let capacity = problem.peak(&free.choices) * 2 / 3;
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| solve(&problem, capacity).unwrap())
    };
    let found = on(1);
    assert_eq!(found, on(3));
    assert!(problem.peak(&found.choices) <= capacity && found.time > free.time);
    if let Proof::Gap { lower_bound } = found.proof {
        assert!(free.time < lower_bound && found.time - lower_bound < 0.01 * found.time);
    }
}

#[test]
fn long_chains_have_small_gaps_and_answers_that_do_not_depend_on_threads() {
    let problem = large(2, 16, 6);
    let segment = Segment {
        problem,
        entry: vec![0],
        exit: vec![15],
        shared: Vec::new(),
        count: 40,
        variants: Vec::new(),
    };
    let chain = Chain { globals: Vec::new(), segments: vec![segment] };
    let free = solve_chain(&chain, u64::MAX >> 12).unwrap();
    let capacity = chain.usage(&free.choices).peak() * 2 / 3;
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| solve_chain(&chain, capacity).unwrap())
    };
    let found = on(1);
    assert_eq!(found, on(3));
    assert!(chain.usage(&found.choices).peak() <= capacity && found.time > free.time);
    if let Proof::Gap { lower_bound } = found.proof {
        assert!(free.time < lower_bound && found.time - lower_bound < 0.01 * found.time);
    }
}

/// From ample memory to too little, a long chain is minimised a few times for each amount, and more memory never
/// costs more than what is proven of less.
#[test]
fn little_memory_takes_a_few_minima() {
    let problem = large(2, 16, 6);
    let (entry, exit) = (vec![0], vec![15]);
    let segment = Segment { problem, entry, exit, shared: Vec::new(), count: 40, variants: Vec::new() };
    let chain = Arc::new(Chain { globals: Vec::new(), segments: vec![segment] });
    let solver = || Solver::new(&chain, Trail::default(), Width::Narrow);
    let free = solver().solve(u64::MAX >> 12).unwrap();
    let most = chain.usage(&free.choices).peak();
    let (mut minima, mut answered, mut before) = (Vec::new(), 0, f64::INFINITY);
    for part in 1..=10 {
        let mut solver = solver();
        if let Ok(found) = solver.solve(most * part / 10) {
            let bound = match found.proof {
                Proof::Optimal => found.time,
                Proof::Gap { lower_bound } => lower_bound,
            };
            assert!(bound <= before * (1.0 + EXACT), "{part}: {bound} with more memory, {before} with less");
            assert!(found.time - bound < 0.01 * found.time, "{part}: {} and {bound}", found.time);
            (before, answered) = (found.time, answered + 1);
        }
        minima.push(solver.floors.len());
    }
    assert!((4..10).contains(&answered), "{answered}");
    assert!(minima.iter().all(|it| *it <= 9), "{minima:?}");
}

#[test]
fn periodic_choices_cost_what_the_folded_chain_says() {
    let mut repeated = 0;
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let folded = periodic::fold(&chain);
        let flat = folded.flat();
        let choices = flat.unfold(&dice.choices(&flat.problem.domains()));
        let whole = periodic::unfold(&chain, &choices);
        let (ours, truth) = (folded.time(&choices), chain.time(&whole));
        assert!(close(ours, truth), "seed {seed}: {ours} {truth}");
        assert_eq!(folded.usage(&choices).peak(), chain.usage(&whole).peak(), "seed {seed}");
        repeated += usize::from(truth < f64::INFINITY && folded != chain);
    }
    assert!(repeated > 10, "{repeated}");
}

#[test]
fn an_exchange_takes_what_neither_move_can_do_alone() {
    // Both nodes may take the large choice, one at a time; the second gains more by it.
    let bytes = vec![vec![10, 0]];
    let held = |node| Held { node, bytes: 0 };
    let times = vec![vec![1.0, 2.0], vec![1.0, 5.0]];
    let resident = vec![held(0), held(1)];
    let problem = Problem { times, bytes, resident, ..Problem::default() };
    assert_eq!(exchange::exchange(&problem, 10, vec![0, 1]), vec![1, 0]);
    assert_eq!(exchange::exchange(&problem, 9, vec![1, 1]), vec![1, 1]);
}

#[test]
fn windows_that_hold_less_than_another_have_no_row() {
    let mut problem = Problem { times: vec![vec![0.0]; 2], bytes: vec![vec![1]], ..Problem::default() };
    for (constant, nodes) in
        [(1, &[0][..]), (1, &[0, 1]), (1, &[1, 0]), (2, &[1]), (0, &[]), (1, &[0]), (0, &[0, 1])]
    {
        let held: Vec<Held> = nodes.iter().map(|&node| Held { node, bytes: 0 }).collect();
        problem.push_window(constant, &held);
    }
    let rows: Vec<usize> = rows(&problem.into()).iter().map(|row| row.window).collect();
    assert_eq!(rows, vec![1, 3, 5, 6]);
}

/// Whether all of one window is in another is told by where the spans of what is live there meet.
#[test]
fn windows_without_a_row_never_hold_more_than_another_one() {
    let mut needless = 0;
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let mut problem = random(&mut dice, &domains, 20);
        for _ in 0..dice.index(12) {
            let held = |node| Held { node, bytes: node };
            let held: Vec<Held> = (0..domains.len()).filter(|_| dice.below(3) > 0).map(held).collect();
            problem.push_window(dice.below(3), &held);
        }
        let rows: Vec<usize> = rows(&problem.clone().into()).iter().map(|row| row.window).collect();
        for _ in 0..20 {
            let memory = problem.memory(&dice.choices(&domains));
            let most = rows.iter().map(|&row| memory[row]).max();
            assert_eq!(most, memory.iter().copied().max(), "seed {seed}");
        }
        needless += problem.windows.len().max(1) - rows.len();
    }
    assert!(needless > 100, "{needless}");
}

#[test]
fn an_exchange_keeps_what_fits_and_never_takes_more_time() {
    let mut better = 0;
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let domains = small_domains(&mut dice);
        let problem = random(&mut dice, &domains, 20);
        let before = dice.choices(&domains);
        let (time, capacity) = (problem.time(&before), problem.peak(&before));
        if time < f64::INFINITY {
            let after = exchange::exchange(&problem, capacity, before);
            assert!(problem.peak(&after) <= capacity, "seed {seed}");
            assert!(problem.time(&after) <= time + 1e-9, "seed {seed}");
            better += usize::from(problem.time(&after) < time);
        }
    }
    assert!(better > 50, "{better}");
}

#[test]
fn the_optimum_is_found_among_many_that_are_nearly_as_good() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut problem = Problem::default();
        for node in 0..8 {
            let bytes: Vec<u64> = (0..3).map(|_| 1000 + dice.below(1000)).collect();
            let time = |bytes: &u64| 100.0 - real(*bytes) / 100.0 + real(dice.below(100)) / 100.0;
            problem.times.push(bytes.iter().map(time).collect());
            problem.bytes.push(bytes);
            problem.resident.push(Held { node, bytes: node });
        }
        let capacity = 11_000 + 100 * dice.below(15);
        let chain = Chain::from(problem.clone());
        let flat = chain.flat();
        let relaxation = Relaxation::new(&Arc::new(chain.clone()), Width::Narrow);
        let ours =
            started(&chain, &flat, &relaxation, capacity).followed().and_then(|at| at.tightened()?.answer());
        hold(ours, &problem, capacity, &mut Tally::default(), &format!("seed {seed}"));
    }
}

/// Many capacities in turn, from what was seen before: of the same chain, of one whose choices hold something
/// else, of one where they take something else too, and of one that has other choices.
#[test]
fn what_was_seen_before_changes_no_proof() {
    let mut tally = Tally::default();
    let (mut followed, mut proven, mut trail) = (0, 0, Trail::default());
    for seed in 0..120 {
        let mut dice = Dice(seed);
        let mut chain = random_chain(&mut dice);
        for other in 0..4 {
            let flat = chain.flat();
            let mut solver = Solver::new(&Arc::new(chain.clone()), trail, Width::Narrow);
            followed += usize::from(!solver.trail.seen.is_empty());
            proven += usize::from(solver.floors.has_free());
            let all = capacities(&flat.problem);
            for capacity in [4, 0, 6, 2, 1, 5, 3].map(|it| all[it]) {
                let ours = solver.solve(capacity);
                let ours = ours.map(|it| (flat.fold(&it.choices), it.time, it.proof));
                let name = format!("seed {seed}.{other} of {capacity} bytes");
                hold(ours, &flat.problem, capacity, &mut tally, &name);
            }
            trail = solver.into_trail();
            if other == 0 {
                continue;
            }
            for problem in chain.segments.iter_mut().map(|it| &mut it.problem) {
                if other == 2 {
                    problem.times.iter_mut().flatten().for_each(|time| *time += dice.time(9));
                }
                problem.bytes.iter_mut().flatten().for_each(|bytes| *bytes = dice.below(20));
            }
        }
    }
    assert!(tally.optimal > 500 && tally.priced > 100 && tally.refused > 100, "{tally:?}");
    assert_eq!((tally.gap, tally.unproven), (0, 0));
    assert!(followed > 150, "{followed} chains began with what was seen");
    assert!((180..=240).contains(&proven), "{proven} chains began with what was proven");
}

#[test]
fn a_prepared_chain_answers_as_a_fresh_one() {
    let (mut found, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let mut solver = Solver::new(&Arc::new(chain.clone()), Trail::default(), Width::Narrow);
        let most = chain.flat().problem.peak(&vec![0; chain.flat().problem.times.len()]);
        for part in [8, 1, 16, 4, 2, 0, 12, 3] {
            let capacity = most / 8 * part;
            match (solver.solve(capacity), solve_chain(&chain, capacity)) {
                (Ok(ours), Ok(fresh)) => {
                    found += 1;
                    assert_eq!(ours, fresh, "seed {seed}, {capacity} bytes");
                }
                // What is refused at once says what is missing of the memory there is.
                (Err(ours), Err(fresh)) => {
                    refused += 1;
                    assert_eq!(
                        least(&ours).is_some(),
                        least(&fresh).is_some(),
                        "seed {seed}: {ours} {fresh}"
                    );
                    assert!(least(&ours).is_none_or(|least| least > capacity), "seed {seed}: {ours}");
                }
                (ours, fresh) => panic!("seed {seed}, {capacity} bytes: {ours:?} {fresh:?}"),
            }
        }
    }
    assert!(found > 20 && refused > 30, "{found} found, {refused} refused");
}

/// Of blocks that were chosen at random, one that begins in another state than the one before ends in is the best
/// that leads from there to where the next one begins; the others stay.
#[test]
fn blocks_are_joined_by_the_best_that_lead_from_one_to_the_other() {
    let (mut joined, mut replaced, mut impossible) = (0, 0, 0);
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let mut globals = Vec::new();
        for global in &chain.globals {
            globals.push(dice.index(global.times.len()));
        }
        let mut block = |segment: &Segment| {
            let mut choices: Vec<usize> =
                segment.problem.times.iter().map(|it| dice.index(it.len())).collect();
            segment.shared.iter().for_each(|it| choices[it.node] = globals[it.global]);
            choices
        };
        let blocks = chain.segments.iter().map(|it| (0..it.count).map(|_| block(it)).collect()).collect();
        let choices = ChainChoices { globals: globals.clone(), blocks };
        let chain = Arc::new(chain);
        let width = [Width::Narrow, Width::Any(0.0)][dice.index(2)];
        let solver = Solver::new(&chain, Trail::default(), width);
        let Some(found) = solver.joints().unwrap().joined(choices.clone()).unwrap() else {
            impossible += 1;
            continue;
        };
        joined += 1;
        assert!(chain.time(&found) < f64::INFINITY, "seed {seed}");
        let all = |choices: &ChainChoices| -> Vec<(usize, Vec<usize>)> {
            let blocks = choices.blocks.iter().enumerate();
            blocks.flat_map(|(at, blocks)| blocks.iter().map(move |it| (at, it.clone()))).collect()
        };
        let (before, after) = (all(&choices), all(&found));
        let states =
            |block: &[usize], nodes: &[usize]| -> Vec<usize> { nodes.iter().map(|&it| block[it]).collect() };
        for number in 0..after.len() {
            let segment = &chain.segments[after[number].0];
            let (own, now) = (&before[number].1, &after[number].1);
            let entry = states(own, &segment.entry);
            let stays = number == 0 || {
                let (at, block) = &after[number - 1];
                states(block, &chain.segments[*at].exit) == entry
            };
            if stays {
                assert_eq!(own, now, "seed {seed}");
                continue;
            }
            replaced += 1;
            let exit = match before.get(number + 1) {
                Some((at, block)) => states(block, &chain.segments[*at].entry),
                None => states(own, &segment.exit),
            };
            assert_eq!(states(now, &segment.exit), exit, "seed {seed}");
            let mut least = f64::INFINITY;
            let domains = segment.problem.domains();
            let mut it = vec![0; domains.len()];
            loop {
                let same = |nodes: &[usize]| states(&it, nodes) == states(now, nodes);
                let agrees = segment.shared.iter().all(|shared| it[shared.node] == globals[shared.global]);
                if same(&segment.entry) && same(&segment.exit) && agrees {
                    least = least.min(segment.problem.time(&it));
                }
                if !planner_ir::advance(&mut it, &domains) {
                    break;
                }
            }
            assert!(close(segment.problem.time(now), least), "seed {seed}");
        }
    }
    assert!(joined > 200 && replaced > 50 && impossible > 20, "{joined} {replaced} {impossible}");
}
