//! Assignments between two minima: blocks of one exchanged for those of others.
//!
//! Minima at nearly the same prices differ in what every block of a segment chooses; between them lie
//! the assignments in which some blocks choose as the one and some as the other, and with many blocks
//! one of those fills the memory almost exactly.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::Search;
use super::top::Line;
use crate::chain::ChainChoices;
use crate::problem::SearchError;

/// Multiples of the last prices at which more choices for a block are found.
const SPREAD: [f64; 4] = [0.4, 0.8, 1.3, 2.5];

/// The most different choices for a block that are mixed.
const MOST_CHOICES: usize = 24;

/// A choice for a block that begins and ends in the same state.
struct Candidate {
    choices: Vec<usize>,
    time: f64,
    resident: u64,
    live: u64,
}

/// Replaces blocks of a minimum by others that begin and end alike.
pub(super) fn mix(
    search: &mut Search<'_>,
    base: &Line,
    seen: &[Line],
    more: impl Fn(&mut Search<'_>, usize, &[usize]) -> Result<Vec<Vec<usize>>, SearchError>,
) -> Result<(), SearchError> {
    let mut choices = base.choices.clone();
    for segment in 0..search.chain.segments.len() {
        if search.chain.segments[segment].count > 2 {
            let Some(usual) = usual(search, &choices, segment) else { continue };
            let more = more(search, segment, &usual)?;
            let candidates = candidates(search, &choices, seen, segment, &usual, more);
            fill(search, &mut choices, segment, &usual, &candidates);
        }
    }
    search.take(&choices);
    Ok(())
}

/// Gives as many blocks in a row as fit the choices of the fast minimum, with a block on either side
/// that leads from the state of the slow one to that of the fast one and back.
pub(super) fn splice(
    search: &mut Search<'_>,
    slow: &Line,
    fast: &Line,
    seen: &[Line],
    multipliers: &[f64],
) -> Result<(), SearchError> {
    let mut choices = slow.choices.clone();
    for segment in 0..search.chain.segments.len() {
        let outer = usual(search, &slow.choices, segment);
        let inner = usual(search, &fast.choices, segment);
        let (Some(outer), Some(inner)) = (outer, inner) else { continue };
        if search.chain.segments[segment].count < 4 || outer == inner {
            continue;
        }
        let pairs: [[&[usize]; 2]; 3] = [[&outer, &inner], [&inner, &inner], [&inner, &outer]];
        let prices = search.prices(multipliers);
        let found =
            search.relaxation.between(segment, &pairs, &prices, (&slow.choices.globals, &search.starts))?;
        let [Some(into), Some(steady), Some(out)] = &found[..] else { continue };
        let fits = |many: usize| {
            let spliced = spliced(search, &choices, segment, &outer, [into, steady, out], many)?;
            (search.chain.usage(&spliced).peak() <= search.capacity).then_some(spliced)
        };
        let many: Vec<usize> = (0..search.chain.segments[segment].count).collect();
        // More of the fast blocks take more memory: the last number that fits.
        let last = many.partition_point(|&many| fits(many).is_some());
        let Some(spliced) = last.checked_sub(1).and_then(fits) else { continue };
        choices = spliced;
        search.take(&choices);
        for state in [&inner, &outer] {
            let candidates =
                candidates(search, &choices, seen, segment, state, found.iter().flatten().cloned().collect());
            fill(search, &mut choices, segment, state, &candidates);
        }
    }
    search.take(&choices);
    Ok(())
}

/// A stretch of blocks replaced: one that leads in, many that are steady, one that leads out.
fn spliced(
    search: &Search<'_>,
    choices: &ChainChoices,
    segment: usize,
    outer: &[usize],
    [into, steady, out]: [&Vec<usize>; 3],
    many: usize,
) -> Option<ChainChoices> {
    let mut spliced = choices.clone();
    let blocks = &mut spliced.blocks[segment];
    let is_outer = |block: &Vec<usize>| state(search, segment, block).as_deref() == Some(outer);
    let first = blocks.iter().position(is_outer)?;
    let last = first + many + 1;
    if last >= blocks.len() || !blocks[first..=last].iter().all(is_outer) {
        return None;
    }
    blocks[first].clone_from(into);
    blocks[first + 1..last].iter_mut().for_each(|block| block.clone_from(steady));
    blocks[last].clone_from(out);
    Some(spliced)
}

/// The state at the ends of a block, if it is the same at both.
fn state(search: &Search<'_>, segment: usize, block: &[usize]) -> Option<Vec<usize>> {
    let at = &search.chain.segments[segment];
    let states = |nodes: &[usize]| nodes.iter().map(|&node| block[node]).collect::<Vec<_>>();
    let entry = states(&at.entry);
    (entry == states(&at.exit)).then_some(entry)
}

/// The state that most blocks of a segment begin and end in.
fn usual(search: &Search<'_>, choices: &ChainChoices, segment: usize) -> Option<Vec<usize>> {
    let mut counts: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for block in &choices.blocks[segment] {
        if let Some(state) = state(search, segment, block) {
            *counts.entry(state).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(state, _)| state)
}

fn candidates(
    search: &Search<'_>,
    choices: &ChainChoices,
    seen: &[Line],
    segment: usize,
    usual: &[usize],
    more: Vec<Vec<usize>>,
) -> Vec<Candidate> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut add = |block: Vec<usize>| {
        if !found.contains(&block) {
            found.push(block);
        }
    };
    let shared = &search.chain.segments[segment].shared;
    let agrees = |block: &Vec<usize>| shared.iter().all(|it| block[it.node] == choices.globals[it.global]);
    for line in seen {
        for block in line.choices.blocks[segment].iter().filter(|block| agrees(block)) {
            if state(search, segment, block).as_deref() == Some(usual) {
                add(block.clone());
            }
        }
    }
    more.into_iter().for_each(&mut add);
    let problem = &search.chain.segments[segment].problem;
    let candidate = |choices: Vec<usize>| Candidate {
        time: problem.time(&choices),
        resident: problem.resident(&choices),
        live: problem.live(&choices).into_iter().max().unwrap_or(0),
        choices,
    };
    let mut candidates: Vec<Candidate> = found.into_iter().map(candidate).collect();
    candidates.retain(|it| it.time < f64::INFINITY);
    candidates.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.resident.cmp(&b.resident)));
    // Slower and not smaller is of no use.
    let mut useful: Vec<Candidate> = Vec::new();
    for it in candidates {
        let worse = |than: &Candidate| than.resident <= it.resident && than.live <= it.live;
        if !useful.iter().any(worse) {
            useful.push(it);
        }
    }
    useful.truncate(MOST_CHOICES);
    useful
}

