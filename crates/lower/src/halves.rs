//! A sequence cut in halves again and again, as a tree over stretches of it.
//!
//! What is so of a stretch is noted at the fewest parts of the tree that together are the stretch, and
//! at all parts that have some of it. What is asked of a stretch is found in the first kind above it,
//! and in the second within it: at no more parts than four for each level of the tree.

use std::ops::Range;

/// How many parts the tree over a sequence of that length has, the first of them unused.
pub(crate) fn parts(length: usize) -> usize {
    2 * length.next_power_of_two()
}

/// Goes through the parts that have something of a stretch, from the root, with whether the stretch has
/// all of it; not through what lies within those of which it has all.
pub(crate) fn for_parts(length: usize, stretch: &Range<usize>, mut visit: impl FnMut(usize, bool)) {
    fn descend(
        part: usize,
        covers: Range<usize>,
        stretch: &Range<usize>,
        visit: &mut impl FnMut(usize, bool),
    ) {
        if covers.end <= stretch.start || stretch.end <= covers.start {
            return;
        }
        let is_whole = stretch.start <= covers.start && covers.end <= stretch.end;
        visit(part, is_whole);
        if !is_whole {
            let middle = covers.start.midpoint(covers.end);
            descend(2 * part, covers.start..middle, stretch, visit);
            descend(2 * part + 1, middle..covers.end, stretch, visit);
        }
    }
    if !stretch.is_empty() {
        descend(1, 0..length.next_power_of_two(), stretch, &mut visit);
    }
}
