//! How long a call takes.

use std::thread;
use std::time::Instant;

use super::MeasureFailure;

/// How long calls are timed together (seconds): less than what systems give a program at a time, so
/// that most rounds are of this program alone.
const ROUND: f64 = 0.002;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Enough for a machine file: about 20 seconds in all.
    Thorough,
    /// What nobody minds to wait for: about two seconds in all.
    Quick,
}

impl Effort {
    /// Whether rounds go on, after so many that have taken so long (seconds).
    pub(super) fn goes_on(self, rounds: usize, seconds: f64) -> bool {
        let (least, all) = match self {
            Self::Thorough => (5, 0.2),
            Self::Quick => (2, 0.004),
        };
        rounds < least || seconds < all
    }
}

/// The time of one call in the shortest of many rounds (seconds): other programs only make one longer.
pub(super) fn shortest<E>(effort: Effort, mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    // The first call touches memory that was never touched.
    call()?;
    let (start, mut best, mut rounds) = (Instant::now(), f64::INFINITY, 0);
    while effort.goes_on(rounds, start.elapsed().as_secs_f64()) {
        let (mut calls, round, mut seconds) = (0_u32, Instant::now(), 0.0);
        while seconds < ROUND {
            call()?;
            calls += 1;
            seconds = round.elapsed().as_secs_f64();
        }
        best = best.min(seconds / f64::from(calls));
        rounds += 1;
    }
    Ok(best)
}

/// The same of a call on one of several copies of what it is done on after another.
pub(super) fn in_turn<T, E>(
    effort: Effort,
    copies: &mut [T],
    mut call: impl FnMut(&mut T) -> Result<(), E>,
) -> Result<f64, E> {
    // The first calls touch memory that was never touched.
    copies.iter_mut().try_for_each(&mut call)?;
    let (mut next, count) = (0, copies.len().max(1));
    shortest(effort, || {
        next = (next + 1) % count;
        copies.get_mut(next).map_or(Ok(()), &mut call)
    })
}

/// How many bytes are used before the same value is used again, in a step as here: several times what a
/// processor's own cache has, and less than what processors have together.
const BETWEEN: u64 = 12 << 20;

/// As many copies of what is so large (bytes) as make kernels find it where steps do.
pub(super) fn copies<T, E>(bytes: u64, copy: impl FnMut() -> Result<T, E>) -> Result<Vec<T>, E> {
    std::iter::repeat_with(copy).take(usize::try_from(BETWEEN / bytes.max(1)).unwrap_or(0) + 1).collect()
}

/// How long calls are averaged over (seconds).
const MOMENT: f64 = 0.01;

/// The time of one call on average, over a moment (seconds).
pub(super) fn average<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    call()?;
    let (start, mut calls, mut seconds) = (Instant::now(), 0_u32, 0.0);
    while seconds < MOMENT {
        call()?;
        calls += 1;
        seconds = start.elapsed().as_secs_f64();
    }
    Ok(seconds / f64::from(calls))
}

/// The longest of what as many threads measure at the same time.
pub(super) fn at_once(
    threads: usize,
    measure: impl Fn() -> Result<f64, MeasureFailure> + Sync,
) -> Result<f64, MeasureFailure> {
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, &measure).map_err(MeasureFailure::Start);
        let threads = (0..threads).map(start).collect::<Result<Vec<_>, _>>()?;
        threads.into_iter().try_fold(0.0, |longest: f64, thread| {
            let seconds = thread.join().map_err(|_| MeasureFailure::Thread)??;
            Ok(longest.max(seconds))
        })
    })
}
