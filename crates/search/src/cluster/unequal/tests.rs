//! Stages on meshes that differ, against all that there are.

use std::collections::BTreeSet;

use arbtest::arbtest;
use schedule::StageTimes;

use super::{Choice, Composed, Nodes, Outcome, Room, compose, few, followed};
use crate::cluster::tests::{beside, held};
use crate::cluster::{BlockCost, Kept, mixed};
use crate::live::Live;

/// A small world.
struct World {
    choices: Vec<Choice>,
    kinds: Vec<Nodes>,
    node: u64,
    micro_batches: f64,
    message: f64,
    splits: bool,
    /// The least number of stages.
    stages: usize,
}

impl World {
    fn any(u: &mut arbtest::arbitrary::Unstructured<'_>) -> arbtest::arbitrary::Result<Self> {
        let blocks: usize = u.int_in_range(1..=4)?;
        let node = *u.choose(&[2, 4])?;
        let mut kinds = Vec::new();
        for _ in 0..u.int_in_range(1..=2)? {
            let devices = node * u.int_in_range(1..=2)?;
            kinds.push(Nodes { devices, capacity: u.int_in_range(5..=60)? });
        }
        let mut choices = Vec::new();
        for _ in 0..u.int_in_range(1..=5)? {
            let (devices, kind) = (*u.choose(&[1, 2, 4])?, u.choose_index(kinds.len())?);
            let mut of = Vec::new();
            let plans: usize = u.int_in_range(1..=2)?;
            let hides = f64::from(u.int_in_range(0_u8..=2)?) / 2.0;
            for _ in 0..blocks * plans {
                let mut number = || Ok(f64::from(u.int_in_range(0_u8..=9)?));
                let times = StageTimes { forward: number()?, backward: number()?, weight: number()? };
                let update = number()?;
                let kept = Kept {
                    backward: u.int_in_range(0..=5)?,
                    gradients: u.int_in_range(0..=5)?,
                    apart: u.int_in_range(0..=5)?,
                };
                let beside = beside(u, times)?;
                let waited = (times.backward - beside.backward) * f64::from(u.int_in_range(0_u8..=2)?) / 2.0;
                let waits = plan::Waits { waited, ..plan::Waits::NOTHING };
                of.push(BlockCost {
                    times,
                    beside,
                    waits,
                    hides,
                    update,
                    resident: u.int_in_range(0..=9)?,
                    kept,
                    most: kept.backward + kept.gradients + u.int_in_range(0..=5)?,
                });
            }
            choices.push(Choice { devices, kind, plans: of.chunks(blocks).map(<[_]>::to_vec).collect() });
        }
        Ok(Self {
            choices,
            kinds,
            node,
            micro_batches: f64::from(u.int_in_range(1_u8..=6)?),
            message: f64::from(u.int_in_range(0_u8..=3)?),
            splits: u.ratio(1, 2)?,
            stages: u.int_in_range(1..=2)?,
        })
    }

    fn live(&self, after: usize) -> Live {
        let after = u64::try_from(after).unwrap();
        Live { backward: after.min(3), gradients: after.min(4), apart: 2 }
    }

    fn waits(&self, times: StageTimes) -> f64 {
        if self.splits { times.forward } else { times.total() }
    }

    fn blocks(&self) -> usize {
        self.choices[0].plans[0].len()
    }

    /// Every way to lay blocks from one on to devices from one on.
    fn all(&self, block: usize, rank: u64) -> Vec<Vec<(usize, usize)>> {
        let devices: u64 = self.kinds.iter().map(|it| it.devices).sum();
        if block == self.blocks() || rank == devices {
            return if block == self.blocks() && rank == devices { vec![vec![]] } else { vec![] };
        }
        let mut all = Vec::new();
        for (number, choice) in self.choices.iter().enumerate() {
            let ranks: Vec<u64> = (rank..rank + choice.devices).collect();
            let first_kind = self.kinds[0].devices;
            let right = ranks.iter().all(|&it| usize::from(it >= first_kind) == choice.kind && it < devices);
            let mut nodes: Vec<u64> = ranks.iter().map(|it| it / self.node).collect();
            nodes.dedup();
            let whole = ranks[0].is_multiple_of(self.node) && choice.devices.is_multiple_of(self.node);
            if right && (nodes.len() == 1 || whole) {
                for end in block + 1..=self.blocks() {
                    for rest in self.all(end, rank + choice.devices) {
                        all.push([vec![(block, number)], rest].concat());
                    }
                }
            }
        }
        all
    }

