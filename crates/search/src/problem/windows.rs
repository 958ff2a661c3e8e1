//! Windows of a problem that hold no more than another one, and windows of several problems side by side.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::{Live, Problem};

impl Problem {
    /// All windows but those that never hold more than another one.
    pub(crate) fn needful(&self) -> Vec<usize> {
        let (constants, within) = (&self.windows, self.within());
        let less = |a: usize, b: usize| constants[a] <= constants[b] && within[a].contains(&b);
        let is_needless = |window: usize| {
            let mut others = within[window].clone().filter(|&other| other != window);
            others.any(|b| less(window, b) && (b < window || !less(b, window)))
        };
        (0..constants.len()).filter(|&it| !is_needless(it)).collect()
    }

    /// For each window, those at which all is live that is live there.
    fn within(&self) -> Vec<Range<usize>> {
        let mut starting: Vec<&Live> = self.live.iter().filter(|live| !live.windows().is_empty()).collect();
        starting.sort_by_key(|live| live.from);
        let mut starting = starting.into_iter().peekable();
        let (mut latest, mut soonest) = (BinaryHeap::new(), BinaryHeap::new());
        let windows = 0..self.windows.len();
        let within = |window: usize| {
            while let Some(live) = starting.next_if(|live| live.from <= window) {
                latest.push((live.from, live.until));
                soonest.push(Reverse(live.until));
            }
            while latest.peek().is_some_and(|&(_, until)| until <= window) {
                latest.pop();
            }
            while soonest.peek().is_some_and(|&Reverse(until)| until <= window) {
                soonest.pop();
            }
            let from = latest.peek().map_or(windows.start, |&(from, _)| from);
            from..soonest.peek().map_or(windows.end, |&Reverse(until)| until)
        };
        windows.clone().map(within).collect()
    }

    /// The same with only the windows that are needful, at these places of so many; at the others of them is what is
    /// live before and after.
    fn spread(&mut self, needful: &[usize], places: &[usize], count: usize) {
        // The place of the first needful window from each on; and the first place after those before it.
        let before = |window: usize| needful.partition_point(|&it| it < window);
        let constants = needful.iter().map(|&window| self.windows[window]);
        let mut windows = vec![0; count];
        places.iter().zip(constants).for_each(|(&place, constant)| windows[place] = constant);
        self.live.retain_mut(|live| {
            let [first, end] = [live.from, live.until].map(before);
            if first < end {
                (live.from, live.until) = (places[first], places[end - 1] + 1);
            }
            first < end
        });
        self.windows = windows;
    }

    /// What about is there at each of these windows (bytes): the mean over all choices.
    fn usual(&self, windows: &[usize]) -> Vec<u64> {
        let mean = |live: &Live| {
            let bytes = &self.bytes[live.held.bytes];
            bytes.iter().sum::<u64>() / u64::try_from(bytes.len().max(1)).unwrap_or(u64::MAX)
        };
        let all = self.summed(mean);
        windows.iter().map(|&window| all[window]).collect()
    }
}

