//! Which bytes are taken when.
//!
//! For each part of a tree over the moments, the bytes that are taken throughout it, and those that are
//! taken at some moment of it, as runs that do not touch. A chain's two places are two runs however
//! long it is, and what lies side by side is one.

use std::ops::Range;

use crate::halves::{for_parts, parts};

/// Bytes as runs, ascending, that neither overlap nor touch.
#[derive(Clone, Default)]
struct Runs(Vec<Range<u64>>);

/// The bytes that are taken at each moment.
pub(super) struct Room {
    moments: usize,
    /// For each part, what is taken throughout it.
    all: Vec<Runs>,
    /// And what is taken at some time in it.
    some: Vec<Runs>,
    /// What was taken when the last gap was looked for: only its room is used again.
    taken: Vec<Range<u64>>,
}

impl Runs {
    fn add(&mut self, bytes: &Range<u64>) {
        let first = self.0.partition_point(|it| it.end < bytes.start);
        let after = first + self.0[first..].partition_point(|it| it.start <= bytes.end);
        let joined = self.0[first..after]
            .iter()
            .fold(bytes.clone(), |joined, it| joined.start.min(it.start)..joined.end.max(it.end));
        self.0.splice(first..after, [joined]);
    }
}

impl Room {
    /// Nothing is taken at so many moments.
    pub(super) fn new(moments: usize) -> Self {
        let none = vec![Runs::default(); parts(moments)];
        Self { moments, all: none.clone(), some: none, taken: Vec::new() }
    }

    /// Takes so many bytes at some moments, in the smallest gap, the lowest of equal ones, that is free
    /// at all of them; behind everything if there is none. Returns where they start.
    pub(super) fn take(&mut self, bytes: u64, when: Range<usize>) -> u64 {
        let offset = self.best_gap(bytes, &when);
        let taken = offset..offset + bytes;
        let Self { all, some, .. } = self;
        for_parts(self.moments, &when, |part, is_whole| {
            some[part].add(&taken);
            if is_whole {
                all[part].add(&taken);
            }
        });
        offset
    }

    fn best_gap(&mut self, bytes: u64, when: &Range<usize>) -> u64 {
        let Self { moments, all, some, taken } = self;
        taken.clear();
        for_parts(*moments, when, |part, is_whole| {
            let runs = if is_whole { &some[part] } else { &all[part] };
            taken.extend_from_slice(&runs.0);
        });
        // Runs of each part are in order: a stable sort merges them.
        taken.sort_by_key(|it| it.start);
        let (mut free, mut best) = (0, None);
        for &Range { start, end } in &*taken {
            if start >= free + bytes && best.is_none_or(|(size, _)| start - free < size) {
                best = Some((start - free, free));
            }
            free = free.max(end);
        }
        best.map_or(free, |(_, offset)| offset)
    }

    /// How many runs there are in all.
    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.all.iter().chain(&self.some).map(|it| it.0.len()).sum()
    }
}
