//! What stages take by a schedule, as far as their blocks say.

use cost_models::units::exact;
use schedule::{self, Crossing, Durations, Kind, Overlap, StageTimes, Verified, makespan, verify};
use search::Live;
use search::cluster::{BlockCost, cut, mixed};

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
    /// The stages of a group, of blocks as one of several plans has them, or between two: what takes least of so many
    /// micro-batches where the group may hold so much (bytes). Nothing if none fits, but for what the backward part leaves
    /// for gradients of weights: there are plans that leave less.
    ///
    /// For each stage what its blocks are by each plan, and the micro-batches that it keeps; of how many stages'
    /// micro-batches something is kept at once.
    pub(super) fn among(
        stages: &[(Vec<BlockCost>, Live)],
        together: usize,
        (micro_batches, splits): (f64, bool),
        (capacity, wanted): (u64, u64),
    ) -> Option<Vec<Self>> {
        let plans = stages.iter().map(|it| it.0.len()).min()?;
        let plan = |plan: usize| {
            let runs: Vec<BlockCost> = stages.iter().map(|it| it.0[plan]).collect();
            let seconds = runs.iter().map(|it| it.step(micro_batches, splits)).sum();
            (held(&runs, together), seconds)
        };
        let (_, mix) = mixed(&(0..plans).map(plan).collect::<Vec<_>>(), (capacity, wanted))?;
        Some(stages.iter().map(|(runs, live)| Self { cost: mix.of(runs), live: *live, capacity }).collect())
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

/// What a group holds whose stages are these, where something is kept of so many of their micro-batches at once: about as
/// much of each stage (bytes).
fn held(stages: &[BlockCost], together: usize) -> u64 {
    let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
    let others = Live::of(number(together.saturating_sub(1)));
    let kept = stages.iter().map(|it| it.kept.bytes(others)).fold(0, u64::saturating_add);
    let most = stages.iter().map(|it| it.most).max().unwrap_or(0);
    let resident = stages.iter().map(|it| it.resident).fold(0, u64::saturating_add);
    resident.saturating_add(kept.div_ceil(number(stages.len()).max(1))).saturating_add(most)
}

/// For each stage that begins there, what its blocks are together.
fn stages_of(blocks: &[BlockCost], first: &[usize]) -> Vec<BlockCost> {
    let end = |stage: usize| first.get(stage + 1).copied().unwrap_or(blocks.len());
    first.iter().enumerate().map(|(stage, &first)| together(&blocks[first..end(stage)])).collect()
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
    let lives = schedule::live(&verified);
    let taken = |first: Vec<usize>| {
        let plans: Vec<Vec<BlockCost>> = plans.iter().map(|it| stages_of(it, &first)).collect();
        let mut runs = vec![None; stages];
        for (group, group_live) in lives.iter().enumerate() {
            let own: Vec<usize> = (group..stages).step_by(setup.groups).collect();
            let of_stage = |&stage: &usize| (plans.iter().map(|it| it[stage]).collect(), live[stage]);
            let all: Vec<_> = own.iter().map(of_stage).collect();
            let made = Run::among(&all, group_live.together, steps, (capacity, capacity))?;
            own.into_iter().zip(made).for_each(|(stage, run)| runs[stage] = Some(run));
        }
        let runs: Vec<Run> = runs.into_iter().collect::<Option<_>>()?;
        Some((played(&verified, &runs, message)?, first))
    };
    let cuts = cuts(plans, &verified, &live, steps, capacity);
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

/// The first blocks of stages: by all plans, where each group has one; where it has several, by each plan as if each stage
/// had all memory, and by all plans as if each had an equal part.
fn cuts(
    plans: &[&[BlockCost]],
    verified: &Verified,
    live: &[Live],
    steps: (f64, bool),
    capacity: u64,
) -> Vec<Vec<usize>> {
    let schedule = verified.schedule();
    let live: Vec<Live> = live.iter().copied().map(without_apart).collect();
    let alone = plans.chunks(1).filter(|_| schedule.chunks > 1);
    let alone = alone.filter_map(|plan| cut(plan, &live, live.len(), steps, capacity));
    let mut cuts: Vec<Vec<usize>> = alone.collect();
    cuts.extend(cut(plans, &live, schedule.groups.len(), steps, capacity));
    cuts.dedup();
    cuts
}

/// What the fullest group would hold by a schedule, if memory were no matter (bytes); nothing where it orders no such setup.
pub(super) fn fullest(blocks: &[BlockCost], setup: &Setup, (kind, chunks): (Kind, usize)) -> Option<u64> {
    let count = usize::try_from(setup.micro_batches).ok()?;
    let stages = setup.groups.checked_mul(chunks)?;
    let schedule = kind.schedule(setup.groups, chunks, count).ok()?;
    let verified = verify(schedule, stages, count).ok()?;
    let steps = (exact(setup.micro_batches), verified.schedule().splits_backward);
    let live: Vec<Live> = under_way(&verified).into_iter().map(without_apart).collect();
    let costs = stages_of(blocks, &cut(&[blocks], &live, stages, steps, u64::MAX)?);
    let of_group = |(group, live): (usize, &schedule::Live)| {
        let own: Vec<BlockCost> = costs.iter().skip(group).step_by(setup.groups).copied().collect();
        held(&own, live.together)
    };
    schedule::live(&verified).iter().enumerate().map(of_group).max()
}
