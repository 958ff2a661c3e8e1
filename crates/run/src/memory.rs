//! Reading and writing parts of one memory at the same time.

use std::ops::Range;

/// The parts of a memory that are written, in the order asked for, and what lies between them.
pub(crate) struct Parts<'a> {
    /// What is written.
    pub(crate) written: Vec<&'a mut [u8]>,
    /// What lies between, and where it starts.
    pub(crate) between: Vec<(usize, &'a [u8])>,
}

/// Takes a memory apart; none if two parts meet or one lies outside.
pub(crate) fn parts<'a>(memory: &'a mut [u8], writes: &[Range<usize>]) -> Option<Parts<'a>> {
    // What is empty is nowhere: its place may lie within another part.
    let mut order: Vec<usize> = (0..writes.len()).filter(|&it| !writes[it].is_empty()).collect();
    order.sort_by_key(|&it| (writes[it].start, writes[it].end));
    let empty = (0..writes.len()).filter(|&it| writes[it].is_empty());
    let mut written: Vec<(usize, &'a mut [u8])> = empty.map(|it| (it, &mut [][..])).collect();
    let mut between = Vec::new();
    let (mut rest, mut start) = (memory, 0);
    for it in order {
        let Range { start: first, end } = writes[it].clone();
        let (gap, tail) = rest.split_at_mut_checked(first.checked_sub(start)?)?;
        let (part, tail) = tail.split_at_mut_checked(end.checked_sub(first)?)?;
        between.push((start, &*gap));
        written.push((it, part));
        (rest, start) = (tail, end);
    }
    between.push((start, &*rest));
    written.sort_by_key(|&(it, _)| it);
    Some(Parts { written: written.into_iter().map(|(_, part)| part).collect(), between })
}

/// A range of what lies between the parts that are written; none if it meets one of them.
pub(crate) fn read<'a>(between: &[(usize, &'a [u8])], range: &Range<usize>) -> Option<&'a [u8]> {
    if range.is_empty() {
        return Some(&[]);
    }
    let place = between.partition_point(|&(start, _)| start <= range.start).checked_sub(1)?;
    let (start, bytes) = between[place];
    bytes.get(range.start - start..range.end.checked_sub(start)?)
}
