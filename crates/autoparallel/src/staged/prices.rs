//! What a pipeline takes: its crossings, its makespan, its update.

use std::sync::{Mutex, PoisonError};

use cost_models::cluster::Cluster;
use cost_models::collective::send;
use cost_models::machine::Machine;
use cost_models::topology::Topology;
use cost_models::units::{Bytes, BytesPerSecond, Seconds, exact};
use files::Failure;
use plan::{Arrival, Crossing, Pipeline, Term};
use planner_ir::{Phase, Type};
use reshard::{Network, Policy, Side, Strategy, quickest};
use schedule::{Durations, Overlap, StageTimes, verify};

use super::CHUNKS;
use super::phase::phase;
use super::update::{self, Messages};

/// What messages between groups go over.
pub(super) fn network(machine: &Machine) -> Result<Network, Failure> {
    let topology = Topology::of(machine);
    let wrong = |error| Failure::internal("plan", error);
    let node = machine.devices_per_node();
    let mut network = Network {
        between: BytesPerSecond(f64::INFINITY),
        inside: BytesPerSecond(f64::INFINITY),
        latency: Seconds(0.0),
    };
    let small = Bytes(1);
    if node > 1 {
        let group = topology.alone(&[0, 1]).map_err(|error| wrong(error.to_string()))?;
        network.inside = group.inside.map_or(network.inside, |inside| inside.pair);
        network.latency = send(machine, &group, small);
    }
    if machine.devices() > node {
        let group = topology.alone(&[0, node]).map_err(|error| wrong(error.to_string()))?;
        network.between = group.across.unwrap_or(network.inside);
        network.latency = send(machine, &group, small);
    }
    // One kind of link only: the other one is not used.
    if network.inside.0.is_infinite() {
        network.inside = network.between;
    }
    if network.between.0.is_infinite() {
        network.between = network.inside;
    }
    if network.inside.0.is_infinite() {
        (network.inside, network.between) = (BytesPerSecond(1e12), BytesPerSecond(1e12));
    }
    Ok(network)
}

/// What a message of a stage on so many devices to the next one takes, of which a node has so many bytes
/// to send: by all adapters, or links inside the node, that these devices have (seconds).
pub fn message(machine: &Machine, devices: u64, bytes: u64) -> Result<f64, Failure> {
    let network = network(machine)?;
    let node = machine.devices_per_node();
    let devices = devices.min(node);
    let adapters = machine.network.as_ref().map_or(1, |network| network.adapters.value.0.max(1));
    let links = if machine.devices() > node { (devices * adapters).div_ceil(node) } else { devices };
    Ok((network.latency + Bytes(bytes) / (exact(links.min(devices)) * network.between)).0)
}

/// What messages go over between stages on any two kinds of nodes.
pub(super) struct Networks<'a> {
    cluster: &'a Cluster,
    /// For each kind, what is between its groups.
    own: Vec<Network>,
    topology: Topology,
    /// Ways that were priced, and what is best for each.
    known: Mutex<Vec<(Way, Best)>>,
}

/// What is sent from where to where, by one of some strategies. Wherever in the cluster that is: ranks and
/// nodes count from the first node.
#[derive(Clone, PartialEq)]
struct Way {
    type_: Type,
    sides: [Side; 2],
    kinds: [usize; 2],
    strategies: Vec<Strategy>,
}

/// The strategy that takes least, in how many chunks at most, what is sent by it (bytes), and how long that
/// takes (seconds).
#[derive(Clone, Copy)]
struct Best {
    strategy: Strategy,
    chunks: u64,
    bytes: u64,
    seconds: f64,
}

impl<'a> Networks<'a> {
    pub(super) fn of(cluster: &'a Cluster) -> Result<Self, Failure> {
        let own = cluster.kinds().iter().map(network).collect::<Result<_, _>>()?;
        Ok(Self { cluster, own, topology: Topology::of_cluster(cluster), known: Mutex::default() })
    }

    /// Between the devices of nodes of two kinds, by the first rank of each: where kinds differ the slower
    /// of both.
    fn between(&self, kinds: [usize; 2], [one, other]: [u64; 2]) -> Result<Network, Failure> {
        let [from, to] = kinds.map(|kind| self.own[kind]);
        if kinds[0] == kinds[1] {
            return Ok(from);
        }
        let group = self.topology.alone(&[one, other]);
        let group = group.map_err(|error| Failure::internal("plan", error))?;
        let latency = kinds.map(|kind| send(&self.cluster.kinds()[kind], &group, Bytes(1)));
        Ok(Network {
            between: group.across.unwrap_or(BytesPerSecond::min(from.between, to.between)),
            inside: BytesPerSecond::min(from.inside, to.inside),
            latency: if latency[0] < latency[1] { latency[1] } else { latency[0] },
        })
    }

    /// The best of some strategies for a value of a stage to another stage.
    fn best(
        &self,
        pipeline: &Pipeline,
        value: (&str, usize),
        to: usize,
        strategies: &[Strategy],
    ) -> Result<Best, Failure> {
        let sides = lower::sides(pipeline, value, to);
        let (sides, type_) = sides.map_err(|error| Failure::internal("plan", error))?;
        let first = [value.1, to].map(|stage| pipeline.stages[stage].first_device);
        let kinds = first.map(|rank| self.cluster.kind_of(rank));
        let own = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut way = Way { type_: type_.clone(), sides, kinds, strategies: strategies.to_vec() };
        way.move_to_first_node(pipeline.devices_per_node);
        if let Some((_, best)) = own().iter().find(|it| it.0 == way) {
            return Ok(*best);
        }
        let best = way.best(&self.between(kinds, first)?)?;
        own().push((way, best));
        Ok(best)
    }
}