    /// What stages take, if they may be.
    fn seconds(&self, stages: &[(usize, usize)]) -> Option<f64> {
        if stages.len() < self.stages {
            return None;
        }
        let (mut slowest, mut waits) = (f64::NEG_INFINITY, 0.0);
        // From the last to the first, as labels are made: bits of sums are those of their order.
        for (number, &(first, choice)) in stages.iter().enumerate().rev() {
            let end = stages.get(number + 1).map_or(self.blocks(), |next| next.0);
            let Choice { plans, kind, .. } = &self.choices[choice];
            let run =
                |blocks: &Vec<BlockCost>| blocks[first..end].iter().fold(BlockCost::NOTHING, BlockCost::and);
            let runs: Vec<BlockCost> = plans.iter().map(run).collect();
            let live = self.live(stages.len() - number);
            let taken = plans.iter().zip(&runs).map(|(blocks, run)| {
                (held(&blocks[first..end], live), run.step(self.micro_batches, self.splits))
            });
            let (_, mix) = mixed(&taken.collect::<Vec<_>>(), self.kinds[*kind].room())?;
            let run = mix.of(&runs);
            let (busy, waited) =
                (run.step(self.micro_batches, self.splits), self.waits(run.taken(self.splits)));
            slowest = f64::max(slowest, busy - waited);
            waits += waited;
        }
        let messages = f64::from(u32::try_from(stages.len() - 1).unwrap());
        Some(slowest + waits + 2.0 * self.message * messages)
    }

    /// What is made, of all choices that may be followed to so many ends, in a way.
    fn within<T>(&self, below: f64, most: usize, way: impl Fn(&[Choice], &Room<'_>) -> T) -> T {
        // What is refused by the least number of stages is so for the first of them alone.
        let allowed = |after: usize, _: usize, start: usize| start > 0 || after >= self.stages;
        let room = Room {
            kinds: &self.kinds,
            node: self.node,
            micro_batches: self.micro_batches,
            message: self.message,
            live: &|after| self.live(after),
            splits: self.splits,
            allowed: &allowed,
            below,
            most,
        };
        way(&self.choices, &room)
    }

    fn composed(&self, below: f64) -> Option<Composed> {
        self.within(below, 100_000, compose)
    }
}

#[test]
fn stages_are_the_best_of_all_that_there_are() {
    arbtest(|u| {
        let world = World::any(u)?;
        let all = world.all(0, 0);
        let least = all.iter().filter_map(|it| world.seconds(it)).reduce(f64::min);
        match (world.composed(f64::INFINITY), least) {
            (Some(Composed { seconds, stages }), Some(least)) => {
                assert!(all.contains(&stages), "{stages:?}");
                assert_eq!(world.seconds(&stages).map(f64::to_bits), Some(seconds.to_bits()));
                assert_eq!(seconds.to_bits(), least.to_bits(), "{stages:?}");
                // Nothing is better than the best, and the best is found below what is worse.
                assert_eq!(world.composed(least), None);
                let again = world.composed(least + 1.0);
                assert!(matches!(again, Some(it) if it.seconds.to_bits() == least.to_bits()));
            }
            (found, least) => assert_eq!((found, least), (None, None)),
        }
        Ok(())
    });
}

/// Where there are too many stages to follow, those of few choices are the best of few, and those of all choices
/// are no worse.
#[test]
fn where_there_are_too_many_few_choices_are_composed() {
    arbtest(|u| {
        let world = World::any(u)?;
        let few = world.kinds.len() + 1;
        let is_of = |stages: &[(usize, usize)], choices: usize| {
            let numbers: BTreeSet<usize> = stages.iter().map(|it| it.1).collect();
            numbers.len() <= choices
        };
        let all = world.all(0, 0);
        let least = |numbers: usize| {
            let of_them = all.iter().filter(|it| is_of(it, numbers)).filter_map(|it| world.seconds(it));
            of_them.reduce(f64::min).map(f64::to_bits)
        };
        let composed = world.within(f64::INFINITY, 100_000, few::composed);
        assert_eq!(composed.as_ref().map(|it| it.seconds.to_bits()), least(few));
        for most in [0, 1, 3, 10, 30] {
            let made = world.within(f64::INFINITY, most * 16, compose);
            if let Some(Composed { seconds, stages }) = &made {
                assert_eq!(world.seconds(stages), Some(*seconds));
            }
            let of_few = world.within(f64::INFINITY, most * 16, few::composed);
            let seconds = |it: &Option<Composed>| it.as_ref().map_or(f64::INFINITY, |it| it.seconds);
            assert!(seconds(&made) <= seconds(&of_few), "{made:?} {of_few:?}");
            let is_whole = !matches!(world.within(f64::INFINITY, most * 16, followed), Outcome::TooMany);
            assert!(!is_whole || made.map(|it| it.seconds.to_bits()) == least(usize::MAX));
        }
        Ok(())
    });
}
