//! Setups and cuts against trying all.

use arbtest::arbtest;
use schedule::StageTimes;

use super::{BlockCost, Kept, Outcome, best, cut};
use crate::live::Live;

/// Some part of what is taken.
pub(super) fn beside(
    u: &mut arbtest::arbitrary::Unstructured<'_>,
    times: StageTimes,
) -> arbtest::arbitrary::Result<StageTimes> {
    let mut part = |of: f64| Ok(of * f64::from(u.int_in_range(0_u8..=4)?) / 4.0);
    let StageTimes { forward, backward, weight } = times;
    Ok(StageTimes { forward: part(forward)?, backward: part(backward)?, weight: part(weight)? })
}

/// What several blocks take together, by the definition of two clocks; no less than what each takes at least.
#[test]
fn blocks_together_take_the_longer_of_two_sums() {
    arbtest(|u| {
        let hides = f64::from(u.int_in_range(0_u8..=4)?) / 4.0;
        let mut run = BlockCost::NOTHING;
        let (mut least, mut clocks) = (0.0, [[0.0; 2]; 3]);
        let splits = u.ratio(1, 2)?;
        for _ in 0..u.int_in_range(1..=5)? {
            let mut number = || Ok(f64::from(u.int_in_range(0_u8..=9)?));
            let times = StageTimes { forward: number()?, backward: number()?, weight: number()? };
            let beside = beside(u, times)?;
            let block = BlockCost { times, beside, hides, ..BlockCost::NOTHING };
            least += block.at_least().step(1.0, splits);
            run = run.and(&block);
            let parts = [
                (times.forward, beside.forward),
                (times.backward, beside.backward),
                (times.weight, beside.weight),
            ];
            for (part, (all, beside)) in parts.into_iter().enumerate() {
                // Gradients of values and of parameters have one clock, or two.
                let clock = &mut clocks[if splits { part } else { part.min(1) }];
                clock[0] += all - beside;
                clock[1] += beside;
            }
        }
        let cost = 1.0 - hides;
        let longer = |[alone, beside]: [f64; 2]| (alone + cost * beside).max(beside + cost * alone);
        let expected: f64 = clocks.into_iter().map(longer).sum();
        let found = run.step(1.0, splits);
        assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
        assert!(least <= found + 1e-9, "{least}, {found}");
        let taken = run.taken(splits);
        assert!([taken.forward, taken.backward, taken.weight].iter().all(|&it| it >= 0.0), "{taken:?}");
        Ok(())
    });
}

#[test]
fn the_best_of_all_is_found_and_its_bound_holds() {
    arbtest(|u| {
        let count = u.int_in_range(0..=12)?;
        // Of each setup what it takes, if it can be had, and whether that is known at first.
        let mut setups = Vec::new();
        let (mut first, mut guesses) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let time = f64::from(u.int_in_range(1_u8..=100)?);
            let (there, known) = (u.ratio(3, 4)?, u.ratio(1, 2)?);
            setups.push((time, there));
            let lower_bound = time * f64::from(u.int_in_range(0_u8..=10)?) / 10.0;
            let ways = if there && known { vec![(time, time)] } else { vec![] };
            first.push(Outcome { lower_bound, ways });
            guesses.push(if known { f64::INFINITY } else { lower_bound });
        }
        let most = u.int_in_range(1..=12)?;
        let found = best(first, &guesses, most, |it| {
            let (time, there) = setups[it];
            assert!(guesses[it].is_finite(), "setup {it} is looked at twice");
            Outcome { lower_bound: time, ways: if there { vec![(time, time)] } else { vec![] } }
        });
        let least = setups.iter().filter(|it| it.1).map(|it| it.0).fold(f64::INFINITY, f64::min);
        assert!(found.lower_bound <= least);
        match found.all.first() {
            Some(&(number, time, _)) => {
                assert_eq!(setups[number], (time, true));
                // Guesses that are bounds leave nothing out that is better.
                assert!(time <= least || found.priced >= most);
            }
            // So many that cannot be had may be tried first.
            None => assert!(least.is_infinite() || found.priced >= 2 * most),
        }
        assert!(found.all.is_sorted_by(|a, b| a.1 <= b.1));
        Ok(())
    });
}

/// Every way to cut so many blocks into stages.
fn cuts(blocks: usize, stages: usize) -> Vec<Vec<usize>> {
    if stages == 1 {
        return vec![vec![0]];
    }
    let mut all = Vec::new();
    for last in stages - 1..blocks {
        for mut first in cuts(last, stages - 1) {
            first.push(last);
            all.push(first);
        }
    }
    all
}

#[test]
fn cuts_are_those_of_trying_all() {
    arbtest(|u| {
        let count: usize = u.int_in_range(1..=7)?;
        let stages: usize = u.int_in_range(1..=count)?;
        let groups = *u.choose(&(1..=stages).filter(|it| stages.is_multiple_of(*it)).collect::<Vec<_>>())?;
        let mut blocks = Vec::new();
        let hides = f64::from(u.int_in_range(0_u8..=2)?) / 2.0;
        for _ in 0..count {
            let [forward, backward, weight] =
                [u.int_in_range(0_u8..=9)?, u.int_in_range(0..=9)?, u.int_in_range(0..=9)?].map(f64::from);
            let times = StageTimes { forward, backward, weight };
            let update = f64::from(u.int_in_range(0_u8..=9)?);
            let resident = u.int_in_range(0..=9)?;
            let [backward, gradients, apart] =
                [u.int_in_range(0..=5)?, u.int_in_range(0..=5)?, u.int_in_range(0..=3)?];
            let kept = Kept { backward, gradients, apart };
            let beside = beside(u, times)?;
            blocks.push(BlockCost { times, beside, hides, update, resident, kept });
        }
        let mut live = Vec::new();
        for _ in 0..stages {
            let [backward, gradients, apart] =
                [u.int_in_range(1..=4)?, u.int_in_range(1..=4)?, u.int_in_range(0..=3)?];
            live.push(Live { backward, gradients, apart });
        }
        let capacity = u.int_in_range(0..=120)?;
        let splits = u.ratio(1, 2)?;
        let chunks = u64::try_from(stages / groups).unwrap();
        let work = |first: &[usize]| -> Option<f64> {
            let mut most = 0.0_f64;
            for (stage, &start) in first.iter().enumerate() {
                let end = first.get(stage + 1).copied().unwrap_or(count);
                let own = &blocks[start..end];
                let kept = |it: &Kept| {
                    let Live { backward, gradients, apart } = live[stage];
                    backward * it.backward + gradients * it.gradients + apart * it.apart
                };
                let held = own.iter().map(|it| it.resident + kept(&it.kept)).sum::<u64>();
                if held > capacity / chunks {
                    return None;
                }
                most = most.max(own.iter().fold(BlockCost::NOTHING, BlockCost::and).step(3.0, splits));
            }
            Some(most)
        };
        let expected = cuts(count, stages).iter().filter_map(|it| work(it)).reduce(f64::min);
        let found = cut(&blocks, &live, groups, (3.0, splits), capacity);
        assert_eq!(found.as_deref().and_then(work), expected);
        Ok(())
    });
}
