//! Stages on meshes that differ: which run of blocks is on which mesh, in which way, exactly.
//!
//! ```text
//! minimise  max_g (m t_g + u_g − w_g)  +  Σ_g w_g  +  2 c (G − 1)
//! over      runs of blocks, one after another, and for each one of the choices
//! such that all devices are used, each stage is in part of a node or in whole nodes, and fits
//! ```
//!
//! `m` is the number of micro-batches, `t_g` what stage g takes of one, `u_g` its update, `w_g` what others
//! wait for it while the pipeline fills and drains, `c` a message. With `w = t` this is the time of a
//! pipeline whose slowest stage never waits but for the others' first and last micro-batch (Zheng et al.,
//! "Alpa", OSDI 2022, section 5.2).
//!
//! Runs are added from the last stage on, since what a stage keeps depends on how many follow it. Of what
//! is alike in stages, blocks and devices that are left only what is no longer in one of both terms is kept:
//! a bottleneck and a sum. What is left is bounded by its work spread evenly, and nothing is followed that
//! is not below the best that is had.

use std::collections::BTreeMap;

use cost_models::units::exact;

use super::{BlockCost, mixed_runs};
use crate::live::Live;

/// A stage that is between two plans leaves so small a part of its memory free: few stages on few devices say less well
/// what they hold than many alike, and what does not fit is planned in vain.
const SPARE: u64 = 16;

/// What a stage may be on, and what the blocks are there.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// How many devices.
    pub devices: u64,
    /// The kind of nodes that they are of.
    pub kind: usize,
    /// What every block of the model takes and holds, by each of some plans.
    pub plans: Vec<Vec<BlockCost>>,
}

impl Choice {
    /// How many blocks there are.
    fn blocks(&self) -> usize {
        self.plans.iter().map(Vec::len).min().unwrap_or(0)
    }
}

/// Nodes of one kind; the ranks of kinds follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nodes {
    /// How many devices they have together.
    pub devices: u64,
    /// What a device may hold (bytes).
    pub capacity: u64,
}

impl Nodes {
    /// What a device may hold of a stage, and what is wanted where it is between two plans (bytes).
    pub fn room(&self) -> (u64, u64) {
        (self.capacity, self.capacity - self.capacity / SPARE)
    }
}

/// What stages are composed for.
pub struct Room<'a> {
    /// The kinds of nodes.
    pub kinds: &'a [Nodes],
    /// How many devices a node has.
    pub node: u64,
    /// How many micro-batches a step has.
    pub micro_batches: f64,
    /// What a message between two stages takes (seconds).
    pub message: f64,
    /// Which micro-batches a stage keeps that so many stages follow, itself included.
    pub live: &'a dyn Fn(usize) -> Live,
    /// Whether gradients of parameters are tasks of their own: others wait for a stage's forward part then, and
    /// otherwise for all of a micro-batch.
    pub splits: bool,
    /// Whether a stage may have a choice and start at a block: how many follow, itself included, the number
    /// of the choice, the block.
    pub allowed: &'a dyn Fn(usize, usize, usize) -> bool,
    /// Nothing is wanted that takes as long as this (seconds).
    pub below: f64,
    /// At most so many ends of models are followed at once.
    pub most: usize,
}

/// Stages in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    /// What they take (seconds).
    pub seconds: f64,
    /// The first block of each stage, and the number of its choice.
    pub stages: Vec<(usize, usize)>,
}

/// What a search for stages came to.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// These take least.
    Best(Composed),
    /// None takes less than what was to be below.
    Nothing,
    /// There are too many ends of models to follow.
    TooMany,
}

/// Stages that are the last of a model.
#[derive(Clone, Copy)]
struct Label {
    /// What the slowest of them takes but for what others wait for it (seconds).
    slowest: f64,
    /// What is waited for them (seconds).
    waits: f64,
    /// The first block and the choice of the first of them.
    stage: (usize, usize),
    /// The label of the others.
    rest: Option<usize>,
}

/// What a run of blocks takes but for what others wait for it, and that (seconds).
fn terms(run: &BlockCost, room: &Room<'_>) -> (f64, f64) {
    let times = run.taken(room.splits);
    let waits = if room.splits { times.forward } else { times.total() };
    (run.step(room.micro_batches, room.splits) - waits, waits)
}

/// What the blocks before each block do at least.
struct Before {
    /// The least of devices x seconds of the slowest stage.
    area: Vec<f64>,
    /// The least that is waited for them (seconds).
    waits: Vec<f64>,
}

impl Before {
    fn of(choices: &[Choice], room: &Room<'_>, blocks: usize) -> Self {
        let (mut area, mut waits) = (vec![0.0; blocks + 1], vec![0.0; blocks + 1]);
        for block in 0..blocks {
            let (mut least, mut wait) = (f64::INFINITY, f64::INFINITY);
            for (choice, blocks) in choices.iter().flat_map(|it| it.plans.iter().map(move |of| (it, of))) {
                let (slowest, waited) = terms(&blocks[block].at_least(), room);
                least = least.min(slowest * exact(choice.devices));
                wait = wait.min(waited);
            }
            area[block + 1] = area[block] + least;
            waits[block + 1] = waits[block] + wait;
        }
        Self { area, waits }
    }
}

