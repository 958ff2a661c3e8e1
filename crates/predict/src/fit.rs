//! Figures of frameworks, fitted to measured steps.
//!
//! Rows are halved by a hash of their ids: figures are sought on one half, and errors of the other
//! are what is reported. Sought are the figures whose files state a range, one after another by
//! golden sections, again and again, so that the mean of
//!
//! ```text
//! | ln (predicted / measured) |
//! ```
//!
//! over rows is least. A figure of `common` is one number for all frameworks that have none of
//! their own.
//!
//! Source: coordinate descent; Kiefer, "Sequential minimax search for a maximum", 1953, for
//! golden sections; FNV-1a, Fowler, Noll and Vo, for the hash.

/// Numbers of machine files, fitted again.
pub mod constants;

use std::collections::BTreeMap;

use crate::framework::Figure;
use crate::rows::case::Case;
use crate::rows::training::apart;
use crate::table::Row;

/// A measured step.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was run.
    pub case: Case,
    /// How long a step took (seconds).
    pub time: f64,
    /// How much it counts.
    pub weight: f64,
}

/// A fitted figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The file that states it.
    pub file: String,
    /// The figure.
    pub figure: Figure,
    /// What it was.
    pub before: f64,
    /// What it is.
    pub after: f64,
}

/// Which half of the rows a row is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// On these figures are fitted.
    Fitted,
    /// These judge them.
    Judging,
}

/// How often every figure is sought.
const ROUNDS: usize = 6;
/// How many parts a range is cut into first: errors may have more than one valley.
const PARTS: u8 = 8;
/// How many times the two parts around the best end are cut.
const CUTS: usize = 8;

/// The half of a row that figures of frameworks are fitted to or judged by.
#[must_use]
pub fn half(row_id: &str) -> Half {
    // The lowest bits of the hash follow those of the bytes, the highest few of them: these are mixed.
    if (hash(row_id) >> 16).is_multiple_of(2) { Half::Fitted } else { Half::Judging }
}

/// The half of a row that numbers of machines are fitted to or judged by.
#[must_use]
pub fn halved(row_id: &str) -> Half {
    if mixed(row_id) >> 63 == 0 { Half::Fitted } else { Half::Judging }
}

/// A hash of a text whose highest bits are mixed.
#[must_use]
pub fn mixed(text: &str) -> u64 {
    /// 2⁶⁴ by the golden ratio.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    hash(text).wrapping_mul(GOLDEN)
}

/// FNV-1a.
#[must_use]
pub fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How much a row counts; `None` if it is not one to fit to.
///
/// Sweeps of hundreds of rows on one node are to count about as much as other sources do.
#[must_use]
pub fn weight(row: &Row<'_>) -> Option<f64> {
    let counts = row.text("split") == "calibration" && row.text("quality") != "C";
    let weight = match apart(row) {
        Some(_) => 0.1,
        None => 1.0,
    };
    counts.then_some(weight)
}

type Key = (String, Figure);

/// The figures with which steps take as long as was measured, as nearly as can be; and the mean
/// error before and after.
#[must_use]
pub fn fit(rows: &[Measured]) -> (Vec<Fitted>, [f64; 2]) {
    let mut ranges: BTreeMap<Key, (f64, f64)> = BTreeMap::new();
    let mut values: BTreeMap<Key, f64> = BTreeMap::new();
    for row in rows {
        for (figure, stated) in row.case.kinds.iter().flat_map(|kind| &kind.framework.figures) {
            if let Some(range) = stated.range {
                let key = (stated.owner.clone(), *figure);
                ranges.insert(key.clone(), range);
                values.insert(key, stated.value);
            }
        }
    }
    let before = values.clone();
    let mut cases: Vec<Measured> = rows.to_vec();
    let start = error(&mut cases, &values);
    let keys: Vec<Key> = ranges.keys().cloned().collect();
    let ranges: Vec<(f64, f64)> = ranges.into_values().collect();
    let mut sought: Vec<f64> = values.values().copied().collect();
    descend(&ranges, &mut sought, ROUNDS, &mut |sought| {
        values.extend(keys.iter().cloned().zip(sought.iter().copied()));
        error(&mut cases, &values)
    });
    values.extend(keys.iter().cloned().zip(sought));
    let end = error(&mut cases, &values);
    let fitted = values.iter().map(|(key, &after)| Fitted {
        file: key.0.clone(),
        figure: key.1,
        before: before_of(&before, key),
        after,
    });
    (fitted.collect(), [start, end])
}

fn before_of(before: &BTreeMap<Key, f64>, key: &Key) -> f64 {
    before.get(key).copied().unwrap_or_default()
}

/// The mean error of rows with these figures.
fn error(rows: &mut [Measured], values: &BTreeMap<Key, f64>) -> f64 {
    weighted(rows, values, |ratio| ratio.ln().abs())
}

/// The mean over rows of what is made of predicted over measured, with these figures.
fn weighted(rows: &mut [Measured], values: &BTreeMap<Key, f64>, of: fn(f64) -> f64) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for row in rows {
        for (figure, stated) in row.case.kinds.iter_mut().flat_map(|kind| &mut kind.framework.figures) {
            if stated.range.is_some()
                && let Some(value) = values.get(&(stated.owner.clone(), *figure))
            {
                stated.value = *value;
            }
        }
        if let Ok(told) = row.case.told() {
            sum += row.weight * of(told.time.total().0 / row.time);
            weight += row.weight;
        }
    }
    sum / weight
}

/// The mean of |predicted/measured − 1| of rows, each as often as it counts, with these figures in place
/// of those that files state.
#[must_use]
pub fn mean_error(rows: &[Measured], figures: &[Fitted]) -> f64 {
    let values = figures.iter().map(|it| ((it.file.clone(), it.figure), it.after)).collect();
    weighted(&mut rows.to_vec(), &values, |ratio| (ratio - 1.0).abs())
}

/// Seeks the numbers in their ranges with which a function is least, one after another, so many times;
/// what it is then.
pub fn descend(
    ranges: &[(f64, f64)],
    numbers: &mut [f64],
    rounds: usize,
    function: &mut dyn FnMut(&[f64]) -> f64,
) -> f64 {
    for _ in 0..rounds {
        for (place, &range) in ranges.iter().enumerate() {
            let found = golden(range, &mut |number| {
                numbers[place] = number;
                function(numbers)
            });
            numbers[place] = found;
        }
    }
    function(numbers)
}

/// Where a function is least in a range: in the valley in which the best of some places lies.
fn golden(range: (f64, f64), at: &mut dyn FnMut(f64) -> f64) -> f64 {
    let width = (range.1 - range.0) / f64::from(PARTS);
    let ends = (0..=PARTS).map(|it| range.0 + f64::from(it) * width);
    let best = ends.map(|end| (at(end), end)).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(range);
    let (mut low, mut high) = ((best.1 - width).max(range.0), (best.1 + width).min(range.1));
    let part = (5.0_f64.sqrt() - 1.0) / 2.0;
    let mut inner = [high - part * (high - low), low + part * (high - low)];
    let mut found = inner.map(&mut *at);
    for _ in 0..CUTS {
        if found[0] <= found[1] {
            high = inner[1];
            inner = [high - part * (high - low), inner[0]];
            found = [at(inner[0]), found[0]];
        } else {
            low = inner[0];
            inner = [inner[1], low + part * (high - low)];
            found = [found[1], at(inner[1])];
        }
    }
    let middle = f64::midpoint(low, high);
    if at(middle) <= best.0 { middle } else { best.1 }
}

#[cfg(test)]
mod tests;
