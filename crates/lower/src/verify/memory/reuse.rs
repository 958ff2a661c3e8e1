//! What is written over what: reuse, and place of what is at rest.
//!
//! Storages take their bytes in the order of their first writes, and each has to come after those that
//! had the bytes before it, not after all that ever had them: where `b` is written after all uses of
//! `a`, and `c` after those of `b`, of which writing is one, `c` comes after `a`. So a place that is
//! used by many in turn takes as many comparisons, not the square of that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::parts::touched;
use super::{Report, Usage};
use crate::action::{Action, Block, Compute};
use crate::happens::Happens;
use crate::program::{Program, Stream};
use crate::storage::{Region, StorageId};
use crate::users::Known;

/// Who has bytes: for the start of each run its end and the storages that later ones come after.
#[derive(Default)]
struct Holders(BTreeMap<u64, (u64, Vec<usize>)>);

/// Of two storages with common bytes, one has to be out of use when the other is written.
pub(super) fn check(program: &Program, usage: &[Usage], happens: &Happens, report: &mut Report) {
    check_rest(program, report);
    let uses = Uses::of(program, usage, happens);
    let written = |it: &usize| program.storages[*it].bytes > 0 && !usage[*it].writers.is_empty();
    let mut storages: Vec<usize> = (0..program.storages.len()).filter(written).collect();
    storages.sort_by_key(|&it| (usage[it].first(), program.storages[it].offset));
    let mut holders = Holders::default();
    for second in storages {
        let bytes = uses.bytes(second);
        let before = holders.of(&bytes);
        let beside: BTreeSet<usize> =
            before.into_iter().filter(|&it| !uses.ends_before(it, second)).collect();
        for &first in beside.iter().filter(|&&it| !uses.ends_before(second, it)) {
            let [first, buffer] = [first, second].map(|it| buffer_of(program, it));
            let message = format!("b{buffer} is written over b{first}, which may be in use");
            report.at(usage[second].first().unwrap_or_default(), "reuse", message);
        }
        let covers = uses.covers(second);
        holders.take(&bytes, second, |it| !covers || beside.contains(&it));
    }
}

/// Storages at rest share no bytes.
fn check_rest(program: &Program, report: &mut Report) {
    let at_rest = |it: &usize| {
        program.storages[*it].bytes > 0 && program.storages[*it].kind.region() == Region::Resident
    };
    let mut sorted: Vec<usize> = (0..program.storages.len()).filter(at_rest).collect();
    sorted.sort_by_key(|&it| program.storages[it].offset);
    let mut furthest: Option<(u64, usize)> = None;
    for second in sorted {
        let start = program.storages[second].offset;
        if let Some((_, first)) = furthest.filter(|&(end, _)| start < end) {
            report.whole("place", format!("storages {first} and {second} at rest share bytes"));
        }
        let end = start.saturating_add(program.extent(StorageId(second)));
        furthest = furthest.max(Some((end, second)));
    }
}

impl Holders {
    /// Cuts a run in two if it goes on over a place.
    fn cut(&mut self, at: u64) {
        let Some((_, (end, storages))) = self.0.range_mut(..at).next_back() else { return };
        if at < *end {
            let rest = (std::mem::replace(end, at), storages.clone());
            self.0.insert(at, rest);
        }
    }

    /// Who has something of these bytes.
    fn of(&mut self, bytes: &Range<u64>) -> BTreeSet<usize> {
        self.cut(bytes.start);
        self.cut(bytes.end);
        self.0.range(bytes.clone()).flat_map(|(_, (_, storages))| storages.iter().copied()).collect()
    }

    /// Gives the bytes to a storage, beside those that stay.
    fn take(&mut self, bytes: &Range<u64>, storage: usize, stays: impl Fn(usize) -> bool) {
        let runs: Vec<u64> = self.0.range(bytes.clone()).map(|(&start, _)| start).collect();
        let mut left: Vec<(Range<u64>, Vec<usize>)> = Vec::new();
        let mut free = bytes.start;
        let mut push = |run: Range<u64>, mut storages: Vec<usize>| {
            storages.push(storage);
            match left.last_mut().filter(|(_, others)| *others == storages) {
                Some((before, _)) => before.end = run.end,
                None if !run.is_empty() => left.push((run, storages)),
                None => {}
            }
        };
        for start in runs {
            let Some((end, mut storages)) = self.0.remove(&start) else { continue };
            storages.retain(|&it| stays(it));
            push(free..start, Vec::new());
            push(start..end, storages);
            free = end;
        }
        push(free..bytes.end, Vec::new());
        self.0.extend(left.into_iter().map(|(run, storages)| (run.start, (run.end, storages))));
    }
}