/// Gives problems of which one is chosen the same windows, those of each in their order: where about as much is there
/// in two of them is one window, as far as their order lets it.
///
/// If the windows of each were constraints of their own, each would be half full where two problems are half chosen: a
/// bound by prices on them would be that of half the memory.
pub(crate) fn align(problems: Vec<&mut Problem>) {
    // What is there at the windows of all, and which of them are those of each problem.
    let (mut all, mut places): (Vec<u64>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    let needful: Vec<Vec<usize>> = problems.iter().map(|it| it.needful()).collect();
    for (problem, needful) in problems.iter().zip(&needful) {
        let own = problem.usual(needful);
        let merged = merged(&all, &own);
        let (mut moved, mut found) = (vec![0; all.len()], vec![0; own.len()]);
        for (place, &(other, it)) in merged.iter().enumerate() {
            other.into_iter().for_each(|other| moved[other] = place);
            it.into_iter().for_each(|it| found[it] = place);
        }
        places.iter_mut().flatten().for_each(|place| *place = moved[*place]);
        places.push(found);
        let most = |(other, it): &(Option<usize>, Option<usize>)| {
            other.map_or(0, |other| all[other]).max(it.map_or(0, |it| own[it]))
        };
        all = merged.iter().map(most).collect();
    }
    for ((problem, needful), places) in problems.into_iter().zip(&needful).zip(&places) {
        problem.spread(needful, places, all.len());
    }
}

/// Two lists in one, each in its order: of which of either an entry is made, so that the less of the two that are put
/// together, summed, is as much as can be.
fn merged(first: &[u64], second: &[u64]) -> Vec<(Option<usize>, Option<usize>)> {
    let columns = second.len() + 1;
    // The most of the rest of both, from each of either on.
    let mut most = vec![0; (first.len() + 1) * columns];
    for at in (0..first.len()).rev() {
        for other in (0..second.len()).rev() {
            let both = most[(at + 1) * columns + other + 1] + first[at].min(second[other]);
            let one = most[(at + 1) * columns + other].max(most[at * columns + other + 1]);
            most[at * columns + other] = both.max(one);
        }
    }
    let (mut at, mut other) = (0, 0);
    let mut merged = Vec::new();
    while at < first.len() || other < second.len() {
        let is_both = at < first.len() && other < second.len() && {
            let both = most[(at + 1) * columns + other + 1] + first[at].min(second[other]);
            both == most[at * columns + other]
        };
        let skips = at < first.len()
            && (other == second.len() || most[(at + 1) * columns + other] == most[at * columns + other]);
        let [of_first, of_second] = [is_both || skips, is_both || !skips];
        merged.push((of_first.then_some(at), of_second.then_some(other)));
        at += usize::from(of_first);
        other += usize::from(of_second);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Held;
    use crate::problem::tests::Dice;

    /// A problem of a few nodes, each live for a while, of which each choice has another number of bytes.
    fn random(dice: &mut Dice) -> Problem {
        let (nodes, windows) = (dice.between(1, 4), dice.index(5));
        let mut problem = Problem { times: vec![vec![0.0; 2]; nodes], ..Problem::default() };
        problem.windows = (0..windows).map(|_| dice.below(4)).collect();
        for node in 0..nodes {
            for _ in 0..dice.index(3) {
                let held = Held { node, bytes: problem.bytes.len() };
                problem.bytes.push(vec![dice.below(9), dice.below(9)]);
                let from = dice.between(0, windows);
                problem.live.push(Live { held, from, until: dice.between(from, windows) });
            }
        }
        problem
    }

    #[test]
    fn problems_with_the_same_windows_hold_as_much_as_before() {
        let mut shared = 0;
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let before: Vec<Problem> = (0..dice.between(1, 3)).map(|_| random(&mut dice)).collect();
            let mut after = before.clone();
            align(after.iter_mut().collect());
            let count = after[0].windows.len();
            shared += usize::from(count > 0 && count < before.iter().map(|it| it.windows.len()).sum());
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(after.windows.len(), count, "seed {seed}");
                assert!(after.live.iter().all(|it| it.from < it.until && it.until <= count), "seed {seed}");
                for number in 0..1 << before.times.len() {
                    let choices: Vec<usize> = (0..before.times.len()).map(|it| number >> it & 1).collect();
                    assert_eq!(after.peak(&choices), before.peak(&choices), "seed {seed}: {choices:?}");
                }
            }
        }
        assert!(shared > 100, "{shared}");
    }

    #[test]
    fn equal_problems_have_no_more_windows_than_one() {
        for seed in 0..100 {
            let problem = random(&mut Dice(seed));
            let mut all = vec![problem.clone(); 3];
            align(all.iter_mut().collect());
            assert_eq!(all[0].windows.len(), problem.needful().len(), "seed {seed}");
            assert!(all.iter().all(|it| *it == all[0]), "seed {seed}");
        }
    }

    /// Against all ways to put two lists together.
    #[test]
    fn the_fullest_windows_are_one() {
        fn most(first: &[u64], second: &[u64]) -> u64 {
            let ([one, ones @ ..], [other, others @ ..]) = (first, second) else { return 0 };
            (one.min(other) + most(ones, others)).max(most(ones, second)).max(most(first, others))
        }
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let [first, second] =
                [(); 2].map(|()| (0..dice.index(6)).map(|_| dice.below(9)).collect::<Vec<_>>());
            let merged = merged(&first, &second);
            assert!(merged.iter().filter_map(|it| it.0).eq(0..first.len()), "seed {seed}");
            assert!(merged.iter().filter_map(|it| it.1).eq(0..second.len()), "seed {seed}");
            let both = |it: &(Option<usize>, Option<usize>)| Some(first[it.0?].min(second[it.1?]));
            assert_eq!(merged.iter().filter_map(both).sum::<u64>(), most(&first, &second), "seed {seed}");
        }
    }
}
