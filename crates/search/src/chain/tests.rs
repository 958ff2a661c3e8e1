//! Chains against the same chains as flat problems, searched exhaustively.

use std::sync::Arc;

use planner_ir::advance;

use super::*;
use crate::exhaustive;
use crate::problem::real;
use crate::problem::tests::{Dice, close, random};
use crate::problem::{Edge, Table};
use crate::{bound, eliminate};

mod segmented; // PrimePar's segments

/// A random chain of up to five blocks, small enough to search exhaustively.
pub(crate) fn random_chain(dice: &mut Dice) -> Chain {
    loop {
        let chain = any_chain(dice);
        if chain.flat().problem.domains().iter().product::<usize>() <= 4000 {
            return chain;
        }
    }
}

fn any_chain(dice: &mut Dice) -> Chain {
    let globals: Vec<Global> = (0..dice.index(3))
        .map(|_| {
            let domain = dice.between(1, 3);
            Global {
                times: (0..domain).map(|_| dice.time(20)).collect(),
                resident: (0..domain).map(|_| dice.below(30)).collect(),
            }
        })
        .collect();
    let mut boundary = Vec::new();
    let mut segments = Vec::new();
    for index in 0..dice.between(1, 2) {
        let count = [dice.between(1, 3), dice.between(1, 2)][index];
        if index == 0 && (count > 1 || dice.below(2) == 0) {
            boundary = (0..dice.between(1, 2)).map(|_| dice.between(1, 2)).collect();
        }
        let next: Vec<usize> = match count {
            1 => (0..dice.index(3)).map(|_| dice.between(1, 2)).collect(),
            _ => boundary.clone(),
        };
        let mut domains: Vec<usize> = boundary.iter().chain(&next).copied().collect();
        let entry: Vec<usize> = (0..boundary.len()).collect();
        let mut exit: Vec<usize> = (boundary.len()..domains.len()).collect();
        if dice.below(4) == 0 && count > 1 && !exit.is_empty() {
            exit[0] = 0;
        }
        let mut shared = Vec::new();
        for (global, value) in globals.iter().enumerate() {
            for _ in 0..dice.index(3) {
                shared.push(Shared { node: domains.len(), global });
                domains.push(value.times.len());
            }
        }
        domains.push(dice.between(1, 2));
        let problem = random(dice, &domains, 8);
        segments.push(Segment { problem, entry, exit, shared, count, variants: Vec::new() });
        boundary = next;
    }
    Chain { globals, segments }
}

/// Random prices on memory for a chain.
fn random_prices(dice: &mut Dice, chain: &Chain) -> Prices {
    let mut price = || f64::from(u32::try_from(dice.below(8)).unwrap()) / 8.0;
    let resident = price();
    let windows = |segment: &Segment| (0..segment.problem.windows.len().max(1)).map(|_| price()).collect();
    Prices { resident, live: chain.segments.iter().map(windows).collect() }
}

/// What choices cost at given prices, by the definitions.
fn cost(chain: &Chain, prices: &Prices, goal: Goal, choices: &ChainChoices) -> f64 {
    let usage = chain.usage(choices);
    let mut cost = goal.of(chain.time(choices)) + prices.resident * real(usage.resident);
    for (prices, blocks) in prices.live.iter().zip(&usage.live) {
        for block in blocks {
            cost += prices.iter().zip(block).map(|(price, &live)| price * real(live)).sum::<f64>();
        }
    }
    cost
}

#[test]
fn the_flat_problem_has_the_time_and_the_memory_of_the_chain() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let flat = chain.flat();
        let choices = dice.choices(&flat.problem.domains());
        let unfolded = flat.unfold(&choices);
        assert!(close(chain.time(&unfolded), flat.problem.time(&choices)), "seed {seed}");
        assert_eq!(chain.usage(&unfolded).peak(), flat.problem.peak(&choices), "seed {seed}");
        assert_eq!(flat.fold(&unfolded), choices, "seed {seed}");
    }
}

