//! What stages take by a schedule, as far as their blocks say.

use cost_models::units::exact;
use schedule::{self, Crossing, Durations, Kind, Overlap, StageTimes, Verified, makespan, verify};
use search::Live;
use search::cluster::{BlockCost, cut, mixed_runs};

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
    /// Of blocks as one of several plans has them, or between two: what takes least of so many micro-batches where the stage
    /// may hold so much (bytes). Nothing if none fits, but for what the backward part leaves for gradients of weights: there
    /// are plans that leave less.
    pub(super) fn among(
        plans: &[&[BlockCost]],
        live: Live,
        steps: (f64, bool),
        (capacity, wanted): (u64, u64),
    ) -> Option<Self> {
        let runs: Vec<BlockCost> = plans.iter().map(|it| together(*it)).collect();
        let (_, mix) = mixed_runs(&runs, without_apart(live), steps, (capacity, wanted))?;
        Some(Self { cost: mix.of(&runs), live, capacity })
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

/// What a setup takes by a schedule, and where it is cut, where its blocks are as some of these plans have them; nothing
/// if it does not fit.
pub(super) fn by(
    plans: &[&[BlockCost]],
    setup: &Setup,
    (kind, chunks): (Kind, usize),
    message: f64,
    capacity: u64,
) -> Option<(f64, Vec<usize>)> {
    let blocks = plans.iter().map(|it| it.len()).min()?;
    let stages = setup.groups.checked_mul(chunks).filter(|&stages| stages <= blocks)?;
    let count = usize::try_from(setup.micro_batches).ok()?;
    let schedule = kind.schedule(setup.groups, chunks, count).ok()?;
    let verified = verify(schedule, stages, count).ok()?;
    let live = under_way(&verified);
    let steps = (exact(setup.micro_batches), verified.schedule().splits_backward);
    let taken = |(first, plans, capacity): Fits<'_, '_>| {
        let run = |(stage, &live): (usize, &Live)| {
            let of_stage = first[stage]..first.get(stage + 1).copied().unwrap_or(blocks);
            let own: Vec<&[BlockCost]> = plans.iter().map(|it| &it[of_stage.clone()]).collect();
            Run::among(&own, live, steps, (capacity, capacity))
        };
        let stages: Vec<Run> = live.iter().enumerate().map(run).collect::<Option<_>>()?;
        Some((played(&verified, &stages, message)?, first))
    };
    let cuts = cuts_that_fit(plans, &verified, &live, steps, capacity);
    cuts.into_iter().filter_map(taken).min_by(|a, b| a.0.total_cmp(&b.0))
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

/// The first block of each stage, the plans whose blocks they are, and what each may hold (bytes).
type Fits<'a, 'b> = (Vec<usize>, &'a [&'b [BlockCost]], u64);

/// Cuts into stages that fit: where a group has several, by what they hold together, or each by an equal part.
fn cuts_that_fit<'a, 'b>(
    plans: &'a [&'b [BlockCost]],
    verified: &Verified,
    live: &[Live],
    steps: (f64, bool),
    capacity: u64,
) -> Vec<Fits<'a, 'b>> {
    let schedule = verified.schedule();
    let live: Vec<Live> = live.iter().copied().map(without_apart).collect();
    let groups = schedule.groups.len();
    if schedule.chunks == 1 {
        let first = cut(plans, &live, groups, steps, capacity);
        return first.map(|first| (first, plans, capacity)).into_iter().collect();
    }
    let count = u64::try_from(schedule.chunks).unwrap_or(u64::MAX);
    let lives = schedule::live(verified);
    let together_fits = |(plan, loose): &(&'a [&'b [BlockCost]], Vec<usize>)| {
        let blocks = plan[0];
        let fits = |(group, live): (usize, &schedule::Live)| {
            let chunks = (group..loose.len()).step_by(groups);
            let own =
                |stage: usize| &blocks[loose[stage]..loose.get(stage + 1).copied().unwrap_or(blocks.len())];
            let BlockCost { resident, kept, most, .. } = together(chunks.flat_map(own));
            // What chunks keep of a micro-batch is about as much for each of them.
            let others = u64::try_from(live.together.saturating_sub(1)).unwrap_or(u64::MAX);
            let others = kept.bytes(Live::of(others)).div_ceil(count);
            resident.saturating_add(others).saturating_add(most) <= capacity
        };
        lives.iter().enumerate().all(fits)
    };
    let alone = plans.chunks(1);
    let alone = alone.filter_map(|plan| Some((plan, cut(plan, &live, live.len(), steps, capacity)?)));
    let mut found: Vec<_> =
        alone.filter(together_fits).map(|(plan, first)| (first, plan, capacity)).collect();
    let parts = cut(plans, &live, groups, steps, capacity);
    found.extend(parts.map(|first| (first, plans, capacity / count)));
    found
}

/// How many times as much as there is the fullest stage would hold, if memory were no matter: where each group has one
/// stage.
pub(super) fn fullest(blocks: &[BlockCost], setup: &Setup, capacity: u64) -> f64 {
    let cut_freely = || {
        let count = usize::try_from(setup.micro_batches).ok()?;
        let schedule = Kind::OneForwardOneBackward.schedule(setup.groups, 1, count).ok()?;
        let live = under_way(&verify(schedule, setup.groups, count).ok()?);
        let first = cut(&[blocks], &live, setup.groups, (exact(setup.micro_batches), false), u64::MAX)?;
        let end = |stage: usize| first.get(stage + 1).copied().unwrap_or(blocks.len());
        let held = |(stage, &live): (usize, &Live)| together(&blocks[first[stage]..end(stage)]).held(live);
        live.iter().enumerate().map(held).max()
    };
    cut_freely().map_or(1.0, |held| exact(held) / exact(capacity))
}
