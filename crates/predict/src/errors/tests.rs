//! Errors and orders by hand.

use super::*;

#[test]
fn errors_are_relative_to_what_was_measured() {
    let rows =
        [Priced::new(11.0, 10.0), Priced::new(8.0, 10.0), Priced::new(10.0, 10.0), Priced::new(14.0, 10.0)];
    let errors = Errors::of(&rows.iter().collect::<Vec<_>>()).unwrap();
    let near =
        |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
    near(errors.median, 0.15);
    near(errors.mean, 0.175);
    near(errors.worst, 0.4);
    near(errors.bias, 0.075);
    assert_eq!(Errors::of(&[]), None);
}

/// 1 − 6 Σ d² / (n (n² − 1)) where no two are equal.
#[test]
fn orders_are_compared_by_ranks() {
    let check = |pairs: &[(f64, f64)], expected: Option<f64>| {
        let found = spearman(pairs);
        let near = found.zip(expected).is_some_and(|(found, expected)| (found - expected).abs() < 1e-12);
        assert!(near || found == expected, "{found:?}, not {expected:?}");
    };
    check(&[(1.0, 10.0), (2.0, 20.0), (3.0, 90.0)], Some(1.0));
    check(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], Some(-1.0));
    check(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (4.0, 4.0)], Some(1.0 - 6.0 * 2.0 / 60.0));
    // Ranks 1.5, 1.5, 3 beside 1, 2, 3.
    check(&[(1.0, 1.0), (1.0, 2.0), (5.0, 3.0)], Some(0.75_f64.sqrt()));
    check(&[(1.0, 1.0), (1.0, 2.0)], None);
}
