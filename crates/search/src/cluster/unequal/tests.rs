//! Stages on meshes that differ, against all that there are.

use arbtest::arbtest;
use planner_ir::schedule::StageTimes;

use super::{Choice, Composed, Nodes, Outcome, Room, compose};
use crate::cluster::{BlockCost, Kept};
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
            for _ in 0..blocks {
                let mut number = || Ok(f64::from(u.int_in_range(0_u8..=9)?));
                let times = StageTimes { forward: number()?, backward: number()?, weight: number()? };
                let update = number()?;
                of.push(BlockCost {
                    times,
                    update,
                    resident: u.int_in_range(0..=9)?,
                    kept: Kept {
                        backward: u.int_in_range(0..=5)?,
                        gradients: u.int_in_range(0..=5)?,
                        apart: u.int_in_range(0..=5)?,
                    },
                });
            }
            choices.push(Choice { devices, kind, blocks: of });
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
        self.choices[0].blocks.len()
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
        for (number, &(first, choice)) in stages.iter().enumerate() {
            let end = stages.get(number + 1).map_or(self.blocks(), |next| next.0);
            let Choice { blocks, kind, .. } = &self.choices[choice];
            let (mut busy, mut waited, mut held) = (0.0, 0.0, 0);
            for block in &blocks[first..end] {
                busy += self.micro_batches * block.times.total() + block.update;
                waited += self.waits(block.times);
                let (live, kept) = (self.live(stages.len() - number), block.kept);
                held += block.resident + live.backward * kept.backward + live.gradients * kept.gradients;
                held += live.apart * kept.apart;
            }
            if held > self.kinds[*kind].capacity {
                return None;
            }
            slowest = f64::max(slowest, busy - waited);
            waits += waited;
        }
        let messages = f64::from(u32::try_from(stages.len() - 1).unwrap());
        Some(slowest + waits + 2.0 * self.message * messages)
    }

    fn composed(&self, below: f64) -> Outcome {
        // What is refused by the least number of stages is so for the first of them alone.
        let allowed = |after: usize, _: usize, start: usize| start > 0 || after >= self.stages;
        compose(
            &self.choices,
            &Room {
                kinds: &self.kinds,
                node: self.node,
                micro_batches: self.micro_batches,
                message: self.message,
                live: &|after| self.live(after),
                waits: &|times| self.waits(times),
                allowed: &allowed,
                below,
                most: 100_000,
            },
        )
    }
}

#[test]
fn stages_are_the_best_of_all_that_there_are() {
    arbtest(|u| {
        let world = World::any(u)?;
        let all = world.all(0, 0);
        let least = all.iter().filter_map(|it| world.seconds(it)).reduce(f64::min);
        match (world.composed(f64::INFINITY), least) {
            (Outcome::Best(Composed { seconds, stages }), Some(least)) => {
                assert!(all.contains(&stages), "{stages:?}");
                assert_eq!(world.seconds(&stages).map(f64::to_bits), Some(seconds.to_bits()));
                assert_eq!(seconds.to_bits(), least.to_bits(), "{stages:?}");
                // Nothing is better than the best, and the best is found below what is worse.
                assert_eq!(world.composed(least), Outcome::Nothing);
                let again = world.composed(least + 1.0);
                assert!(matches!(again, Outcome::Best(it) if it.seconds.to_bits() == least.to_bits()));
            }
            (found, least) => assert_eq!((found, least), (Outcome::Nothing, None)),
        }
        Ok(())
    });
}
