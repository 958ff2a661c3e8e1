//! Chains of many blocks: the bound as the lowest of its lines, and mixtures of those that meet at its
//! top.
//!
//! Each minimum is a line of the bound (a plane, where several windows have a price), which is concave:
//! the least of all lines that are known is nowhere less than it. Where that is highest the next minimum
//! is looked for, until it is no lower: cutting planes, by Kelley. What is resident is summed over all
//! blocks and is most of the memory, so that few windows have a price and few lines tell where. The lines
//! that meet at the top differ in what blocks choose, and are mixed.

use super::mixed::{mix, more, splice};
use super::switch::switch;
use super::top::{Line, top};
use super::{Minimum, Search, feasible};
use crate::chain::{EXACTLY, Goal};
use crate::problem::SearchError;

/// The most minimisations.
const ROUNDS: usize = 40;

/// What the bound of a large chain may still rise by when it is close enough, relative to it; and that
/// of another one.
const CLOSE: [f64; 2] = [1e-4, 1e-9];

/// What the bound of a large chain may still rise by, as a part of its distance from the best found and as one of
/// itself: it tells little more of plans that are further from it.
const ENOUGH: [f64; 2] = [0.02, 5e-4];

/// How closely minima of a large chain are told at most and at least (parts of them), and as which part of what lies
/// between its bound and the lines that are known.
const CLOSELY: [f64; 3] = [1e-3, 1e-5, 0.03];

/// What all memory may cost at first, in parts of the least time: most chains that fit fit so.
const HIGH: f64 = 0.6;

/// How many times as much it may cost where that is too little: what does not fit then, hardly does.
const HIGHER: f64 = 64.0;

/// By how much of the capacity the fastest exceeds it where it is asked first whether anything comes near.
const FAR: f64 = 0.25;

/// The most choices of all nodes with which an assignment is still improved node by node.
const MOST_STEPPED: usize = 150_000;

/// How far from the bound, relative to it, what was found for a large chain has to be for lines to be repaired.
const OPEN: f64 = 0.05;

/// How many lines of a large chain are repaired.
const REPAIRED: usize = 4;

/// Raises the bound, and mixes.
pub(super) fn follow(search: &mut Search<'_>) -> Result<(), SearchError> {
    let mut seen = remembered(search);
    let Some(first) = fastest(search, &seen)? else { return Ok(()) };
    if first.beyond() <= 0.0 {
        return Ok(());
    }
    let is_open = search.is_large() && search.best.is_none();
    if is_open && first.beyond() > FAR && feasible::nothing_is_near(search)? {
        return Err(search.refusal());
    }
    let mut most = HIGH * first.time;
    seen.push(first);
    let close = CLOSE[usize::from(!search.is_large())];
    let (mut rounds, mut is_raised) = (0, false);
    let mut multipliers = vec![0.0; search.rows.len()];
    let mut asked = f64::INFINITY;
    while rounds < ROUNDS {
        let Some(highest) = top(&seen, most) else { break };
        if highest.multipliers != multipliers {
            (multipliers, asked) = (highest.multipliers, f64::INFINITY);
        }
        let mut is_low = highest.is_edge;
        // Nothing lies below what is proven.
        if highest.height - search.bound > allowed(search, close, highest.height.abs()) {
            let close = closely(search, highest.height);
            // What was asked here is lower than what was found: nothing more comes of it.
            if close >= asked {
                break;
            }
            asked = close;
            rounds += 1;
            let Some(next) = line(search, (&multipliers, close))? else { break };
            is_low &= next.over(&multipliers) > 0.0;
            seen.push(next);
        } else if !is_low || is_raised {
            break;
        }
        if is_low && !is_raised {
            (most, is_raised) = (HIGHER * most, true);
        }
    }
    let Some([slow, fast]) = sides(&seen, &multipliers) else { return Ok(()) };
    for base in [slow, fast] {
        mix(search, base, &seen, |_, _, _| Ok(vec![]))?;
    }
    if !search.is_settled() {
        splice(search, slow, fast, &seen, &multipliers)?;
    }
    // More kinds of blocks fill the memory more exactly.
    if !search.is_settled() {
        let found = |search: &mut Search<'_>, segment, state: &[usize]| {
            more(search, segment, state, slow, &multipliers)
        };
        mix(search, slow, &seen, found)?;
    }
    if !search.is_settled() {
        let others: Vec<Vec<usize>> = seen.iter().map(|line| search.flat.fold(&line.choices)).collect();
        switch(search, &others);
    }
    repair(search, &mut seen, &multipliers);
    let choices: usize = search.flat.problem.times.iter().map(Vec::len).sum();
    if !search.is_settled() && choices <= MOST_STEPPED {
        search.step();
    }
    Ok(())
}

