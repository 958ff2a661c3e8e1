//! What goes over channels, against what groups of ranks have between them.

use super::*;
use crate::machine::shipped;

fn topology(name: &str) -> Topology {
    Topology::of(&shipped::named(name).expect("a shipped machine"))
}

/// The time that a pattern takes if nothing but the links takes time, for each byte.
fn slowest(topology: &Topology, load: &Load) -> f64 {
    load.iter().map(|&(channel, part)| part / topology.rate(channel).0).fold(0.0, f64::max)
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * other
}

/// Whether what enters a place leaves it, over all channels of the load.
fn is_conserved(topology: &Topology, load: &Load) -> bool {
    let graph = topology.graph();
    let mut left = vec![0.0; graph.node_count()];
    for &(Channel(channel), part) in load {
        let edge = graph.edge_indices().nth(channel / 2).expect("a link");
        let (first, second) = graph.edge_endpoints(edge).expect("a link has ends");
        let (from, to) = if channel % 2 == 0 { (first, second) } else { (second, first) };
        left[from.index()] -= part;
        left[to.index()] += part;
    }
    left.into_iter().all(|it| it.abs() < 1e-9)
}

#[test]
fn a_ring_in_a_node_takes_what_its_links_give() {
    for (name, ranks) in [("h100-80g-8x", 8), ("a100-80g-8x", 4), ("v100-32g-8x", 8)] {
        let topology = topology(name);
        let ranks: Vec<u64> = (0..ranks).collect();
        let load = topology.ring_load(&ranks);
        let ring = topology.group(&ranks).expect("a group").inside.expect("of one node").ring;
        assert!(close(slowest(&topology, &load), 1.0 / ring.0), "{name} {ranks:?}");
        assert!(is_conserved(&topology, &load), "{name} {ranks:?}");
    }
}

#[test]
fn a_ring_over_nodes_leaves_each_by_all_adapters_of_its_ranks() {
    let topology = topology("h100-80g-16x");
    for ranks in [(0..16).collect::<Vec<u64>>(), vec![0, 8], vec![0, 1, 8, 9]] {
        let load = topology.ring_load(&ranks);
        let across = topology.alone(&ranks).expect("a group").across.expect("of two nodes");
        assert!(close(slowest(&topology, &load), 1.0 / across.0), "{ranks:?}");
        assert!(is_conserved(&topology, &load), "{ranks:?}");
    }
}

#[test]
fn an_exchange_takes_each_rank_its_own_part_of_adapters() {
    let topology = topology("h100-80g-16x");
    let ranks: Vec<u64> = (0..16).collect();
    let load = topology.exchange_load(&ranks);
    let own = topology.alone(&[0, 8]).expect("a group").across.expect("of two nodes");
    assert!(close(slowest(&topology, &load), 0.5 / own.0));
    assert!(is_conserved(&topology, &load));
}

#[test]
fn a_group_alone_has_adapters_that_it_would_share() {
    // Two devices of a V100 node share each adapter.
    let topology = topology("v100-32g-16x");
    let [shared, alone] = [topology.group(&[0, 8]), topology.alone(&[0, 8])].map(|it| it.expect("a group"));
    let [shared, alone] = [shared, alone].map(|it| it.across.expect("of two nodes").0);
    assert!(alone > 1.5 * shared, "{alone} {shared}");
    let inside = [topology.group(&[0, 1]), topology.alone(&[0, 1])];
    assert_eq!(inside[0], inside[1]);
}

#[test]
fn a_message_goes_over_a_link_a_switch_the_host_or_the_fabric() {
    let hops = |name: &str, from, to| topology(name).route(from, to).len();
    assert_eq!(hops("h100-80g-8x", 0, 5), 2);
    assert_eq!(hops("v100-32g-8x", 0, 1), 1);
    assert_eq!(hops("v100-32g-8x", 0, 5), 2);
    assert_eq!(hops("h100-80g-16x", 0, 9), 4);
    assert_eq!(hops("h100-80g-16x", 3, 3), 0);
    let (there, back) = (topology("h100-80g-16x").route(0, 9), topology("h100-80g-16x").route(9, 0));
    assert!(there.iter().all(|(channel, _)| back.iter().all(|(other, _)| channel != other)));
}
