//! A time from several: what is typical, and how far they are apart.

/// How many typical distances from the middle a time may be; what is farther is left out.
const FAR: f64 = 5.0;

/// The typical distance that times of less are taken to have, as a part of the middle: clocks of devices
/// tick.
const TICK: f64 = 1e-3;

/// A time, of several that were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The median of those that count (seconds).
    pub seconds: f64,
    /// How many count.
    pub kept: usize,
    /// How many do not: they are too far from the others.
    pub refused: usize,
    /// What the middle half of those that count spans, as a part of the median.
    pub spread: f64,
}

impl Sample {
    /// The sample of so many times; none of no times.
    ///
    /// A time counts if it is at most [`FAR`] times the median distance from the median away from it:
    /// what interrupts a device makes single times far longer.
    pub fn of(times: &[f64]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = quantile(&sorted, 0.5)?;
        let mut distances: Vec<f64> = sorted.iter().map(|it| (it - middle).abs()).collect();
        distances.sort_by(f64::total_cmp);
        let reach = FAR * quantile(&distances, 0.5)?.max(TICK * middle);
        sorted.retain(|it| (it - middle).abs() <= reach);
        let seconds = quantile(&sorted, 0.5)?;
        let half = quantile(&sorted, 0.75)? - quantile(&sorted, 0.25)?;
        let spread = if seconds > 0.0 { half / seconds } else { 0.0 };
        Some(Self { seconds, kept: sorted.len(), refused: times.len() - sorted.len(), spread })
    }
}

/// The number at a part of the way through sorted ones.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a small whole number"
    )]
    let place = (part * last as f64).round() as usize;
    sorted.get(place).copied()
}

#[cfg(test)]
mod tests;
