//! Links in one direction, and what goes over them when ranks communicate.

use petgraph::graph::{EdgeIndex, NodeIndex};

use super::{Group, GroupError, Place, Topology, exact_len};
use crate::units::{BytesPerSecond, exact};

/// One direction of a link, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub usize);

impl Channel {
    /// The other direction of its link.
    fn contrary(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// Channels and what goes over them, as parts of a size that the pattern of communication says.
pub type Load = Vec<(Channel, f64)>;

impl Topology {
    /// How many channels there are: two for each link.
    #[must_use]
    pub fn channels(&self) -> usize {
        2 * self.graph.edge_count()
    }

    /// The rate of a channel (bytes per second).
    ///
    /// # Panics
    /// If there is no such channel.
    #[must_use]
    pub fn rate(&self, channel: Channel) -> BytesPerSecond {
        self.graph[EdgeIndex::new(channel.0 / 2)]
    }

    /// The rates of all channels (bytes per second).
    #[must_use]
    pub fn rates(&self) -> Vec<BytesPerSecond> {
        self.graph.edge_weights().flat_map(|&rate| [rate; 2]).collect()
    }

    /// What `ranks` have between them while no other ranks communicate: adapters are shared among
    /// themselves only.
    pub fn alone(&self, ranks: &[u64]) -> Result<Group, GroupError> {
        let mut group = self.group(ranks)?;
        if group.across.is_some() {
            let nodes = self.by_node(ranks);
            let reach = nodes.iter().map(|members| {
                let adapters = self.adapters_of(members);
                adapters.iter().fold(BytesPerSecond(0.0), |sum, &(_, rate, _)| sum + rate)
            });
            group.across = reach.reduce(BytesPerSecond::min);
        }
        Ok(group)
    }

    /// What goes over channels while data goes around a ring through `ranks`, as a part of what
    /// each of them sends.
    ///
    /// Of `r` members in a node each sends the part `(r − 1)/r` to others of the node, over all its
    /// links to them, and `1/r` to other nodes, over the adapters of the members together.
    #[must_use]
    pub fn ring_load(&self, ranks: &[u64]) -> Load {
        let nodes = self.by_node(ranks);
        let mut load = Load::new();
        for members in &nodes {
            let count = exact(exact_len(members.len()));
            let inside = if nodes.len() == 1 { 1.0 } else { (count - 1.0) / count };
            self.inside_load(members, inside, &mut load);
            if nodes.len() > 1 {
                self.outside_load(members, 1.0, &mut load);
            }
        }
        summed(load)
    }

    /// What goes over channels while each of `ranks` gives a part to each other one, as a part of
    /// what each has.
    #[must_use]
    pub fn exchange_load(&self, ranks: &[u64]) -> Load {
        let nodes = self.by_node(ranks);
        let all = exact(exact_len(ranks.len()));
        let mut load = Load::new();
        for members in &nodes {
            let near = exact(exact_len(members.len()));
            self.inside_load(members, (near - 1.0) / all, &mut load);
            if nodes.len() > 1 {
                for &member in members {
                    self.outside_load(&[member], (all - near) / all, &mut load);
                }
            }
        }
        summed(load)
    }

    /// What goes over channels while a message goes from one rank to another, as a part of the
    /// message: all of it, or nothing from a rank to itself.
    #[must_use]
    pub fn route(&self, from: u64, to: u64) -> Load {
        let (one, other) = (self.by_node(&[from]), self.by_node(&[to]));
        let (Some(&from), Some(&to)) = (one.iter().flatten().next(), other.iter().flatten().next()) else {
            return Load::new();
        };
        let mut load = Load::new();
        if from == to {
            return load;
        }
        if self.same_node(from, to) {
            let way = match self.between_links(from, to) {
                true => vec![from, to],
                false => vec![from, self.hub(from, to), to],
            };
            for pair in way.windows(2) {
                load.extend(self.channel(pair[0], pair[1]).map(|it| (it, 1.0)));
            }
            return load;
        }
        for (device, outwards) in [(from, true), (to, false)] {
            for (adapter, _, _) in self.adapters_of(&[device]) {
                self.through(device, adapter, outwards, [1.0, 1.0], &mut load);
            }
        }
        summed(load)
    }

    /// The devices of ranks, node by node; ranks that there are not are left out.
    fn by_node(&self, ranks: &[u64]) -> Vec<Vec<NodeIndex>> {
        let mut nodes: Vec<(u64, Vec<NodeIndex>)> = Vec::new();
        for &rank in ranks {
            let device = usize::try_from(rank).ok().and_then(|rank| self.devices.get(rank));
            let Some(&device) = device else { continue };
            let node = self.node_of(rank);
            match nodes.iter_mut().find(|(it, _)| *it == node) {
                Some((_, members)) => members.push(device),
                None => nodes.push((node, vec![device])),
            }
        }
        nodes.into_iter().map(|(_, members)| members).collect()
    }

    fn same_node(&self, one: NodeIndex, other: NodeIndex) -> bool {
        let node = |device: NodeIndex| match self.graph[device] {
            Place::Device(rank) => Some(self.node_of(rank)),
            _ => None,
        };
        node(one) == node(other)
    }

    fn between_links(&self, one: NodeIndex, other: NodeIndex) -> bool {
        self.graph.find_edge(one, other).is_some()
    }

    /// What two devices of a node that no link joins reach each other through: the switch, or the
    /// host where there is none.
    fn hub(&self, one: NodeIndex, other: NodeIndex) -> NodeIndex {
        let common = |it: &NodeIndex| self.graph.find_edge(*it, other).is_some();
        let near: Vec<NodeIndex> = self.graph.neighbors(one).filter(common).collect();
        let is_switch = |it: &&NodeIndex| matches!(self.graph[**it], Place::Switch(_));
        let is_host = |it: &&NodeIndex| matches!(self.graph[**it], Place::Host(_));
        let hub = near.iter().find(is_switch).or_else(|| near.iter().find(is_host));
        *hub.expect("every device is joined to its host when the topology is made")
    }

    /// Each of a node's members sends a part to the others, over its links to them as fast as each
    /// is, or by the switch or the host.
    fn inside_load(&self, members: &[NodeIndex], part: f64, load: &mut Load) {
        if members.len() < 2 {
            return;
        }
        for &device in members {
            let others: Vec<NodeIndex> = members
                .iter()
                .copied()
                .filter(|&it| it != device && self.between_links(device, it))
                .collect();
            let lane = |other: NodeIndex| {
                let edge = self.graph.find_edge(device, other);
                edge.map_or(BytesPerSecond(0.0), |edge| self.graph[edge])
            };
            let all = others.iter().map(|&it| lane(it)).fold(BytesPerSecond(0.0), |sum, it| sum + it);
            for &other in &others {
                let part = part * (lane(other).0 / all.0);
                load.extend(self.channel(device, other).map(|it| (it, part)));
            }
            if others.is_empty() {
                let neighbour = members.iter().copied().find(|&it| it != device).unwrap_or(device);
                let hub = self.hub(device, neighbour);
                load.extend(self.channel(device, hub).map(|it| (it, part)));
                load.extend(self.channel(hub, device).map(|it| (it, part)));
            }
        }
    }

    /// A node's members send a part to other nodes, over their adapters together, and get as much.
    fn outside_load(&self, members: &[NodeIndex], part: f64, load: &mut Load) {
        let adapters = self.adapters_of(members);
        let each = part / exact(exact_len(adapters.len().max(1)));
        for (adapter, _, near) in adapters {
            let own = each / exact(exact_len(near.len().max(1)));
            for (place, &device) in near.iter().enumerate() {
                let parts = [own, if place == 0 { each } else { 0.0 }];
                for outwards in [true, false] {
                    self.through(device, adapter, outwards, parts, load);
                }
            }
        }
    }

    /// Between a device and the fabric: a part to the adapter, and a part from there.
    fn through(
        &self,
        device: NodeIndex,
        adapter: NodeIndex,
        outwards: bool,
        parts: [f64; 2],
        load: &mut Load,
    ) {
        let mut far = self.graph.neighbors(adapter);
        let fabric = far.find(|&it| self.graph[it] == Place::Fabric);
        let ends = [Some((device, adapter)), fabric.map(|fabric| (adapter, fabric))];
        for (end, part) in ends.into_iter().zip(parts) {
            let Some((near, far)) = end.filter(|_| part > 0.0) else { continue };
            // Looked for at the near end: the fabric has a link to every adapter there is.
            let out = self.channel(near, far);
            load.extend(out.map(|it| (if outwards { it } else { it.contrary() }, part)));
        }
    }

    /// The adapters nearest to devices of a node, with their rates, and whose they are.
    fn adapters_of(&self, members: &[NodeIndex]) -> Vec<(NodeIndex, BytesPerSecond, Vec<NodeIndex>)> {
        let mut adapters: Vec<(NodeIndex, BytesPerSecond, Vec<NodeIndex>)> = Vec::new();
        for &device in members {
            let mut near = self.graph.neighbors(device);
            let Some(adapter) = near.find(|&it| matches!(self.graph[it], Place::Adapter(..))) else {
                continue;
            };
            let rate = self.graph.find_edge(device, adapter).map(|edge| self.graph[edge]);
            match adapters.iter_mut().find(|(it, ..)| *it == adapter) {
                Some((.., devices)) => devices.push(device),
                None => adapters.extend(rate.map(|rate| (adapter, rate, vec![device]))),
            }
        }
        adapters
    }

    fn channel(&self, from: NodeIndex, to: NodeIndex) -> Option<Channel> {
        let edge = self.graph.find_edge(from, to)?;
        let (first, _) = self.graph.edge_endpoints(edge)?;
        Some(Channel(2 * edge.index() + usize::from(first != from)))
    }
}

/// Each channel once, ascending.
fn summed(mut load: Load) -> Load {
    load.sort_by_key(|it| it.0);
    load.dedup_by(|next, sum| {
        let same = next.0 == sum.0;
        if same {
            sum.1 += next.1;
        }
        same
    });
    load
}

#[cfg(test)]
mod tests;
