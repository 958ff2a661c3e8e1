//! Nodes that have several adapters.

use std::collections::BTreeSet;

use arbtest::arbtest;
use cost_models::units::{BytesPerSecond, Seconds, exact as number};
use planner_ir::{Mesh, Type};

use super::once::lacking;
use super::world::{NETWORK, plain, sides, value};
use crate::{Choice, Network, Policy, Resharding, Side, Strategy, Timeline, reshard, simulate};

/// Links without latency; inside nothing takes any time to speak of.
const QUICK: Network =
    Network { between: NETWORK.between, inside: BytesPerSecond(1e15), latency: Seconds(0.0) };

/// Nodes of so many devices, of an adapter each, on both sides.
fn own_adapters(per_node: u64, first: (&[u64], &[&[usize]]), second: (&[u64], &[&[usize]])) -> [Side; 2] {
    let side = |(sizes, dims): (&[u64], &[&[usize]]), first: u64| {
        let mesh = Mesh::of_sizes(sizes);
        let layout = plain(&mesh, dims);
        Side::successive(mesh, layout, first, [per_node, per_node])
    };
    [side(first, 0), side(second, first.0.iter().product::<u64>().next_multiple_of(per_node))]
}

fn brought(type_: &Type, [from, to]: &[Side; 2], strategy: Choice) -> (Resharding, Timeline) {
    let policy = Policy { strategy, ..Policy::default() };
    let found = reshard(type_, from, to, &QUICK, &policy).unwrap();
    let timeline = simulate(&found.messages, from, to, &QUICK);
    (found, timeline)
}

/// What a timeline takes, in multiples of what a value takes over one adapter.
fn multiple(timeline: &Timeline, type_: &Type) -> f64 {
    timeline.end.0 * QUICK.between.0 / number(type_.bytes())
}

#[test]
fn parts_that_one_device_of_each_node_needs_enter_by_all_adapters_at_once() {
    // Every device of one stage has a part of a parameter. In the other one, each device of a node needs
    // one half, fourth or eighth of it, and so do as many others as there are nodes.
    for (nodes, devices) in [(2, 2), (3, 4), (16, 8)] {
        let type_ = value(&[nodes * devices * 64]);
        let sizes = [nodes, devices];
        let sides = own_adapters(devices, (&sizes, &[&[0, 1]]), (&sizes, &[&[1]]));
        let (found, timeline) = brought(&type_, &sides, Choice::Only(Strategy::SendReceive));
        assert!(found.schedule.meets_bound());
        assert_eq!(found.schedule.end, type_.bytes() / devices);
        let taken = multiple(&timeline, &type_) * number(devices);
        assert!((taken - 1.0).abs() < 1e-6, "{nodes} x {devices}: {taken}");
        // With one adapter in each node all of it enters every node by that.
        let shared = sides.map(|mut side| {
            side.places.iter_mut().for_each(|place| place.adapter = 0);
            side
        });
        let (found, _) = brought(&type_, &shared, Choice::Only(Strategy::SendReceive));
        assert_eq!(found.schedule.bound, type_.bytes());
    }
}

#[test]
fn devices_that_have_and_need_the_same_meet_by_pairs() {
    // A block for each node, which all of its devices have or need.
    let sides = own_adapters(4, (&[2, 4], &[&[0]]), (&[2, 4], &[&[0]]));
    let (found, timeline) = brought(&value(&[1 << 12]), &sides, Choice::Only(Strategy::SendReceive));
    let pairs: BTreeSet<(u64, u64)> = found.messages.iter().map(|it| (it.from, it.to)).collect();
    assert_eq!(pairs, (0..8).map(|rank| (rank, rank + 8)).collect());
    assert!((multiple(&timeline, &value(&[1 << 12])) - 0.5).abs() < 1e-6);
}

#[test]
fn chains_enter_nodes_by_different_adapters() {
    // Each of four devices has a quarter that all devices of two nodes need: a chain for each of them.
    let type_ = value(&[4 * 64 * 64]);
    let sides = own_adapters(4, (&[4], &[&[0]]), (&[2, 4], &[&[]]));
    let (found, timeline) = brought(&type_, &sides, Choice::Only(Strategy::Broadcast));
    assert_eq!((found.schedule.end, found.schedule.bound), (type_.bytes() / 4, type_.bytes() / 4));
    assert!((multiple(&timeline, &type_) - 0.25 * (1.0 + 1.0 / 64.0)).abs() < 1e-6);
    // More ways than are tried one by one: eight to four nodes.
    let eight = value(&[8 * 64 * 64]);
    let sides = own_adapters(8, (&[8], &[&[0]]), (&[4, 8], &[&[]]));
    let (found, timeline) = brought(&eight, &sides, Choice::Only(Strategy::Broadcast));
    assert_eq!((found.schedule.end, found.schedule.bound), (eight.bytes() / 8, eight.bytes() / 8));
    assert!((multiple(&timeline, &eight) - 0.125 * (1.0 + 3.0 / 64.0)).abs() < 1e-6);
    // And four for a value that all four have.
    let sides = own_adapters(4, (&[4], &[&[]]), (&[2, 4], &[&[]]));
    let (found, timeline) = brought(&type_, &sides, Choice::Only(Strategy::Broadcast));
    assert_eq!((found.schedule.end, found.schedule.bound), (type_.bytes() / 4, type_.bytes() / 4));
    assert!((multiple(&timeline, &type_) - 0.25 * (1.0 + 1.0 / 64.0)).abs() < 1e-6);
    let sent: BTreeSet<u64> = found.messages.iter().map(|it| it.from).filter(|rank| *rank < 4).collect();
    assert_eq!(sent.len(), 4);
}

#[test]
fn nothing_is_quicker_than_what_has_to_enter_a_node_by_all_its_adapters() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        let adapters = |node: u64| {
            let own = to.places.iter().filter(|place| place.node == node);
            own.map(|place| place.adapter).collect::<BTreeSet<_>>().len()
        };
        let least = lacking(&type_, &from, &to).into_iter().map(|(node, elements)| {
            let adapters = u64::try_from(adapters(node)).unwrap();
            number(elements * type_.dtype.bytes()) / number(adapters) / QUICK.between.0
        });
        let least = least.fold(0.0, f64::max);
        let sides = [from.clone(), to.clone()];
        for strategy in [Choice::Cheapest].into_iter().chain(Strategy::ALL.map(Choice::Only)) {
            let (found, timeline) = brought(&type_, &sides, strategy);
            assert!(timeline.end.0 >= least * (1.0 - 1e-9), "{strategy:?}: {} < {least}", timeline.end);
            assert!(found.schedule.end >= found.schedule.bound);
        }
        Ok(())
    })
    .budget_ms(1000);
}
