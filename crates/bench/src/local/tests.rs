//! Tests of what is said of plans that were run, and of how calm the machine was.

use super::calm::Calm;
use super::said::{Trials, correlations, order};
use super::trial::Trial;

fn trial(predicted: f64, measured: f64) -> Trial {
    Trial { plan: "2 ranks".to_owned(), ranks: 2, predicted, measured, rounds: [3, 2], kinds: Vec::new() }
}

fn calm(looks: &[f64]) -> Calm {
    Calm { priced: 1.0, looks: looks.to_vec() }
}

#[test]
fn pairs_of_a_model_that_differ_enough_are_in_order_or_not() {
    let trials = [
        ("a", trial(1.0, 1.0)),
        // Too near to tell.
        ("a", trial(0.5, 1.2)),
        // The first two are shorter, and said to be; the second one is said to be the longer one.
        ("a", trial(1.1, 2.0)),
        ("b", trial(9.0, 9.0)),
    ]
    .map(|(model, trial)| (model.to_owned(), trial));
    assert_eq!(order(&trials), (2, 2));
    // 2 1 3 4 for 1 2 3 4: 1 − 6 · 2/(4 · 15); of the first three 1 − 6 · 2/(3 · 8).
    let [all, model] = correlations(&trials);
    assert!((all - 0.8).abs() < 1e-12 && (model - 0.5).abs() < 1e-12, "{all} {model}");
    let wrong = [("a", trial(2.0, 1.0)), ("a", trial(1.0, 2.0))].map(|(m, t)| (m.to_owned(), t));
    assert_eq!(order(&wrong), (0, 1));
    let said = Trials { trials: wrong.into(), calm: calm(&[1.0, 1.3, 1.2]), others: Some(0.5) };
    let text = said.text();
    for words in [
        "0 of 2 within 25 %, 75.0 % on average, +25.0 % with signs; 0 of 1 pairs",
        "correlation of ranks -1.000, of the plans of one model -1.000 at least",
        "4 of 6 rounds in which the machine was calm\n",
        "20 % more in the middle, 30 % at worst, and +20.0 % in the last third",
        "other programs took 50 % of the processors",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let line = said.line();
    assert_eq!((line["pairs"]["all"].as_u64(), line["rounds"]["calm"].as_u64()), (Some(1), Some(4)));
    assert_eq!(line["trials"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_machine_is_calm_when_the_reference_takes_about_as_long_as_ever() {
    let calm = calm(&[2.0, 1.0, 1.05]);
    assert!(calm.is(1.0) && calm.is(1.09) && !calm.is(1.11));
    assert!((calm.drift() + 0.475).abs() < 1e-12, "{}", calm.drift());
}
