//! Products and element-wise operations against hand-derived times.

use arbtest::arbtest;

use super::*;
use crate::known::Known;
use crate::machine::Turned;
use crate::machine::shipped::{device_names, named};
use crate::units::BytesPerSecond;

fn device(name: &str) -> Device {
    named(name).unwrap_or_else(|error| panic!("{error}")).device
}

fn product(batch: u64, m: u64, n: u64, k: u64) -> MatrixProduct {
    MatrixProduct::forward(batch, [m, n, k], Precision::F16)
}

fn close(one: Seconds, other: f64) -> bool {
    (one.0 / other - 1.0).abs() < 1e-12
}

/// The longer of two times, and more if they are alike.
fn both(one: f64, other: f64) -> f64 {
    (one.powi(4) + other.powi(4)).powf(0.25)
}

#[test]
fn a_large_product_is_waves_of_the_largest_tiles() {
    let a100 = device("a100-80g-1x");
    // 32 · 64 tiles of 256 x 128 on 108 processors are 19 waves. A tile takes 2 · 256 · 128 operations
    // of 0.816 · 312e12/108 a second, or 384 numbers of 2 bytes at 50 GB/s, for each of 8192 sums.
    let step = both(2.0 * 256.0 * 128.0 * 108.0 / (0.816 * 312e12), 384.0 * 2.0 / 50e9);
    let computing = 19.0 * (8192.0 * step + 5.7e-8);
    let moving = 3.0 * 2.0 * 8192.0 * 8192.0 / (0.874 * 2039e9);
    let time = matrix_product(&a100, &product(1, 8192, 8192, 8192));
    assert!(close(time, 4.28e-6 + both(computing / (0.957 * 0.939), moving)), "{time}");
    let felt = 1.0 + (1.0 / 0.957 - 1.0) * computing / (computing + 5e-4);
    let cold = matrix_product_at(&a100, &product(1, 8192, 8192, 8192), Heat::Cold);
    assert!(close(cold, 4.28e-6 + both(felt * computing, moving)), "{cold}");
    assert!(cold < time);
}

#[test]
fn a_product_with_one_row_runs_at_the_speed_of_memory() {
    let a100 = device("a100-80g-1x");
    let bytes = 2.0 * (8192.0 + 8192.0 * 8192.0 + 8192.0);
    let streaming = bytes / (0.874 * 2039e9);
    let time = matrix_product(&a100, &product(1, 1, 8192, 8192)).0 - 4.28e-6;
    assert!(streaming < time && time < 1.1 * streaming, "{time}");
}

#[test]
fn one_tile_more_than_processors_takes_another_wave() {
    let h100 = device("h100-80g-1x");
    let time = |rows: u64| matrix_product(&h100, &product(1, rows, 132 * 256, 8192)).0;
    let [one, more, two] = [time(128), time(129), time(256)];
    assert!(more > 1.2 * one && two < 1.05 * more, "{one} {more} {two}");
}

#[test]
fn sums_are_cut_where_the_result_has_few_tiles() {
    let a100 = device("a100-80g-1x");
    let time = |k: u64| matrix_product(&a100, &product(1, 512, 512, k)).0;
    // 16 tiles of 128 x 128, or 64 of 64 x 64, leave processors idle if sums are whole.
    let step = both(2.0 * 64.0 * 64.0 * 108.0 / (0.816 * 312e12), 128.0 * 2.0 / 50e9);
    assert!(time(1 << 15) < 0.8 * f64::from(1 << 15) * step);
}

#[test]
fn gradients_of_weights_are_slower_and_move_more() {
    let a100 = device("a100-80g-1x");
    let forward = product(1, 4096, 4096, 4096);
    let gradient = MatrixProduct { role: Role::WeightGradient, per_result: Bytes(8), ..forward };
    assert!(matrix_product(&a100, &forward) < matrix_product(&a100, &gradient));
    assert_eq!(gradient.traffic(), Bytes(2 * 2 * 4096 * 4096 + 8 * 4096 * 4096));
    let narrow = MatrixProduct::forward(1, [8, 16, 32], Precision::F8);
    assert_eq!(narrow.traffic(), Bytes(8 * 32 + 16 * 32 + 2 * 8 * 16));
}

