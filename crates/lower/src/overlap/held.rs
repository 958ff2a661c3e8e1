//! What is held while a stretch of a program is put into another order.
//!
//! At each moment it is known what would be held if all that is not yet issued followed in the order of
//! the program: so whatever is issued earlier, the rest still fits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::levels::Levels;
use crate::arena::Lifetime;
use crate::program::Program;
use crate::storage::{ALIGNMENT, Region, StorageId};

/// Far below what anything holds: what is over has no level (bytes).
const OVER: i64 = i64::MAX / 4;

/// What is held by a stretch, counted from its start.
pub(super) struct Held {
    levels: Levels,
    /// What is held now (bytes).
    now: i64,
    length: usize,
    spaces: Vec<Space>,
    /// For each instruction the spaces that it uses.
    used: Vec<Vec<usize>>,
}

/// A storage that a stretch uses, those that lie over it included.
pub(super) struct Space {
    pub(super) storage: StorageId,
    bytes: i64,
    /// Whether something has been there already.
    started: bool,
    /// Whether it is there when the stretch is over.
    goes_on: bool,
    /// Up to which instruction it is kept for an exchange that is under way.
    kept: Option<usize>,
    /// Who is still to use it.
    left: BTreeSet<usize>,
}

impl Space {
    /// From when to when it is there.
    fn there(&self, length: usize) -> Option<Range<usize>> {
        let last = self.left.last().copied().max(self.kept);
        let first = if self.started { Some(0) } else { self.left.first().copied() };
        let end = if self.goes_on { Some(length) } else { last.map(|it| it + 1) };
        Some(first?..end?).filter(|it| !it.is_empty())
    }
}

impl Held {
    /// What a stretch of a program holds in its own order; storages live so.
    pub(super) fn of(program: &Program, lifetimes: &[Option<Lifetime>], stretch: &Range<usize>) -> Self {
        let mut users: BTreeMap<StorageId, BTreeSet<usize>> = BTreeMap::new();
        for (index, instruction) in program.instructions[stretch.clone()].iter().enumerate() {
            let action = &instruction.action;
            for buffer in action.reads().into_iter().chain(action.writes()) {
                let storage = program.lowest(program.buffer(buffer).storage);
                if program.storages[storage.0].kind.region() == Region::Step {
                    users.entry(storage).or_default().insert(index);
                }
            }
        }
        let length = stretch.len();
        let mut held = Self {
            levels: Levels::new(length),
            now: 0,
            length,
            spaces: Vec::new(),
            used: vec![Vec::new(); length],
        };
        for (number, lifetime) in lifetimes.iter().enumerate() {
            let Some(Lifetime { first, last }) = *lifetime else { continue };
            if first >= stretch.end || last < stretch.start {
                continue;
            }
            let extent = program.extent(StorageId(number)).next_multiple_of(ALIGNMENT);
            let mut left = users.remove(&StorageId(number)).unwrap_or_default();
            let begins = left.first().map(|it| stretch.start + it);
            if last < stretch.end {
                // What is on its way is there for longer than it is used.
                left.insert(last - stretch.start);
            }
            held.spaces.push(Space {
                storage: StorageId(number),
                bytes: i64::try_from(extent).unwrap_or(OVER),
                started: begins.is_none_or(|it| first < it),
                goes_on: last >= stretch.end,
                kept: None,
                left,
            });
        }
        for (number, space) in held.spaces.iter().enumerate() {
            space.left.iter().for_each(|&it| held.used[it].push(number));
            held.now += if space.started { space.bytes } else { 0 };
            held.levels.add(space.there(length).unwrap_or(0..0), space.bytes);
        }
        held
    }

    pub(super) fn space(&self, number: usize) -> &Space {
        &self.spaces[number]
    }

    /// Issues an instruction, or tries to: whether no more than so much is held then, and later where it adds
    /// to that.
    pub(super) fn issue(&mut self, instruction: usize, allowed: i64) -> bool {
        let used = std::mem::take(&mut self.used[instruction]);
        self.levels.add(instruction..instruction + 1, -OVER);
        let (mut during, mut most) = (self.now, 0);
        for &number in &used {
            let before = self.spaces[number].started;
            during += if before { 0 } else { self.spaces[number].bytes };
            let added = self.change(number, |space| {
                space.left.remove(&instruction);
                space.started = true;
            });
            most = most.max(added);
        }
        let fits = during <= allowed && most <= allowed;
        if fits {
            let over = |&&number: &&usize| self.spaces[number].there(self.length).is_none();
            self.now = during - used.iter().filter(over).map(|&it| self.spaces[it].bytes).sum::<i64>();
        }
        self.used[instruction] = used;
        fits
    }

    /// Takes back an instruction that did not fit; what it uses had started or not.
    pub(super) fn take_back(&mut self, instruction: usize, started: &[bool]) {
        let used = std::mem::take(&mut self.used[instruction]);
        for (&number, &before) in used.iter().zip(started) {
            self.change(number, |space| {
                space.left.insert(instruction);
                space.started = before;
            });
        }
        self.levels.add(instruction..instruction + 1, OVER);
        self.used[instruction] = used;
    }

    /// What is held now (bytes).
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    /// So much is held again, after what was more is taken back (bytes).
    pub(super) fn again(&mut self, now: i64) {
        self.now = now;
    }

    /// For each space that an instruction uses, whether something has been there already.
    pub(super) fn started(&self, instruction: usize) -> Vec<bool> {
        self.used[instruction].iter().map(|&it| self.spaces[it].started).collect()
    }

    /// The spaces that an instruction has been the last to use.
    pub(super) fn ended_by(&self, instruction: usize) -> Vec<usize> {
        let over = |&number: &usize| self.spaces[number].there(self.length).is_none();
        self.used[instruction].iter().copied().filter(over).collect()
    }

    /// Keeps what nobody uses any more up to some instruction, if no more than so much is held then.
    pub(super) fn keep(&mut self, number: usize, until: usize, allowed: i64) -> bool {
        let most = self.change(number, |space| space.kept = Some(until));
        let bytes = self.spaces[number].bytes;
        let fits = most <= allowed && self.now + bytes <= allowed;
        if fits {
            self.now += bytes;
        } else {
            self.change(number, |space| space.kept = None);
        }
        fits
    }

    /// Gives back what has been kept.
    pub(super) fn release(&mut self, number: usize) {
        self.change(number, |space| space.kept = None);
        self.now -= self.spaces[number].bytes;
    }

    /// Changes a space: the most that is held when it is there and has not been (bytes).
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Space)) -> i64 {
        let there = |held: &Self| held.spaces[number].there(held.length).unwrap_or(0..0);
        let before = there(self);
        change(&mut self.spaces[number]);
        let (after, bytes) = (there(self), self.spaces[number].bytes);
        if before != after {
            self.levels.add(before.clone(), -bytes);
            self.levels.add(after.clone(), bytes);
        }
        let apart = before.is_empty() || after.end <= before.start || before.end <= after.start;
        let more = if apart {
            [after, 0..0]
        } else {
            [after.start..before.start.max(after.start), before.end.min(after.end)..after.end]
        };
        more.iter().map(|it| self.levels.most(it)).max().unwrap_or(0)
    }
}
