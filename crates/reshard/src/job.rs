//! What one node sends as a whole.
//!
//! A unit task is one job, or one for each receiver or node where a strategy serves them one after
//! another. Where a node has a device that holds the portions, they stay in the node: that is a
//! job of its own, without an adapter.
//!
//! A job goes in *lanes*: what leaves by one adapter and enters each node by one. With one adapter in each
//! node it has one lane. Gathers have one for each adapter of the devices that get a part; a broadcast has
//! as many as all its nodes have adapters, each a chain of its own.

use std::collections::BTreeMap;

use crate::network::Network;
use crate::policy::{Choice, Policy};
use crate::side::{Adapter, Place, adapters};
use crate::strategy::{Reach, Strategy, chunks, estimate};
use crate::unit::UnitTask;

/// What one node sends as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The unit task that it is of.
    pub(crate) task: usize,
    /// How it is sent.
    pub(crate) strategy: Strategy,
    /// In how many chunks each lane is sent, if it is a broadcast.
    pub(crate) chunks: u64,
    /// Who may send it.
    pub(crate) senders: Vec<Place>,
    /// Who receives it, node by node.
    pub(crate) receivers: Vec<Vec<Place>>,
    /// What of it goes by which adapters; nothing if it stays in its node.
    pub(crate) lanes: Vec<Lane>,
}

/// What leaves by one adapter, and enters each node that receives it by one.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// How large it is (bytes).
    pub(crate) bytes: u64,
    /// For each node the adapters that it may enter by.
    pub(crate) entries: Vec<Vec<Adapter>>,
}

/// Which way a lane goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Who sends it.
    pub(crate) from: Source,
    /// For each node the adapter that it enters by; nothing if it stays in its node.
    pub(crate) entries: Vec<Adapter>,
}

/// Devices of which one sends something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Those of a node.
    Node(u64),
    /// Those of an adapter.
    Adapter(Adapter),
}

impl Source {
    /// Whether a device is one of them.
    pub(crate) fn has(self, place: &Place) -> bool {
        match self {
            Self::Node(node) => place.node == node,
            Self::Adapter(adapter) => place.way_out() == adapter,
        }
    }

    /// The node that they are in.
    pub(crate) fn node(self) -> u64 {
        match self {
            Self::Node(node) | Self::Adapter(Adapter { node, .. }) => node,
        }
    }
}

impl Job {
    /// Whether it stays in its node.
    pub(crate) fn is_inside(&self) -> bool {
        let mut receivers = self.receivers.iter().flatten();
        receivers.all(|receiver| self.senders.iter().all(|sender| sender.node == receiver.node))
    }

    /// The first rank that gets it.
    pub(crate) fn first(&self) -> u64 {
        self.receivers.iter().flatten().next().map_or(0, |it| it.rank)
    }

    /// Whether the same receivers get it in the same way.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.strategy == other.strategy && self.receivers == other.receivers
    }
}

/// The jobs of all unit tasks, in their order.
pub(crate) fn jobs(tasks: &[UnitTask], network: &Network, policy: &Policy) -> Vec<Job> {
    tasks.iter().enumerate().flat_map(|(index, task)| of_task(index, task, network, policy)).collect()
}

fn of_task(index: usize, task: &UnitTask, network: &Network, policy: &Policy) -> Vec<Job> {
    let senders = by_node(&task.senders);
    let (inside, remote): (Vec<_>, Vec<_>) =
        by_node(&task.receivers).into_iter().partition(|(node, _)| senders.contains_key(node));
    let remote: Vec<Vec<Place>> = remote.into_iter().map(|(_, places)| places).collect();
    let strategy = match policy.strategy {
        Choice::Only(strategy) => strategy,
        Choice::Cheapest | Choice::Estimated => {
            cheapest(task.bytes, reach(&task.senders, &remote), network, policy.most_chunks)
        }
    };
    let job = |strategy: Strategy, senders: &[Place], receivers: Vec<Vec<Place>>| {
        let mut lanes = lanes(task.bytes, strategy, senders, &receivers);
        if receivers.iter().flatten().any(|it| senders.iter().any(|sender| sender.node == it.node)) {
            lanes.clear();
        }
        let chunks = match strategy {
            Strategy::Broadcast => {
                along_chain(task.bytes, (senders, &receivers), network, policy.most_chunks)
            }
            _ => 1,
        };
        Job { task: index, strategy, chunks, senders: senders.to_vec(), receivers, lanes }
    };

    let mut found = Vec::new();
    for (node, receivers) in inside {
        let senders = &senders[&node];
        match policy.strategy {
            Choice::Only(Strategy::SendReceive) => {
                found.extend(receivers.iter().map(|&it| job(Strategy::SendReceive, senders, vec![vec![it]])))
            }
            _ => found.push(job(Strategy::Broadcast, senders, vec![receivers])),
        }
    }
    let all = &task.senders;
    match strategy {
        Strategy::SendReceive => {
            found.extend(remote.iter().flatten().map(|&it| job(strategy, all, vec![vec![it]])));
        }
        Strategy::LocalGather => found.extend(remote.into_iter().map(|it| job(strategy, all, vec![it]))),
        Strategy::GlobalGather | Strategy::Broadcast if remote.is_empty() => {}
        Strategy::GlobalGather | Strategy::Broadcast => found.push(job(strategy, all, remote)),
    }
    found
}

