//! Tests of what is said of plans that were run.

use super::trial::Trial;
use super::{order, shown};

fn trial(predicted: f64, measured: f64) -> Trial {
    Trial { plan: "2 ranks".to_owned(), ranks: 2, predicted, measured, kinds: Vec::new() }
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
    let wrong = [("a", trial(2.0, 1.0)), ("a", trial(1.0, 2.0))].map(|(m, t)| (m.to_owned(), t));
    assert_eq!(order(&wrong), (0, 1));
    let text = shown(&wrong);
    assert!(text.contains("0 of 2 within 25 %, 75.0 % on average; 0 of 1 pairs"), "{text}");
}
