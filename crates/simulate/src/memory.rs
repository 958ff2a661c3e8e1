//! What a rank holds over time.
//!
//! What a step writes is there from the start of the first instruction that writes it to the end
//! of the last one that uses it; what is returned, to the end of the step; what is used after the
//! micro-batches, from the last one that makes it. Two storages that share bytes are never there
//! at the same time, so that there is never more than the arena takes.

use std::collections::BTreeMap;

use lower::{ALIGNMENT, Kind, Program, Region};

use crate::clock::Times;
use crate::unroll::Done;

/// How many bytes are there from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The moment (seconds).
    pub at: f64,
    /// What is at rest and what of the arena is in use (bytes), with what aligns it.
    pub bytes: u64,
}

/// A storage that a step writes, from its first use to its last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Which storage of the program.
    pub storage: usize,
    /// In which of its places.
    pub place: u64,
    /// The instruction that uses it first.
    pub first: usize,
    /// The start of that (seconds).
    pub from: f64,
    /// The end of the last one that uses it, or of the step (seconds).
    pub to: f64,
}

/// The levels of a rank's memory, in order of time; the first one is what is at rest.
pub(crate) fn levels(program: &Program, done: &[Done], times: &Times) -> Vec<Level> {
    let mut changes: Vec<(f64, bool, u64)> = Vec::new();
    for it in held(program, done, times) {
        let bytes = program.storages[it.storage].bytes.next_multiple_of(ALIGNMENT);
        changes.extend([(it.from, true, bytes), (it.to, false, bytes)]);
    }
    // What ends makes room for what starts at the same moment.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut levels = vec![Level { at: 0.0, bytes: program.resident }];
    let mut bytes = program.resident;
    for (at, comes, size) in changes {
        bytes = if comes { bytes + size } else { bytes - size };
        match levels.last_mut().filter(|last| last.at.total_cmp(&at).is_eq()) {
            Some(last) => last.bytes = bytes,
            None => levels.push(Level { at, bytes }),
        }
    }
    levels
}

/// Each storage that a step writes, as often as it is there for some time.
pub(crate) fn held(program: &Program, done: &[Done], times: &Times) -> Vec<Held> {
    let repetition = program.repetition();
    let users = users(program);
    // Storages that live in each repetition anew, and which repetition made what outlives one.
    let lives = |storage: usize| {
        let repeated = |it: &&usize| repetition.contains(*it);
        let within = users[storage].iter().filter(repeated).count();
        match (within, users[storage].len()) {
            (0, _) => Life::Once,
            (within, all) if within == all => Life::Repeated,
            _ if users[storage].first().is_some_and(|it| repetition.contains(it)) => Life::Repeated,
            _ => Life::Once,
        }
    };
    let lives: Vec<Life> = (0..program.storages.len()).map(lives).collect();
    let mut of_instruction: Vec<Vec<usize>> = vec![Vec::new(); program.instructions.len()];
    for (storage, users) in users.iter().enumerate() {
        users.iter().for_each(|&it| of_instruction[it].push(storage));
    }
    let mut there: BTreeMap<(usize, u32), Held> = BTreeMap::new();
    let mut last = vec![0; program.storages.len()];
    for it in done {
        let instruction = crate::schedule::place(it.instruction);
        for &storage in &of_instruction[instruction] {
            let number = match lives[storage] {
                Life::Once => 0,
                Life::Repeated if repetition.contains(&instruction) => it.repetition,
                Life::Repeated => last[storage],
            };
            last[storage] = number;
            let (start, end) = (it.start(times), it.end(times));
            let place = u64::from(number) % program.storages[storage].places.max(1);
            let new = Held { storage, place, first: instruction, from: start, to: end };
            let there = there.entry((storage, number)).or_insert(new);
            there.from = there.from.min(start);
            there.to = there.to.max(end);
        }
    }
    let end = times.last();
    let finished = |it: Held| {
        let returned = program.storages[it.storage].kind == Kind::Output;
        Held { to: if returned { end } else { it.to }, ..it }
    };
    there.into_values().map(finished).filter(|it| it.to > it.from).collect()
}

/// How often a storage is written in a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Once,
    /// In every repetition.
    Repeated,
}

/// For each storage that a step writes, the instructions that use it, in order.
fn users(program: &Program) -> Vec<Vec<usize>> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); program.storages.len()];
    for (index, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.reads().into_iter().chain(instruction.action.writes()) {
            let storage = program.buffer(buffer).storage;
            if program.storages[storage.0].kind.region() == Region::Step
                && users[storage.0].last() != Some(&index)
            {
                users[storage.0].push(index);
            }
        }
    }
    users
}
