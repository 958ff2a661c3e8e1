//! Setups and cuts against trying all.

use std::sync::Mutex;

use arbtest::arbtest;
use schedule::StageTimes;

use super::{BlockCost, Kept, Outcome, Setups, cut, mixed};
use crate::live::Live;
use crate::problem::real;

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

/// Ways are made, the best promise first; what takes longer than it promises, or cannot be had, makes others worth a look.
#[test]
fn the_best_of_all_is_found_and_its_bound_holds() {
    arbtest(|u| {
        let count = u.int_in_range(0..=12)?;
        // Of each setup what it takes, infinite where it cannot be had, and what it promises at first and by a close look.
        let mut setups: Vec<(f64, Option<f64>, Option<f64>)> = Vec::new();
        let (mut first, mut guesses) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let time = f64::from(u.int_in_range(1_u8..=100)?);
            let lower_bound = time * f64::from(u.int_in_range(0_u8..=10)?) / 10.0;
            let there = u.ratio(3, 4)?;
            let known = if u.ratio(1, 2)? { Some(lower_bound) } else { None };
            // What does not promise anything by a close look cannot be had.
            let close = if there { Some(time) } else { None };
            first.push(Outcome { lower_bound, ways: known.map(|it| (it, false)).into_iter().collect() });
            guesses.push(lower_bound);
            setups.push((if there { time } else { f64::INFINITY }, known, close));
        }
        let most = u.int_in_range(1..=12)?;
        let mut all = Setups::new(first, guesses, most);
        let looked = Mutex::new(Vec::new());
        // A way that is known at first can be had where there is one by a close look, too, for every other setup.
        let real = |number: usize, close: bool| {
            if close || number.is_multiple_of(2) { setups[number].0 } else { f64::INFINITY }
        };
        let mut made: Vec<(usize, bool)> = Vec::new();
        let mut had = f64::INFINITY;
        loop {
            let taken = |number: usize, seconds: f64, close: &bool| {
                if made.contains(&(number, *close)) { real(number, *close) } else { seconds }
            };
            all.closely(&taken, |it| {
                looked.lock().unwrap().push(it);
                let (time, _, close) = setups[it];
                let lower_bound = if time.is_finite() { time } else { 0.0 };
                Outcome { lower_bound, ways: close.map(|it| (it, true)).into_iter().collect() }
            });
            let found = all.found();
            assert!(found.all.is_sorted_by(|a, b| a.1 <= b.1));
            let next = found.all.iter().map(|it| (it.0, it.1, *it.2));
            let next = next.filter(|it| !made.contains(&(it.0, it.2))).find(|it| it.1 < had);
            let Some((number, _, close)) = next else { break };
            made.push((number, close));
            had = had.min(real(number, close));
        }
        let least = setups.iter().map(|it| it.0).fold(f64::INFINITY, f64::min);
        assert!(all.found().lower_bound <= least);
        let mut looked = looked.into_inner().unwrap();
        let enough = looked.len() >= most;
        // Guesses that are bounds leave nothing out that is better.
        assert!(had <= least || enough, "{had}, expected {least}: {setups:?}");
        // Where nothing is had all are looked at.
        assert!(had.is_finite() || looked.len() == count, "{looked:?} of {count}");
        let times = looked.len();
        looked.sort_unstable();
        looked.dedup();
        assert_eq!(looked.len(), times, "a setup is looked at twice");
        Ok(())
    });
}

