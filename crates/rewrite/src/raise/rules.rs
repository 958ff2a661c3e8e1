//! The rules: which terms are equal, as data.

mod activation; // activations and gated units
mod attention; // scaled dot-product attention
mod experts; // mixtures of experts
mod contract; // what movement around a contraction becomes
mod movement; // reshapes, transposes, slices and repetitions
mod norm; // normalisations
mod rotary; // rotary position embedding
mod scalar; // arithmetic with known numbers

use egg::Id;

use super::make::Make;
use super::pattern::{Match, Pattern};

/// `pattern = build(match)` wherever all conditions hold.
///
/// Rules are directed. A builder that cannot make a well-typed term makes none.
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) pattern: &'static str,
    pub(super) conditions: &'static [Condition],
    pub(super) build: fn(&mut Make<'_>, &Match<'_>) -> Option<Id>,
}

/// What must be true of a match.
#[derive(Clone, Copy)]
pub(super) struct Condition {
    pub(super) needed: Needed,
    pub(super) name: &'static str,
    pub(super) holds: fn(&Make<'_>, &Match<'_>) -> bool,
}

/// What a condition is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    /// Without it the rule would make unequal values equal.
    ForTruth,
    /// Without it the rule would make terms that nobody needs, or none.
    ForUse,
}

/// A rule with its pattern parsed.
pub(super) struct Ready {
    pub(super) rule: Rule,
    pub(super) pattern: Pattern,
}

/// Every rule.
pub(super) fn all() -> Vec<Ready> {
    let families = [
        scalar::rules(),
        movement::rules(),
        contract::rules(),
        activation::rules(),
        norm::rules(),
        rotary::rules(),
        attention::rules(),
        experts::rules(),
    ];
    let ready = |rule: Rule| {
        let pattern = Pattern::parse(rule.pattern).unwrap_or_else(|error| panic!("{}: {error}", rule.name));
        Ready { rule, pattern }
    };
    families.into_iter().flatten().map(ready).collect()
}

impl Ready {
    /// Whether all conditions hold of a match.
    pub(super) fn holds(&self, make: &Make<'_>, found: &Match<'_>) -> bool {
        self.rule.conditions.iter().all(|condition| (condition.holds)(make, found))
    }
}