/// What the bound may still rise by (seconds), where it is no higher than this.
fn allowed(search: &Search<'_>, close: f64, height: f64) -> f64 {
    let close = close * height;
    match &search.best {
        Some((_, best)) if search.is_large() => {
            let [of_gap, of_all] = ENOUGH;
            (of_gap * (best - search.bound)).min(of_all * height).max(close)
        }
        _ => close,
    }
}

/// Offers lines, the lowest at multipliers first: all where that takes no time, and some of a large chain.
fn repair(search: &mut Search<'_>, seen: &mut [Line], multipliers: &[f64]) {
    seen.sort_by(|a, b| a.at(multipliers).total_cmp(&b.at(multipliers)));
    let most = if search.is_large() { REPAIRED } else { seen.len() };
    for line in seen.iter().take(most) {
        if search.is_settled() || search.is_large() && search.gap() <= OPEN {
            return;
        }
        search.offer(&line.choices);
    }
}

/// The fastest line that fits, or the one that nearly does; and of those that do not the one that is
/// lowest at multipliers.
fn sides<'a>(seen: &'a [Line], multipliers: &[f64]) -> Option<[&'a Line; 2]> {
    let fits = |line: &&Line| line.beyond() <= 0.0;
    let fitting = seen.iter().filter(fits).min_by(|a, b| a.time.total_cmp(&b.time));
    let slow = fitting.or_else(|| seen.iter().min_by(|a, b| a.beyond().total_cmp(&b.beyond())))?;
    let low = |a: &&Line, b: &&Line| a.at(multipliers).total_cmp(&b.at(multipliers));
    let fast = seen.iter().filter(|line| !fits(line)).min_by(low)?;
    Some([slow, fast])
}

/// The minima of searches before, as lines at this capacity: what fits is taken, and what was proven
/// then still holds.
fn remembered(search: &mut Search<'_>) -> Vec<Line> {
    if let Some(best) = search.floors.best(search.capacity)
        && best.bound > search.bound
    {
        (search.bound, search.multipliers, search.missed) = (best.bound, best.multipliers, best.missed);
    }
    let known = search.trail.seen.clone();
    let mut lines = Vec::new();
    for choices in known {
        search.take(&choices);
        let time = search.chain.time(&choices);
        if time < f64::INFINITY {
            lines.push(Line { excess: search.excess(&choices), choices, time });
        }
    }
    lines
}

/// The minimum with all memory: if it is known, that of the least time.
fn fastest(search: &mut Search<'_>, seen: &[Line]) -> Result<Option<Line>, SearchError> {
    if search.floors.has_free() {
        let fastest = seen.iter().min_by(|a, b| a.time.total_cmp(&b.time));
        return Ok(fastest.cloned());
    }
    let free = vec![0.0; search.rows.len()];
    line(search, (&free, EXACTLY))
}

/// How closely the next minimum of a large chain has to be told, where its bound is no higher than this (parts of it): a
/// line that lies between the bound and the lines that are known brings them together.
fn closely(search: &Search<'_>, height: f64) -> f64 {
    let [most, least, part] = CLOSELY;
    let apart = (height - search.bound) / height.abs().max(f64::MIN_POSITIVE);
    if search.is_large() { (part * apart).clamp(least, most) } else { EXACTLY }
}

/// The minimum at multipliers, told so closely, which is taken if it fits; its bound counts.
fn line(search: &mut Search<'_>, (multipliers, close): (&[f64], f64)) -> Result<Option<Line>, SearchError> {
    let Minimum { choices, bound, excess } = search.minimise((Goal::Time, close), multipliers)?;
    let found = choices.map(|choices| Line { time: search.chain.time(&choices), choices, excess });
    let missed = found.as_ref().map_or(f64::INFINITY, |found| found.at(multipliers) - bound);
    search.floors.add(multipliers, search.capacity, (bound, missed));
    if bound > search.bound {
        (search.bound, search.multipliers, search.missed) = (bound, multipliers.to_vec(), missed);
    }
    if let Some(found) = &found {
        search.take(&found.choices);
        search.trail.add(&found.choices);
    }
    Ok(found)
}
