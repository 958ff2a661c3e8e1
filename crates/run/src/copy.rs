//! Strided copies.

use lower::{Direction, Stride, Strided};

use crate::error::RunError;

/// One loop of a copy, in bytes.
#[derive(Clone, Copy)]
struct Loop {
    count: usize,
    from: usize,
    to: usize,
}

/// Copies elements of that size (bytes) as the strides say, or back.
pub(crate) fn copy(
    strided: &Strided,
    direction: Direction,
    size: u64,
    from: &[u8],
    to: &mut [u8],
) -> Result<(), RunError> {
    let bytes = |count: u64| {
        let bytes = count.checked_mul(size).and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| RunError::Program("a copy is too large".to_owned()))
    };
    let (start, run) = (bytes(strided.start)?, bytes(1)?);
    let mut loops = Vec::new();
    for Stride { count, from, to } in &strided.loops {
        let (from, to) = (bytes(*from)?, bytes(*to)?);
        let (from, to) = if direction == Direction::Take { (from, to) } else { (to, from) };
        let count =
            usize::try_from(*count).map_err(|_| RunError::Program("a copy is too large".to_owned()))?;
        loops.push(Loop { count, from, to });
    }
    let starts = if direction == Direction::Take { (start, 0) } else { (0, start) };
    let run = match loops.last() {
        Some(&Loop { count, from, to }) if from == run && to == run => {
            loops.pop();
            count * run
        }
        _ => run,
    };
    let copied = match run {
        1 => nest(&loops, starts, &mut |at| fixed::<1>(from, to, at)),
        2 => nest(&loops, starts, &mut |at| fixed::<2>(from, to, at)),
        4 => nest(&loops, starts, &mut |at| fixed::<4>(from, to, at)),
        8 => nest(&loops, starts, &mut |at| fixed::<8>(from, to, at)),
        _ => nest(&loops, starts, &mut |(source, target)| {
            to.get_mut(target..target + run)?.copy_from_slice(from.get(source..source + run)?);
            Some(())
        }),
    };
    copied.ok_or_else(|| RunError::Program("a copy leaves its buffers".to_owned()))
}

/// Copies a few bytes: as many as the compiler knows.
fn fixed<const N: usize>(from: &[u8], to: &mut [u8], (source, target): (usize, usize)) -> Option<()> {
    let bytes: [u8; N] = from.get(source..source + N)?.try_into().ok()?;
    to.get_mut(target..target + N)?.copy_from_slice(&bytes);
    Some(())
}

/// Visits where each run is read and written.
fn nest(
    loops: &[Loop],
    (from, to): (usize, usize),
    visit: &mut impl FnMut((usize, usize)) -> Option<()>,
) -> Option<()> {
    let Some((outer, inner)) = loops.split_first() else { return visit((from, to)) };
    for index in 0..outer.count {
        nest(inner, (from + index * outer.from, to + index * outer.to), visit)?;
    }
    Some(())
}