/// Who uses storages when.
struct Uses<'a> {
    program: &'a Program,
    usage: &'a [Usage],
    happens: &'a Happens,
    returned: BTreeSet<usize>,
    /// For each storage, for each stream, one more than the last instruction that uses it.
    last: Vec<Known>,
    /// And how far the stream has come at least whenever it is written.
    floor: Vec<Known>,
}

impl<'a> Uses<'a> {
    fn of(program: &'a Program, usage: &'a [Usage], happens: &'a Happens) -> Self {
        let returned = program.outputs.iter().map(|port| program.buffer(port.buffer).storage.0).collect();
        let last = |usage: &Usage| {
            let mut last = usage.written;
            for &reader in &usage.readers {
                let last = &mut last[program.instructions[reader].stream.number()];
                *last = (*last).max(reader + 1);
            }
            last
        };
        let floor = |usage: &Usage| {
            usage.writes().fold([usize::MAX; Stream::ALL.len()], |mut floor, write| {
                floor.iter_mut().zip(happens.at(write)).for_each(|(floor, &at)| *floor = (*floor).min(at));
                floor
            })
        };
        let (last, floor) = (usage.iter().map(last).collect(), usage.iter().map(floor).collect());
        Self { program, usage, happens, returned, last, floor }
    }

    fn bytes(&self, storage: usize) -> Range<u64> {
        let start = self.program.storages[storage].offset;
        start..start.saturating_add(self.program.extent(StorageId(storage)))
    }

    /// The bytes of a storage that an instruction reads or writes something of.
    fn touched(&self, instruction: usize, storage: usize) -> Range<u64> {
        let action = &self.program.instructions[instruction].action;
        let Range { start, end } = touched(self.program, action, StorageId(storage));
        let offset = self.program.storages[storage].offset;
        start.saturating_add(offset)..end.saturating_add(offset)
    }

    /// Whether all bytes of a storage are written.
    fn covers(&self, storage: usize) -> bool {
        let Range { start, end } = self.bytes(storage);
        let mut written: Vec<Range<u64>> =
            self.usage[storage].writes().map(|write| self.touched(write, storage)).collect();
        written.sort_unstable_by_key(|it| it.start);
        let reached = written
            .into_iter()
            .fold(start, |reached, it| if it.start <= reached { reached.max(it.end) } else { reached });
        reached >= end
    }

    /// Whether a storage is out of use whenever another one is written that has bytes of it.
    fn ends_before(&self, first: usize, second: usize) -> bool {
        if self.returned.contains(&first) {
            return false;
        }
        let all_before = self.last[first].iter().zip(&self.floor[second]).all(|(last, floor)| last <= floor);
        let mut uses = self.usage[first].writes().chain(self.usage[first].readers.iter().copied());
        all_before
            || uses.all(|it| {
                let over = |write| self.happens.before(it, write) || self.replaces(first, second, it, write);
                self.usage[second].writes().all(over)
            })
    }

    /// Whether what is written of the second is out of use: it comes over the first part by part, or where
    /// the instruction has read it.
    fn replaces(&self, first: usize, second: usize, it: usize, write: usize) -> bool {
        let (used, written) = (self.touched(it, first), self.touched(write, second));
        let apart = used.end <= written.start || written.end <= used.start;
        let start = |storage: usize| self.program.storages[storage].offset;
        let at_once = it == write && start(first) == start(second);
        let action = &self.program.instructions[it].action;
        apart
            || (at_once && matches!(action, Action::Compute(it) if is_over(self.program, it, first, second)))
    }
}

/// Whether an operation makes each element of what it writes in one storage from the one at the same
/// place of what it reads in another, and from nothing else there.
fn is_over(program: &Program, compute: &Compute, first: usize, second: usize) -> bool {
    let size = |block: &Block| program.buffer(block.buffer).type_.bytes();
    let elements = |block: &Block| program.buffer(block.buffer).type_.elements();
    let lies_in = |block: &Block, storage| program.buffer(block.buffer).storage.0 == storage;
    let Some(result) = compute.results.iter().position(|it| lies_in(it, second)) else { return false };
    let made = &compute.results[result];
    let same = |it: &Block| size(it) == size(made) && elements(it) == elements(made);
    let over = |(number, it): (usize, &Block)| program.may_lie_over(compute, number, result) && same(it);
    let mut read = compute.operands.iter().enumerate().filter(|(_, it)| lies_in(it, first));
    read.all(over)
}

/// The first buffer in a storage.
fn buffer_of(program: &Program, storage: usize) -> usize {
    program.buffers.iter().position(|buffer| buffer.storage.0 == storage).unwrap_or_default()
}