#[test]
fn blocks_that_disagree_take_infinite_time() {
    let problem = Problem { times: vec![vec![1.0, 2.0]; 2], ..Problem::default() };
    let segment = Segment {
        problem,
        entry: vec![0],
        exit: vec![1],
        shared: Vec::new(),
        count: 2,
        variants: Vec::new(),
    };
    let chain = Chain { globals: Vec::new(), segments: vec![segment] };
    let of = |blocks: [[usize; 2]; 2]| {
        let blocks = vec![blocks.map(Vec::from).to_vec()];
        chain.time(&ChainChoices { globals: Vec::new(), blocks })
    };
    assert!(close(of([[0, 1], [1, 0]]), 6.0));
    assert!(of([[0, 1], [0, 0]]).is_infinite());
}

#[test]
fn the_relaxation_is_the_least_over_all_choices() {
    let mut forbidden = 0;
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let flat = chain.flat();
        let prices = random_prices(&mut dice, &chain);
        for goal in [Goal::Time, Goal::Memory] {
            let mut truth = f64::INFINITY;
            let mut choices = vec![0; flat.problem.times.len()];
            loop {
                truth = truth.min(cost(&chain, &prices, goal, &flat.unfold(&choices)));
                if !advance(&mut choices, &flat.problem.domains()) {
                    break;
                }
            }
            let relaxed = Relaxation::new(&Arc::new(chain.clone()), Width::Narrow)
                .minimise(goal, &prices, (&mut Starts::default(), EXACTLY))
                .unwrap();
            assert!(close(relaxed.bound, truth), "seed {seed}: {} {truth}", relaxed.bound);
            match relaxed.choices {
                Some(choices) => {
                    assert!(close(cost(&chain, &prices, goal, &choices), truth), "seed {seed}");
                }
                None => forbidden += 1,
            }
        }
    }
    assert!(forbidden > 2 && forbidden < 200, "{forbidden}");
}

#[test]
fn globals_that_are_descended_give_a_bound_and_choices_that_agree() {
    let mut exact = 0;
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let chain = random_chain(&mut dice);
        let flat = chain.flat();
        let prices = Prices { resident: 0.0, live: chain.segments.iter().map(|_| vec![0.0; 4]).collect() };
        let truth = exhaustive::solve(&flat.problem, u64::MAX).map_or(f64::INFINITY, |best| best.time);
        let relaxed = Relaxation::descended(&Arc::new(chain.clone()), Width::Narrow)
            .minimise(Goal::Time, &prices, (&mut Starts::default(), EXACTLY))
            .unwrap();
        assert!(relaxed.bound <= truth + 1e-9, "seed {seed}");
        if let Some(choices) = relaxed.choices {
            let time = chain.time(&choices);
            assert!(time < f64::INFINITY && time >= truth - 1e-9, "seed {seed}");
            exact += usize::from(close(time, truth));
        }
    }
    assert!(exact > 145, "{exact}");
}

/// A chain whose globals are chosen.
fn fixed(chain: &Chain, globals: &[usize]) -> Arc<Chain> {
    let mut fixed = chain.clone();
    for (global, chosen) in fixed.globals.iter_mut().zip(globals) {
        let others = global.times.iter_mut().enumerate().filter(|(choice, _)| choice != chosen);
        others.for_each(|(_, time)| *time = f64::INFINITY);
    }
    Arc::new(fixed)
}

