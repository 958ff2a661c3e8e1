//! Collective operations against hand-derived times, against each other and against measurements.

use arbtest::arbtest;

use super::*;
use crate::machine::shipped::{device_names, named};
use crate::topology::Topology;

type Operation = fn(&Machine, &Group, Bytes) -> Seconds;

const OPERATIONS: [(&str, Operation); 6] = [
    ("all-gather", ring_all_gather),
    ("reduce-scatter", reduce_scatter),
    ("all-reduce", all_reduce),
    ("all-to-all", all_to_all),
    ("broadcast", broadcast),
    ("send", send),
];

fn group(machine: &Machine, ranks: impl IntoIterator<Item = u64>) -> Group {
    let ranks: Vec<u64> = ranks.into_iter().collect();
    Topology::of(machine).group(&ranks).unwrap_or_else(|error| panic!("{error}"))
}

fn microseconds(time: Seconds) -> f64 {
    time.0 * 1e6
}

fn close(time: Seconds, expected: f64) -> bool {
    (microseconds(time) / expected - 1.0).abs() < 1e-9
}

#[test]
fn an_all_reduce_in_a_node_is_the_ring_formula() {
    let machine = named("a100-80g-8x").unwrap();
    let node = group(&machine, 0..8);
    // Twice around: 8.4 µs, twice 20.8 µs and 14 hops of 3.4 µs; 14/8 of 1e9 bytes at 300 GB/s and
    // 1e9 at the local 544 GB/s.
    let expected = 8.4 + 2.0 * 20.8 + 14.0 * 3.4 + 1.75e9 / 300e3 + 1e9 / 544e3;
    let time = all_reduce(&machine, &node, Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 20.8 + 7.0 * 3.4 + 0.875e9 / 300e3 + 0.5e9 / 544e3;
    let time = ring_all_gather(&machine, &node, Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
    assert_eq!(reduce_scatter(&machine, &node, Bytes(1_000_000_000)), time);
    let expected = 8.4 + 20.8 + 7.0 * 3.4 + 1e9 / 300e3 + 0.5e9 / 544e3;
    let time = broadcast(&machine, &node, Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
}

#[test]
fn a_small_all_reduce_takes_the_protocol_that_starts_fast() {
    let machine = named("a100-80g-8x").unwrap();
    let node = group(&machine, 0..8);
    let moved = |size: f64, share: f64| (1.75 * size / 300e3 + size / 544e3) / share;
    let time = all_reduce(&machine, &node, Bytes(8000));
    assert!(close(time, 6.6 + 2.0 * 0.47 + 14.0 * 1.06 + moved(8e3, 0.029)), "{time}");
    // And a middling one the protocol in between.
    let time = all_reduce(&machine, &node, Bytes(2_000_000));
    assert!(close(time, 14.0 + 2.0 * 9.2 + 14.0 * 1.9 + moved(2e6, 0.83)), "{time}");
}

#[test]
fn a_ring_over_whole_nodes_uses_every_adapter_and_a_column_one() {
    let machine = named("a100-80g-16x").unwrap();
    let size = Bytes(1_000_000_000);
    // 16 ranks, 30 hops, 2 of them across; 8 adapters of 25 GB/s are slower than the links.
    let expected = 8.4 + 2.0 * 20.8 + 28.0 * 3.4 + 2.0 * 14.0 + 1.875e9 / 200e3 + 1e9 / 544e3;
    let time = ring_all_reduce(&machine, &group(&machine, 0..16), size);
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 2.0 * 20.8 + 2.0 * 14.0 + 1e9 / 25e3 + 1e9 / 544e3;
    let time = ring_all_reduce(&machine, &group(&machine, [0, 8]), size);
    assert!(close(time, expected), "{time}");
}

#[test]
fn a_tree_has_fewer_hops_than_a_ring_over_many_nodes() {
    let machine = named("a100-80g-32x").unwrap();
    let all = group(&machine, 0..32);
    // Seven hops in a node and two between nodes, up and down; 1e6 bytes go up and down.
    let expected = 14.0 + 2.0 * (7.0 * 1.25 + 2.0 * 8.5) + 2e6 / 200e3 / 0.83;
    let time = all_reduce(&machine, &all, Bytes(1_000_000));
    assert!(close(time, expected), "{time}");
    assert!(time < ring_all_reduce(&machine, &all, Bytes(1_000_000)));
}

#[test]
fn a_switch_that_adds_is_used_where_it_is_faster() {
    let machine = named("h100-80g-8x").unwrap();
    let size = Bytes(1_000_000_000);
    let time = all_reduce(&machine, &group(&machine, 0..8), size);
    assert!(close(time, 25.0 + 1e9 / (0.61 * 450e3)), "{time}");
    let pair = group(&machine, 0..2);
    assert_eq!(all_reduce(&machine, &pair, size), ring_all_reduce(&machine, &pair, size));
}

#[test]
fn an_all_to_all_is_as_slow_as_the_slower_of_links_and_adapters() {
    let machine = named("a100-80g-16x").unwrap();
    let size = Bytes(1_600_000_000);
    let local = 1.6e9 / 544e3;
    let expected = 8.4 + 20.8 + 3.4 + 1.4e9 / 300e3 + local;
    let time = all_to_all(&machine, &group(&machine, 0..8), size);
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 20.8 + 14.0 + 0.8e9 / 25e3 + local;
    let time = all_to_all(&machine, &group(&machine, 0..16), size);
    assert!(close(time, expected), "{time}");
    // Four nodes: three quarters leave the node.
    let machine = named("a100-80g-32x").unwrap();
    let expected = 8.4 + 20.8 + 14.0 + 1.2e9 / 25e3 + local;
    let time = all_to_all(&machine, &group(&machine, 0..32), size);
    assert!(close(time, expected), "{time}");
}

#[test]
fn boards_without_links_go_through_the_host_and_its_sockets() {
    let machine = named("a100-80g-pcie-8x").unwrap();
    let size = Bytes(1_000_000_000);
    let fixed = |hops: f64| 8.4 + 2.0 * 20.8 + hops * 5.7;
    // Four boards at one socket: 0.73 of 32 GB/s; eight at two: 0.73 of 18.7 GB/s between them.
    let expected = fixed(6.0) + 1.5e9 / (0.73 * 32e3) + 1e9 / 544e3;
    let time = all_reduce(&machine, &group(&machine, 0..4), size);
    assert!(close(time, expected), "{time}");
    let expected = fixed(14.0) + 1.75e9 / (0.73 * 18.7e3) + 1e9 / 544e3;
    let time = all_reduce(&machine, &group(&machine, 0..8), size);
    assert!(close(time, expected), "{time}");
    // 4 · 4 of 8 · 7 parts cross in an exchange.
    let expected = 8.4 + 20.8 + 5.7 + 2e9 / (0.73 * 18.7e3) + 1e9 / 544e3;
    let time = all_to_all(&machine, &group(&machine, 0..8), size);
    assert!(close(time, expected), "{time}");
}

#[test]
fn pairs_that_no_link_joins_make_a_ring_through_the_host() {
    let machine = named("a100-80g-pairs-4x").unwrap();
    let size = Bytes(1_000_000_000);
    let fast = all_reduce(&machine, &group(&machine, [0, 1]), size);
    assert!(close(fast, 8.4 + 2.0 * 20.8 + 2.0 * 3.4 + 1e9 / 300e3 + 1e9 / 544e3), "{fast}");
    let slow = all_reduce(&machine, &group(&machine, 0..4), size);
    let expected = 8.4 + 2.0 * 20.8 + 6.0 * 3.4 + 1.5e9 / (0.73 * 32e3) + 1e9 / 544e3;
    assert!(close(slow, expected), "{slow}");
}

#[test]
fn a_message_has_one_pair_of_devices_for_itself() {
    let machine = named("a100-80g-16x").unwrap();
    let expected = 8.4 + 3.4 + 1e9 / (0.91 * 300e3);
    let time = send(&machine, &group(&machine, [0, 1]), Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 14.0 + 1e9 / 25e3;
    let time = send(&machine, &group(&machine, [0, 8]), Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
    // A shift around two whole nodes is as slow as the message that leaves a node.
    let ring = send(&machine, &group(&machine, 0..16), Bytes(1_000_000_000));
    assert!(close(ring, expected), "{ring}");
}

#[test]
fn a_rank_alone_and_an_empty_value_take_no_time() {
    let machine = named("h100-80g-16x").unwrap();
    for (name, operation) in OPERATIONS {
        assert_eq!(operation(&machine, &group(&machine, [3]), Bytes(1 << 20)), Seconds::ZERO, "{name}");
        assert_eq!(operation(&machine, &group(&machine, 0..16), Bytes::ZERO), Seconds::ZERO, "{name}");
    }
}

#[test]
fn times_grow_with_the_size_and_are_finite() {
    for device in device_names() {
        let devices = if device == "cpu" { 8 } else { 32 };
        let machine = named(&format!("{device}-{devices}x")).unwrap();
        let topology = Topology::of(&machine);
        arbtest(|u| {
            let step = *u.choose(&[1, 2, 4, 8])?;
            let ranks: Vec<u64> = (0..devices).step_by(step).collect();
            let ranks = &ranks[..u.int_in_range(1..=ranks.len())?];
            let group = topology.group(ranks).unwrap();
            let small = Bytes(u.int_in_range(1..=1 << 36)?);
            let large = small + Bytes(u.int_in_range(0..=1 << 36)?);
            for (name, operation) in OPERATIONS {
                let [short, long] = [small, large].map(|size| operation(&machine, &group, size));
                assert!(short <= long, "{device} {name} {ranks:?} {small} {large}");
                let alone = ranks.len() == 1;
                assert!(long.0.is_finite() && (alone || short > Seconds::ZERO), "{device} {name}");
            }
            Ok(())
        });
    }
}

#[test]
fn around_a_ring_an_all_reduce_is_slower_than_one_half_of_it_and_never_than_both() {
    let machine = named("h100-80g-64x").unwrap();
    let topology = Topology::of(&machine);
    arbtest(|u| {
        let count = u.int_in_range(2..=64)?;
        let group = topology.group(&(0..count).collect::<Vec<_>>()).unwrap();
        let size = Bytes(u.int_in_range(1..=1 << 36)?);
        let half = ring_all_gather(&machine, &group, size);
        let whole = ring_all_reduce(&machine, &group, size);
        assert!(half < whole && whole < 2.0 * half, "{count} ranks, {size}");
        // Up and down a tree, or in the switch, it may be faster than even one half around a ring.
        let fastest = all_reduce(&machine, &group, size);
        assert!(fastest <= whole && fastest < 2.0 * half, "{count} ranks, {size}");
        Ok(())
    });
}

#[test]
fn more_ranks_in_a_node_never_make_a_ring_faster() {
    let machine = named("h100-80g-8x").unwrap();
    let topology = Topology::of(&machine);
    for size in (10..36).map(|power| Bytes(1 << power)) {
        let times = (2..=8).map(|count| {
            let group = topology.group(&(0..count).collect::<Vec<_>>()).unwrap();
            all_reduce(&machine, &group, size)
        });
        assert!(times.collect::<Vec<_>>().is_sorted(), "{size}");
    }
}

/// Rows of 256 experts over two nodes of eight, eight for a row: straight, a row goes to three of the eight of the other
/// node on average, by sets once to it.
#[test]
fn rows_cross_to_a_node_once() {
    let machine = named("h100-80g-16x").unwrap();
    let group = group(&machine, 0..16);
    let [within, between] = group.by_nodes().unwrap();
    assert_eq!((within.size, within.nodes, within.inside, within.across), (8, 1, group.inside, None));
    assert_eq!((between.size, between.nodes, between.inside), (2, 2, None));
    assert_eq!(between.across.map(|it| 8.0 * it), group.across);
    let all = Bytes(32_768 * 14_336);
    let rows = |by| RoutedRows { count: 2_048, used: 8, parts: 256, by };
    let copies = |bytes| 2.0 * work::copy(&machine.device, Bytes(bytes));
    let [straight, by_sets] = [1, 8].map(|by| routed(&machine, &group, all, &rows(by)));
    let [moved, relayed] = [rows(8).of_device(all.0, 16), rows(8).of_set(all.0, 16) / 8];
    assert_eq!(straight, all_to_all(&machine, &group, Bytes(moved)) + copies(moved));
    // A bit for each of 2,048 rows and 16 ranks, half of which stay.
    let marks = all_to_all(&machine, &between, Bytes(4_096));
    let [inside, across] =
        [all_to_all(&machine, &within, Bytes(moved)), all_to_all(&machine, &between, Bytes(relayed))];
    assert_eq!(by_sets, marks + inside.max(across) + copies(moved) + copies(relayed));
    // 0.408 of all rows are used by a device, 0.9965 by a node: an eighth of those over each adapter.
    assert!((0.407..0.408).contains(&(exact(moved) / exact(all.0))), "{moved}");
    assert!((0.1245..0.1246).contains(&(exact(relayed) / exact(all.0))), "{relayed}");
    assert!(by_sets < straight);
    // Sets that are no nodes: everything goes over the same links.
    let halves =
        [4_096, moved, rows(4).of_set(all.0, 16) / 4].map(|it| all_to_all(&machine, &group, Bytes(it)));
    let of_halves =
        halves.into_iter().sum::<Seconds>() + copies(moved) + copies(rows(4).of_set(all.0, 16) / 4);
    assert_eq!(routed(&machine, &group, all, &rows(4)), of_halves);
    // Few devices of a node, or none beside, have nothing to gain.
    for ranks in [vec![0, 1], vec![0, 8], (0..12).collect()] {
        assert_eq!(self::group(&machine, ranks).by_nodes(), None);
    }
}
