//! Chains of variants against all chains of one variant for each block.

use std::sync::Arc;

use planner_ir::advance;

use super::*;
use crate::chain::{Chain, EXACTLY, Global, Goal, Prices, Relaxation, Starts, Width};
use crate::exhaustive;
use crate::problem::tests::{Dice, close, random};
use crate::problem::{Proof, SearchError, Solution};
use crate::{bound, eliminate};

/// For each segment, its variants.
fn random_variants(dice: &mut Dice) -> (Vec<Global>, Vec<Vec<Segment>>) {
    let global = |dice: &mut Dice| Global {
        times: (0..2).map(|_| dice.time(20)).collect(),
        resident: (0..2).map(|_| dice.below(30)).collect(),
    };
    let globals: Vec<Global> = (0..dice.index(2)).map(|_| global(dice)).collect();
    let mut variant = |count: usize| {
        let mut domains = vec![2; 2 + globals.len()];
        domains.push(dice.between(1, 2));
        let shared = (0..globals.len()).map(|global| Shared { node: 2 + global, global }).collect();
        let problem = random(dice, &domains, 8);
        Segment { problem, entry: vec![0], exit: vec![1], shared, count, variants: vec![] }
    };
    let first = (0..2).map(|_| variant(2)).collect();
    let second = (0..3).map(|_| variant(1)).collect();
    (globals, vec![first, second])
}

/// A random chain of variants.
pub(in crate::chain) fn united(dice: &mut Dice) -> Chain {
    let (globals, segments) = random_variants(dice);
    Chain { globals, segments: segments.into_iter().map(unite).collect() }
}

/// The chain in which each block is the variant picked.
fn picked(globals: &[Global], segments: &[Vec<Segment>], picks: &[usize]) -> Chain {
    let mut picks = picks.iter();
    let one = |variants: &Vec<Segment>| -> Vec<Segment> {
        let pick = |_| Segment { count: 1, ..variants[*picks.next().unwrap()].clone() };
        (0..variants[0].count).map(pick).collect()
    };
    Chain { globals: globals.to_vec(), segments: segments.iter().flat_map(one).collect() }
}

#[test]
fn a_chain_of_variants_is_as_good_as_the_best_pick() {
    let (mut fitting, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let (globals, segments) = random_variants(&mut dice);
        let united = segments.iter().map(|variants| unite(variants.clone())).collect();
        let chain = Chain { globals: globals.clone(), segments: united };
        let tight = dice.below(200);
        let mut free = f64::INFINITY;
        let mut best: Option<f64> = None;
        let mut picks = vec![0; 3];
        loop {
            let flat = picked(&globals, &segments, &picks).flat().problem;
            free = free.min(eliminate::solve(&flat).map_or(f64::INFINITY, |it| it.time));
            if let Ok(Solution { time, .. }) = exhaustive::solve(&flat, tight) {
                best = Some(best.map_or(time, |best| best.min(time)));
            }
            if !advance(&mut picks, &[2, 2, 3]) {
                break;
            }
        }
        let live = chain.segments.iter().map(|it| vec![0.0; it.problem.windows.len()]).collect();
        let prices = Prices { resident: 0.0, live };
        let relaxed = Relaxation::new(&Arc::new(chain.clone()), Width::Narrow)
            .minimise(Goal::Time, &prices, (&mut Starts::default(), EXACTLY))
            .unwrap();
        assert!(close(relaxed.bound, free), "seed {seed}: {} {free}", relaxed.bound);
        let whole = eliminate::solve(&chain.flat().problem).map_or(f64::INFINITY, |it| it.time);
        assert!(close(whole, free), "seed {seed}: {whole} {free}");
        match (bound::solve_chain(&chain, tight), best) {
            (Ok(found), Some(best)) => {
                fitting += 1;
                assert!(close(chain.time(&found.choices), found.time), "seed {seed}");
                assert!(chain.usage(&found.choices).peak() <= tight, "seed {seed}");
                match found.proof {
                    Proof::Optimal => assert!(close(found.time, best), "seed {seed}: {} {best}", found.time),
                    Proof::Gap { lower_bound } => assert!(lower_bound <= best + 1e-9, "seed {seed}"),
                }
            }
            (Err(_), None) => refused += 1,
            (Err(error), Some(_)) => assert!(
                matches!(error, SearchError::NothingFound { .. } | SearchError::GlobalsNotFound),
                "seed {seed}: {error}"
            ),
            (Ok(_), None) => panic!("seed {seed}: what does not fit was found"),
        }
    }
    assert!(fitting > 10 && refused > 5, "{fitting} fit, {refused} do not");
}