/// Gives the blocks of the usual state the cheapest mixture of three candidates that fits, the
/// third one at most once.
fn fill(
    search: &Search<'_>,
    choices: &mut ChainChoices,
    segment: usize,
    usual: &[usize],
    candidates: &[Candidate],
) {
    let is_usual = |block: &Vec<usize>| state(search, segment, block).as_deref() == Some(usual);
    let blocks = &choices.blocks[segment];
    let positions: Vec<usize> = (0..blocks.len()).filter(|&it| is_usual(&blocks[it])).collect();
    if positions.is_empty() {
        return;
    }
    let problem = &search.chain.segments[segment].problem;
    let usage = search.chain.usage(choices);
    let own: u64 = positions.iter().map(|&it| problem.resident(&blocks[it])).sum();
    let rest = usage.resident - own;
    let other = usage.live.iter().enumerate().flat_map(|(at, blocks)| {
        let positions = &positions;
        let others = blocks.iter().enumerate();
        others.filter(move |(it, _)| at != segment || !positions.contains(it)).flat_map(|(_, live)| live)
    });
    let live = other.copied().max().unwrap_or(0);

    let count = u64::try_from(positions.len()).unwrap_or(0);
    let mut best: Option<(f64, Vec<(usize, u64)>)> = None;
    for first in 0..candidates.len() {
        for second in 0..candidates.len() {
            for third in 0..candidates.len() {
                let picked = [first, second, third].map(|it| &candidates[it]);
                let live = picked.iter().map(|it| it.live).fold(live, u64::max);
                let Some(room) = search.capacity.checked_sub(rest + live) else { continue };
                let [a, b, c] = picked;
                // One block of the third, as many of the first as fit, the second elsewhere.
                let base = c.resident + (count - 1) * b.resident;
                let more = a.resident.saturating_sub(b.resident);
                let Some(left) = room.checked_sub(base) else { continue };
                let many = left.checked_div(more).unwrap_or(count).min(count - 1);
                let mixed = [(first, many), (second, count - 1 - many), (third, 1)];
                let part = |&(it, blocks): &(usize, u64)| crate::problem::real(blocks) * candidates[it].time;
                let time: f64 = mixed.iter().map(part).sum();
                if best.as_ref().is_none_or(|(least, _)| time < *least) {
                    best = Some((time, mixed.to_vec()));
                }
            }
        }
    }
    let Some((_, mixed)) = best else { return };
    let mut places = positions.into_iter();
    for (candidate, blocks) in mixed {
        for place in places.by_ref().take(usize::try_from(blocks).unwrap_or(0)) {
            choices.blocks[segment][place].clone_from(&candidates[candidate].choices);
        }
    }
}

/// Blocks of a segment that begin and end in a state, at prices around the last one.
pub(super) fn more(
    search: &mut Search<'_>,
    segment: usize,
    state: &[usize],
    base: &Line,
    multipliers: &[f64],
) -> Result<Vec<Vec<usize>>, SearchError> {
    let key = (segment, state.to_vec());
    if let Some(known) = search.trail.blocks.get(&key) {
        return Ok(known.clone());
    }
    let one = |factor: &f64| {
        let scaled: Vec<f64> = multipliers.iter().map(|multiplier| multiplier * factor).collect();
        let prices = search.prices(&scaled);
        search.relaxation.between(
            segment,
            &[[state, state]],
            &prices,
            (&base.choices.globals, &search.starts),
        )
    };
    let blocks: Result<Vec<Vec<Option<Vec<usize>>>>, SearchError> = SPREAD.par_iter().map(one).collect();
    let blocks: Vec<Vec<usize>> = blocks?.into_iter().flatten().flatten().collect();
    search.trail.blocks.insert(key, blocks.clone());
    Ok(blocks)
}
