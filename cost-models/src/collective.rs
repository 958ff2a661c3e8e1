//! The time of collective operations and of messages between ranks.
//!
//! There are two ways: around a ring through the ranks of the group, or, for an all-reduce over
//! several nodes, up and down a tree of nodes with a chain inside each; and where a switch can
//! add, it adds. There are up to three protocols for each way. The fastest is taken:
//!
//! ```text
//! ring   t = start + rounds · fill + hops in nodes · α + hops across · α_net + (W/β + L · S/λ)/p
//! tree   t = start + 2 (r − 1) α' + 2 ⌈log₂ N⌉ α'_net + 2 S/(p β)
//! switch t = start + S/(share · link rate)
//! ```
//!
//! `S` is the size of the value, `W` what a rank sends, `p` the protocol's share of the rate, `N`
//! the number of nodes and `r` of ranks in a node. `λ` is the rate at which a rank reads and
//! writes its own memory besides what it sends: `L` is 1 for an all-reduce, and half for what is
//! half of one. `β` is the rate of the slower of the two kinds of links:
//!
//! ```text
//! β = min(link rate · ring share, ranks per node · rate of an adapter · network share)
//! ```
//!
//! A ring leaves each node once, over all the adapters that the group has there.
//!
//! Source: ways, protocols, number of hops, latencies and the choice of the fastest: NCCL 2.30,
//! `src/graph/tuning.cc`, `ncclTopoGetAlgoTime` and the tables `baseLat` and `hwLat`; bytes sent:
//! Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
//! IJHPCA 19(1), 2005 (ring algorithms), and Sanders, Speck and Träff, "Two-tree algorithms for
//! full bandwidth broadcast, reduction and scan", Parallel Computing 35(12), 2009.

use planner_ir::RoutedRows;

use crate::machine::{Machine, NetworkHops, Protocol};
use crate::topology::Group;
use crate::units::{Bytes, BytesPerSecond, Seconds, exact};
use crate::work;

/// Time of an all-gather of `result` bytes, the whole value that every rank has afterwards.
///
/// ```text
/// W = (n − 1)/n · S, n − 1 hops, L = 1/2
/// ```
///
/// Each of the `n` parts goes around to all but the rank that had it.
///
/// Source: Thakur et al. 2005, all-gather on a ring.
#[must_use]
pub fn ring_all_gather(machine: &Machine, group: &Group, result: Bytes) -> Seconds {
    let n = exact(group.size);
    let journey = Journey { rounds: 1.0, sent: (n - 1.0) / n, local: 0.5 };
    around(machine, group, &journey, result)
}

/// Time of a reduce-scatter of `operand` bytes, the whole value that every rank has an addend of.
///
/// ```text
/// W = (n − 1)/n · S, n − 1 hops, L = 1/2
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
/// W = 2 (n − 1)/n · S, 2 (n − 1) hops, L = 1
/// ```
///
/// On a ring the value goes around twice, in `n` parts: once to add the parts up, once to hand
/// them out.
///
/// Source: Thakur et al. 2005, all-reduce as a reduce-scatter and an all-gather; Sanders et al.
/// 2009 for the tree.
#[must_use]
pub fn all_reduce(machine: &Machine, group: &Group, value: Bytes) -> Seconds {
    let ways = [tree(machine, group, value), in_switch(machine, group, value)];
    let ring = ring_all_reduce(machine, group, value);
    ways.into_iter().flatten().fold(ring, Seconds::min)
}

/// Time of an all-reduce of `value` bytes around a ring, whatever other way there is.
#[must_use]
pub fn ring_all_reduce(machine: &Machine, group: &Group, value: Bytes) -> Seconds {
    let n = exact(group.size);
    around(machine, group, &Journey { rounds: 2.0, sent: 2.0 * (n - 1.0) / n, local: 1.0 }, value)
}

/// Time of a broadcast of `value` bytes from one rank to all of the group.
///
/// ```text
/// W = S, n − 1 hops, L = 1/2
/// ```
///
/// The value goes down a chain of ranks in pieces, each passed on while the next one arrives.
///
/// Source: NCCL 2.30, `src/graph/tuning.cc`: a broadcast has the ring algorithm only, with
/// `n − 1` steps and the whole rate.
#[must_use]
pub fn broadcast(machine: &Machine, group: &Group, value: Bytes) -> Seconds {
    around(machine, group, &Journey { rounds: 1.0, sent: 1.0, local: 0.5 }, value)
}

/// Time of an all-to-all of `held` bytes, what each rank has before, and as many after.
///
/// ```text
/// t = start + fill + α + (max((r − 1)/n · S/exchange rate, (n − r)/n · S/rate of its adapter) + S/λ)/p
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
    let inside = group.inside.map(|inside| ((near - 1.0) / n, inside.exchange));
    let across = across(machine, group).map(|rate| ((n - near) / n, (1.0 / near) * rate));
    let moved = inside.into_iter().chain(across).map(|(part, rate)| part * (held / rate));
    let moved = moved.reduce(Seconds::max).unwrap_or(Seconds::ZERO);
    let moved = moved + held / machine.transport.local_rate.value;
    fastest(machine, |protocol, hops| {
        let way = protocol.start.value + protocol.fill.value + longest_hop(group, protocol, hops);
        way + (1.0 / protocol.share.value.0) * moved
    })
}

