//! How the portions of a unit task travel, and what that takes.
//!
//! With D bytes that A nodes of b devices each need, t what D takes over an adapter, s what it takes
//! inside a node, α the latency, K the number of chunks, one adapter that sends and one in each node:
//!
//! ```text
//! send and receive      A b (t + α)
//! gather in the node    A (t + b α) + (b − 1)(s/b + α)
//! gather by all         t + A b α + (A − 1)(t/A + b α) + (b − 1)(s/b + A α)
//! broadcast             (K + A − 1)(t/K + α) + (b − 1)(s/K + α)
//! ```
//!
//! With p adapters in each node, each for c = ⌈b/p⌉ devices, and q that can send, what goes by one adapter
//! is a share, and shares go at once:
//!
//! ```text
//! send and receive      max(⌈A b/q⌉, c)(t + α)
//! gather in the node    max(⌈A p/q⌉, 1) c (t/b + α) + (b − 1)(s/b + α)
//! gather by all         (⌈p/q⌉ A + A − 1) c (t/(A b) + α) + (b − 1)(s/b + A α)
//! broadcast             A x + (K − 1) max(x, m y) + (b − 1) y
//!                       with n = min(p, q) chains, x = t/(n K) + α, y = s/(n K) + α, m = min(n, b − 1)
//! ```
//!
//! A device passes on what goes by m chains, while a chunk of each goes from node to node. Few chunks do not
//! keep it busy all the time: several chains may take up to a tenth less.
//!
//! Source: the strategies of Zhuang et al., "On Optimizing the Communication of Model Parallelism"
//! (MLSys 2023): without latency and what is inside nodes A b t, A t, less than 2 t, and
//! t (1 + (A − 1)/K). The rest follows from which links serve which messages one after another.

use cost_models::units::{Bytes, Seconds, exact};

use crate::network::Network;

/// How the portions of a unit task travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// From a sender to each receiver.
    SendReceive,
    /// A part to each receiver of a node, which give their parts to each other; for each node.
    LocalGather,
    /// A part to each receiver; nodes give their parts to each other, then devices in each node.
    GlobalGather,
    /// In chunks along a chain: from the sender to the first device of the first node, from there
    /// to the next node and at the same time along the devices of its node, and so on. Where senders and
    /// all nodes have several adapters, a part goes along a chain by each of them.
    Broadcast,
}

/// How many need the same portions, and by how many adapters these travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// How many nodes.
    pub nodes: u64,
    /// How many devices in each of them, at most.
    pub devices: u64,
    /// By how many adapters of theirs, at least.
    pub entries: u64,
    /// How many adapters of all that have the portions they may leave by.
    pub exits: u64,
}

impl Reach {
    /// As how many chains something is broadcast.
    pub(crate) fn chains(&self) -> u64 {
        self.entries.min(self.exits).max(1)
    }
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 4] = [Self::SendReceive, Self::LocalGather, Self::GlobalGather, Self::Broadcast];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::SendReceive => "send/receive",
            Self::LocalGather => "local all-gather",
            Self::GlobalGather => "global all-gather",
            Self::Broadcast => "broadcast",
        }
    }
}

/// What so many bytes take to a reach of other nodes.
pub fn estimate(
    strategy: Strategy,
    bytes: u64,
    reach: Reach,
    network: &Network,
    most_chunks: u64,
) -> Seconds {
    let (between, inside) = (Bytes(bytes) / network.between, Bytes(bytes) / network.inside);
    let (nodes, devices, latency) = (exact(reach.nodes), exact(reach.devices), network.latency);
    let (entries, exits) = (reach.entries.max(1), reach.exits.max(1));
    let others = devices - 1.0;
    // The devices of an adapter, and how often an adapter that sends has to begin.
    let each = exact(reach.devices.div_ceil(entries));
    let turns = |lanes: u64| exact(lanes.div_ceil(exits));
    match strategy {
        Strategy::SendReceive => turns(reach.nodes * reach.devices).max(each) * (between + latency),
        Strategy::LocalGather => {
            let part = 1.0 / devices;
            turns(reach.nodes * entries) * each * (part * between + latency)
                + others * (part * inside + latency)
        }
        Strategy::GlobalGather => {
            let rounds = turns(entries) * nodes + nodes - 1.0;
            let part = 1.0 / (nodes * devices);
            rounds * each * (part * between + latency) + others * ((1.0 / devices) * inside + nodes * latency)
        }
        Strategy::Broadcast => {
            Chains::of(bytes, reach, network).time(chunks(bytes, reach, network, most_chunks))
        }
    }
}

