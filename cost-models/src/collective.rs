//! The time of collective operations and of messages between ranks.
//!
//! Every operation goes around one ring through the ranks of the group. A node's ranks are next
//! to each other on it, so that it leaves each node once, over all the adapters that the group
//! has there. Its rate is that of the slower of the two kinds of links:
//!
//! ```text
//! β = min(link rate · ring share, ranks per node · rate of an adapter · network share)
//! t = start + hops in nodes · α_node + hops across · α_network + (W + H)/(p · β)
//! ```
//!
//! `W` is what a rank sends (bytes), `p` the protocol's share of the rate and `H` the bytes that
//! are moved at half of the full rate (bulk only). The faster of the two protocols is taken.
//!
//! Source: number of hops, latencies and the choice of the fastest protocol: NCCL 2.30,
//! `src/graph/tuning.cc`, `ncclTopoGetAlgoTime` and the table `hwLat`; bytes sent: Thakur,
//! Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
//! IJHPCA 19(1), 2005 (ring algorithms).

use crate::known::Known;
use crate::machine::{Machine, Protocol};
use crate::topology::Group;
use crate::units::{Bytes, BytesPerSecond, Ratio, Seconds, exact};

/// Time of an all-gather of `result` bytes, the whole value that every rank has afterwards.
///
/// ```text
/// W = (n − 1)/n · S, n − 1 hops
/// ```
///
/// Each of the `n` parts goes around to all but the rank that had it.
///
/// Source: Thakur et al. 2005, all-gather on a ring.
#[must_use]
pub fn ring_all_gather(machine: &Machine, group: &Group, result: Bytes) -> Seconds {
    let n = exact(group.size);
    let journey = Journey { rounds: 1.0, sent: (n - 1.0) / n };
    around(machine, group, &journey, result)
}

/// Time of a reduce-scatter of `operand` bytes, the whole value that every rank has an addend of.
///
/// ```text
/// W = (n − 1)/n · S, n − 1 hops
/// ```
///
/// The partial sum of each of the `n` parts goes around to the rank that keeps it.
///
/// Source: Thakur et al. 2005, reduce-scatter on a ring.
#[must_use]
pub fn reduce_scatter(machine: &Machine, group: &Group, operand: Bytes) -> Seconds {
    ring_all_gather(machine, group, operand)
}

/// Time of an all-reduce of `value` bytes, which every rank has an addend of and the sum of.
///
/// ```text
/// W = 2 (n − 1)/n · S, 2 (n − 1) hops
/// ```
///
/// The value goes around twice, in `n` parts: once to add the parts up, once to hand them out.
/// An upper bound where the library picks a tree or sums in the switch.
///
/// Source: Thakur et al. 2005, all-reduce as a reduce-scatter and an all-gather.
#[must_use]
pub fn all_reduce(machine: &Machine, group: &Group, value: Bytes) -> Seconds {
    let n = exact(group.size);
    let journey = Journey { rounds: 2.0, sent: 2.0 * (n - 1.0) / n };
    around(machine, group, &journey, value)
}

/// Time of a broadcast of `value` bytes from one rank to all of the group.
///
/// ```text
/// W = S, n − 1 hops
/// ```
///
/// The value goes down a chain of ranks in pieces, each passed on while the next one arrives.
///
/// Source: NCCL 2.30, `src/graph/tuning.cc`: a broadcast has the ring algorithm only, with
/// `n − 1` steps and the whole rate.
#[must_use]
pub fn broadcast(machine: &Machine, group: &Group, value: Bytes) -> Seconds {
    around(machine, group, &Journey { rounds: 1.0, sent: 1.0 }, value)
}

/// Time of an all-to-all of `held` bytes, what each rank has before, and as many after.
///
/// ```text
/// t = start + α + max((r − 1)/n · S / exchange rate, (n − r)/n · S / rate of its adapter) + H/β
/// ```
///
/// Every rank sends a part of `S/n` to every other: to the `r − 1` of its node over links, to the
/// `n − r` others over its own part of an adapter, which no other rank can lend.
///
/// Source: Thakur et al. 2005, pairwise exchange; NCCL user guide, point-to-point communication:
/// an all-to-all is a group of sends and receives that run together.
#[must_use]
pub fn all_to_all(machine: &Machine, group: &Group, held: Bytes) -> Seconds {
    if group.size < 2 || held == Bytes::ZERO {
        return Seconds::ZERO;
    }
    let (n, near) = (exact(group.size), exact(group.ranks_per_node));
    let inside = group.inside.map(|inside| {
        let rate = machine.node.exchange_share.value * inside.exchange;
        ((near - 1.0) / n, rate)
    });
    let across = across(machine, group).map(|rate| ((n - near) / n, (1.0 / near) * rate));
    let paths: Vec<(f64, BytesPerSecond)> = inside.into_iter().chain(across).collect();
    let half = machine.transport.pair_half_size.value;
    fastest(machine, |protocol, in_bulk| {
        let slowest = paths.iter().map(|(part, rate)| {
            let rate = protocol.share.value * *rate;
            let rise = if in_bulk == Bulk::Yes { half / rate } else { Seconds::ZERO };
            *part * (held / rate) + rise
        });
        let moved = slowest.reduce(Seconds::max).unwrap_or(Seconds::ZERO);
        protocol.start.value + longest_hop(machine, group, protocol, in_bulk) + moved
    })
}