/// Places by their nodes.
fn by_node(places: &[Place]) -> BTreeMap<u64, Vec<Place>> {
    let mut nodes: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    for place in places {
        nodes.entry(place.node).or_default().push(*place);
    }
    nodes
}

fn reach(senders: &[Place], receivers: &[Vec<Place>]) -> Reach {
    let devices = receivers.iter().map(Vec::len).max().unwrap_or(1);
    let entries = receivers.iter().map(|places| adapters(places).len()).min().unwrap_or(1);
    let exits = adapters(senders).len().max(1);
    let [nodes, devices, entries, exits] = [receivers.len().max(1), devices, entries, exits].map(count);
    Reach { nodes, devices, entries, exits }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// What goes by which adapters.
fn lanes(bytes: u64, strategy: Strategy, senders: &[Place], receivers: &[Vec<Place>]) -> Vec<Lane> {
    let nodes: Vec<Vec<Adapter>> = receivers.iter().map(|places| adapters(places)).collect();
    let fewest = nodes.iter().map(Vec::len).min().unwrap_or(0);
    let one = |lane: usize| nodes.iter().map(|entries| vec![entries[lane]]).collect();
    match strategy {
        Strategy::SendReceive => (0..fewest.min(1)).map(|lane| Lane { bytes, entries: one(lane) }).collect(),
        Strategy::LocalGather | Strategy::GlobalGather => {
            let devices: Vec<usize> = (0..fewest).map(|lane| on_lane(receivers, lane, fewest)).collect();
            let all = devices.iter().sum();
            let mut before = 0;
            let lane = |(lane, devices): (usize, usize)| {
                let share = shared(bytes, before + devices, all) - shared(bytes, before, all);
                before += devices;
                Lane { bytes: share, entries: one(lane) }
            };
            devices.into_iter().enumerate().map(lane).collect()
        }
        Strategy::Broadcast => {
            let count = fewest.min(adapters(senders).len());
            let lane = |lane| Lane {
                bytes: shared(bytes, lane + 1, count) - shared(bytes, lane, count),
                entries: nodes.clone(),
            };
            (0..count).map(lane).collect()
        }
    }
}

/// Of so many parts of equal size, how large the first ones are together (bytes).
fn shared(bytes: u64, parts: usize, all: usize) -> u64 {
    let whole = u128::from(bytes) * u128::from(count(parts)) / u128::from(count(all.max(1)));
    u64::try_from(whole).unwrap_or(bytes)
}

/// How many devices get what goes by a lane.
fn on_lane(nodes: &[Vec<Place>], lane: usize, lanes: usize) -> usize {
    let of = |places: &Vec<Place>| {
        let lanes = places.iter().map(|it| lane_of(it, places, lanes));
        lanes.filter(|it| *it == lane).count()
    };
    nodes.iter().map(of).sum()
}

/// By which lane of a gather a device of a node gets its part: adapters take turns.
pub(crate) fn lane_of(device: &Place, places: &[Place], lanes: usize) -> usize {
    let adapters = adapters(places);
    adapters.iter().position(|it| *it == device.way_out()).unwrap_or(0) % lanes.max(1)
}

/// The strategy with the least estimate, of equal ones the first.
fn cheapest(bytes: u64, reach: Reach, network: &Network, most_chunks: u64) -> Strategy {
    let time = |strategy: &Strategy| estimate(*strategy, bytes, reach, network, most_chunks);
    let least = Strategy::ALL.into_iter().min_by(|a, b| time(a).total_cmp(&time(b)));
    least.unwrap_or(Strategy::SendReceive)
}

/// In how many chunks each chain is broadcast. A chain that stays in a node has hops inside only, and
/// the first of them takes the place of that between nodes.
fn along_chain(
    bytes: u64,
    (senders, receivers): (&[Place], &[Vec<Place>]),
    network: &Network,
    most: u64,
) -> u64 {
    let reach = reach(senders, receivers);
    let inside = senders.iter().any(|sender| receivers.iter().flatten().any(|it| it.node == sender.node));
    if inside {
        let network = Network { between: network.inside, ..*network };
        return chunks(
            bytes,
            Reach { nodes: reach.devices, devices: 1, entries: 1, exits: 1 },
            &network,
            most,
        );
    }
    chunks(bytes, reach, network, most)
}
