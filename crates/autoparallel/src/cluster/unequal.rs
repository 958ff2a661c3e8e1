//! Groups of devices whose meshes differ, or that are on nodes of several kinds: composed of what blocks
//! take on each mesh.
//!
//! All groups share how many micro-batches there are, and what is computed again. Where all nodes are of one
//! kind, what was priced for groups that are alike is composed: nothing else is priced.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cost_models::units::exact;
use files::Failure;
use plan::Recompute;
use rayon::prelude::*;
use schedule::{Kind, verify};
use search::cluster::unequal::{Choice, Nodes, Room, compose};
use search::{Live, Trail};

use super::finish::Way;
use super::parts::{Part, tighter};
use super::played::{Run, played, together};
use super::{Asked, Chosen, Question, Setup, suits};
use crate::staged::under_way;

/// So many ends of models are followed.
const FOLLOWED: usize = 1 << 18;
/// Of so many setups it is asked what blocks take with less memory.
const TIGHTENED: usize = 32;
/// The schedules of stages that differ: those that split the backward part, and those that do not.
pub(super) const SCHEDULES: [&[Kind]; 2] =
    [&[Kind::OneForwardOneBackward, Kind::Eager], &[Kind::ZeroBubbleH1]];

/// What is composed of what was priced for groups that are alike, where it promises less than so much
/// (seconds).
pub(super) fn composed(asked: &Asked<'_>, below: f64) -> Vec<Way> {
    // Other runtimes have one mesh for all groups, and where it is pinned what axes are for, all have.
    if asked.question.pins.are_ruled() {
        return Vec::new();
    }
    let of = |(micro_batches, recompute, meshes): &(u64, &Recompute, Vec<Alike>)| {
        if meshes.len() < 2 {
            return Vec::new();
        }
        ways(asked.question, (*micro_batches, recompute), meshes, (below, false))
    };
    forms(asked).par_iter().flat_map(of).collect()
}

/// What blocks take on a mesh, by each plan that was made of them there: stages are as one has them, or between two.
pub(super) type Alike = Vec<Part>;

