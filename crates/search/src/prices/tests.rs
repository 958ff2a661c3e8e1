//! Prices of time steps, computed by hand from the numbers of a machine.
//!
//! Devices compute 1 FLOP in 1 ns and touch 10 GB in 1 s; their links carry 100 MB in 1 s. A product
//! takes 5 µs to start, any other operation 1 µs and a message 100 µs, of which 10 µs are a hop.

use cost_models::known::{Count, Known};
use cost_models::machine::{Tile, shipped};
use cost_models::units::{BytesPerSecond, FlopsPerSecond, Ratio};
use planner_ir::{Contract, DType, Label, parse_partition};

use super::*;

fn machine() -> Machine {
    let mut machine = shipped::named("h100-80g-4x").unwrap();
    let device = &mut machine.device;
    device.memory_bandwidth.value = BytesPerSecond(1e10);
    device.memory_efficiency.value = Ratio(1.0);
    device.launch.value = Seconds(1e-6);
    device.matrix_peak.f32.value = FlopsPerSecond(1e9);
    device.matrix_reached.f32.value = Ratio(1.0);
    device.matrix_peak.bf16.value = FlopsPerSecond(1e9);
    device.matrix_reached.bf16.value = Ratio(1.0);
    let products = &mut device.products;
    products.processors.value = Count(1);
    products.tiles = Known::new(vec![Tile { m: 16, n: 16 }], "by hand").unwrap();
    products.feed.value = BytesPerSecond(1e15);
    products.tile_start.value = Seconds(0.0);
    products.start.value = Seconds(5e-6);
    products.sustained.value = Ratio(1.0);
    products.in_step.value = Ratio(1.0);
    machine.node.link_bandwidth.value = BytesPerSecond(1e8);
    machine.node.ring_share.value = Ratio(1.0);
    machine.node.pair_share.value = Ratio(1.0);
    let transport = &mut machine.transport;
    transport.local_rate.value = BytesPerSecond(1e8);
    transport.packed = None;
    transport.bulk.start.value = Seconds(90e-6);
    transport.bulk.hop.value = Seconds(10e-6);
    transport.bulk.fill.value = Seconds(0.0);
    transport.eager.start.value = Seconds(1.0);
    machine
}

/// The time of `Y[m,n] = X[m,k] W[k,n]` in microseconds.
fn price(machine: &Machine, mesh: &str, dtype: DType, shape: [u64; 3], partition: &str) -> f64 {
    priced(machine, mesh, dtype, shape, partition)[0]
}

/// Besides, for how long that has links for itself that all use.
fn priced(machine: &Machine, mesh: &str, dtype: DType, [m, k, n]: [u64; 3], partition: &str) -> [f64; 2] {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    let op = Op::Contract(Contract { left: labels("mk"), right: labels("kn"), result: labels("mn") });
    let mesh = Mesh::parse(mesh).unwrap();
    let whole = [Type::new(dtype, [m, k]), Type::new(dtype, [k, n])];
    let made = op.infer(&whole).unwrap();
    let loops = op.loops(&whole, &made);
    let partition = parse_partition(&mesh, partition).unwrap();
    partition.check(&mesh, &loops).unwrap();
    let block = |index: usize| partition.operand_block(&loops, index, &whole[index]);
    let (operands, results) = ([block(0), block(1)], [partition.result_block(&loops, 0, &made[0])]);
    let prices = MachinePrices::new(machine, &mesh).unwrap();
    let work = Work {
        op: &op,
        whole: &whole,
        operands: &operands,
        results: &results,
        node: NodeId(0),
        partition: &partition,
        loops: &loops,
    };
    [prices.work(&work), prices.exchanged(&work).links].map(|it| 1e6 * it)
}

/// Whether two times agree to one part in ten thousand: products also take their traffic, of which a
/// device does nearly all while it computes.
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-4 * expected, "{found} µs, by hand {expected}");
}

const F32: DType = DType::F32;

/// A step is 16 rows by 64 by 16 columns.
const RING: [u64; 3] = [64, 64, 64];

#[test]
fn a_ring_takes_the_longer_of_computing_and_moving_in_each_step_but_the_first() {
    // 5 µs, 2·16·64·16 FLOPs in 32.768 µs, and the block of Y put in place: 1 µs and 2·1024 bytes in
    // 0.2048 µs.
    let computing = 38.9728;
    // 100 µs and the block of W, 4096 bytes, in 40.96 µs.
    let moving = 140.96;
    near(price(&machine(), "a=4", F32, RING, "4 steps [a,-,(a-@t:4)]"), computing + 3.0 * moving);

    // With messages that start at once and fast links computing takes longer.
    let mut cheap = machine();
    cheap.transport.bulk.start.value = Seconds(1e-6);
    cheap.transport.bulk.hop.value = Seconds(1e-6);
    cheap.node.link_bandwidth.value = BytesPerSecond(1e9);
    near(price(&cheap, "a=4", F32, RING, "4 steps [a,-,(a-@t:4)]"), 4.0 * computing);
}

#[test]
fn each_message_pays_the_latency_that_the_machine_file_says() {
    let mut slow = machine();
    slow.transport.bulk.start.value = Seconds(850e-6);
    let [fast, slow] = [machine(), slow].map(|it| price(&it, "a=4", F32, RING, "4 steps [a,-,(a-@t:4)]"));
    near(slow - fast, 3.0 * (850.0 - 90.0));
}

