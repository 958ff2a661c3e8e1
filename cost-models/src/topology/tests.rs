//! What groups of ranks have, on machines whose wiring is known.

use petgraph::algo::{connected_components, dijkstra};

use super::*;
use crate::known::{Count, Known};
use crate::machine::Leaves;
use crate::machine::shipped::named;

fn topology(machine: &str) -> Topology {
    Topology::of(&named(machine).unwrap_or_else(|error| panic!("{error}")))
}

fn gigabytes(rate: BytesPerSecond) -> f64 {
    rate.0 / 1e9
}

fn count(topology: &Topology, is: fn(&Place) -> bool) -> usize {
    topology.graph().node_weights().filter(|place| is(place)).count()
}

#[test]
fn a_node_of_eight_is_one_switch_without_a_fabric() {
    let node = topology("h100-80g-8x");
    assert_eq!(count(&node, |place| matches!(place, Place::Device(_))), 8);
    assert_eq!(count(&node, |place| matches!(place, Place::Switch(_))), 1);
    assert_eq!(count(&node, |place| matches!(place, Place::Adapter(..) | Place::Fabric)), 0);
    assert_eq!(connected_components(node.graph()), 1);
}

#[test]
fn two_nodes_meet_in_the_fabric_only() {
    let pair = topology("h100-80g-16x");
    assert_eq!(count(&pair, |place| matches!(place, Place::Adapter(..))), 16);
    assert_eq!(count(&pair, |place| matches!(place, Place::Fabric)), 1);
    assert_eq!(connected_components(pair.graph()), 1);
    let mut cut = pair.graph().clone();
    cut.retain_nodes(|graph, place| graph[place] != Place::Fabric);
    assert_eq!(connected_components(&cut), 2);
    // Device, adapter, fabric, adapter, device: four links; inside a node two.
    let hops = dijkstra(pair.graph(), pair.devices[0], None, |_| 1_u64);
    assert_eq!(hops[&pair.devices[8]], 4);
    assert_eq!(hops[&pair.devices[7]], 2);
}

#[test]
fn a_group_in_a_node_has_its_links_and_no_network() {
    let node = topology("h100-80g-64x");
    let group = node.group(&[8, 9, 10, 11]).unwrap();
    assert_eq!((group.size, group.nodes, group.ranks_per_node), (4, 1, 4));
    assert_eq!(group.across, None);
    let inside = group.inside.unwrap();
    let rates = [inside.link, inside.ring, inside.pair, inside.exchange];
    assert_eq!(rates, [450e9, 450e9, 0.87 * 450e9, 450e9].map(BytesPerSecond));
}

#[test]
fn a_group_over_nodes_has_as_many_adapters_as_ranks_in_a_node() {
    let cluster = topology("h100-80g-64x");
    let group = |ranks: &[u64]| cluster.group(ranks).unwrap();
    let whole: Vec<u64> = (0..16).collect();
    let facts = group(&whole);
    assert_eq!((facts.nodes, facts.ranks_per_node), (2, 8));
    assert_eq!(facts.across.map(gigabytes), Some(400.0));
    // One rank per node: one adapter, however many nodes, and nobody inside.
    let column: Vec<u64> = (0..8).map(|node| 8 * node).collect();
    let facts = group(&column);
    assert_eq!((facts.size, facts.nodes, facts.ranks_per_node), (8, 8, 1));
    assert_eq!(facts.across.map(gigabytes), Some(50.0));
    assert_eq!(facts.inside, None);
    // An uneven group has what its smallest part has.
    let facts = group(&[0, 1, 2, 8]);
    assert_eq!((facts.nodes, facts.ranks_per_node), (2, 1));
    assert_eq!(facts.across.map(gigabytes), Some(50.0));
    assert!(facts.inside.is_some());
}

#[test]
fn groups_along_mesh_axes_are_found_and_each_kind_once() {
    let cluster = topology("h100-80g-64x");
    let along = |mesh: &str, axes: &[usize]| {
        let mesh = Mesh::parse(mesh).unwrap_or_else(|error| panic!("{error}"));
        let axes: Vec<AxisId> = axes.iter().copied().map(AxisId).collect();
        let kinds = cluster.along(&mesh, &axes).unwrap();
        kinds.iter().map(|group| (group.size, group.nodes, group.ranks_per_node)).collect::<Vec<_>>()
    };
    assert_eq!(along("data=8,model=8", &[1]), [(8, 1, 8)]);
    assert_eq!(along("data=8,model=8", &[0]), [(8, 8, 1)]);
    assert_eq!(along("data=8,model=8", &[0, 1]), [(64, 8, 8)]);
    assert_eq!(along("data=16,model=4", &[0]), [(16, 8, 2)]);
    assert_eq!(along("data=8,model=8", &[]), [(1, 1, 1)]);
    // Groups of three: ranks 0 1 2 and 3 4 5 are in the first node, 6 7 8 are not.
    assert_eq!(along("data=5,model=3", &[1]), [(3, 1, 3), (3, 2, 1)]);
    let large = Mesh::parse("a=9,b=8").unwrap();
    let error = cluster.along(&large, &[AxisId(1)]).expect_err("72 devices");
    assert_eq!(error, GroupError::Rank { rank: 64, devices: 64 });
}

