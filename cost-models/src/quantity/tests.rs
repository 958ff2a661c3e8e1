//! Tests of sizes and times.

use super::{bytes, counted, gap, parse_bytes, percent, seconds};

#[test]
fn sizes_are_read_in_every_unit() {
    let all = [
        ("70GiB", 75_161_927_680),
        ("70GB", 70_000_000_000),
        ("1.5 GB", 1_500_000_000),
        ("512MiB", 536_870_912),
        ("2kB", 2_000),
        ("12B", 12),
        ("1000", 1_000),
    ];
    for (text, expected) in all {
        assert_eq!(parse_bytes(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_no_size_is_refused() {
    for text in [
        "",
        "GB",
        "-1",
        "0",
        "0.0001B",
        "1e9",
        "70 gigs",
        "1.2.3GB",
        "99999999999999999999",
        "999999999999TB",
    ] {
        let error = parse_bytes(text).expect_err(text);
        assert!(error.contains("expected one such as `70GiB`"), "{error}");
    }
}

#[test]
fn sizes_and_times_are_in_fitting_units() {
    assert_eq!(bytes(999), "999 B");
    assert_eq!(bytes(1_234_567), "1.23 MB");
    assert_eq!(bytes(75_161_927_680), "75.16 GB");
    assert_eq!(seconds(0.0), "0 s");
    assert_eq!(seconds(1.5), "1.500 s");
    assert_eq!(seconds(2e-4), "200.000 us");
    assert_eq!(seconds(2e-10), "0.200 ns");
    assert_eq!(percent(1.0, 8.0), "12.5 %");
    assert_eq!(percent(1.0, 0.0), "0.0 %");
}

#[test]
fn a_gap_has_a_digit_that_says_something() {
    let all =
        [(1.0, "100.00 %"), (0.0054, "0.54 %"), (1e-4, "0.01 %"), (0.99e-4, "0.010 %"), (4.9e-5, "0.005 %")];
    for (part, words) in all {
        assert_eq!(gap(part).as_deref(), Some(words), "{part}");
    }
    for exponent in 0..9 {
        let words = gap(3.0 * 10f64.powi(-exponent)).unwrap();
        assert!(words.contains('3'), "{exponent}: {words}");
    }
    // Times that are the same are at no distance, nor is one below its bound by rounding.
    assert_eq!([gap(0.0), gap(1e-12), gap(-1e-12)], [None, None, None]);
}

#[test]
fn one_is_singular() {
    assert_eq!(counted(1_usize, "stage"), "1 stage");
    assert_eq!(counted(2_u64, "stage"), "2 stages");
    assert_eq!(counted(0_u64, "micro-batch"), "0 micro-batches");
    assert_eq!(counted(1_u64, "micro-batch"), "1 micro-batch");
}