#[test]
fn none_of_the_globals_that_are_descended_is_better_chosen_otherwise() {
    let mut others = 0;
    let random = (0..200).map(|seed| random_chain(&mut Dice(seed)));
    for (seed, chain) in random.chain((0..20).map(|seed| two_blocks(seed, &[2], &[3; 8]))).enumerate() {
        let prices = Prices { resident: 0.0, live: chain.segments.iter().map(|_| vec![0.0; 4]).collect() };
        let least = |relaxation: &Relaxation| {
            relaxation.minimise(Goal::Time, &prices, (&mut Starts::default(), EXACTLY)).unwrap().choices
        };
        let descended = Relaxation::descended(&Arc::new(chain.clone()), Width::Narrow);
        let Some(found) = least(&descended) else { continue };
        let time = chain.time(&found);
        for global in 0..chain.globals.len() {
            for choice in 0..chain.globals[global].times.len() {
                let mut globals = found.globals.clone();
                globals[global] = choice;
                let other = least(&Relaxation::descended(&fixed(&chain, &globals), Width::Narrow));
                let other = other.map_or(f64::INFINITY, |it| chain.time(&it));
                assert!(other >= time - 1e-9, "{seed}: global {global}: {choice}: {other} < {time}");
                others += usize::from(other < f64::INFINITY && choice != found.globals[global]);
            }
        }
    }
    assert!(others > 300, "{others}");
}

#[test]
fn a_product_is_the_least_over_the_middle() {
    let inf = f64::INFINITY;
    let result = product(&[1.0, inf, 5.0, 2.0], &[1.0, 2.0, 3.0, inf, 0.0, inf], 2);
    assert_eq!(result, vec![2.0, 3.0, 4.0, 6.0, 2.0, 8.0]);
}

/// A chain of two blocks, each with the given entry, exit and shared nodes of the given domains.
fn two_blocks(seed: u64, boundary: &[usize], globals: &[usize]) -> Chain {
    let mut dice = Dice(seed);
    let domains: Vec<usize> = [boundary, boundary, globals].concat();
    let mut problem = random(&mut dice, &domains, 50);
    problem.edges.clear();
    for node in 1..domains.len() {
        let from = dice.index(node);
        let entries = (0..domains[from] * domains[node]).map(|_| dice.time(50)).collect();
        problem.edges.push(Edge { from, to: node, table: problem.tables.len() });
        problem.tables.push(Table { columns: domains[node], entries }.into());
    }
    let shared = (0..globals.len()).map(|global| Shared { node: 2 * boundary.len() + global, global });
    let segment = Segment {
        problem,
        entry: (0..boundary.len()).collect(),
        exit: (boundary.len()..2 * boundary.len()).collect(),
        shared: shared.collect(),
        count: 2,
        variants: Vec::new(),
    };
    let global = |&domain: &usize| Global { times: vec![0.5; domain], resident: vec![1; domain] };
    Chain { globals: globals.iter().map(global).collect(), segments: vec![segment] }
}

#[test]
fn boundaries_with_too_many_states_are_solved_flat() {
    let chain = two_blocks(5, &[40, 40], &[2]);
    assert!(!chain.has_small_boundaries());
    let truth = eliminate::solve(&chain.flat().problem).unwrap();
    let found = bound::solve_chain(&chain, 1 << 40).unwrap();
    assert_eq!(found.proof, Proof::Optimal);
    assert!(close(found.time, truth.time) && close(found.time, chain.time(&found.choices)));
}

#[test]
fn globals_with_too_many_choices_are_bounded() {
    let mut open = 0;
    for seed in 0..10 {
        let chain = two_blocks(seed, &[2], &[3; 8]);
        let flat = chain.flat();
        let truth = eliminate::solve(&flat.problem).unwrap();
        let prices = Prices { resident: 0.0, live: vec![vec![0.0; 4]] };
        let relaxed = Relaxation::new(&Arc::new(chain.clone()), Width::Narrow)
            .minimise(Goal::Time, &prices, (&mut Starts::default(), EXACTLY))
            .unwrap();
        assert!(relaxed.bound <= truth.time + 1e-9);
        open += usize::from(!close(relaxed.bound, truth.time));
        let found = bound::solve_chain(&chain, 1 << 40).unwrap();
        assert!(close(found.time, chain.time(&found.choices)));
        match found.proof {
            Proof::Optimal => assert!(close(found.time, truth.time)),
            Proof::Gap { lower_bound } => {
                assert!(lower_bound <= truth.time && truth.time <= found.time + 1e-9);
            }
        }
    }
    assert!(open > 0, "all globals were enumerated");
}