/// What blocks hold, by the definition: what other micro-batches under way keep, and whatever is fullest of the one that
/// is at work.
pub(super) fn held(blocks: &[BlockCost], live: Live) -> u64 {
    let at_rest = |it: &BlockCost| {
        let Kept { backward, gradients, apart } = it.kept;
        // What has one place is there only as long as it is used.
        let left = if live.apart > 1 { live.apart } else { 0 };
        it.resident + (live.backward - 1) * backward + (live.gradients - 1) * gradients + left * apart
    };
    let before =
        |end: usize| blocks[..end].iter().map(|it| it.kept.backward + it.kept.gradients).sum::<u64>();
    let most = blocks.iter().enumerate().map(|(number, it)| before(number) + it.most).max();
    blocks.iter().map(at_rest).sum::<u64>() + most.unwrap_or(0)
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
        let mut all = Vec::new();
        let hides = f64::from(u.int_in_range(0_u8..=2)?) / 2.0;
        let many: usize = u.int_in_range(1..=3)?;
        for _ in 0..count * many {
            let [forward, backward, weight] =
                [u.int_in_range(0_u8..=9)?, u.int_in_range(0..=9)?, u.int_in_range(0..=9)?].map(f64::from);
            let times = StageTimes { forward, backward, weight };
            let update = f64::from(u.int_in_range(0_u8..=9)?);
            let resident = u.int_in_range(0..=9)?;
            let [backward, gradients, apart] =
                [u.int_in_range(0..=5)?, u.int_in_range(0..=5)?, u.int_in_range(0..=3)?];
            let kept = Kept { backward, gradients, apart };
            let beside = beside(u, times)?;
            let waited = (times.backward - beside.backward) * f64::from(u.int_in_range(0_u8..=2)?) / 2.0;
            let waits = plan::Waits { waited, ..plan::Waits::NOTHING };
            let most = backward + gradients + u.int_in_range(0..=5)?;
            all.push(BlockCost { times, beside, waits, hides, update, resident, kept, most });
        }
        let plans: Vec<&[BlockCost]> = all.chunks(count).collect();
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
                let of_plan = |blocks: &&[BlockCost]| {
                    let own = &blocks[start..end];
                    let run = own.iter().fold(BlockCost::NOTHING, BlockCost::and);
                    (held(own, live[stage]), run.step(3.0, splits))
                };
                let plans: Vec<(u64, f64)> = plans.iter().map(of_plan).collect();
                most = most.max(mixed(&plans, (capacity / chunks, capacity / chunks))?.0);
            }
            Some(most)
        };
        let expected = cuts(count, stages).iter().filter_map(|it| work(it)).reduce(f64::min);
        let found = cut(&plans, &live, groups, (3.0, splits), capacity);
        assert_eq!(found.as_deref().and_then(work), expected);
        Ok(())
    });
}

#[test]
fn what_lies_between_plans_takes_least_where_it_just_fits() {
    arbtest(|u| {
        let mut plans: Vec<(u64, f64)> = Vec::new();
        for _ in 0..u.int_in_range(1..=4)? {
            plans.push((u.int_in_range(0..=40)?, f64::from(u.int_in_range(0_u8..=40)?)));
        }
        let capacity = u.int_in_range(0..=40)?;
        let wanted = u.int_in_range(0..=capacity)?;
        // Parts of two plans in steps that meet every number of bytes.
        let mut least = f64::INFINITY;
        for &(one, fast) in &plans {
            for &(two, slow) in &plans {
                let steps = one.abs_diff(two).max(1);
                for step in 0..=steps {
                    let held = if one > two { one - step } else { one + step.min(two - one) };
                    // What one plan alone is may be all there is.
                    if held <= wanted.max(one.min(two)) && held <= capacity || held == one && one <= capacity
                    {
                        least = least.min(fast + (slow - fast) * real(step) / real(steps));
                    }
                }
            }
        }
        match mixed(&plans, (capacity, wanted)) {
            Some((seconds, mix)) => {
                assert!(
                    (seconds - least).abs() < 1e-9,
                    "{seconds}, expected {least}: {plans:?} in {capacity}"
                );
                let [one, two] = mix.plans.map(|it| plans[it].1);
                assert_eq!(seconds.to_bits(), (one + mix.part * (two - one)).to_bits());
            }
            None => assert!(least.is_infinite(), "{plans:?} in {capacity}"),
        }
        Ok(())
    });
}
