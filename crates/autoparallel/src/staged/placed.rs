//! On which nodes groups of devices lie, and what that says of stages.
//!
//! Groups follow each other by rank, and each lies in nodes of one kind, in part of a node or in whole ones.
//! Where there are several kinds, or groups of several sizes, stages of equal work would wait for the slowest:
//! blocks are dealt by what stages have been found to take.

use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use cost_models::units::exact;
use files::Failure;
use plan::{Pipeline, Plan};
use planner_ir::Mesh;

use super::{Forward, Meshes, Wanted, held};

/// How often blocks are dealt anew.
const ROUNDS: usize = 4;

impl Wanted<'_> {
    /// What a device of a kind of nodes can hold (bytes).
    pub(super) fn capacity(&self, kind: usize) -> u64 {
        self.memory.unwrap_or(self.cluster.kinds()[kind].usable_memory().0)
    }
}

/// Where a group of devices is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its mesh.
    pub mesh: Mesh,
    /// The rank of its first device; the others follow.
    pub first: u64,
    /// The kind of nodes that it is on.
    pub kind: usize,
    /// What it is by itself.
    pub machine: Machine,
}

/// Where the groups of devices are, in the order of their ranks.
pub fn places(cluster: &Cluster, meshes: Meshes<'_>) -> Result<Vec<Place>, Failure> {
    let mut first = 0;
    let mut places = Vec::new();
    for mesh in each(cluster, meshes)? {
        let devices = mesh.devices();
        let (kind, node) = (cluster.kind_of(first), cluster.devices_per_node());
        let last = first + devices - 1;
        let on = &cluster.kinds()[kind];
        if cluster.kind_of(last) != kind {
            return Err(Failure::Usage(format!(
                "a group of {devices} devices from rank {first} would lie on two kinds of nodes: {} has {}, \
                 expected groups that end with them",
                on.full_name(),
                on.devices()
            )));
        }
        if !first.is_multiple_of(node) && first / node != last / node {
            return Err(Failure::Usage(format!(
                "a group of {devices} devices from rank {first} would lie on parts of nodes of {node}, expected \
                 groups within a node, or of whole nodes: give other meshes, or another order"
            )));
        }
        let machine = on.clone().with_devices(devices).map_err(|error| {
            Failure::Usage(format!("a group of {devices} devices is not of {}: {error}", on.full_name()))
        })?;
        places.push(Place { mesh, first, kind, machine });
        first += devices;
    }
    Ok(places)
}

/// How many adapters a node has, of which each serves devices of its own: one where there is no network.
pub(super) fn adapters(machine: &Machine) -> u64 {
    let adapters = machine.network.as_ref().map_or(1, |network| network.adapters.value.0);
    adapters.clamp(1, machine.devices_per_node())
}

/// The mesh of each group of devices.
fn each(cluster: &Cluster, meshes: Meshes<'_>) -> Result<Vec<Mesh>, Failure> {
    let (all, name) = (cluster.devices(), cluster.full_name());
    match meshes {
        Meshes::Alike(mesh) => {
            let each = mesh.devices();
            let groups = all.checked_div(each).filter(|groups| groups * each == all);
            let groups = groups.and_then(|groups| usize::try_from(groups).ok()).ok_or_else(|| {
                Failure::Usage(format!(
                    "{all} devices of {name} do not fall into groups of {each}, expected a mesh of which a \
                     multiple is {all}"
                ))
            })?;
            Ok(vec![mesh.clone(); groups])
        }
        Meshes::Each(meshes) => {
            let sum: u64 = meshes.iter().map(Mesh::devices).fold(0, u64::saturating_add);
            if sum != all || meshes.iter().any(|mesh| mesh.devices() == 0) {
                let sizes: Vec<String> = meshes.iter().map(crate::mesh::sizes).collect();
                return Err(Failure::Usage(format!(
                    "groups of meshes {} are {sum} devices, expected {all}, those of {name}",
                    sizes.join(", ")
                )));
            }
            Ok(meshes.to_vec())
        }
    }
}

/// Refuses what does not fit: groups, and plans of stages by themselves, which may have to hold more where no other
/// stage leaves room.
pub(super) fn fits(pipeline: &Pipeline) -> Result<(), Failure> {
    let groups = pipeline.memory.iter().enumerate();
    let groups = groups.map(|(it, memory)| (format!("group {it}"), held(memory), pipeline.capacity_of(it)));
    let stages = pipeline.stages.iter().enumerate();
    let stages = stages.map(|(it, stage)| {
        (format!("the plan of stage {it} by itself"), held(&stage.plan.memory), stage.plan.capacity)
    });
    match groups.chain(stages).find(|(_, held, capacity)| held > capacity) {
        None => Ok(()),
        Some((what, held, capacity)) => Err(Failure::no_room(
            "the pipeline does not fit",
            format!(
                "{what} needs {}, and a device may hold {}: {} bytes are missing; more stages, smaller \
                 micro-batches, a schedule that holds fewer of them (`--schedule 1f1b`) or `--recompute full` \
                 would help",
                cost_models::quantity::bytes(held),
                cost_models::quantity::bytes(capacity),
                held - capacity
            ),
            Some(held),
        )),
    }
}

/// The cheapest pipeline that is found where stages are on nodes of several kinds, or on meshes of several
/// sizes. Their blocks are dealt by how fast each stage has been: first by the arithmetic of its devices,
/// then by what it took.
pub(super) fn levelled(
    forward: &Forward,
    wanted: &Wanted<'_>,
    count: usize,
    make: &dyn Fn(Vec<usize>) -> Result<Pipeline, Failure>,
) -> Result<Pipeline, Failure> {
    let works = forward.works();
    let places = places(wanted.cluster, wanted.meshes)?;
    let reached = |stage: usize| {
        let Place { machine, mesh, .. } = &places[stage % places.len()];
        let device = &machine.device;
        let (part, peak) = if forward.makes_halves() {
            (&device.matrix_reached.bf16, &device.matrix_peak.bf16)
        } else {
            (&device.matrix_reached.f32, &device.matrix_peak.f32)
        };
        (part.value * peak.value).0 * exact(mesh.devices())
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
    let (times, update) = plan.phases(pipeline.schedule.splits_backward);
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
