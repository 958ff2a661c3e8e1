//! Samples with times that do not belong to them.

use super::*;

#[test]
fn what_is_far_from_the_others_does_not_count() {
    let mut times: Vec<f64> = (0..21).map(|it| 1.0 + 0.001 * f64::from(it % 7)).collect();
    let alone = Sample::of(&times).unwrap();
    assert_eq!((alone.kept, alone.refused), (21, 0));
    times.extend([1.5, 9.0, 0.2]);
    let with = Sample::of(&times).unwrap();
    assert_eq!((with.kept, with.refused), (21, 3));
    assert!((with.seconds - alone.seconds).abs() < 1e-9 && with.spread < 0.01, "{with:?}");
    assert_eq!(Sample::of(&[]), None);
}

#[test]
fn times_that_are_alike_but_for_a_tick_all_count() {
    let times = [1.0, 1.0, 1.0, 1.0, 1.004, 1.0, 1.0, 1.0, 1.2];
    let sample = Sample::of(&times).unwrap();
    assert_eq!((sample.kept, sample.refused), (8, 1));
}
