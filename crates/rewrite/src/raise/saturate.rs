//! Rules applied until nothing new comes of them, within bounds on counts.

use std::collections::{BTreeMap, BTreeSet};

use egg::Id;
use planner_ir::Type;

use super::make::Make;
use super::pattern::{Bound, Match, kinds};
use super::rules::Ready;
use super::term::{Term, Terms};

/// How often all rules are applied at most.
const ITERATIONS: usize = 40;
/// How many terms there may be: so many, and so many for each term at the start.
const TERMS: usize = 4096;
const TERMS_PER_TERM: usize = 48;

/// What saturation took.
pub(super) struct Effort {
    pub(super) iterations: usize,
    /// Whether it ended because nothing new came.
    pub(super) saturated: bool,
    /// For each rule, how many new equalities it gave.
    pub(super) applied: Vec<usize>,
}

/// A rule that claimed values of two types to be equal.
pub(super) struct Unsound {
    pub(super) rule: &'static str,
    pub(super) types: (Type, Type),
}

/// Applies the rules.
pub(super) fn saturate(terms: &mut Terms, rules: &[Ready]) -> Result<Effort, Unsound> {
    let most = TERMS + TERMS_PER_TERM * terms.total_size();
    let mut effort = Effort { iterations: 0, saturated: false, applied: vec![0; rules.len()] };
    let mut tried: BTreeSet<(usize, Bound)> = BTreeSet::new();
    while effort.iterations < ITERATIONS && terms.total_size() < most {
        effort.iterations += 1;
        let found = matches(terms, rules, &tried);
        let mut changed = false;
        for (number, bound) in found {
            let ready = &rules[number];
            let found = Match { pattern: &ready.pattern, bound: &bound };
            let mut make = Make { terms: &mut *terms };
            if ready.holds(&make, &found)
                && let Some(made) = (ready.rule.build)(&mut make, &found)
            {
                if terms[made].data.types != terms[bound.root].data.types {
                    let types = (terms[made].data.types[0].clone(), terms[bound.root].data.types[0].clone());
                    return Err(Unsound { rule: ready.rule.name, types });
                }
                if terms.union(made, bound.root) {
                    effort.applied[number] += 1;
                    changed = true;
                }
            }
            tried.insert((number, bound));
            if terms.total_size() >= most {
                break;
            }
        }
        terms.rebuild();
        if let Some(types) = terms.analysis.conflict.clone() {
            return Err(Unsound { rule: "congruence", types });
        }
        if !changed {
            effort.saturated = true;
            break;
        }
    }
    Ok(effort)
}

/// The matches of all rules that have not been tried.
fn matches(terms: &Terms, rules: &[Ready], tried: &BTreeSet<(usize, Bound)>) -> Vec<(usize, Bound)> {
    let mut by_kind: BTreeMap<&str, Vec<(Id, &Term)>> = BTreeMap::new();
    let mut classes: Vec<Id> = terms.classes().map(|class| class.id).collect();
    classes.sort_unstable();
    for id in classes {
        for term in &terms[id].nodes {
            for kind in kinds(&terms.analysis.heads[term.head], term.children.len()) {
                if !kind.is_empty() {
                    by_kind.entry(kind).or_default().push((id, term));
                }
            }
        }
    }
    let mut found = Vec::new();
    for (number, ready) in rules.iter().enumerate() {
        for &(id, term) in by_kind.get(ready.pattern.kind()).into_iter().flatten() {
            let bounds = ready.pattern.matches(terms, id, term).into_iter().map(|bound| (number, bound));
            found.extend(bounds.filter(|it| !tried.contains(it)));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