#[test]
fn blocks_that_are_solved_by_messages_have_the_same_least() {
    let (mut found, mut long) = (0, 0);
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut chain = match seed % 3 {
            2 => variants::tests::united(&mut dice),
            _ => random_chain(&mut dice),
        };
        // Costs are moved from one end of a block to the other where many follow each other.
        for segment in chain.segments.iter_mut().filter(|segment| segment.count > 1 && seed % 2 == 0) {
            segment.count *= 5;
            long += 1;
        }
        let chain = Arc::new(chain);
        let by_messages = Relaxation::new(&chain, Width::Any(0.0));
        assert!(by_messages.is_wide(), "seed {seed}");
        // Messages begin where they ended before.
        let mut starts = Starts::default();
        for goal in [Goal::Time, Goal::Memory, Goal::Time, Goal::Time, Goal::Memory] {
            let prices = random_prices(&mut dice, &chain);
            let least =
                |it: &Relaxation, starts: &mut Starts| it.minimise(goal, &prices, (starts, EXACTLY)).unwrap();
            let exact = least(&Relaxation::new(&chain, Width::Narrow), &mut Starts::default());
            let relaxed = least(&by_messages, &mut starts);
            assert!(close(relaxed.bound, exact.bound), "seed {seed}: {} {}", relaxed.bound, exact.bound);
            if let Some(choices) = relaxed.choices {
                assert!(close(cost(&chain, &prices, goal, &choices), exact.bound), "seed {seed}");
                found += 1;
            }
            let descended = least(&Relaxation::descended(&chain, Width::Any(0.0)), &mut Starts::default());
            assert!(descended.bound <= exact.bound + 1e-9, "seed {seed}");
            if let Some(choices) = descended.choices {
                assert!(cost(&chain, &prices, goal, &choices) >= exact.bound - 1e-9, "seed {seed}");
            }
        }
    }
    assert!(found > 300 && long > 30, "{found} {long}");
}

/// What choices of a block cost.
fn priced(it: &Interface<'_>, (resident, live): (f64, &[f64]), choices: &[usize]) -> f64 {
    let windows = it.problem.live(choices);
    let live = live.iter().zip(&windows).map(|(price, &live)| price * real(live));
    it.problem.time(choices) + resident * real(it.problem.resident(choices)) + live.sum::<f64>()
}

/// The least that a block costs with these choices of some of its nodes, by trying everything.
fn least(it: &Interface<'_>, prices: (f64, &[f64]), fixed: &[(usize, usize)]) -> f64 {
    let (mut least, mut choices) = (f64::INFINITY, vec![0; it.problem.times.len()]);
    loop {
        if fixed.iter().all(|&(node, choice)| choices[node] == choice) {
            least = least.min(priced(it, prices, &choices));
        }
        if !advance(&mut choices, &it.problem.domains()) {
            return least;
        }
    }
}

