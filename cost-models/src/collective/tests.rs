//! Collective operations against hand-derived times, against each other and against measurements.

use std::collections::BTreeMap;

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
    // 14 hops of 3.4 µs after 8.4 µs; 14/8 of 1e9 bytes and 6e6 bytes at 0.74 · 300 GB/s.
    let expected = 8.4 + 14.0 * 3.4 + (1.75e9 + 6e6) / (0.74 * 300e3);
    let time = all_reduce(&machine, &node, Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 7.0 * 3.4 + (0.875e9 + 6e6) / (0.74 * 300e3);
    let time = ring_all_gather(&machine, &node, Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
    assert_eq!(reduce_scatter(&machine, &node, Bytes(1_000_000_000)), time);
    let expected = 8.4 + 7.0 * 3.4 + (1e9 + 6e6) / (0.74 * 300e3);
    let time = broadcast(&machine, &node, Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
}

#[test]
fn a_small_all_reduce_takes_the_protocol_that_starts_fast() {
    let machine = named("a100-80g-8x").unwrap();
    let time = all_reduce(&machine, &group(&machine, 0..8), Bytes(8000));
    assert!(close(time, 20.0 + 14.0 * 0.6 + 14_000.0 / (0.2 * 0.74 * 300e3)), "{time}");
}

#[test]
fn a_ring_over_whole_nodes_uses_every_adapter_and_a_column_one() {
    let machine = named("a100-80g-16x").unwrap();
    let size = Bytes(1_000_000_000);
    // 16 ranks, 30 hops, 2 of them across; 8 adapters of 25 GB/s are slower than the links.
    let rate = 0.96 * 200e3;
    let expected = 8.4 + 28.0 * 3.4 + 2.0 * 14.0 + (1.875e9 + 6e6) / rate;
    let time = all_reduce(&machine, &group(&machine, 0..16), size);
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 2.0 * 14.0 + (1e9 + 6e6) / (0.96 * 25e3);
    let time = all_reduce(&machine, &group(&machine, [0, 8]), size);
    assert!(close(time, expected), "{time}");
}

#[test]
fn an_all_to_all_is_as_slow_as_the_slower_of_links_and_adapters() {
    let machine = named("a100-80g-16x").unwrap();
    let size = Bytes(1_600_000_000);
    let expected = 8.4 + 3.4 + (1.4e9 + 2.5e5) / (0.7 * 300e3);
    let time = all_to_all(&machine, &group(&machine, 0..8), size);
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 14.0 + (0.8e9 + 2.5e5) / (0.96 * 25e3);
    let time = all_to_all(&machine, &group(&machine, 0..16), size);
    assert!(close(time, expected), "{time}");
    // Four nodes: three quarters leave the node.
    let machine = named("a100-80g-32x").unwrap();
    let expected = 8.4 + 14.0 + (1.2e9 + 2.5e5) / (0.96 * 25e3);
    let time = all_to_all(&machine, &group(&machine, 0..32), size);
    assert!(close(time, expected), "{time}");
}

#[test]
fn a_message_has_one_pair_of_devices_for_itself() {
    let machine = named("a100-80g-16x").unwrap();
    let expected = 8.4 + 3.4 + (1e9 + 2.5e5) / (0.91 * 300e3);
    let time = send(&machine, &group(&machine, [0, 1]), Bytes(1_000_000_000));
    assert!(close(time, expected), "{time}");
    let expected = 8.4 + 14.0 + (1e9 + 2.5e5) / (0.96 * 25e3);
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
fn an_all_reduce_is_never_faster_than_its_halves_and_never_slower_than_both() {
    let machine = named("h100-80g-64x").unwrap();
    let topology = Topology::of(&machine);
    arbtest(|u| {
        let count = u.int_in_range(2..=64)?;
        let group = topology.group(&(0..count).collect::<Vec<_>>()).unwrap();
        let size = Bytes(u.int_in_range(1..=1 << 36)?);
        let half = ring_all_gather(&machine, &group, size);
        let whole = all_reduce(&machine, &group, size);
        assert!(half < whole && whole < 2.0 * half, "{count} ranks, {size}");
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

/// The rows of a table of comma-separated values, by column name.
pub(crate) fn rows(table: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = table.lines().map(cells);
    let names = lines.next().unwrap_or_default();
    lines.map(|line| names.iter().cloned().zip(line).collect()).collect()
}

/// The cells of a line; quoted ones may hold commas.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells.last_mut().expect("one cell at least").push(letter),
        }
    }
    cells
}

#[test]
fn published_all_reduces_and_messages_are_met_within_a_factor_of_two() {
    let path = "../../shared/reference/data/validation/collective_rows.csv";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let Ok(table) = std::fs::read_to_string(&path) else {
        println!("left out: published collective operations, there is no {}", path.display());
        return;
    };
    let machine = named("a100-80g-8x").unwrap();
    let topology = Topology::of(&machine);
    let mut errors: BTreeMap<(String, String, u64), Vec<f64>> = BTreeMap::new();
    for row in rows(&table) {
        let sources = ["vtrain_nccl_lut_a100", "vidur_a100_dgx", "ml_eng_a100_1node"];
        if row["split"] != "calibration" || !sources.contains(&&*row["source"]) || row["n_nodes"] != "1" {
            continue;
        }
        let ranks: u64 = row["n_gpus"].parse().unwrap();
        let size = Bytes(row["size_bytes"].parse().unwrap());
        let measured: f64 = row["time_us"].parse().unwrap();
        let group = topology.group(&(0..ranks).collect::<Vec<_>>()).unwrap();
        let predicted = match row["op"].as_str() {
            "all_reduce" => all_reduce(&machine, &group, size),
            "send_recv" => send(&machine, &group, size),
            _ => continue,
        };
        let key = (row["source"].clone(), row["op"].clone(), ranks);
        errors.entry(key).or_default().push((microseconds(predicted) / measured).ln().abs());
    }
    assert!(errors.len() >= 12, "{} kinds of rows", errors.len());
    for ((source, op, ranks), mut logs) in errors {
        logs.sort_by(f64::total_cmp);
        let median = logs[logs.len() / 2].exp();
        println!("{source} {op} {ranks} ranks: {} rows, off by {median:.3} at the median", logs.len());
        assert!(median < 2.0, "{source} {op} {ranks}: off by {median}");
    }
}
