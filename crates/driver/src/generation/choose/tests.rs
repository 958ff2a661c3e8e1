//! Tokens as often as they should be chosen, and never others.

use super::*;

const ALL: Manner = Manner { temperature: 1.0, most: None, mass: 1.0, seed: 7 };

/// How often each token is drawn, of so many times.
fn drawn(logits: &[f64], manner: &Manner, times: u64) -> Vec<u64> {
    let mut counts = vec![0; logits.len()];
    for position in 0..times {
        counts[next(logits, manner, Place { sequence: 3, position })] += 1;
    }
    counts
}

#[test]
fn the_likeliest_is_taken_without_temperature_and_of_equal_ones_the_first() {
    let manner = Manner { temperature: 0.0, ..ALL };
    let place = Place { sequence: 0, position: 0 };
    assert_eq!(next(&[0.5, 2.0, 2.0, -1.0], &manner, place), 1);
    assert_eq!(next(&[f64::NEG_INFINITY, f64::NEG_INFINITY], &manner, place), 0);
}

#[test]
fn tokens_are_drawn_as_often_as_they_are_likely() {
    let logits = [0.0_f64, 1.0, 2.0, -1.0];
    for temperature in [0.5, 1.0, 2.0] {
        let weights: Vec<f64> = logits.iter().map(|it| (it / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        let counts = drawn(&logits, &Manner { temperature, ..ALL }, 20_000);
        for (count, weight) in counts.iter().zip(&weights) {
            let expected = weight / total;
            let found = f64::from(u32::try_from(*count).unwrap()) / 20_000.0;
            // Five standard deviations of 20 000 draws at most.
            assert!((found - expected).abs() < 0.018, "{found} against {expected} at {temperature}");
        }
    }
}

#[test]
fn only_the_likeliest_are_drawn_among() {
    let logits = [0.0, 3.0, 2.9, 1.0, -2.0];
    let most = drawn(&logits, &Manner { most: Some(2), ..ALL }, 2_000);
    assert!(most[1] > 0 && most[2] > 0);
    assert_eq!(most[0] + most[3] + most[4], 0);
    assert_eq!(drawn(&logits, &Manner { most: Some(1), ..ALL }, 100)[1], 100);
}

#[test]
fn the_fewest_that_are_likely_enough_are_drawn_among() {
    // Parts of 0.5, 0.3, 0.15 and 0.05.
    let logits = [0.05_f64, 0.5, 0.15, 0.3].map(f64::ln);
    let kinds = |mass: f64| {
        let counts = drawn(&logits, &Manner { mass, ..ALL }, 4_000);
        counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(token, _)| token).collect::<Vec<_>>()
    };
    assert_eq!(kinds(0.4), [1]);
    assert_eq!(kinds(0.5 + 1e-9), [1, 3]);
    assert_eq!(kinds(0.79), [1, 3]);
    assert_eq!(kinds(0.9), [1, 2, 3]);
    assert_eq!(kinds(1.0), [0, 1, 2, 3]);
}

#[test]
fn each_place_and_seed_has_a_number_of_its_own() {
    let logits = vec![0.0; 1000];
    let at = |seed, sequence, position| next(&logits, &Manner { seed, ..ALL }, Place { sequence, position });
    assert_eq!(at(1, 2, 3), at(1, 2, 3));
    let others = [at(2, 2, 3), at(1, 3, 3), at(1, 2, 4), at(1, 3, 2)];
    assert!(others.iter().all(|&it| it != at(1, 2, 3)), "{others:?}");
}