/// The stages that take least, of the choices' blocks on all devices; where there are too many to follow, the
/// best that was found.
///
/// What others wait for a run has to be the sum of what they wait for its blocks at least. Choices come first of which
/// more is hoped.
pub fn compose(choices: &[Choice], room: &Room<'_>) -> Option<Composed> {
    match followed(choices, room) {
        Outcome::Best(best) => Some(best),
        Outcome::Nothing => None,
        Outcome::TooMany => {
            let few = few::composed(choices, room);
            // Below what few choices make there may be less to follow.
            let below = few.as_ref().map_or(room.below, |it| it.seconds);
            match followed(choices, &Room { below, ..*room }) {
                Outcome::Best(best) => Some(best),
                Outcome::Nothing | Outcome::TooMany => few,
            }
        }
    }
}

/// The stages that take least, if there are not too many to follow.
fn followed(choices: &[Choice], room: &Room<'_>) -> Outcome {
    let blocks = choices.iter().map(Choice::blocks).min().unwrap_or(0);
    let devices: u64 = room.kinds.iter().map(|it| it.devices).sum();
    if blocks == 0 {
        return Outcome::Nothing;
    }
    let before = Before::of(choices, room, blocks);
    let mut labels: Vec<Label> = Vec::new();
    // For each first block and number of devices that are used: labels, none better than another.
    let mut open: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::from([((blocks, 0), vec![])]);
    let (mut best, mut below): (Option<usize>, f64) = (None, room.below);
    for count in 1..=blocks {
        let live = (room.live)(count);
        let mut next: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
        for (&(end, used), known) in &open {
            // Where there are no stages yet, none is the label of the others.
            let from: Vec<Option<usize>> =
                if count == 1 { vec![None] } else { known.iter().map(|&it| Some(it)).collect() };
            for (number, choice) in choices.iter().enumerate() {
                let Some(kind) = lies(room, devices, used, choice) else { continue };
                let left = devices - used - choice.devices;
                let mut runs = vec![BlockCost::NOTHING; choice.plans.len()];
                for start in (0..end).rev() {
                    for (run, blocks) in runs.iter_mut().zip(&choice.plans) {
                        *run = blocks[start].and(run);
                    }
                    let steps = (room.micro_batches, room.splits);
                    let Some((_, mix)) = mixed_runs(&runs, live, steps, kind.room()) else { break };
                    let (slowest, waits) = terms(&mix.of(&runs), room);
                    if slowest + waits >= below {
                        break;
                    }
                    if (start == 0) != (left == 0) || !(room.allowed)(count, number, start) {
                        continue;
                    }
                    for &rest in &from {
                        let after = rest.map_or((0.0, 0.0), |it| (labels[it].slowest, labels[it].waits));
                        let label = Label {
                            slowest: slowest.max(after.0),
                            waits: waits + after.1,
                            stage: (start, number),
                            rest,
                        };
                        let even = if left == 0 { 0.0 } else { before.area[start] / exact(left) };
                        let crossed = exact_count(count - usize::from(start == 0));
                        let least = label.slowest.max(even)
                            + label.waits
                            + before.waits[start]
                            + 2.0 * room.message * crossed;
                        if least >= below {
                            continue;
                        }
                        if start == 0 {
                            below = least;
                            best = Some(labels.len());
                            labels.push(label);
                        } else {
                            keep(next.entry((start, used + choice.devices)).or_default(), &mut labels, label);
                        }
                        if labels.len() > room.most {
                            return Outcome::TooMany;
                        }
                    }
                }
            }
        }
        if next.is_empty() {
            break;
        }
        open = next;
    }
    let Some(best) = best else { return Outcome::Nothing };
    let mut stages = Vec::new();
    let mut next = Some(best);
    while let Some(it) = next {
        stages.push(labels[it].stage);
        next = labels[it].rest;
    }
    Outcome::Best(Composed { seconds: below, stages })
}

/// Keeps a label where no other is as good in both terms, and those that it is not as good as.
fn keep(known: &mut Vec<usize>, labels: &mut Vec<Label>, label: Label) {
    let covers = |a: &Label, b: &Label| a.slowest <= b.slowest && a.waits <= b.waits;
    if known.iter().any(|&it| covers(&labels[it], &label)) {
        return;
    }
    known.retain(|&it| !covers(&label, &labels[it]));
    known.push(labels.len());
    labels.push(label);
}

/// The nodes that a stage lies on before those that use so many devices; nothing if it cannot lie there.
fn lies<'a>(room: &Room<'a>, devices: u64, used: u64, choice: &Choice) -> Option<&'a Nodes> {
    let first = devices.checked_sub(used)?.checked_sub(choice.devices)?;
    let last = devices - used - 1;
    let start: u64 = room.kinds.iter().take(choice.kind).map(|it| it.devices).sum();
    let kind = room.kinds.get(choice.kind)?;
    let inside = first >= start && last < start + kind.devices;
    let whole = first.is_multiple_of(room.node) || first / room.node == last / room.node;
    (choice.devices > 0 && inside && whole).then_some(kind)
}

/// A number of stages.
fn exact_count(number: usize) -> f64 {
    exact(u64::try_from(number).unwrap_or(u64::MAX))
}

mod few;
#[cfg(test)]
mod tests;
