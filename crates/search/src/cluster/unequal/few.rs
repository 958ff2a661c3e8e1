//! Stages of few choices: what is had where all choices make too many to follow.
//!
//! Stages of good pipelines are of few forms. Sets of one choice more than there are kinds of nodes are
//! composed, each below what the ones before it made.

use std::collections::BTreeSet;

use super::{Choice, Composed, Outcome, Room, followed};

/// So many choices are tried, as many of each kind of nodes.
const TRIED: usize = 12;
/// A set of few choices has so much less to follow than all.
const LESS: usize = 16;

/// The best stages of any set of few choices.
pub(super) fn composed(choices: &[Choice], room: &Room<'_>) -> Option<Composed> {
    let mut best: Option<Composed> = None;
    for few in sets(choices, room.kinds.len()) {
        let chosen: Vec<Choice> = few.iter().map(|&it| choices[it].clone()).collect();
        let allowed = |after: usize, number: usize, start: usize| (room.allowed)(after, few[number], start);
        let below = best.as_ref().map_or(room.below, |it| it.seconds);
        let part = Room { allowed: &allowed, below, most: room.most / LESS, ..*room };
        if let Outcome::Best(Composed { seconds, stages }) = followed(&chosen, &part) {
            let stages = stages.into_iter().map(|(start, number)| (start, few[number])).collect();
            best = Some(Composed { seconds, stages });
        }
    }
    best
}

/// Sets of one choice for each kind of nodes and one more, of the first of each kind.
fn sets(choices: &[Choice], kinds: usize) -> Vec<Vec<usize>> {
    let first = |kind: usize| {
        let of_kind = choices.iter().enumerate().filter(move |(_, it)| it.kind == kind);
        of_kind.map(|(number, _)| number).take((TRIED / kinds.max(1)).max(1))
    };
    let mut sets: BTreeSet<BTreeSet<usize>> = BTreeSet::from([BTreeSet::new()]);
    let and = |sets: BTreeSet<BTreeSet<usize>>, more: &[usize]| {
        let and = |set: &BTreeSet<usize>, it: usize| set.iter().copied().chain([it]).collect();
        sets.iter().flat_map(|set| more.iter().map(move |&it| and(set, it))).collect()
    };
    let mut all = Vec::new();
    for kind in 0..kinds {
        let more: Vec<usize> = first(kind).collect();
        sets = and(sets, &more);
        all.extend(more);
    }
    and(sets, &all).into_iter().map(|set: BTreeSet<usize>| set.into_iter().collect()).collect()
}