/// Numbers of micro-batches and what is computed again, with what blocks take so on each mesh; where blocks keep what they
/// may, whatever was computed again.
fn forms<'a>(asked: &Asked<'a>) -> Vec<(u64, &'a Recompute, Vec<Alike>)> {
    let parts = asked.parts.lock().unwrap_or_else(PoisonError::into_inner);
    let mut forms: BTreeMap<(u64, String), (&'a Recompute, Vec<Part>)> = BTreeMap::new();
    for (&number, parts) in parts.iter().chain(&asked.tight) {
        let Setup { micro_batches, recompute, .. } = &asked.setups[number];
        let recompute = if asked.question.again_alike() { recompute } else { &Recompute::Nothing };
        let form = forms.entry((*micro_batches, recompute.to_string())).or_insert((recompute, Vec::new()));
        form.1.extend(parts.iter().cloned());
    }
    let sorted = |((count, _), (recompute, parts)): ((u64, String), (&'a Recompute, Vec<Part>))| {
        (count, recompute, sorted(parts, count))
    };
    forms.into_iter().map(sorted).collect()
}

/// The parts of each mesh, those first of which more is hoped with so many micro-batches.
pub(super) fn sorted(mut parts: Vec<Part>, micro_batches: u64) -> Vec<Alike> {
    parts.sort_by(|a, b| even(a, micro_batches).total_cmp(&even(b, micro_batches)));
    let mut meshes: Vec<Alike> = Vec::new();
    for part in parts {
        let is_of = |it: &&mut Alike| (it[0].kind, &it[0].mesh) == (part.kind, &part.mesh);
        match meshes.iter_mut().find(is_of) {
            Some(alike) => alike.push(part),
            None => meshes.push(vec![part]),
        }
    }
    meshes
}

/// What all blocks take together of so many micro-batches, in the time of one device (seconds).
fn even(part: &Part, micro_batches: u64) -> f64 {
    together(&part.blocks).step(exact(micro_batches), false) * exact(part.mesh.devices())
}

/// Prices, of what promises most if blocks are dealt evenly, what blocks take with less memory.
pub(super) fn tightened(asked: &Asked<'_>) -> Result<BTreeMap<usize, Vec<Part>>, Failure> {
    let parts = asked.parts.lock().unwrap_or_else(PoisonError::into_inner);
    let even = |number: usize| even(&parts[&number][0], asked.setups[number].micro_batches);
    let mut loose: Vec<usize> = parts.iter().filter(|it| it.1.len() == 1).map(|it| *it.0).collect();
    loose.sort_by(|&a, &b| even(a).total_cmp(&even(b)).then(a.cmp(&b)));
    loose.truncate(TIGHTENED);
    let of = |&number: &usize| -> Result<(usize, Vec<Part>), Failure> {
        let setup = &asked.setups[number];
        let step = asked.known.step(asked.question, setup)?;
        let trail = Mutex::new(Trail::default());
        Ok((number, tighter(asked.question, setup, &step, &parts[&number][0], &trail)?))
    };
    loose.par_iter().map(of).collect::<Vec<_>>().into_iter().collect()
}

/// The ways to run groups on these parts, those first of which more is hoped, that take less than `below` (seconds), one for each schedule; or
/// none, if all groups would have one part and that is not asked for.
pub(super) fn ways(
    question: &Question<'_>,
    (micro_batches, recompute): (u64, &Recompute),
    meshes: &[Alike],
    (below, alike): (f64, bool),
) -> Vec<Way> {
    let Question { cluster, pins, .. } = question;
    let Ok(count) = usize::try_from(micro_batches) else { return Vec::new() };
    let of = |machine: &cost_models::machine::Machine| Nodes {
        devices: machine.devices(),
        capacity: question.memory.unwrap_or(machine.usable_memory().0),
    };
    let kinds: Vec<Nodes> = cluster.kinds().iter().map(of).collect();
    let choices: Vec<Choice> = meshes.iter().map(|it| choice(it)).collect();
    let mut found = Vec::new();
    for schedules in SCHEDULES {
        let suits = |kind: &Kind| suits(pins, *kind, recompute, 1);
        let allowed: Vec<Kind> = schedules.iter().copied().filter(suits).collect();
        let Some(&lightest) = allowed.first() else { continue };
        // How many groups follow says what is held but for schedules in which all hold as much: those are
        // held against what each really holds below.
        let live = |after: usize| {
            let live = schedule::held(lightest, [after, 1, count], 0);
            Live::of(u64::try_from(live).unwrap_or(u64::MAX))
        };
        let room = Room {
            kinds: &kinds,
            node: cluster.devices_per_node(),
            micro_batches: exact(micro_batches),
            message: meshes.iter().flatten().map(|it| it.message).fold(0.0, f64::max),
            live: &live,
            splits: lightest.splits_backward(),
            allowed: &|after, number, start| pins.allow_stage(after, &meshes[number][0].mesh, start),
            below,
            most: FOLLOWED,
        };
        let Some(composed) = compose(&choices, &room) else { continue };
        // Groups that are alike, wherever they are cut, are setups.
        if !alike && composed.stages.iter().all(|stage| stage.1 == composed.stages[0].1) {
            continue;
        }
        for kind in allowed {
            let Some(seconds) = seconds(&composed.stages, meshes, (kind, count), &kinds) else { continue };
            if seconds < below {
                let meshes = composed.stages.iter().map(|&(_, it)| meshes[it][0].mesh.clone()).collect();
                let first = composed.stages.iter().map(|&(first, _)| first).collect();
                let recompute = recompute.clone();
                let chosen = Chosen { meshes, micro_batches, recompute, rules: None };
                found.push(Way { seconds, chosen, first, kind, chunks: 1 });
            }
        }
    }
    found
}

/// What blocks are on a mesh.
fn choice(parts: &[Part]) -> Choice {
    let blocks = |it: &Part| {
        let mut blocks = it.blocks.clone();
        // What cannot be on a mesh does not fit there.
        let refused = it.refused.iter().flat_map(|it| &it.blocks);
        let refused = blocks.iter_mut().zip(refused).filter(|it| *it.1);
        refused.for_each(|(block, _)| block.resident = u64::MAX);
        blocks
    };
    let Part { mesh, kind, .. } = &parts[0];
    Choice { devices: mesh.devices(), kind: *kind, plans: parts.iter().map(blocks).collect() }
}

/// What stages take by a schedule of so many micro-batches (seconds); nothing if they do not fit.
fn seconds(
    stages: &[(usize, usize)],
    meshes: &[Alike],
    (kind, micro_batches): (Kind, usize),
    kinds: &[Nodes],
) -> Option<f64> {
    let groups = stages.len();
    let verified = verify(kind.schedule(groups, 1, micro_batches).ok()?, groups, micro_batches).ok()?;
    let steps = (exact(u64::try_from(micro_batches).ok()?), verified.schedule().splits_backward);
    let mut runs = Vec::new();
    let lives = under_way(&verified).into_iter().zip(schedule::live(&verified));
    for ((number, &(first, it)), (live, of_group)) in stages.iter().enumerate().zip(lives) {
        let own = |it: &'_ Part| first..stages.get(number + 1).map_or(it.blocks.len(), |next| next.0);
        let plans = meshes[it].iter().map(|it| together(&it.blocks[own(it)])).collect();
        let room = kinds[meshes[it][0].kind].room();
        runs.extend(Run::among(&[(plans, live)], of_group.together, steps, room)?);
    }
    let message = stages.iter().flat_map(|&(_, it)| &meshes[it]).map(|it| it.message).fold(0.0, f64::max);
    played(&verified, &runs, message)
}

/// What no groups take less than, however their meshes differ and blocks are dealt: the operations of the
/// block that repeats most, shared by all devices (seconds).
pub(super) fn bound(asked: &Asked<'_>) -> Result<f64, Failure> {
    let devices = exact(asked.question.machine().devices());
    let of = |setup: &Setup| {
        let (count, seconds) = asked.known.least(asked.question, setup)?.work(setup.micro_batches);
        Ok(count * seconds / devices)
    };
    asked.setups.iter().map(of).try_fold(f64::INFINITY, |least, it: Result<f64, Failure>| Ok(least.min(it?)))
}
