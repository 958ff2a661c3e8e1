//! Tests of learning rates.

use super::*;

#[track_caller]
fn check(shape: Shape, warmup: u64, expected: &[f64]) {
    let last = u64::try_from(expected.len()).unwrap();
    let schedule = Schedule { shape, peak: 8.0, least: 2.0, warmup, last };
    let rates: Vec<f64> = (1..=last).map(|step| schedule.rate(step)).collect();
    let apart = rates.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-12, "{shape:?}: {rates:?}");
}

#[test]
fn rates_are_as_by_hand() {
    check(Shape::Constant, 0, &[8.0, 8.0]);
    check(Shape::Constant, 4, &[2.0, 4.0, 6.0, 8.0, 8.0]);
    check(Shape::Linear, 0, &[6.5, 5.0, 3.5, 2.0]);
    check(Shape::Linear, 2, &[4.0, 8.0, 5.0, 2.0]);
    // cos(pi/3) = 1/2, cos(2 pi/3) = -1/2.
    check(Shape::Cosine, 1, &[8.0, 6.5, 3.5, 2.0]);
    check(Shape::Cosine, 2, &[4.0, 8.0, 5.0, 2.0]);
    // A warm-up that does not end before the run does.
    check(Shape::Cosine, 8, &[1.0, 2.0, 3.0]);
}
