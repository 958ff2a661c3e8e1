//! How long a call takes.

use std::thread;
use std::time::Instant;

use super::MeasureFailure;

/// How long calls are timed together (seconds): less than what systems give a program at a time, so
/// that most rounds are of this program alone.
const ROUND: f64 = 0.002;
/// How long rounds go on (seconds).
const ALL: f64 = 0.2;
/// How many rounds there are at least.
const ROUNDS: usize = 5;

/// The time of one call in the shortest of many rounds (seconds): other programs only make one longer.
pub(super) fn shortest<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    // The first call touches memory that was never touched.
    call()?;
    let (start, mut best, mut rounds) = (Instant::now(), f64::INFINITY, 0);
    while rounds < ROUNDS || start.elapsed().as_secs_f64() < ALL {
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
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&measure)).collect();
        threads.into_iter().try_fold(0.0, |longest: f64, thread| {
            let seconds = thread.join().map_err(|_| MeasureFailure::Thread)??;
            Ok(longest.max(seconds))
        })
    })
}
