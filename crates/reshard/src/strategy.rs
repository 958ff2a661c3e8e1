//! How the portions of a unit task travel, and what that takes.
//!
//! With D bytes that A nodes of b devices each need, t what D takes between nodes, s what it takes
//! inside a node, α the latency and K the number of chunks:
//!
//! ```text
//! send and receive      A b (t + α)
//! gather in the node    A (t + b α) + (b − 1)(s/b + α)
//! gather by all         t + A b α + (A − 1)(t/A + b α) + (b − 1)(s/b + A α)
//! broadcast             (K + A − 1)(t/K + α) + (b − 1)(s/K + α)
//! ```
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
    /// to the next node and at the same time along the devices of its node, and so on.
    Broadcast,
}

/// How many need the same portions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// How many nodes.
    pub nodes: u64,
    /// How many devices in each of them, at most.
    pub devices: u64,
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
    let (further, others) = (nodes - 1.0, devices - 1.0);
    match strategy {
        Strategy::SendReceive => nodes * devices * (between + latency),
        Strategy::LocalGather => {
            nodes * (between + devices * latency) + others * ((1.0 / devices) * inside + latency)
        }
        Strategy::GlobalGather => {
            let parts = between + nodes * devices * latency;
            let across = further * ((1.0 / nodes) * between + devices * latency);
            parts + across + others * ((1.0 / devices) * inside + nodes * latency)
        }
        Strategy::Broadcast => {
            let count = exact(chunks(bytes, reach, network, most_chunks));
            let piece = 1.0 / count;
            (count + further) * (piece * between + latency) + others * (piece * inside + latency)
        }
    }
}

/// In how many chunks a broadcast takes least: with (A − 1) hops between nodes of t after the
/// first one and (b − 1) inside of s,
///
/// ```text
/// K = √(((A − 1) t + (b − 1) s) / α)
/// ```
///
/// of the two whole numbers beside it the better one, and no more than `most` or than bytes. It is
/// where the derivative of the broadcast's time by K is 0.
pub fn chunks(bytes: u64, reach: Reach, network: &Network, most: u64) -> u64 {
    let (between, inside) = (Bytes(bytes) / network.between, Bytes(bytes) / network.inside);
    let grows = exact(reach.nodes - 1) * between + exact(reach.devices - 1) * inside;
    // K chunks are better than K − 1 as long as K (K − 1) α is less than what falls with 1/K.
    let better = |count: u64| exact(count) * exact(count - 1) * network.latency < grows;
    let (mut least, mut end) = (1, most.min(bytes).max(1) + 1);
    while end - least > 1 {
        let middle = least + (end - least) / 2;
        if better(middle) {
            least = middle;
        } else {
            end = middle;
        }
    }
    least
}
