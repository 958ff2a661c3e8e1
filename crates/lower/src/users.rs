//! Who used the bytes of an arena last.
//!
//! Storages that a step writes share bytes where their places overlap. All pairs of them are as many
//! as the square of their number: a chain of `n` operations takes turns at two places. So the bytes
//! are cut where storages start and end, and a tree over these pieces has, for each of its parts, the
//! last uses by two storages: the second for those that ask what others than themselves did. A use is
//! noted, and asked for, at no more parts than twice the tree is high.

use std::ops::Range;

use crate::halves::{for_parts, parts};
use crate::program::{Program, Stream};
use crate::storage::{Region, StorageId};

/// For each stream, how many of the program's first instructions on it are over.
pub(crate) type Known = [usize; Stream::ALL.len()];

/// The last uses of some bytes on a stream.
#[derive(Clone, Copy, Default)]
struct Last {
    /// One more than the last instruction, and the storage that it used; 0 if there is none.
    last: (usize, usize),
    /// One more than the last instruction that used another storage.
    other: usize,
}

/// The last uses on each stream.
type Uses = [Last; Stream::ALL.len()];

/// Who used which bytes of a program's arena last, so far.
pub(crate) struct Users {
    /// For each storage, the pieces that it takes; none if a step does not write it.
    pieces: Vec<Range<usize>>,
    /// How many pieces there are.
    count: usize,
    /// For each part of the tree, the uses of all of it.
    all: Vec<Uses>,
    /// And the uses of something in it.
    some: Vec<Uses>,
}

impl Last {
    fn add(&mut self, end: usize, storage: usize) {
        if self.last.0 >= end {
            if self.last.1 != storage {
                self.other = self.other.max(end);
            }
            return;
        }
        if self.last.1 != storage {
            self.other = self.last.0;
        }
        self.last = (end, storage);
    }

    fn but(&self, storage: usize) -> usize {
        if self.last.1 == storage { self.other } else { self.last.0 }
    }
}

impl Users {
    /// Nobody yet.
    pub(crate) fn of(program: &Program) -> Self {
        let place = |it: usize| {
            let storage = &program.storages[it];
            let shares = storage.kind.region() == Region::Step && storage.bytes > 0;
            shares.then(|| storage.offset..storage.offset + program.extent(StorageId(it)))
        };
        let places: Vec<Option<Range<u64>>> = (0..program.storages.len()).map(place).collect();
        let mut cuts: Vec<u64> = places.iter().flatten().flat_map(|it| [it.start, it.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let piece = |at: u64| cuts.partition_point(|&cut| cut < at);
        let pieces = places.iter().map(|it| it.as_ref().map_or(0..0, |it| piece(it.start)..piece(it.end)));
        let count = cuts.len().saturating_sub(1);
        let none = vec![Uses::default(); parts(count)];
        Self { pieces: pieces.collect(), count, all: none.clone(), some: none }
    }

    /// Notes that an instruction uses a storage, later than all that were noted.
    pub(crate) fn add(&mut self, storage: StorageId, stream: Stream, instruction: usize) {
        let note = |uses: &mut Uses| uses[stream.number()].add(instruction + 1, storage.0);
        let Self { all, some, .. } = self;
        for_parts(self.count, &self.pieces[storage.0], |part, is_whole| {
            note(&mut some[part]);
            if is_whole {
                note(&mut all[part]);
            }
        });
    }

    /// For each stream, one more than the last instruction that used bytes of a storage as another's.
    pub(crate) fn others(&self, storage: StorageId) -> Known {
        let mut found = Known::default();
        for_parts(self.count, &self.pieces[storage.0], |part, is_whole| {
            let uses = if is_whole { &self.some[part] } else { &self.all[part] };
            for (found, last) in found.iter_mut().zip(uses) {
                *found = (*found).max(last.but(storage.0));
            }
        });
        found
    }
}

#[cfg(test)]
mod tests;
