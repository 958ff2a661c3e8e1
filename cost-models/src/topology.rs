//! Devices, switches, network adapters and the links between them; what a group of ranks has.
//!
//! The graph says which place is joined to which and at what rate in one direction. What a
//! collective operation needs to know of a group of ranks is derived from it as a [`Group`].

mod channels; // links in one direction, and what goes over them

use std::collections::BTreeMap;
use std::fmt;

use petgraph::graph::{NodeIndex, UnGraph};
use planner_ir::{AxisId, Mesh};

use crate::cluster::Cluster;
use crate::machine::{Machine, Wiring};
use crate::units::{BytesPerSecond, Ratio, exact};

pub use channels::{Channel, Load};

/// Something that links join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The device of a rank.
    Device(u64),
    /// What joins the devices of a node.
    Switch(u64),
    /// The host of a node, through which devices without a link reach each other.
    Host(u64),
    /// A network adapter: the node and its place in it.
    Adapter(u64, u64),
    /// What joins the adapters of all nodes.
    Fabric,
}

/// The places of a machine and the rates at which they are joined, in one direction.
#[derive(Clone, Debug)]
pub struct Topology {
    graph: UnGraph<Place, BytesPerSecond>,
    /// The place of each rank's device.
    devices: Vec<NodeIndex>,
    devices_per_node: u64,
    /// What each node is by itself.
    nodes: Vec<Within>,
    /// Nodes at one leaf of the network, and the part of the adapters' rate that goes beyond it.
    leaves: Option<(u64, Ratio)>,
}

/// The parts of the rates of links that are reached.
#[derive(Clone, Copy, Debug)]
struct Shares {
    ring: Ratio,
    pair: Ratio,
    exchange: Ratio,
}

/// What is particular to a node.
#[derive(Clone, Copy, Debug)]
struct Within {
    shares: Shares,
    /// Devices at one socket of its host, and the rate between sockets (bytes per second).
    sockets: Option<(u64, BytesPerSecond)>,
}

/// What a set of ranks that communicate with each other have between them.
///
/// All groups of the same form communicate at the same time: those that share an adapter share
/// its rate equally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// The number of ranks.
    pub size: u64,
    /// The number of nodes that they are in.
    pub nodes: u64,
    /// Ranks in the node that has fewest of them.
    pub ranks_per_node: u64,
    /// How ranks of the same node reach each other; `None` if no node has two.
    pub inside: Option<Inside>,
    /// Rate at which the group's ranks of one node reach other nodes, together, over all the
    /// adapters that are theirs (bytes per second); `None` if there is one node.
    pub across: Option<BytesPerSecond>,
}

/// Rates between the ranks of a group in the same node that large messages reach (bytes per second).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inside {
    /// The peak rate of all the links of a rank to others of the group.
    pub link: BytesPerSecond,
    /// What every rank can send around rings, over all its links to other ranks of the group.
    pub ring: BytesPerSecond,
    /// What a rank can send to the next one of the group.
    pub pair: BytesPerSecond,
    /// What a rank can send to the next one and to the one before it together, half to each.
    pub both: BytesPerSecond,
    /// What every rank can send when all send to all.
    pub exchange: BytesPerSecond,
}

impl Group {
    /// The same while `groups` groups like it, this one included, share its adapters: each has an
    /// equal part of their rate.
    ///
    /// [`Topology::group`] counts all groups of one form, [`Topology::alone`] none; this is for
    /// what is between.
    #[must_use]
    pub fn among(self, groups: u64) -> Self {
        let part = 1.0 / exact(groups.max(1));
        Self { across: self.across.map(|rate| part * rate), ..self }
    }

