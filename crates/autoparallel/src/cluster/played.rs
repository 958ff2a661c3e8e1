//! What stages take by a schedule, as far as their blocks say.

use cost_models::units::exact;
use schedule::{self, Crossing, Durations, Kind, Overlap, StageTimes, Verified, makespan, verify};
use search::Live;
use search::cluster::{BlockCost, cut};

use super::Setup;
use crate::staged::under_way;

/// What part longer a stage takes for each part of its memory that it has too little of: its own plan then
/// keeps less. Eight ways to run models of 70 to 1,008 billion parameters by ZB-H1 took 0.04 to 0.22.
const SQUEEZED: f64 = 0.12;

/// A stage: what its blocks take and hold, the micro-batches that it keeps, and what it may hold (bytes).
#[derive(Clone, Copy)]
pub(super) struct Run {
    cost: BlockCost,
    live: Live,
    capacity: u64,
}

impl Run {
    pub(super) fn of(blocks: &[BlockCost], live: Live, capacity: u64) -> Self {
        Self { cost: together(blocks), live, capacity }
    }

    /// Whether it fits but for what the backward part leaves for gradients of weights: there are plans that
    /// leave less.
    pub(super) fn fits(&self) -> bool {
        self.cost.held(without_apart(self.live)) <= self.capacity
    }

    /// What it takes for a micro-batch, and its update (seconds).
    fn times(&self, splits: bool) -> (StageTimes, f64) {
        let (times, update) = (self.cost.taken(splits), self.cost.update);
        let longer = longer(exact(self.cost.held(self.live)), self.capacity);
        let times = StageTimes {
            forward: longer * times.forward,
            backward: longer * times.backward,
            weight: longer * times.weight,
        };
        (times, update)
    }
}

/// How many times as long a stage takes that would hold so much (bytes) and may hold so much.
pub(super) fn longer(held: f64, capacity: u64) -> f64 {
    1.0 + SQUEEZED * (held / exact(capacity) - 1.0).max(0.0)
}

/// What blocks take and hold together.
pub(super) fn together<'a>(blocks: impl IntoIterator<Item = &'a BlockCost>) -> BlockCost {
    blocks.into_iter().fold(BlockCost::NOTHING, BlockCost::and)
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
        Run::of(blocks, live, capacity)
    };
    let stages: Vec<Run> = live.iter().enumerate().map(run).collect();
    let seconds = played(&verified, &stages, message)?;
    Some((seconds, first))
}

/// What stages take by a schedule: all micro-batches, and the longest update (seconds).
pub(super) fn played(verified: &Verified, stages: &[Run], message: f64) -> Option<f64> {
    let groups = verified.schedule().groups.len();
    let mut updates = vec![0.0; groups];
    let mut times = Vec::new();
    for (stage, run) in stages.iter().enumerate() {
        let (own, update) = run.times(verified.schedule().splits_backward);
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
    let runs = (runs, schedule.splits_backward);
    let loose = cut(blocks, &live, live.len(), runs, capacity)?;
    if schedule.chunks == 1 {
        return Some(loose);
    }
    let fits = |(group, live): (usize, &schedule::Live)| {
        let chunks = (group..loose.len()).step_by(groups);
        let own = |stage: usize| &blocks[loose[stage]..loose.get(stage + 1).copied().unwrap_or(blocks.len())];
        let BlockCost { resident, kept, most, .. } = together(chunks.flat_map(own));
        // What chunks keep of a micro-batch is about as much for each of them.
        let others = u64::try_from(live.together.saturating_sub(1)).unwrap_or(u64::MAX);
        let count = u64::try_from(schedule.chunks).unwrap_or(u64::MAX);
        let others = kept.bytes(Live::of(others)).div_ceil(count);
        resident.saturating_add(others).saturating_add(most) <= capacity
    };
    if schedule::live(verified).iter().enumerate().all(fits) {
        Some(loose)
    } else {
        cut(blocks, &live, groups, runs, capacity)
    }
}