#[test]
fn devices_that_share_an_adapter_share_its_rate() {
    // 4 adapters of 12.5 GB/s for 8 devices.
    let cluster = topology("v100-32g-16x");
    let across = |ranks: &[u64]| cluster.group(ranks).unwrap().across.map(gigabytes);
    assert_eq!(across(&[0, 8]), Some(6.25));
    assert_eq!(across(&(0..16).collect::<Vec<_>>()), Some(50.0));
}

#[test]
fn wired_devices_have_the_links_that_join_them() {
    let node = topology("v100-16g-8x");
    let inside = |ranks: &[u64]| {
        let inside = node.group(ranks).unwrap().inside.unwrap();
        [inside.ring, inside.pair, inside.exchange]
    };
    let at = |ring, pair, exchange| [ring, pair, exchange].map(|rate: f64| BytesPerSecond(rate * 1e9));
    // A message reaches 0.9 of the links, and anything 0.73 of the way through the host.
    assert_eq!(inside(&[0, 1]), at(25.0, 0.9 * 25.0, 25.0));
    assert_eq!(inside(&[0, 3]), at(50.0, 0.9 * 50.0, 50.0));
    // No link joins 0 and 5: through the host.
    assert_eq!(inside(&[0, 5]), at(11.68, 11.68, 11.68));
    // A quad is fully joined, by 4 links of each device.
    assert_eq!(inside(&[0, 1, 2, 3]), at(100.0, 0.9 * 25.0, 100.0));
    // All six links of each device; an exchange has to go through the host for some pairs.
    assert_eq!(inside(&[0, 1, 2, 3, 4, 5, 6, 7]), at(150.0, 11.68, 11.68));
    // In this order all neighbours are joined by two links.
    assert_eq!(inside(&[0, 3, 2, 1, 5, 6, 7, 4]), at(150.0, 0.9 * 50.0, 11.68));
}

#[test]
fn links_to_two_neighbours_carry_twice_as_much_and_a_port_does_not() {
    let both = |machine: &str, ranks: &[u64]| {
        let inside = topology(machine).group(ranks).unwrap().inside.unwrap();
        inside.both.0 / inside.pair.0
    };
    assert!((both("v100-16g-8x", &[0, 1, 2, 3]) - 2.0).abs() < 1e-12);
    assert!((both("v100-16g-8x", &[0, 1]) - 1.0).abs() < 1e-12);
    // Ranks 3 and 4 meet in the host.
    assert!((both("v100-16g-8x", &[0, 1, 2, 3, 4, 5, 6, 7]) - 1.0).abs() < 1e-12);
    assert!((both("h100-80g-8x", &[0, 1, 2, 3]) - 1.0).abs() < 1e-12);
}

#[test]
fn nodes_of_different_leaves_share_what_goes_up() {
    let mut machine = named("a100-80g-64x").unwrap();
    let known = |value| Known::new(value, "assumed here").unwrap();
    let network = machine.network.as_mut().unwrap();
    network.leaves = Some(Leaves {
        nodes: Known::new(Count(4), "assumed here").unwrap(),
        uplink_share: known(Ratio(0.5)),
    });
    let topology = Topology::of(&machine);
    let across = |ranks: &[u64]| topology.group(ranks).unwrap().across.map(gigabytes);
    assert_eq!(across(&[0, 24]), Some(25.0));
    assert_eq!(across(&[0, 32]), Some(12.5));
}

#[test]
fn every_wired_device_has_six_lanes() {
    let machine = named("v100-16g-8x").unwrap();
    let Wiring::Links(links) = &machine.node.wiring.value else { panic!("links") };
    for device in 0..8 {
        let own = links.iter().filter(|link| link.ends.contains(&device));
        assert_eq!(own.map(|link| link.lanes).sum::<u64>(), 6, "device {device}");
    }
}

#[test]
fn part_of_a_node_has_the_links_of_the_part() {
    let two = topology("v100-16g-2x");
    assert_eq!(two.group(&[0, 1]).unwrap().inside.map(|inside| gigabytes(inside.ring)), Some(25.0));
}

#[test]
fn a_rank_alone_has_nothing() {
    let group = topology("a100-80g-16x").group(&[5]).unwrap();
    assert_eq!((group.size, group.nodes, group.ranks_per_node), (1, 1, 1));
    assert_eq!((group.inside, group.across), (None, None));
}

#[test]
fn what_is_not_a_group_is_refused() {
    let node = topology("a100-80g-8x");
    let error = |ranks: &[u64]| node.group(ranks).expect_err("no group").to_string();
    assert_eq!(error(&[]), "a group without ranks, expected at least 1");
    assert_eq!(error(&[3, 8]), "rank 8 in a group, expected a rank below 8");
    assert_eq!(error(&[3, u64::MAX]), format!("rank {} in a group, expected a rank below 8", u64::MAX));
    assert_eq!(error(&[3, 4, 3]), "rank 3 twice in a group, expected it once");
}

#[test]
fn groups_that_share_adapters_have_equal_parts() {
    // 4 adapters of 12.5 GB/s for 8 devices: two devices have one between them.
    let cluster = topology("v100-32g-16x");
    let alone = cluster.alone(&[0, 8]).unwrap();
    assert_eq!(alone.across.map(gigabytes), Some(12.5));
    assert_eq!(alone.among(2), cluster.group(&[0, 8]).unwrap());
    assert_eq!(alone.among(1), alone);
    assert_eq!(cluster.group(&[0, 1]).unwrap().among(8).across, None);
}