#[test]
fn blocks_between_given_ends_are_the_cheapest() {
    let (mut found, mut none) = (0, 0);
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let chain = if seed % 2 == 0 { random_chain(&mut dice) } else { variants::tests::united(&mut dice) };
        let chain = Arc::new(chain);
        let prices = random_prices(&mut dice, &chain);
        let globals: Vec<usize> = chain.globals.iter().map(|it| dice.index(it.times.len())).collect();
        let relaxation = match seed % 3 {
            0 => Relaxation::descended(&chain, Width::Narrow),
            _ => Relaxation::new(&chain, Width::Narrow),
        };
        for (number, segment) in chain.segments.iter().enumerate() {
            let boundary: Vec<usize> = segment.entry.iter().chain(&segment.exit).copied().collect();
            let choices: Vec<usize> =
                boundary.iter().map(|&node| dice.index(segment.problem.times[node].len())).collect();
            let (first, last) = choices.split_at(segment.entry.len());
            let starts = Starts::default();
            let made = relaxation.between(number, &[[first, last]], &prices, (&globals, &starts)).unwrap();
            let price = (prices.resident, &prices.live[number][..]);
            let bodies = match &segment.variants[..] {
                [] => vec![segment.interface()],
                variants => variants.iter().map(Variant::interface).collect(),
            };
            let of_body = |it: &Interface<'_>| {
                let ends = it.entry.iter().chain(it.exit).copied().zip(choices.iter().copied());
                let shared = it.shared.iter().map(|shared| (shared.node, globals[shared.global]));
                least(it, price, &ends.chain(shared).collect::<Vec<_>>())
            };
            let truth = bodies.iter().map(of_body).fold(f64::INFINITY, f64::min);
            match &made[..] {
                [Some(block)] => {
                    let cost = priced(&segment.interface(), price, block);
                    assert!(close(cost, truth), "seed {seed}: {cost} {truth}");
                    assert!(
                        boundary.iter().zip(&choices).all(|(&node, &it)| block[node] == it),
                        "seed {seed}"
                    );
                    found += 1;
                }
                _ => {
                    assert!(truth.is_infinite(), "seed {seed}: {truth}");
                    none += 1;
                }
            }
        }
    }
    assert!(found > 100 && none > 5, "{found} {none}");
}

/// A block that may be one of three problems, two alike and one that takes far longer.
fn of_three(seed: u64) -> Chain {
    let mut dice = Dice(3);
    let segment = |dear: f64| {
        let mut problem = random(&mut Dice(seed), &[2, 2, 3, 3, 3], 1 << 20);
        problem.times[2].iter_mut().for_each(|time| *time += dear);
        Segment { problem, entry: vec![0], exit: vec![1], shared: vec![], count: 3, variants: vec![] }
    };
    let segments = [0.0, 0.5, 1000.0].map(|dear| segment(dear + real(dice.below(2)))).to_vec();
    Chain { globals: vec![], segments: vec![unite(segments)] }
}

/// Work is counted, not timed: at other prices messages are sent to the bodies that may be the least, and to no
/// others.
#[test]
fn bodies_that_cannot_be_the_least_are_not_solved_again() {
    let chain = Arc::new(of_three(7));
    let relaxation = Relaxation::new(&chain, Width::Any(0.0));
    let windows = chain.segments[0].problem.windows.len();
    let prices = |resident: f64| Prices { resident, live: vec![vec![0.0; windows]] };
    let mut starts = Starts::default();
    relaxation.minimise(Goal::Time, &prices(0.1), (&mut starts, EXACTLY)).unwrap();
    let again = relaxation.swept(Goal::Time, &prices(0.2), &mut starts);
    assert!(again.contains(&0) && !again.contains(&2), "{again:?}");
    let fresh = relaxation.swept(Goal::Time, &prices(0.2), &mut Starts::default());
    assert_eq!(fresh, [0, 1, 2]);
}

/// What messages find of a body is known as soon as they are sent, and need not be asked for once more.
#[test]
fn what_a_body_was_found_to_take_is_known() {
    let mut better = 0;
    for seed in 0..60 {
        let chain = Arc::new(of_three(seed));
        let relaxation = Relaxation::new(&chain, Width::Any(0.0));
        let windows = chain.segments[0].problem.windows.len();
        let prices = |resident: f64| Prices { resident, live: vec![vec![0.0; windows]] };
        let mut starts = Starts::default();
        relaxation.minimise(Goal::Time, &prices(0.1), (&mut starts, EXACTLY)).expect("is minimised");
        let [before, after, by_bodies] = relaxation.found(Goal::Time, &prices(5.0), &mut starts);
        for ((before, after), found) in before.iter().zip(&after).zip(&by_bodies) {
            assert!(after <= found, "seed {seed}: {after}, {found} was found");
            better += usize::from(found < before);
        }
    }
    assert!(better > 20, "{better}");
}
