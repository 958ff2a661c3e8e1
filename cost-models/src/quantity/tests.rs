//! Tests of sizes and times.

use super::{bytes, parse_bytes, percent, seconds};

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