    /// The ranks of one node, and one rank of each node, where the group has as many in each of several, and more
    /// than one: groups that exchange in two stages what this one does.
    #[must_use]
    pub fn by_nodes(&self) -> Option<[Self; 2]> {
        let near = self.ranks_per_node;
        if self.nodes < 2 || near < 2 || self.size != self.nodes * near {
            return None;
        }
        let within = Self { size: near, nodes: 1, across: None, ..*self };
        let between = Self { size: self.nodes, ranks_per_node: 1, inside: None, ..*self };
        Some([within, between.among(near)])
    }
}

impl Within {
    fn of(machine: &Machine) -> Self {
        let node = &machine.node;
        let (ring, pair) = (node.ring_share.value, node.pair_share.value);
        let shares = Shares { ring, pair, exchange: node.exchange_share.value };
        let sockets = node.sockets.as_ref().map(|sockets| {
            let devices = node.devices.value.0 / sockets.count.value.0;
            (devices, node.host_share.value * sockets.bandwidth.value)
        });
        Self { shares, sockets }
    }
}

/// Why ranks are not a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// There are no ranks.
    Empty,
    /// A rank that the machine lacks.
    Rank {
        /// The rank.
        rank: u64,
        /// How many the machine has.
        devices: u64,
    },
    /// A rank that is in the group twice.
    Twice(u64),
}