/// Time to bring rows to the ranks that use them, or what is made of them back, where all rows of a group come to
/// `all` bytes.
///
/// With `a` the time of an all-to-all, `c` that of a copy, and of `S` bytes the shares `d` of those that a rank uses
/// and `e` of those that any rank of a set of `r` uses, over `s` sets:
///
/// ```text
/// straight      t = a(d S) + 2 c(d S)
/// by sets       t = a(marks) + max(a(d S) in a set, a(e S / r) between sets) + 2 c(d S) + 2 c(e S / r)
/// ```
///
/// Rows for a rank are put one after another before they go, and where they belong, or added, after they have
/// come. By sets, a row goes over the network once for a whole node, and on in the node while others arrive.
///
/// Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.2: tokens go to the rank at the
/// same place of another node, and from there to where their experts are, at the same time; DeepEP, 2025.
#[must_use]
pub fn routed(machine: &Machine, group: &Group, all: Bytes, rows: &RoutedRows) -> Seconds {
    let [moved, relayed] = moved_and_relayed(group, all, rows);
    let copies = |moved: Bytes| 2.0 * work::copy(&machine.device, moved);
    let copied = if rows.by <= 1 { copies(moved) } else { copies(moved) + copies(relayed) };
    exchanged(machine, group, [moved, relayed], rows) + copied
}

/// Of [`routed`], for how long rows have links for themselves: without copies, and without latencies.
#[must_use]
pub fn routed_on_links(machine: &Machine, group: &Group, all: Bytes, rows: &RoutedRows) -> Seconds {
    let on_links = exchanged(machine, group, moved_and_relayed(group, all, rows), rows);
    let exchanges = if rows.by <= 1 { 1.0 } else { 3.0 };
    let latencies = exchanges * all_to_all(machine, group, Bytes(1));
    Seconds((on_links.0 - latencies.0).max(0.0))
}

/// How much a rank gets of so many bytes, and passes on in its set.
fn moved_and_relayed(group: &Group, all: Bytes, rows: &RoutedRows) -> [Bytes; 2] {
    let relayed = rows.of_set(all.0, group.size) / rows.by.max(1);
    [Bytes(rows.of_device(all.0, group.size)), Bytes(relayed)]
}

/// What rows take on their way, without what is copied.
fn exchanged(machine: &Machine, group: &Group, [moved, relayed]: [Bytes; 2], rows: &RoutedRows) -> Seconds {
    if rows.by <= 1 {
        return all_to_all(machine, group, moved);
    }
    let marks = Bytes(rows.marks(group.size));
    match group.by_nodes().filter(|it| it[0].size == rows.by) {
        Some([within, between]) => {
            let rows = all_to_all(machine, &within, moved).max(all_to_all(machine, &between, relayed));
            all_to_all(machine, &between, marks) + rows
        }
        // Where sets are not nodes, all go over the same links.
        None => [marks, moved, relayed].into_iter().map(|it| all_to_all(machine, group, it)).sum(),
    }
}

/// Time for every rank of the group to send `message` bytes to the next one, at the same time.
///
/// ```text
/// t = start + α + S/(p β)
/// ```
///
/// A message between two ranks is the case of a group of two. `α` and `β` are those of the
/// slowest pair of neighbours; where neighbours are in different nodes they have their own part
/// of an adapter, alone.
///
/// Source: Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994.
#[must_use]
pub fn send(machine: &Machine, group: &Group, message: Bytes) -> Seconds {
    // Neighbours in different nodes have their own part of an adapter, alone.
    sent(machine, group, group.inside.map(|inside| inside.pair), alone(machine, group), message)
}

/// Time for every rank of the group to send half of `message` bytes to the next one and half to the
/// one before it, at the same time.
///
/// ```text
/// t = start + α + S/(p β)
/// ```
///
/// as [`send`], with the rate at which both together are sent. Links to the two neighbours are
/// different ones, and each is used in both directions; a port on a switch is the same for both.
/// Between nodes one half leaves by the adapter of the last rank of a node and one by that of the
/// first: twice the rate, if these are two.
#[must_use]
pub fn send_both_ways(machine: &Machine, group: &Group, message: Bytes) -> Seconds {
    let ends = if group.ranks_per_node > 1 { 2.0 } else { 1.0 };
    let across = alone(machine, group).map(|rate| ends * rate);
    sent(machine, group, group.inside.map(|inside| inside.both), across, message)
}