/// Chains at once, along nodes and along the devices in each.
struct Chains {
    /// What what goes by a chain takes between nodes, and inside one.
    between: Seconds,
    inside: Seconds,
    latency: Seconds,
    nodes: f64,
    /// How many devices of a node pass on to others.
    others: f64,
    /// Of how many chains a device passes on.
    passed: f64,
}

impl Chains {
    fn of(bytes: u64, reach: Reach, network: &Network) -> Self {
        let share = 1.0 / exact(reach.chains());
        Self {
            between: share * (Bytes(bytes) / network.between),
            inside: share * (Bytes(bytes) / network.inside),
            latency: network.latency,
            nodes: exact(reach.nodes),
            others: exact(reach.devices - 1),
            passed: exact(reach.chains().min(reach.devices - 1)),
        }
    }

    /// What is broadcast takes in so many chunks.
    fn time(&self, count: u64) -> Seconds {
        let piece = 1.0 / exact(count);
        let (across, on) = (piece * self.between + self.latency, piece * self.inside + self.latency);
        let passed = self.passed * on;
        let slower = if across < passed { passed } else { across };
        self.nodes * across + exact(count - 1) * slower + self.others * on
    }
}

/// In how many chunks each chain of a broadcast takes least: with (A − 1) hops between nodes of t after the
/// first one and (b − 1) inside of s, where links between nodes are the slower ones,
///
/// ```text
/// K = √(((A − 1) t + (b − 1) s) / α)
/// ```
///
/// of the two whole numbers beside it the better one, and no more than `most` or than bytes. It is
/// where the derivative of the broadcast's time by K is 0. Where devices that pass on are the slower ones,
/// and m of t what one of them passes on,
///
/// ```text
/// K = √((A t − m s + (b − 1) s) / (m α))
/// ```
///
/// The time is the larger one of two functions that fall and then rise: it is least where one of them is,
/// or where they are the same.
pub fn chunks(bytes: u64, reach: Reach, network: &Network, most: u64) -> u64 {
    let chains = Chains::of(bytes, reach, network);
    let end = most.min(bytes / reach.chains()).max(1);
    // K chunks are better than K − 1 as long as K (K − 1) α is less than what falls with 1/K.
    let least =
        |falls: Seconds, rises: Seconds| last(end, |count| exact(count) * exact(count - 1) * rises < falls);
    let Chains { between, inside, latency, nodes, others, passed } = chains;
    let first = least((nodes - 1.0) * between + others * inside, latency);
    let is_across = |count: u64| {
        let piece = 1.0 / exact(count);
        passed * (piece * inside + latency) <= piece * between + latency
    };
    if is_across(first) {
        return first;
    }
    let second = least(nodes * between + (others - passed) * inside, passed * latency);
    let same = last(end, is_across);
    let better = |best: u64, it: u64| if chains.time(it) < chains.time(best) { it } else { best };
    [second, same, end.min(same + 1)].into_iter().fold(first, better)
}

/// The last number up to an end up to which something holds, which is taken to hold of 1.
fn last(end: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut least, mut end) = (1, end + 1);
    while end - least > 1 {
        let middle = least + (end - least) / 2;
        if holds(middle) {
            least = middle;
        } else {
            end = middle;
        }
    }
    least
}