impl Topology {
    /// The topology of `machine`.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        Self::of_kinds(std::slice::from_ref(machine))
    }

    /// The topology of a cluster: nodes of all kinds are on one fabric.
    #[must_use]
    pub fn of_cluster(cluster: &Cluster) -> Self {
        Self::of_kinds(cluster.kinds())
    }

    /// Of machines whose nodes have equally many devices.
    fn of_kinds(kinds: &[Machine]) -> Self {
        let mut graph = UnGraph::new_undirected();
        let ranks = kinds.iter().map(Machine::devices).sum();
        let devices: Vec<_> = (0..ranks).map(|rank| graph.add_node(Place::Device(rank))).collect();
        let devices_per_node = kinds.first().map_or(1, Machine::devices_per_node);
        let nodes: Vec<&Machine> = kinds.iter().flat_map(|it| (0..it.nodes()).map(move |_| it)).collect();
        // Kinds that are joined have no leaves.
        let network = kinds.iter().find_map(|kind| kind.network.as_ref());
        let leaves = network.and_then(|network| network.leaves.as_ref());
        let leaves = leaves.map(|leaves| (leaves.nodes.value.0, leaves.uplink_share.value));
        let within = nodes.iter().map(|kind| Within::of(kind)).collect();
        let mut topology = Self { graph, devices, devices_per_node, nodes: within, leaves };
        for (node, kind) in (0..).zip(&nodes) {
            topology.join_devices(kind, node);
        }
        if nodes.len() > 1 {
            topology.join_nodes(&nodes);
        }
        topology
    }

    /// The places and links, for looking at.
    #[must_use]
    pub fn graph(&self) -> &UnGraph<Place, BytesPerSecond> {
        &self.graph
    }

    /// The node that a rank is in.
    #[must_use]
    pub fn node_of(&self, rank: u64) -> u64 {
        rank / self.devices_per_node
    }

    /// The adapter that a device is joined to.
    fn adapter(&self, device: NodeIndex) -> Option<NodeIndex> {
        self.graph.neighbors(device).find(|&place| matches!(self.graph[place], Place::Adapter(..)))
    }

    /// What `ranks` have between them. Their order is the order of the ring.
    pub fn group(&self, ranks: &[u64]) -> Result<Group, GroupError> {
        let mut seen = vec![false; self.devices.len()];
        let mut nodes: BTreeMap<u64, Vec<NodeIndex>> = BTreeMap::new();
        for &rank in ranks {
            let lacking = GroupError::Rank { rank, devices: exact_len(self.devices.len()) };
            let index = usize::try_from(rank).ok().filter(|index| *index < seen.len());
            let index = index.ok_or(lacking)?;
            if std::mem::replace(&mut seen[index], true) {
                return Err(GroupError::Twice(rank));
            }
            nodes.entry(self.node_of(rank)).or_default().push(self.devices[index]);
        }
        let fewest = nodes.values().map(Vec::len).min().ok_or(GroupError::Empty)?;
        let inside = nodes.values().filter(|members| members.len() > 1);
        let inside = inside.map(|members| self.inside(members)).reduce(slower);
        let across = nodes.values().map(|members| self.across(members)).reduce(BytesPerSecond::min);
        let across = across.map(|rate| self.beyond_leaves(nodes.keys().copied(), rate));
        Ok(Group {
            size: exact_len(ranks.len()),
            nodes: exact_len(nodes.len()),
            ranks_per_node: exact_len(fewest),
            inside,
            across: across.filter(|_| nodes.len() > 1),
        })
    }

    /// The groups along `axes` of a mesh of the machine's ranks, each kind once.
    ///
    /// All of them communicate at the same time, so that the slowest kind says how long it takes.
    /// There is more than one kind if some groups cross the border of a node and some do not.
    pub fn along(&self, mesh: &Mesh, axes: &[AxisId]) -> Result<Vec<Group>, GroupError> {
        let mut kinds: Vec<Group> = Vec::new();
        for ranks in mesh.groups(axes) {
            let group = self.group(&ranks)?;
            if !kinds.contains(&group) {
                kinds.push(group);
            }
        }
        Ok(kinds)
    }

    fn devices_of(&self, node: u64) -> impl Iterator<Item = NodeIndex> + use<> {
        let first = node * self.devices_per_node;
        let devices: Vec<_> = (first..first + self.devices_per_node)
            .filter_map(|rank| self.devices.get(usize::try_from(rank).ok()?).copied())
            .collect();
        devices.into_iter()
    }

    /// Adds the switch or the links of a node, and its host.
    fn join_devices(&mut self, machine: &Machine, node: u64) {
        let members: Vec<_> = self.devices_of(node).collect();
        let link = machine.node.link_bandwidth.value;
        match &machine.node.wiring.value {
            Wiring::Switch => {
                let switch = self.graph.add_node(Place::Switch(node));
                for &device in &members {
                    self.graph.add_edge(device, switch, link);
                }
            }
            Wiring::Links(links) => {
                let member = |place: u64| members.get(usize::try_from(place).ok()?).copied();
                for joined in links {
                    if let [Some(from), Some(to)] = joined.ends.map(member) {
                        self.graph.add_edge(from, to, exact(joined.lanes) * link);
                    }
                }
            }
        }
        let host = self.graph.add_node(Place::Host(node));
        for &device in &members {
            let rate = machine.node.host_share.value * machine.node.host_bandwidth.value;
            self.graph.add_edge(device, host, rate);
        }
    }

    /// Adds the fabric, and to each node its adapters, each with an equal run of the devices.
    fn join_nodes(&mut self, nodes: &[&Machine]) {
        let fabric = self.graph.add_node(Place::Fabric);
        for (node, kind) in (0..).zip(nodes) {
            let Some(network) = &kind.network else { continue };
            let rate = network.adapter_bandwidth.value;
            let count = network.adapters.value.0;
            let adapters: Vec<_> =
                (0..count).map(|place| self.graph.add_node(Place::Adapter(node, place))).collect();
            for &adapter in &adapters {
                self.graph.add_edge(adapter, fabric, rate);
            }
            for (place, device) in (0..).zip(self.devices_of(node)) {
                let nearest = usize::try_from(place * count / self.devices_per_node);
                let nearest = nearest.ok().and_then(|place| adapters.get(place));
                if let Some(&adapter) = nearest {
                    self.graph.add_edge(device, adapter, rate);
                }
            }
        }
    }

    /// What is particular to the node of a device.
    fn within(&self, device: NodeIndex) -> &Within {
        let node = match self.graph[device] {
            Place::Device(rank) => self.node_of(rank),
            Place::Switch(node) | Place::Host(node) | Place::Adapter(node, _) => node,
            Place::Fabric => 0,
        };
        let node = usize::try_from(node).expect("a machine has no more nodes than an address can number");
        &self.nodes[node]
    }

    /// What is left of the rate of adapters between these nodes.
    fn beyond_leaves(&self, nodes: impl Iterator<Item = u64>, rate: BytesPerSecond) -> BytesPerSecond {
        let Some((size, share)) = self.leaves else { return rate };
        let mut leaves = nodes.map(|node| node / size);
        let first = leaves.next();
        if leaves.any(|leaf| Some(leaf) != first) { share * rate } else { rate }
    }

    /// Rates between at least two devices of one node.
    fn inside(&self, members: &[NodeIndex]) -> Inside {
        let next = members.iter().cycle().skip(1);
        let pair = lowest(members.iter().zip(next).map(|(&from, &to)| self.between(from, to)));
        // Links to two neighbours are two; a port, or the way through the host, is one.
        let mut neighbours = members.iter().zip(members.iter().cycle().skip(1));
        let linked = neighbours.all(|(&from, &to)| self.graph.find_edge(from, to).is_some());
        let both = if linked && members.len() > 2 { 2.0 * pair } else { pair };
        if !self.connected(members) {
            let ring = self.through_host(members);
            let exchange = self.exchange_through_host(members);
            return Inside { link: ring, ring, pair, both, exchange };
        }
        let link = lowest(members.iter().map(|&device| self.to_all(device, members)));
        let at_switch = members.iter().all(|&it| self.port(it).is_some());
        let mut pairs = members.iter().flat_map(|&from| members.iter().map(move |&to| (from, to)));
        let all_joined = at_switch || pairs.all(|(from, to)| from == to || self.joined(from, to).is_some());
        let shares = self.within(members[0]).shares;
        let exchange = if all_joined { shares.exchange * link } else { self.exchange_through_host(members) };
        Inside { link, ring: shares.ring * link, pair, both, exchange }
    }

    /// Whether links or a switch join all of these devices, directly or through each other.
    fn connected(&self, members: &[NodeIndex]) -> bool {
        if members.iter().all(|&device| self.port(device).is_some()) {
            return true;
        }
        let mut reached = vec![members[0]];
        let mut next = 0;
        while let Some(&from) = reached.get(next) {
            let new = |to: &&NodeIndex| !reached.contains(to) && self.joined(from, **to).is_some();
            let found: Vec<_> = members.iter().filter(new).copied().collect();
            reached.extend(found);
            next += 1;
        }
        reached.len() == members.len()
    }

    /// Rate at which a device can send to `members` together: its port on the switch, or the sum
    /// of its links to them.
    fn to_all(&self, device: NodeIndex, members: &[NodeIndex]) -> BytesPerSecond {
        let links = || members.iter().filter_map(|&other| self.joined(device, other));
        let all = self.port(device).or_else(|| links().reduce(|sum, rate| sum + rate));
        all.unwrap_or_else(|| self.to_host(device))
    }

    /// Rate of a ring through the host: it leaves every socket once.
    fn through_host(&self, members: &[NodeIndex]) -> BytesPerSecond {
        let own = lowest(members.iter().map(|&device| self.to_host(device)));
        let sockets = members.first().and_then(|&it| self.within(it).sockets);
        let between = sockets.filter(|_| self.at_sockets(members).len() > 1);
        between.map_or(own, |(_, rate)| own.min(rate))
    }

    /// Rate at which every one of `members` sends through the host if all send to all.
    fn exchange_through_host(&self, members: &[NodeIndex]) -> BytesPerSecond {
        let own = lowest(members.iter().map(|&device| self.to_host(device)));
        let sockets = members.first().and_then(|&it| self.within(it).sockets);
        let Some((_, rate)) = sockets else { return own };
        let all = exact(exact_len(members.len()));
        let at_sockets = self.at_sockets(members);
        // A socket with `a` of `n` members passes on a (n − a) of the parts, each S/n.
        let passed = at_sockets.values().map(|&here| exact(here) * (all - exact(here)));
        let most = passed.fold(0.0, f64::max);
        if most == 0.0 { own } else { own.min((all - 1.0) / most * rate) }
    }

    /// How many of `members` are at each socket of the host.
    fn at_sockets(&self, members: &[NodeIndex]) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for &member in members {
            let Place::Device(rank) = self.graph[member] else { continue };
            let per_socket =
                self.within(member).sockets.map_or(self.devices_per_node, |(devices, _)| devices);
            *counts.entry(rank % self.devices_per_node / per_socket.max(1)).or_insert(0) += 1;
        }
        counts
    }

    /// Rate at which a device can send to another of its node.
    fn between(&self, from: NodeIndex, to: NodeIndex) -> BytesPerSecond {
        let joined = self.joined(from, to).map(|rate| self.within(from).shares.pair * rate);
        joined.unwrap_or_else(|| self.through_host(&[from, to]))
    }

    /// Rate of the links or the switch between two devices; `None` if there is neither.
    fn joined(&self, from: NodeIndex, to: NodeIndex) -> Option<BytesPerSecond> {
        let link = self.graph.find_edge(from, to).map(|edge| self.graph[edge]);
        link.or_else(|| Some(self.port(from)?.min(self.port(to)?)))
    }

    /// Rate between a device and the switch of its node, if that has one.
    fn port(&self, device: NodeIndex) -> Option<BytesPerSecond> {
        self.rate_to(device, |place| matches!(place, Place::Switch(_)))
    }

    fn to_host(&self, device: NodeIndex) -> BytesPerSecond {
        self.rate_to(device, |place| matches!(place, Place::Host(_)))
            .expect("every device is joined to its host when the topology is made")
    }

    fn rate_to(&self, device: NodeIndex, is: fn(&Place) -> bool) -> Option<BytesPerSecond> {
        let mut near = self.graph.neighbors(device);
        let place = near.find(|&place| is(&self.graph[place]))?;
        self.graph.find_edge(device, place).map(|edge| self.graph[edge])
    }

    /// Rate at which devices of one node reach other nodes: the sum of their parts of adapters.
    fn across(&self, members: &[NodeIndex]) -> BytesPerSecond {
        let parts = members.iter().filter_map(|&device| {
            let adapter = self.adapter(device)?;
            let rate = self.graph.find_edge(device, adapter).map(|edge| self.graph[edge])?;
            let devices = self.graph.neighbors(adapter);
            let sharing = devices.filter(|&place| matches!(self.graph[place], Place::Device(_)));
            Some((1.0 / exact(exact_len(sharing.count()))) * rate)
        });
        parts.fold(BytesPerSecond(0.0), |sum, part| sum + part)
    }
}

fn lowest(rates: impl Iterator<Item = BytesPerSecond>) -> BytesPerSecond {
    rates.reduce(BytesPerSecond::min).expect("a node of a group has a member")
}

fn slower(one: Inside, other: Inside) -> Inside {
    Inside {
        link: one.link.min(other.link),
        ring: one.ring.min(other.ring),
        pair: one.pair.min(other.pair),
        both: one.both.min(other.both),
        exchange: one.exchange.min(other.exchange),
    }
}

fn exact_len(length: usize) -> u64 {
    u64::try_from(length).expect("a length fits 64 bits")
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a group without ranks, expected at least 1"),
            Self::Rank { rank, devices } => {
                write!(f, "rank {rank} in a group, expected a rank below {devices}")
            }
            Self::Twice(rank) => write!(f, "rank {rank} twice in a group, expected it once"),
        }
    }
}

impl std::error::Error for GroupError {}

#[cfg(test)]
mod tests;