/// Whether large messages of a group are faster if half of each goes the other way round.
#[must_use]
pub fn gains_both_ways(machine: &Machine, group: &Group) -> bool {
    const LARGE: Bytes = Bytes(1 << 40);
    send_both_ways(machine, group, LARGE) < send(machine, group, LARGE)
}

/// Rate at which a rank alone sends to another node; `None` if there is one node.
fn alone(machine: &Machine, group: &Group) -> Option<BytesPerSecond> {
    across(machine, group).map(|rate| (1.0 / exact(group.ranks_per_node)) * rate)
}

/// Time of messages at the slower of these rates.
fn sent(
    machine: &Machine,
    group: &Group,
    inside: Option<BytesPerSecond>,
    across: Option<BytesPerSecond>,
    message: Bytes,
) -> Seconds {
    if group.size < 2 || message == Bytes::ZERO {
        return Seconds::ZERO;
    }
    let Some(rate) = inside.into_iter().chain(across).reduce(BytesPerSecond::min) else {
        return Seconds::ZERO;
    };
    fastest(machine, |protocol, hops| {
        let way = protocol.start.value + longest_hop(group, protocol, hops);
        way + message / (protocol.share.value * rate)
    })
}

/// How data goes around a ring.
struct Journey {
    /// How often it goes around.
    rounds: f64,
    /// What a rank sends, as a multiple of the size.
    sent: f64,
    /// What a rank reads and writes in its own memory besides, as a multiple of the size.
    local: f64,
}

fn around(machine: &Machine, group: &Group, journey: &Journey, size: Bytes) -> Seconds {
    let Some(rate) = ring_rate(machine, group).filter(|_| size != Bytes::ZERO) else {
        return Seconds::ZERO;
    };
    let hops = journey.rounds * (exact(group.size) - 1.0);
    let hops_across = journey.rounds * (exact(group.nodes) - 1.0);
    let moved = journey.sent * (size / rate) + journey.local * (size / machine.transport.local_rate.value);
    fastest(machine, |protocol, across| {
        let near = (hops - hops_across) * protocol.hop.value;
        let far = across.map_or(Seconds::ZERO, |across| hops_across * across.ring.value);
        let start = protocol.start.value + journey.rounds * protocol.fill.value;
        start + near + far + (1.0 / protocol.share.value.0) * moved
    })
}

/// An all-reduce up and down a tree of nodes; `None` if there is one node.
fn tree(machine: &Machine, group: &Group, value: Bytes) -> Option<Seconds> {
    let rate = ring_rate(machine, group).filter(|_| value != Bytes::ZERO && group.nodes > 1)?;
    let (nodes, near) = (exact(group.nodes), exact(group.ranks_per_node));
    let levels = nodes.log2().ceil();
    // Every node of the tree sends the value up, and down.
    let moved = 2.0 * (value / rate);
    Some(fastest(machine, |protocol, across| {
        let up = (near - 1.0) * protocol.tree_hop.value;
        let over = across.map_or(Seconds::ZERO, |across| levels * across.tree.value);
        protocol.start.value + 2.0 * (up + over) + (1.0 / protocol.share.value.0) * moved
    }))
}

/// An all-reduce in the switch of a node; `None` if there is none that adds.
fn in_switch(machine: &Machine, group: &Group, value: Bytes) -> Option<Seconds> {
    let adds = machine.transport.in_switch.as_ref()?;
    let inside = group.inside.filter(|_| value != Bytes::ZERO && group.nodes == 1)?;
    Some(adds.start.value + value / (adds.share.value * inside.link))
}

/// The lowest time of the protocols, each with its hops between nodes.
fn fastest(machine: &Machine, time: impl Fn(&Protocol, Option<&NetworkHops>) -> Seconds) -> Seconds {
    let (transport, network) = (&machine.transport, machine.network.as_ref());
    let bulk = time(&transport.bulk, network.map(|network| &network.bulk));
    let eager = time(&transport.eager, network.map(|network| &network.eager));
    let packed = transport.packed.as_ref().map(|it| time(it, network.map(|network| &network.packed)));
    packed.into_iter().fold(bulk.min(eager), Seconds::min)
}

/// Rate of a ring with large messages; `None` for a rank alone.
fn ring_rate(machine: &Machine, group: &Group) -> Option<BytesPerSecond> {
    let inside = group.inside.map(|inside| inside.ring);
    inside.into_iter().chain(across(machine, group)).reduce(BytesPerSecond::min)
}

/// Rate of the group's adapters in one node with large messages.
fn across(machine: &Machine, group: &Group) -> Option<BytesPerSecond> {
    let network = machine.network.as_ref()?;
    group.across.map(|rate| network.share.value * rate)
}

/// Time of one hop: between nodes if the group is in several.
fn longest_hop(group: &Group, protocol: &Protocol, across: Option<&NetworkHops>) -> Seconds {
    let far = across.filter(|_| group.nodes > 1).map(|across| across.ring.value);
    far.unwrap_or(protocol.hop.value)
}

#[cfg(test)]
mod tests;