#[test]
fn a_batch_is_one_product_and_not_many() {
    let a100 = device("a100-80g-1x");
    let together = matrix_product(&a100, &product(64, 128, 128, 128));
    let apart = 64.0 * matrix_product(&a100, &product(1, 128, 128, 128));
    assert!(together < apart);
    assert_eq!(product(64, 1, 2, 3).work(), Flops(768.0));
    assert_eq!(product(64, 1, 2, 3).traffic(), Bytes(64 * 2 * (3 + 6 + 2)));
}

#[test]
fn more_work_never_takes_less_time_and_never_beats_the_peak() {
    for name in device_names() {
        let device = device(&format!("{name}-1x"));
        arbtest(|u| {
            let mut size = || u.int_in_range(1..=1 << 12);
            let small = product(size()?, size()?, size()?, size()?);
            let large = MatrixProduct { m: small.m + size()?, ..small };
            for precision in Precision::ALL {
                let time = |product| matrix_product(&device, &MatrixProduct { precision, ..product });
                assert!(time(small) <= time(large), "{name} {small:?} {large:?}");
                let peak = device.matrix_peak.at(precision).value;
                assert!(time(small) >= small.work() / peak, "{name} {small:?}");
            }
            Ok(())
        });
    }
}

#[test]
fn element_wise_operations_are_bound_by_memory_or_by_arithmetic() {
    let h100 = device("h100-80g-1x");
    let streamed = element_wise(&h100, Bytes(1 << 30), Flops(1.0));
    assert!(close(streamed, 4.66e-6 + exact(1 << 30) / (0.913 * 3.35e12)), "{streamed}");
    let computed = element_wise(&h100, Bytes(8), Flops(67e12));
    assert!(close(computed, 4.66e-6 + 1.0), "{computed}");
    assert_eq!(element_wise(&h100, Bytes::ZERO, Flops(0.0)), h100.launch.value);
}

#[test]
fn matrices_are_turned_more_slowly_the_fewer_places_their_rows_share() {
    let mut cpu = device("cpu-1x");
    let known = |rate: f64| Known::new(BytesPerSecond(rate), "made").unwrap();
    let turned = Some(Turned { rate: known(1e10), aliased: known(2e9) });
    let cache = Known::new(Bytes(1 << 20), "made").unwrap();
    cpu.products.packing = Some(Packing { cache, rate: known(1e11), turned });
    for (row, nanoseconds) in [(4096, 0.5), (3 * 4096, 0.5), (2048, 0.25), (1024, 0.1), (4, 0.1)] {
        let time = turning(&cpu, Bytes(1 << 20), Bytes(row)).0;
        assert!((time / (exact(1 << 20) * nanoseconds * 1e-9) - 1.0).abs() < 1e-9, "{row}: {time}");
    }
    // No faster than the others.
    if let Some(packing) = &mut cpu.products.packing {
        packing.turned = Some(Turned { rate: known(1e9), aliased: known(2e9) });
    }
    assert!((turning(&cpu, Bytes(1000), Bytes(2048)).0 - 1e-6).abs() < 1e-15);
    assert_eq!(turning(&device("h100-80g-1x"), Bytes(1000), Bytes(4096)), Seconds::ZERO);
}

#[test]
fn a_thread_packs_what_its_cache_has_not_before_it_multiplies() {
    let mut device = named("cpu-1x").unwrap().device;
    device.products.packing = None;
    let product = |batch: u64| MatrixProduct::forward(batch, [64, 1000, 256], Precision::F32);
    let [one, three] = [1, 3].map(|batch| matrix_product(&device, &product(batch)).0);
    let known = |value: u64| Known::new(Bytes(value), "made").unwrap();
    let rate = Known::new(BytesPerSecond(1e10), "made").unwrap();
    device.products.packing = Some(Packing { cache: known(1 << 20), rate, turned: None });
    let [packed, packed_three] = [1, 3].map(|batch| matrix_product(&device, &product(batch)).0);
    // 64 · 256, 256 · 1000 and 64 · 1000 elements of 4 bytes, a MiB less, at 10 GB/s; and two more starts.
    let beyond = (4.0 * (64.0 * 256.0 + 256.0 * 1000.0 + 64.0 * 1000.0) - 1_048_576.0) / 1e10;
    assert!((packed - one - beyond).abs() < 1e-12, "{packed} {one}");
    let starts = 2.0 * device.products.start.value.0;
    assert!((packed_three - three - 3.0 * beyond - starts).abs() < 1e-12, "{packed_three} {three}");
    // All of it is in a larger cache.
    device.products.packing.as_mut().unwrap().cache = known(1 << 21);
    assert!((matrix_product(&device, &product(1)).0 - one).abs() < 1e-15);
}
