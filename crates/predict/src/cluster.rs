//! The machine that a setup runs on, and the groups of ranks in it.
//!
//! Ranks are numbered as Megatron does: tensor-parallel ranks are neighbours, then context, then
//! data, then pipeline. A group is described by its size and the distance between its ranks; all
//! groups of the same form communicate at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cost_models::known::{Count, Known};
use cost_models::machine::{Machine, SizeError, Wiring};
use cost_models::topology::{Group, GroupError, Topology};
use cost_models::units::BytesPerSecond;

/// A machine of any number of nodes.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Two nodes of it, or one where there is no network: groups in more are like those in two.
    pub machine: Machine,
    topology: Topology,
    node: u64,
    /// What ranks have between them, by their number and distance, as far as it was asked.
    groups: Arc<Mutex<BTreeMap<(u64, u64), Group>>>,
}

/// Why there is no such cluster or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterError {
    /// A machine of that size does not exist.
    Size(SizeError),
    /// A group of ranks that it lacks.
    Group(GroupError),
}

/// What somebody states about nodes and the links between them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Links {
    /// Devices of a node.
    pub node: Option<u64>,
    /// Rate of a device into the switch of its node, in one direction (bytes per second).
    pub switch: Option<BytesPerSecond>,
    /// Adapters of a node.
    pub adapters: Option<u64>,
    /// Rate of all adapters of a node together (bytes per second).
    pub network: Option<BytesPerSecond>,
    /// Rate of one adapter (bytes per second).
    pub adapter: Option<BytesPerSecond>,
}

impl Cluster {
    /// The cluster of nodes like that of `machine`, where `links` does not say otherwise; `source`
    /// is who states `links`.
    pub fn new(mut machine: Machine, links: &Links, source: &str) -> Result<Self, ClusterError> {
        set(&mut machine, links, source);
        let node = machine.node.devices.value.0;
        let nodes = if machine.network.is_some() { 2 } else { 1 };
        let machine = machine.with_devices(nodes * node).map_err(ClusterError::Size)?;
        let topology = Topology::of(&machine);
        Ok(Self { machine, topology, node, groups: Arc::default() })
    }

    /// Devices of a node.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.node
    }

    /// What `size` ranks have between them, each `stride` after the one before.
    pub fn group(&self, size: u64, stride: u64) -> Result<Group, ClusterError> {
        let known = || self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&group) = known().get(&(size, stride)) {
            return Ok(group);
        }
        let group = self.described(size, stride, |ranks| self.topology.group(ranks))?;
        known().insert((size, stride), group);
        Ok(group)
    }

    /// The same while no other ranks communicate.
    pub fn alone(&self, size: u64, stride: u64) -> Result<Group, ClusterError> {
        self.described(size, stride, |ranks| self.topology.alone(ranks))
    }

    fn described(
        &self,
        size: u64,
        stride: u64,
        describe: impl Fn(&[u64]) -> Result<Group, GroupError>,
    ) -> Result<Group, ClusterError> {
        let group = |ranks: &[u64]| describe(ranks).map_err(ClusterError::Group);
        let each = (self.node / stride).clamp(1, size);
        if each == size && (size - 1) * stride < self.node {
            return group(&(0..size).map(|place| place * stride).collect::<Vec<_>>());
        }
        // Ranks of two nodes stand for those of all.
        let ranks =
            [0, self.node].into_iter().flat_map(|first| (0..each).map(move |place| first + place * stride));
        let pair = group(&ranks.collect::<Vec<_>>())?;
        Ok(Group { size, nodes: size.div_ceil(each), ..pair })
    }
}

fn set(machine: &mut Machine, links: &Links, source: &str) {
    let known = |it| Known::new(it, source);
    if let Some(devices) = links.node.and_then(|it| Known::new(Count(it), source)) {
        machine.node.devices = devices;
    }
    if let Some(rate) = links.switch.and_then(known) {
        machine.node.link_bandwidth = rate;
        if let Some(wiring) = Known::new(Wiring::Switch, source) {
            machine.node.wiring = wiring;
        }
    }
    let Some(network) = &mut machine.network else { return };
    if let Some(adapters) = links.adapters.and_then(|it| Known::new(Count(it), source)) {
        network.adapters = adapters;
    }
    let adapters = cost_models::units::exact(network.adapters.value.0);
    let each = links.adapter.or(links.network.map(|total| (1.0 / adapters) * total));
    if let Some(rate) = each.and_then(known) {
        network.adapter_bandwidth = rate;
    }
}

impl std::fmt::Display for ClusterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Size(error) => error.fmt(f),
            Self::Group(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ClusterError {}
