//! Rules that are broken are found.

use super::two_layers;
use crate::{Action, BufferId, Event, Program, lower, verify};

fn good() -> Vec<Program> {
    lower(&two_layers(2).plan).unwrap()
}

/// Breaks programs and expects violations of that rule that say this.
fn check(rule: &str, says: &str, fault: impl FnOnce(&mut Vec<Program>)) {
    let mut programs = good();
    fault(&mut programs);
    let violations = verify(&programs).unwrap_err();
    let found = violations.0.iter().any(|it| it.rule == rule && it.to_string().contains(says));
    assert!(found, "expected [{rule}] with `{says}`, found:\n{violations}");
}