impl Way {
    /// The same from the first node on.
    fn move_to_first_node(&mut self, devices_per_node: u64) {
        let places = || self.sides.iter().flat_map(|side| &side.places);
        let node = places().map(|place| place.node).min().unwrap_or(0);
        for place in self.sides.iter_mut().flat_map(|side| &mut side.places) {
            place.node -= node;
            place.rank -= node * devices_per_node;
        }
    }

    /// The strategy that takes least.
    fn best(&self, network: &Network) -> Result<Best, Failure> {
        let Self { type_, sides: [from, to], strategies, .. } = self;
        let policies: Vec<Policy> = strategies.iter().map(|&it| lower::by(it, CHUNKS)).collect();
        let found = quickest(type_, (from, to), network, &policies);
        let found = found.map_err(|error| Failure::internal("plan", error))?;
        let (number, made, Seconds(seconds)) =
            found.ok_or_else(|| Failure::internal("plan", "there is no strategy"))?;
        let bytes = made.messages.iter().map(|message| message.bytes).sum();
        // Of a power of two of rows so many parts are of one size, and ranks that do the same stay alike.
        let chunks = made.chunks.next_power_of_two().min(CHUNKS);
        Ok(Best { strategy: strategies[number], chunks, bytes, seconds })
    }
}

/// A crossing that travels to each stage by the one of some strategies that takes least.
pub(super) fn travelling(
    pipeline: &Pipeline,
    crossing: &train::Crossing,
    networks: &Networks<'_>,
    strategies: &[Strategy],
) -> Result<Crossing, Failure> {
    let arrival = |&stage: &usize| {
        let best = networks.best(pipeline, (&crossing.name, crossing.from), stage, strategies)?;
        let Best { strategy, chunks, bytes, seconds } = best;
        Ok(Arrival { stage, strategy: strategy.name().to_owned(), chunks, bytes, seconds })
    };
    let to = crossing.to.iter().map(arrival).collect::<Result<_, Failure>>()?;
    Ok(Crossing { name: crossing.name.clone(), from: crossing.from, to })
}

/// What each stage takes for a micro-batch, and its update (seconds).
pub(super) fn phases(pipeline: &Pipeline) -> Vec<(StageTimes, f64)> {
    pipeline.stages.iter().map(|it| it.plan.phases(pipeline.schedule.splits_backward)).collect()
}

/// The estimate of a step: what the busiest group does, what it waits for, the update, and what that
/// waits for.
pub(super) fn priced(pipeline: &mut Pipeline) -> Result<(), Failure> {
    let phases = phases(pipeline);
    let durations = durations(pipeline, &phases);
    let count = usize::try_from(pipeline.micro_batches()).unwrap_or(usize::MAX);
    let verified = verify(pipeline.schedule.clone(), pipeline.stages.len(), count);
    let verified = verified.map_err(|error| Failure::internal("plan", error))?;
    let played = schedule::timeline(&verified, &durations);
    let played = played.map_err(|error| Failure::internal("plan", error))?;
    let tasks: Vec<f64> = played.groups.iter().map(|it| it.last().map_or(0.0, |span| span.end)).collect();
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let busy = most(&played.idle.iter().map(|idle| played.makespan - idle).collect::<Vec<_>>());
    let updated = |messages: Messages| {
        let ends = update::ends(pipeline, &tasks, messages);
        let ends = ends.ok_or_else(|| Failure::internal("plan", "updates of stages wait for each other"))?;
        Ok(most(&ends))
    };
    let (alone, all) = (updated(Messages::Untimed)?, updated(Messages::Timed)?);
    let term = |name: &str, seconds: f64| Term { name: name.to_owned(), seconds: seconds.max(0.0) };
    pipeline.estimate = vec![
        term("busiest stage", busy),
        term("pipeline bubble", played.makespan - busy),
        term("update", alone - played.makespan),
        term("update communication", all - alone),
    ];
    Ok(())
}

/// How long tasks and messages of a pipeline take.
pub fn durations(pipeline: &Pipeline, phases: &[(StageTimes, f64)]) -> Durations {
    let mut crossings: Vec<schedule::Crossing> = Vec::new();
    for crossing in &pipeline.crossings {
        let Some(phase) = phase(pipeline, crossing) else { continue };
        for arrival in &crossing.to {
            let (from, to) = (crossing.from.min(arrival.stage), crossing.from.max(arrival.stage));
            let place = crossings.iter().position(|it| (it.from, it.to) == (from, to)).unwrap_or_else(|| {
                crossings.push(schedule::Crossing { from, to, forward: 0.0, backward: 0.0 });
                crossings.len() - 1
            });
            match phase {
                Phase::Forward => crossings[place].forward += arrival.seconds,
                _ => crossings[place].backward += arrival.seconds,
            }
        }
    }
    let stages = phases.iter().map(|(times, _)| *times).collect();
    Durations { stages, crossings, overlap: Overlap::Overlapped }
}
