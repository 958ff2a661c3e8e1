//! How far predictions are from measurements: by source, by sweep, over all that counts.

use std::collections::BTreeMap;

use crate::rows::{Answer, Outcome, Priced};

/// Rows that a sweep must have for its order to be judged.
pub const SWEEP: usize = 8;

/// Errors of a number of rows, relative to what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    /// How many.
    pub rows: usize,
    /// The median of absolute errors; of an even number of rows, the mean of the middle two.
    pub median: f64,
    /// The mean of absolute errors.
    pub mean: f64,
    /// The greatest.
    pub worst: f64,
    /// The mean of errors with their signs: above 0 if too much is predicted.
    pub bias: f64,
}

/// What there is to say of the rows of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The file.
    pub file: String,
    /// Who published them.
    pub name: String,
    /// Why they are reported apart, if they are.
    pub apart: Option<String>,
    /// Their errors.
    pub errors: Errors,
    /// Of each sweep of at least [`SWEEP`] rows: how many, and how well their order is predicted.
    pub sweeps: Vec<(usize, f64)>,
}

impl Errors {
    /// The errors of so many rows; `None` of none.
    #[must_use]
    pub fn of(rows: &[&Priced]) -> Option<Self> {
        let mut errors: Vec<f64> = rows.iter().map(|row| row.error()).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let middle = errors.len() / 2;
        let upper = *errors.get(middle)?;
        let lower = if errors.len().is_multiple_of(2) { errors[middle - 1] } else { upper };
        let signed = rows.iter().map(|row| (row.predicted - row.measured) / row.measured.abs());
        Some(Self {
            rows: errors.len(),
            median: f64::midpoint(lower, upper),
            mean: errors.iter().sum::<f64>() / number(errors.len()),
            worst: *errors.last()?,
            bias: signed.sum::<f64>() / number(errors.len()),
        })
    }
}

/// The rows that have prices, each with its outcome.
pub fn priced(outcomes: &[Outcome]) -> impl Iterator<Item = (&Outcome, &Priced)> {
    outcomes.iter().filter_map(|outcome| match &outcome.answer {
        Answer::Priced(priced) => Some((outcome, priced)),
        _ => None,
    })
}

/// Errors by file and source, those that are reported apart on their own, in the order of names.
#[must_use]
pub fn sources(outcomes: &[Outcome]) -> Vec<Source> {
    let mut groups: BTreeMap<(&str, &str, Option<&str>), Vec<&Priced>> = BTreeMap::new();
    for (outcome, row) in priced(outcomes) {
        let key = (outcome.file.as_str(), outcome.source.as_str(), row.apart.as_deref());
        groups.entry(key).or_default().push(row);
    }
    let source = |((file, name, apart), rows): ((&str, &str, Option<&str>), Vec<&Priced>)| {
        Some(Source {
            file: file.to_owned(),
            name: name.to_owned(),
            apart: apart.map(str::to_owned),
            errors: Errors::of(&rows)?,
            sweeps: sweeps(&rows),
        })
    };
    groups.into_iter().filter_map(source).collect()
}

fn sweeps(rows: &[&Priced]) -> Vec<(usize, f64)> {
    let mut sweeps: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        if let Some(sweep) = &row.sweep {
            sweeps.entry(sweep).or_default().push((row.predicted, row.measured));
        }
    }
    let long = sweeps.into_values().filter(|pairs| pairs.len() >= SWEEP);
    long.filter_map(|pairs| Some((pairs.len(), spearman(&pairs)?))).collect()
}

/// How well one order agrees with another: 1 if it is the same, −1 if it is reversed; `None` if
/// one of them has no order.
///
/// The correlation of ranks, equal numbers sharing theirs.
///
/// Source: Spearman, "The proof and measurement of association between two things", 1904.
#[must_use]
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let one = ranks(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
    let other = ranks(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    let mean = (number(pairs.len()) + 1.0) / 2.0;
    let product =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum() };
    let spread = product(&one, &one) * product(&other, &other);
    (spread > 0.0).then(|| product(&one, &other) / spread.sqrt())
}

/// The rank of each number, from 1; equal numbers share theirs.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let rank = |it: &f64| {
        let below = numbers.iter().filter(|other| *other < it).count();
        let equal = numbers.iter().filter(|other| other.total_cmp(it).is_eq()).count();
        number(below) + f64::midpoint(number(equal), 1.0)
    };
    numbers.iter().map(rank).collect()
}

#[expect(clippy::cast_precision_loss, reason = "rows of files, far below 2^53")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
