//! On which nodes groups of devices lie, and what that says of stages.
//!
//! Groups follow each other by rank, and each lies in nodes of one kind. Where there are several kinds, stages
//! of equal work would wait for the slowest: blocks are dealt by what stages have been found to take.

use cost_models::machine::Machine;
use cost_models::units::exact;
use plan::{Pipeline, Plan, Precision};
use planner_ir::schedule::Schedule;

use super::{Forward, Wanted, held};
use crate::failure::Failure;

/// How often blocks are dealt anew.
const ROUNDS: usize = 4;

impl Wanted<'_> {
    /// What a device of a kind of nodes can hold (bytes).
    pub(super) fn capacity(&self, kind: usize) -> u64 {
        self.memory.unwrap_or(self.cluster.kinds()[kind].usable_memory().0)
    }
}

/// How many groups of devices there are.
pub(super) fn groups(wanted: &Wanted<'_>) -> Result<usize, Failure> {
    let (all, each) = (wanted.cluster.devices(), wanted.mesh.devices());
    if each == 0 || !all.is_multiple_of(each) {
        return Err(Failure::Usage(format!(
            "{all} devices of {} do not fall into groups of {each}, expected a mesh of which a multiple is {all}",
            wanted.cluster.full_name()
        )));
    }
    for kind in wanted.cluster.kinds() {
        if !kind.devices().is_multiple_of(each) {
            return Err(Failure::Usage(format!(
                "a group of {each} devices would lie on two kinds of nodes: {} has {}, expected a multiple of {each}",
                kind.full_name(),
                kind.devices()
            )));
        }
    }
    usize::try_from(all / each).map_err(|_| Failure::Usage("too many groups".to_owned()))
}

/// For each kind of nodes, what a group of devices is.
pub(super) fn machines(wanted: &Wanted<'_>) -> Result<Vec<Machine>, Failure> {
    let devices = wanted.mesh.devices();
    let group = |kind: &Machine| {
        let machine = kind.clone().with_devices(devices);
        machine.map_err(|error| {
            Failure::Usage(format!("a group of {devices} devices is not of {}: {error}", kind.full_name()))
        })
    };
    wanted.cluster.kinds().iter().map(group).collect()
}

/// The kind of nodes that a stage is on.
pub(super) fn kind(wanted: &Wanted<'_>, schedule: &Schedule, stage: usize) -> usize {
    let group = u64::try_from(schedule.home(stage).0).unwrap_or(u64::MAX);
    wanted.cluster.kind_of(group.saturating_mul(wanted.mesh.devices()))
}

/// Refuses what does not fit.
pub(super) fn fits(pipeline: &Pipeline) -> Result<(), Failure> {
    for (group, memory) in pipeline.memory.iter().enumerate() {
        let (held, capacity) = (held(memory), pipeline.capacity_of(group));
        if held > capacity {
            return Err(Failure::input(
                "the pipeline does not fit",
                format!(
                    "group {group} needs {}, and a device may hold {}: {} bytes are missing; more stages, smaller \
                     micro-batches, a schedule that holds fewer of them (`--schedule 1f1b`) or `--recompute full` \
                     would help",
                    crate::quantity::bytes(held),
                    crate::quantity::bytes(capacity),
                    held - capacity
                ),
            ));
        }
    }
    Ok(())
}

