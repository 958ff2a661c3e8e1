//! Errors of what ranks exchange, by its size, and how small they could be.
//!
//! Of two small values that are measured, the smaller one often takes longer: a time that was measured may
//! have in it how long the ranks that came first waited for the last one, and the clock's ticks. What ranks
//! of a machine need for an operation does not shrink with the size, so no price is nearer to all rows
//! together than the nearest times that do not shrink.

use std::collections::BTreeMap;

use crate::errors::{self, Errors, number};
use crate::rows::{Exchange, Outcome, Priced};

/// Bands of sizes, by the largest of each (bytes).
pub const BANDS: [(&str, u64); 4] =
    [("8 B to 1 KiB", 1 << 10), ("to 64 KiB", 1 << 16), ("to 1 MiB", 1 << 20), ("above", u64::MAX)];

/// What there is to say of a band.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Which sizes.
    pub name: &'static str,
    /// Errors of its rows.
    pub errors: Errors,
    /// The mean error of times that do not shrink with the size and are nearest to all rows of the same
    /// machine, operation and ranks; `None` where no times were measured.
    pub least: Option<f64>,
}

/// The bands that have rows.
#[must_use]
pub fn bands(outcomes: &[Outcome]) -> Vec<Band> {
    let mut rows: Vec<Vec<&Priced>> = vec![Vec::new(); BANDS.len()];
    let mut curves: BTreeMap<&str, Vec<(u64, f64)>> = BTreeMap::new();
    for (_, row) in errors::priced(outcomes).filter(|(_, row)| row.apart.is_none()) {
        let Some(Exchange { bytes, curve }) = &row.exchange else { continue };
        rows[band(*bytes)].push(row);
        if let Some(curve) = curve {
            curves.entry(curve).or_default().push((*bytes, row.measured));
        }
    }
    let mut least: Vec<Vec<f64>> = vec![Vec::new(); BANDS.len()];
    for mut curve in curves.into_values() {
        curve.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (&(bytes, measured), nearest) in curve.iter().zip(nearest(&curve)) {
            least[band(bytes)].push((nearest / measured - 1.0).abs());
        }
    }
    let band = |place: usize| {
        let errors = Errors::of(&rows[place])?;
        let least = &least[place];
        let least = (!least.is_empty()).then(|| least.iter().sum::<f64>() / number(least.len()));
        Some(Band { name: BANDS[place].0, errors, least })
    };
    (0..BANDS.len()).filter_map(band).collect()
}

fn band(bytes: u64) -> usize {
    BANDS.iter().position(|(_, most)| bytes <= *most).unwrap_or(BANDS.len() - 1)
}

/// Times, one for each row of a curve in the order of sizes, that do not shrink, are the same for the
/// same size, and whose errors relative to what was measured are least together.
///
/// Some such times are all measured ones: between two of these the sum of errors is linear. So it is a
/// shortest path over sizes and measured times.
fn nearest(curve: &[(u64, f64)]) -> Vec<f64> {
    let mut times: Vec<f64> = curve.iter().map(|row| row.1).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    // The least sum of errors so far, by the time of the last size; and which time came before.
    let mut sums = vec![0.0; times.len()];
    let mut before: Vec<Vec<usize>> = Vec::new();
    let sizes: Vec<&[(u64, f64)]> = curve.chunk_by(|a, b| a.0 == b.0).collect();
    for rows in &sizes {
        let (mut from, mut lowest) = (Vec::new(), 0);
        let mut next = Vec::new();
        for (time, value) in times.iter().enumerate() {
            if sums[time] < sums[lowest] {
                lowest = time;
            }
            let errors: f64 = rows.iter().map(|(_, measured)| (value / measured - 1.0).abs()).sum();
            next.push(sums[lowest] + errors);
            from.push(lowest);
        }
        sums = next;
        before.push(from);
    }
    let mut time = (0..times.len()).min_by(|&a, &b| sums[a].total_cmp(&sums[b])).unwrap_or(0);
    let mut found = Vec::new();
    for (rows, from) in sizes.iter().zip(&before).rev() {
        found.extend(rows.iter().map(|_| times[time]));
        time = from[time];
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests;
