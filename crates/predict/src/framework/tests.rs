//! Framework files: those that are shipped, and what is refused.

use super::*;

#[test]
fn every_shipped_file_is_a_framework() {
    for (name, _) in FILES {
        let framework = Framework::shipped(name).unwrap();
        for (figure, stated) in &framework.figures {
            let (low, high) = stated.range.unwrap_or((stated.value, stated.value));
            assert!(low <= stated.value && stated.value <= high, "{name}: {}", figure.name());
        }
    }
}

#[test]
fn files_with_faults_are_refused() {
    let check = |figures: &str, expected: &str| {
        let error = Framework::read("mine", &format!("{{\"figures\": {figures}}}"), COMMON.1).unwrap_err();
        assert_eq!(error.to_string(), format!("framework `mine`: {expected}"));
    };
    check("{\"layer_lunch\": {}}", "`layer_lunch` is not a figure of frameworks");
    check(
        "{\"layer_launch\": {\"value\": -1, \"unit\": \"s\", \"source\": \"x\"}}",
        "`layer_launch`: expected `value`, a finite number of at least 0",
    );
    check(
        "{\"layer_launch\": {\"value\": 1, \"unit\": \"ms\", \"source\": \"x\"}}",
        "`layer_launch`: unit Some(\"ms\"), expected `s`",
    );
    check(
        "{\"layer_launch\": {\"value\": 1, \"unit\": \"s\", \"source\": \" \"}}",
        "`layer_launch`: expected `source`, where the value was read or how it was fitted",
    );
}

#[test]
fn few_figures_are_fitted() {
    let fitted = fitted().unwrap();
    assert!((10..=25).contains(&fitted), "{fitted}");
}