/// The cheapest pipeline that is found where stages are on nodes of several kinds. Their blocks are dealt by
/// how fast each stage has been: first by the arithmetic of its devices, then by what it took.
pub(super) fn levelled(
    forward: &Forward,
    wanted: &Wanted<'_>,
    count: usize,
    make: &dyn Fn(Vec<usize>) -> Result<Pipeline, Failure>,
) -> Result<Pipeline, Failure> {
    let works = forward.works();
    let groups = groups(wanted)?;
    let kind = |stage: usize| {
        let group = u64::try_from(stage % groups).unwrap_or(u64::MAX);
        wanted.cluster.of_rank(group.saturating_mul(wanted.mesh.devices()))
    };
    let reached = |stage: usize| {
        let device = &kind(stage).device;
        let (part, peak) = match forward.recipe.precision {
            Precision::Bf16 => (&device.matrix_reached.bf16, &device.matrix_peak.bf16),
            Precision::F32 => (&device.matrix_reached.f32, &device.matrix_peak.f32),
        };
        (part.value * peak.value).0
    };
    let mut speeds: Vec<f64> = (0..count).map(reached).collect();
    let mut best: Option<Pipeline> = None;
    let mut tried: Vec<Vec<usize>> = Vec::new();
    let mut refused = None;
    for _ in 0..ROUNDS {
        // What a cut of equal speeds says of too many stages holds here too.
        let Some(first) = dealt(&works, &speeds) else { return Err(too_many(forward, count)) };
        let made = if tried.contains(&first) { None } else { Some(make(first.clone())) };
        tried.push(first.clone());
        let made = match (made, &best) {
            (Some(Ok(made)), _) => made,
            (Some(Err(failure @ Failure::Internal(_))), _) => return Err(failure),
            (None, Some(_)) => break,
            // Parts that are nearer to equal may fit.
            (unfit, _) => {
                refused = unfit.and_then(Result::err).or(refused);
                speeds.iter_mut().for_each(|speed| *speed = speed.sqrt());
                continue;
            }
        };
        for (stage, speed) in speeds.iter_mut().enumerate() {
            let end = first.get(stage + 1).copied().unwrap_or(works.len());
            let work: f64 = works[first[stage]..end].iter().sum();
            let seconds = took(&made, &made.stages[stage].plan);
            // What a stage without products does is nothing to measure speed by.
            if work > 0.0 && seconds > 0.0 {
                *speed = work / seconds;
            }
        }
        if best.as_ref().is_none_or(|best| made.seconds() < best.seconds()) {
            best = Some(made);
        }
    }
    best.ok_or_else(|| refused.unwrap_or_else(|| too_many(forward, count)))
}

fn too_many(forward: &Forward, count: usize) -> Failure {
    match forward.cut(count) {
        Err(failure) => failure,
        Ok(_) => Failure::internal("plan", "a model was not cut"),
    }
}

/// What a stage takes of a step (seconds).
fn took(pipeline: &Pipeline, plan: &Plan) -> f64 {
    let (times, update) = plan.phases();
    exact(pipeline.micro_batches()) * times.total() + update
}

/// The first blocks of stages of these speeds, in order, such that the one that is longest at work is as
/// short at it as can be; nothing if there are fewer blocks than stages. The time grows as
/// blocks² x stages.
fn dealt(works: &[f64], speeds: &[f64]) -> Option<Vec<usize>> {
    let (blocks, stages) = (works.len(), speeds.len());
    if stages == 0 || stages > blocks {
        return None;
    }
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(works.iter().scan(0.0, |sum, work| {
            *sum += work;
            Some(*sum)
        }))
        .collect();
    // For each number of stages and of blocks that they have: the longest, and where the last starts.
    let mut longest = vec![vec![(f64::INFINITY, 0); blocks + 1]; stages + 1];
    longest[0][0] = (0.0, 0);
    for (stage, speed) in speeds.iter().enumerate() {
        for end in stage + 1..=blocks - (stages - stage - 1) {
            for start in stage..end {
                let own = (sums[end] - sums[start]) / speed;
                let both = longest[stage][start].0.max(own);
                if both < longest[stage + 1][end].0 {
                    longest[stage + 1][end] = (both, start);
                }
            }
        }
    }
    let mut first = Vec::new();
    let mut end = blocks;
    for stage in (0..stages).rev() {
        end = longest[stage + 1][end].1;
        first.push(end);
    }
    first.reverse();
    Some(first)
}

#[cfg(test)]
mod tests;
