//! What stages take by a schedule, as far as their blocks say.

use cost_models::units::exact;
use planner_ir::schedule::{
    self, Crossing, Durations, Kind, Overlap, StageTimes, Verified, makespan, verify,
};
use search::Live;
use search::cluster::{BlockCost, Kept, cut};

use super::Setup;
use crate::pipeline::staged::under_way;

/// What part longer a stage takes for each part of its memory that it has too little of: its own plan then
/// keeps less. Three GPT of 175 to 530 billion parameters on A100 took 0.09 to 0.15.
const SQUEEZED: f64 = 0.12;

/// A stage: its blocks, the micro-batches that it keeps, and what it may hold (bytes).
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) blocks: &'a [BlockCost],
    pub(super) live: Live,
    pub(super) capacity: u64,
}

impl Run<'_> {
    /// Whether it fits but for what the backward part leaves for gradients of weights: there are plans that
    /// leave less.
    pub(super) fn fits(&self) -> bool {
        self.held(without_apart(self.live)) <= self.capacity
    }

    fn held(&self, live: Live) -> u64 {
        let bytes = |it: &BlockCost| it.resident.saturating_add(it.kept.bytes(live));
        self.blocks.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// What it takes for a micro-batch, and its update (seconds).
    fn times(&self) -> (StageTimes, f64) {
        let mut sum = StageTimes { forward: 0.0, backward: 0.0, weight: 0.0 };
        let mut update = 0.0;
        for block in self.blocks {
            sum.forward += block.times.forward;
            sum.backward += block.times.backward;
            sum.weight += block.times.weight;
            update += block.update;
        }
        let beyond = exact(self.held(self.live)) / exact(self.capacity) - 1.0;
        let longer = 1.0 + SQUEEZED * beyond.max(0.0);
        let times = StageTimes {
            forward: longer * sum.forward,
            backward: longer * sum.backward,
            weight: longer * sum.weight,
        };
        (times, update)
    }
}

/// As if gradients of weights were made with the backward part.
fn without_apart(live: Live) -> Live {
    Live::of(live.gradients)
}

/// What a setup takes by a schedule, and where it is cut; nothing if it does not fit.
pub(super) fn by(
    blocks: &[BlockCost],
    setup: &Setup,
    (kind, chunks): (Kind, usize),
    message: f64,
    capacity: u64,
) -> Option<(f64, Vec<usize>)> {
    let stages = setup.groups.checked_mul(chunks).filter(|&stages| stages <= blocks.len())?;
    let count = usize::try_from(setup.micro_batches).ok()?;
    let schedule = kind.schedule(setup.groups, chunks, count).ok()?;
    let verified = verify(schedule, stages, count).ok()?;
    let live = under_way(&verified);
    let first = cut_to_fit(blocks, &verified, &live, exact(setup.micro_batches), capacity)?;
    let run = |(stage, &live): (usize, &Live)| {
        let blocks = &blocks[first[stage]..first.get(stage + 1).copied().unwrap_or(blocks.len())];
        Run { blocks, live, capacity }
    };
    let stages: Vec<Run<'_>> = live.iter().enumerate().map(run).collect();
    let seconds = played(&verified, &stages, message)?;
    Some((seconds, first))
}

/// What stages take by a schedule: all micro-batches, and the longest update (seconds).
pub(super) fn played(verified: &Verified, stages: &[Run<'_>], message: f64) -> Option<f64> {
    let groups = verified.schedule().groups.len();
    let mut updates = vec![0.0; groups];
    let mut times = Vec::new();
    for (stage, run) in stages.iter().enumerate() {
        let (own, update) = run.times();
        updates[stage % groups] += update;
        times.push(own);
    }
    let crossing = |from: usize| Crossing { from, to: from + 1, forward: message, backward: message };
    let crossings = (0..stages.len() - 1).map(crossing).collect();
    let durations = Durations { stages: times, crossings, overlap: Overlap::Overlapped };
    let seconds = makespan(verified, &durations).ok()?;
    Some(seconds + updates.into_iter().fold(0.0, f64::max))
}

/// The cut into stages that fits: where a group has several, by what they hold together.
fn cut_to_fit(
    blocks: &[BlockCost],
    verified: &Verified,
    live: &[Live],
    runs: f64,
    capacity: u64,
) -> Option<Vec<usize>> {
    let schedule = verified.schedule();
    let live: Vec<Live> = live.iter().copied().map(without_apart).collect();
    let groups = schedule.groups.len();
    let loose = cut(blocks, &live, live.len(), runs, capacity)?;
    if schedule.chunks == 1 {
        return Some(loose);
    }
    let fits = |(group, live): (usize, &schedule::Live)| {
        let chunks = (group..loose.len()).step_by(groups);
        let own = |stage: usize| &blocks[loose[stage]..loose.get(stage + 1).copied().unwrap_or(blocks.len())];
        let (mut resident, mut kept) = (0_u64, Kept::default());
        for block in chunks.flat_map(own) {
            resident = resident.saturating_add(block.resident);
            kept = kept.and(block.kept);
        }
        // What chunks keep of a micro-batch is about as much for each of them.
        let together = u64::try_from(live.together).unwrap_or(u64::MAX);
        let count = u64::try_from(schedule.chunks).unwrap_or(u64::MAX);
        resident.saturating_add(kept.bytes(Live::of(together)).div_ceil(count)) <= capacity
    };
    if schedule::live(verified).iter().enumerate().all(fits) {
        Some(loose)
    } else {
        cut(blocks, &live, groups, runs, capacity)
    }
}