#[test]
fn with_one_slot_no_step_hides_a_shift() {
    // Eight chunks of 512 bytes, each a message; and the block copied out and in: 1 µs and 2·4096 bytes.
    let shift = 8.0 * (100.0 + 5.12) + 2.0 * (1.0 + 0.8192);
    let computing = 38.9728;
    near(
        price(&machine(), "a=4", F32, RING, "4 steps in place [a,-,(a-@t:4)]"),
        computing + 3.0 * (computing + shift),
    );
}

#[test]
fn blocks_that_are_streamed_pay_for_the_first_besides() {
    // 2·32·32·32 FLOPs; the sum is added to: 2·4096 bytes.
    let computing = 5.0 + 65.536 + 1.0 + 0.8192;
    // One hop, 4096 bytes over the link and half as many in memory: of X and of W.
    let moving = 2.0 * (90.0 + 10.0 + 40.96 + 20.48);
    near(
        price(&machine(), "a=2,b=2", F32, RING, "2 steps [a,(@t:2),b] streams a,b"),
        computing + moving + moving,
    );
}

#[test]
fn a_sum_that_travels_is_not_narrower_than_what_is_added() {
    for dtype in [F32, DType::BF16] {
        // 2·16·16·16 FLOPs.
        let product = 5.0 + 8.192;
        // The block of X is cut out of its columns: 1 µs, and 256 elements read and written.
        let taken = 1.0 + if dtype == F32 { 0.2048 } else { 0.1024 };
        // The sum that came, of 1024 bytes, is added to.
        let added = 1.0 + 0.2048;
        // It has 32 bits an element.
        let moving = 100.0 + 10.24;
        let text = "4 steps [(a+@t+1:4),a,-]";
        let expected = product + taken + added + 3.0 * moving;
        near(price(&machine(), "a=4", dtype, [64, 64, 16], text), expected);
    }
}

#[test]
fn halves_that_go_both_ways_are_two_products_a_step_and_a_copy_of_what_is_at_rest() {
    let computing = 2.0 * (5.0 + 32.768 + 1.0 + 0.2048);
    // Both halves share a device's port on the switch: together 8192 bytes.
    let moving = 100.0 + 81.92;
    let apart = 1.0 + 2.0 * 0.8192;
    near(
        price(&machine(), "a=4", F32, [64, 64, 128], "4 steps both ways [a,-,(a-@t:4)]"),
        computing + 3.0 * moving + apart,
    );
}

#[test]
fn products_smaller_than_a_tile_take_as_long_as_a_tile() {
    let mut cheap = machine();
    cheap.transport.bulk.start.value = Seconds(1e-9);
    cheap.transport.bulk.hop.value = Seconds(1e-9);
    cheap.node.link_bandwidth.value = BytesPerSecond(1e12);
    // 16 columns in one step are a tile; 4 in each of four steps are four, and start four times.
    let tile = 5.0 + 32.768;
    near(price(&cheap, "a=4", F32, [64, 64, 16], "[a,-,-]"), tile);
    // 256 bytes of Y are put in place in each.
    near(price(&cheap, "a=4", F32, [64, 64, 16], "4 steps [a,-,(a-@t:4)]"), 4.0 * (tile + 1.0 + 0.0512));
    // Four times as many columns are as many tiles at once as in steps.
    near(price(&cheap, "a=4", F32, [64, 64, 64], "[a,-,-]"), 5.0 + 4.0 * 32.768);
}

/// What moves in steps has links for itself without its latencies, also where computing hides it.
#[test]
fn what_moves_in_steps_is_on_links_that_all_exchanges_use() {
    let on_links = |mesh: &str, shape, partition: &str| priced(&machine(), mesh, F32, shape, partition)[1];
    // Less one byte, which takes 0.01 µs.
    let sum = 3.0 * (10.24 - 0.01);
    near(on_links("a=4", [64, 64, 16], "4 steps [(a+@t+1:4),a,-]"), sum);
    near(on_links("a=4", [64, 64, 128], "4 steps both ways [a,-,(a-@t:4)]"), 3.0 * (81.92 - 0.01));
    near(on_links("a=4", [64, 64, 16], "[a,-,-]"), 0.0);
    // Streams go to two devices each time, and once before.
    assert!(on_links("a=2,b=2", RING, "2 steps [a,(@t:2),b] streams a,b") > 0.0);
    let pairs = shipped::named("a100-80g-pairs-4x").unwrap();
    let apart = priced(&pairs, "a=2,b=2", F32, RING, "2 steps [a,(@t:2),b] streams a,b")[1];
    near(apart, 0.0);
}

/// All exchanges use the same links along one axis, and behind one switch.
#[test]
fn exchanges_share_links_along_one_axis_or_behind_one_switch() {
    let shares = |name: &str, mesh: &str| {
        let (machine, mesh) = (shipped::named(name).unwrap(), Mesh::parse(mesh).unwrap());
        let latency = MachinePrices::new(&machine, &mesh).unwrap().beside().unwrap().latency;
        assert!(latency.is_none_or(|it| it > 0.0), "{name} {mesh}: {latency:?}");
        latency.is_some()
    };
    for (name, mesh) in [
        ("h100-80g-8x", "8"),
        ("h100-80g-8x", "2x4"),
        ("h100-80g-8x", "2x2x2"),
        ("h100-80g-16x", "16"),
        ("h100-80g-16x", "1x16"),
        ("l40s-48g-8x", "8"),
    ] {
        assert!(shares(name, mesh), "{name} {mesh}");
    }
    // Within nodes and between them; and through links that join pairs.
    for (name, mesh) in [
        ("h100-80g-16x", "2x8"),
        ("l40s-48g-8x", "2x4"),
        ("l40s-48g-4x", "2x2"),
        ("a100-80g-pairs-4x", "2x2"),
    ] {
        assert!(!shares(name, mesh), "{name} {mesh}");
    }
}