/// Time for every rank of the group to send `message` bytes to the next one, at the same time.
///
/// ```text
/// t = start + α + (S + H)/β
/// ```
///
/// A message between two ranks is the case of a group of two. `α` and `β` are those of the
/// slowest pair of neighbours; where neighbours are in different nodes they have their own part
/// of an adapter, alone.
///
/// Source: Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994: a
/// message of `S` bytes takes `(S + S½)/β`, with the half-performance length `S½`.
#[must_use]
pub fn send(machine: &Machine, group: &Group, message: Bytes) -> Seconds {
    if group.size < 2 || message == Bytes::ZERO {
        return Seconds::ZERO;
    }
    let inside = group.inside.map(|inside| machine.node.pair_share.value * inside.pair);
    let alone = across(machine, group).map(|rate| (1.0 / exact(group.ranks_per_node)) * rate);
    let Some(rate) = inside.into_iter().chain(alone).reduce(BytesPerSecond::min) else {
        return Seconds::ZERO;
    };
    let half = machine.transport.pair_half_size.value;
    fastest(machine, |protocol, in_bulk| {
        let rate = protocol.share.value * rate;
        let rise = if in_bulk == Bulk::Yes { half / rate } else { Seconds::ZERO };
        protocol.start.value + longest_hop(machine, group, protocol, in_bulk) + message / rate + rise
    })
}

/// How data goes around a ring.
struct Journey {
    /// How often it goes around.
    rounds: f64,
    /// What a rank sends, as a multiple of the size.
    sent: f64,
}

/// Which of the two protocols a time is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bulk {
    Yes,
    No,
}

fn around(machine: &Machine, group: &Group, journey: &Journey, size: Bytes) -> Seconds {
    let Some(rate) = ring_rate(machine, group).filter(|_| size != Bytes::ZERO) else {
        return Seconds::ZERO;
    };
    let hops = journey.rounds * (exact(group.size) - 1.0);
    let hops_across = journey.rounds * (exact(group.nodes) - 1.0);
    let half = machine.transport.ring_half_size.value;
    fastest(machine, |protocol, in_bulk| {
        let rate = protocol.share.value * rate;
        let rise = if in_bulk == Bulk::Yes { half / rate } else { Seconds::ZERO };
        let near = (hops - hops_across) * protocol.hop.value;
        let far = network_hop(machine, in_bulk).map(|hop| hops_across * hop);
        let on_the_way = near + far.unwrap_or(Seconds::ZERO);
        protocol.start.value + on_the_way + journey.sent * (size / rate) + rise
    })
}

/// The lower time of the two protocols.
fn fastest(machine: &Machine, time: impl Fn(&Protocol, Bulk) -> Seconds) -> Seconds {
    let transport = &machine.transport;
    time(&transport.bulk, Bulk::Yes).min(time(&transport.eager, Bulk::No))
}

/// Rate of a ring with large messages; `None` for a rank alone.
fn ring_rate(machine: &Machine, group: &Group) -> Option<BytesPerSecond> {
    let inside = group.inside.map(|inside| machine.node.ring_share.value * inside.ring);
    inside.into_iter().chain(across(machine, group)).reduce(BytesPerSecond::min)
}

/// Rate of the group's adapters in one node with large messages.
fn across(machine: &Machine, group: &Group) -> Option<BytesPerSecond> {
    let share: &Known<Ratio> = &machine.network.as_ref()?.share;
    group.across.map(|rate| share.value * rate)
}

fn network_hop(machine: &Machine, in_bulk: Bulk) -> Option<Seconds> {
    let network = machine.network.as_ref()?;
    Some(match in_bulk {
        Bulk::Yes => network.bulk_hop.value,
        Bulk::No => network.eager_hop.value,
    })
}

/// Time of one hop: between nodes if the group is in several.
fn longest_hop(machine: &Machine, group: &Group, protocol: &Protocol, in_bulk: Bulk) -> Seconds {
    let far = network_hop(machine, in_bulk).filter(|_| group.nodes > 1);
    far.unwrap_or(protocol.hop.value)
}

#[cfg(test)]
pub(crate) mod tests;
