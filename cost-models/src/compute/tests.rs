//! Products and element-wise operations against hand-derived times.

use arbtest::arbtest;

use super::*;
use crate::machine::shipped::{device_names, named};

fn device(name: &str) -> Device {
    named(name).unwrap_or_else(|error| panic!("{error}")).device
}

fn product(batch: u64, m: u64, n: u64, k: u64) -> MatrixProduct {
    MatrixProduct { batch, m, n, k, precision: Precision::F16 }
}

fn close(one: Seconds, other: f64) -> bool {
    (one.0 / other - 1.0).abs() < 1e-12
}

#[test]
fn a_large_product_runs_at_the_reached_part_of_the_peak() {
    let a100 = device("a100-80g-1x");
    // 2 · 8192³ = 1.0995e12 operations; the half work of 5e8 on top; 72 % of 312 TFLOP/s; 5.23 µs.
    let expected = 5.23e-6 + (2.0 * 8192_f64.powi(3) + 5e8) / (0.72 * 312e12);
    let time = matrix_product(&a100, &product(1, 8192, 8192, 8192));
    assert!(close(time, expected), "{time}");
}

#[test]
fn a_product_with_one_row_runs_at_the_speed_of_memory() {
    let a100 = device("a100-80g-1x");
    let bytes = 2.0 * (8192.0 + 8192.0 * 8192.0 + 8192.0);
    let time = matrix_product(&a100, &product(1, 1, 8192, 8192));
    assert!(close(time, 5.23e-6 + bytes / (0.874 * 2039e9)), "{time}");
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
fn published_products_are_met_within_a_fifth_at_the_median() {
    let path = "../../shared/reference/data/validation/gemm_rows.csv";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let Ok(table) = std::fs::read_to_string(&path) else {
        println!("left out: published products, there is no {}", path.display());
        return;
    };
    for (source, machine) in [("vidur_mlp_a100", "a100-80g-1x"), ("vidur_mlp_h100", "h100-80g-1x")] {
        let device = device(machine);
        let mut errors: Vec<f64> = Vec::new();
        for row in crate::collective::tests::rows(&table) {
            let number = |name: &str| row[name].parse::<u64>().ok();
            let (m, n, k) = (number("m"), number("n"), number("k"));
            if let ("calibration", s, Some(m), Some(n), Some(k)) =
                (row["split"].as_str(), row["source"].as_str(), m, n, k)
                && s == source
            {
                let measured: f64 = row["time_us"].parse().unwrap();
                let predicted = matrix_product(&device, &product(1, m, n, k)).0 * 1e6;
                errors.push((predicted / measured - 1.0).abs());
            }
        }
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        println!("{source}: {} products, median error {:.1} %", errors.len(), 100.0 * median);
        assert!(median < 0.2, "{source}: {median}");
    }
}
