//! How much is held at each of some moments, and the most of it: a tree over the moments.

use std::ops::Range;

/// Bytes by moment.
pub(super) struct Levels {
    moments: usize,
    /// For each part of the tree, what is added throughout it.
    added: Vec<i64>,
    /// And the most in it, what is added throughout it included.
    most: Vec<i64>,
}

impl Levels {
    /// Nothing is held.
    pub(super) fn new(moments: usize) -> Self {
        let parts = 4 * moments.max(1);
        Self { moments, added: vec![0; parts], most: vec![0; parts] }
    }

    /// Adds some bytes at some moments.
    pub(super) fn add(&mut self, moments: Range<usize>, bytes: i64) {
        let moments = moments.start..moments.end.min(self.moments);
        if !moments.is_empty() && bytes != 0 {
            self.add_in(1, 0..self.moments, &moments, bytes);
        }
    }

    /// The most that is held at one of some moments; nothing if there are none.
    pub(super) fn most(&self, moments: &Range<usize>) -> i64 {
        self.most_in(1, 0..self.moments, moments).unwrap_or(0)
    }

    fn most_in(&self, part: usize, of: Range<usize>, moments: &Range<usize>) -> Option<i64> {
        if moments.end <= of.start || of.end <= moments.start || of.is_empty() {
            return None;
        }
        if moments.start <= of.start && of.end <= moments.end {
            return Some(self.most[part]);
        }
        let half = usize::midpoint(of.start, of.end);
        let halves = [
            self.most_in(2 * part, of.start..half, moments),
            self.most_in(2 * part + 1, half..of.end, moments),
        ];
        halves.into_iter().flatten().max().map(|most| most + self.added[part])
    }

    fn add_in(&mut self, part: usize, of: Range<usize>, moments: &Range<usize>, bytes: i64) {
        if moments.end <= of.start || of.end <= moments.start {
            return;
        }
        if moments.start <= of.start && of.end <= moments.end {
            self.added[part] += bytes;
            self.most[part] += bytes;
            return;
        }
        let half = usize::midpoint(of.start, of.end);
        self.add_in(2 * part, of.start..half, moments, bytes);
        self.add_in(2 * part + 1, half..of.end, moments, bytes);
        self.most[part] = self.added[part] + self.most[2 * part].max(self.most[2 * part + 1]);
    }
}
