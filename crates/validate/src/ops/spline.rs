//! Factors of laws: sums of products of hinges, found one after another.
//!
//! Of all products of a term that was taken and one more hinge, the one is taken that makes the sum of squares
//! of what is left least, until there are enough. Weights are found at the end, so that the sum of
//!
//! ```text
//! |ln (predicted / measured)|
//! ```
//!
//! is least, by least squares whose rows weigh less the further off they are.
//!
//! Source: forward selection: Friedman, "Multivariate Adaptive Regression Splines", Annals of Statistics 19(1),
//! 1991, section 3.4, with Gram-Schmidt; weights: Schlossmacher, "An iterative technique for absolute
//! deviations curve fitting", JASA 68(344), 1973.

use cost_models::operations::term::Side;
use cost_models::operations::{Hinge, Term};

/// Knots of a size, at most.
const KNOTS: usize = 9;

/// The hinges of a term, at most.
const DEGREE: usize = 3;

/// The part of the rows on whose side of its knots a term has to be.
const SUPPORT: f32 = 0.02;

/// How far a row counts as off, at most, while terms are chosen.
const FURTHEST: f64 = 1.2;

/// A term is taken only if it explains this part of the squares of what is left.
const LEAST_GAIN: f32 = 1e-3;

/// The part of its square that has to be left of a product beside the terms that were taken.
const INDEPENDENT: f32 = 1e-3;

/// Deviations below this weigh alike.
const NEAR: f64 = 0.03;

/// How often rows are weighed.
const ROUNDS: usize = 15;

/// What is added to squares of weights, for each row: keeps weights of like terms small.
const RIDGE: f64 = 1e-5;

/// A product that may be taken: the term it continues, its last hinge, and what is left of it.
struct Candidate {
    parent: usize,
    hinge: Hinge,
    square: f32,
    left: Vec<f32>,
}

/// Terms whose sum is near `targets`, at most so many.
///
/// `rows` has the sizes of each row.
pub(super) fn terms(rows: &[Vec<f64>], targets: &[f64], most: usize) -> Vec<Term> {
    let hinges = hinges(rows);
    let mut columns: Vec<Vec<f32>> = vec![vec![1.0; rows.len()]];
    let mut taken: Vec<Vec<Hinge>> = vec![Vec::new()];
    let mut basis = vec![unit(columns[0].clone())];
    let mut left: Vec<f32> = targets.iter().map(|it| narrow(it.clamp(-FURTHEST, FURTHEST))).collect();
    remove(&mut left, &basis[0]);
    let mut candidates = Vec::new();
    extend(&mut candidates, 0, &columns[0], &taken[0], &hinges, rows, &basis);
    while taken.len() <= most {
        let Some(best) = best(&candidates, &left) else { break };
        let Candidate { parent, hinge, left: own, .. } = candidates.swap_remove(best);
        let direction = unit(own);
        remove(&mut left, &direction);
        for candidate in &mut candidates {
            remove(&mut candidate.left, &direction);
        }
        let column = product(&columns[parent], hinge, rows);
        let mut term = taken[parent].clone();
        term.push(hinge);
        basis.push(direction);
        if term.len() < DEGREE {
            extend(&mut candidates, taken.len(), &column, &term, &hinges, rows, &basis);
        }
        columns.push(column);
        taken.push(term);
    }
    let weights = weights(&columns, targets);
    let term = |(hinges, weight): (Vec<Hinge>, f64)| Term { weight: rounded(weight), hinges };
    taken.into_iter().zip(weights).map(term).filter(|it| it.weight.abs() > 0.0).collect()
}

/// Both sides of knots of every size: its values if they are few, and otherwise values with equally many rows
/// between them.
fn hinges(rows: &[Vec<f64>]) -> Vec<Hinge> {
    let mut hinges = Vec::new();
    for size in 0..rows.first().map_or(0, Vec::len) {
        let mut values: Vec<f64> = rows.iter().map(|row| thousandth(row[size])).collect();
        values.sort_by(f64::total_cmp);
        let all = values.clone();
        values.dedup();
        let knots: Vec<f64> = if values.len() <= KNOTS {
            values[..values.len() - 1].to_vec()
        } else {
            let mut knots: Vec<f64> =
                (0..=KNOTS).map(|part| all[part * (all.len() - 1) / (KNOTS + 1)]).collect();
            knots.dedup();
            knots
        };
        for (place, &knot) in knots.iter().enumerate() {
            hinges.push(Hinge { size, knot, side: Side::Above });
            if place > 0 {
                hinges.push(Hinge { size, knot, side: Side::Below });
            }
        }
    }
    hinges
}

/// Adds the products of a term with every hinge of another size.
fn extend(
    candidates: &mut Vec<Candidate>,
    parent: usize,
    column: &[f32],
    term: &[Hinge],
    hinges: &[Hinge],
    rows: &[Vec<f64>],
    basis: &[Vec<f32>],
) {
    for &hinge in hinges.iter().filter(|hinge| !term.iter().any(|it| it.size == hinge.size)) {
        let mut left = product(column, hinge, rows);
        let (some, least) = (left.iter().filter(|it| **it > 0.0).count(), SUPPORT * count(rows.len()));
        if count(some) < least.max(8.0) {
            continue;
        }
        let square = dot(&left, &left);
        for direction in basis {
            remove(&mut left, direction);
        }
        candidates.push(Candidate { parent, hinge, square, left });
    }
}

/// The product that explains most of what is left, if it is enough.
fn best(candidates: &[Candidate], left: &[f32]) -> Option<usize> {
    let all = dot(left, left);
    let gain = |candidate: &Candidate| {
        let own = dot(&candidate.left, &candidate.left);
        let along = dot(&candidate.left, left);
        if own > INDEPENDENT * candidate.square { along * along / own } else { 0.0 }
    };
    let gains = candidates.iter().map(gain).enumerate();
    let (place, most) = gains.fold((0, 0.0), |best, it| if it.1 > best.1 { it } else { best });
    (most > LEAST_GAIN * all).then_some(place)
}

/// Weights of columns with the least sum of absolute deviations.
fn weights(columns: &[Vec<f32>], targets: &[f64]) -> Vec<f64> {
    let scale: Vec<f64> = columns.iter().map(|it| wide((dot(it, it) / count(it.len())).sqrt())).collect();
    let mut near = vec![1.0; targets.len()];
    let mut found = vec![0.0; columns.len()];
    for _ in 0..=ROUNDS {
        let total: f64 = near.iter().sum();
        let (matrix, side) = normal(columns, &scale, targets, &near, RIDGE * total);
        found = solved(matrix, side);
        for (row, weight) in near.iter_mut().enumerate() {
            let sum: f64 = (0..columns.len()).map(|it| found[it] * wide(columns[it][row]) / scale[it]).sum();
            *weight = 1.0 / (targets[row] - sum).abs().max(NEAR);
        }
    }
    found.iter().zip(&scale).map(|(weight, scale)| weight / scale).collect()
}

/// The normal equations of weighted least squares.
fn normal(
    columns: &[Vec<f32>],
    scale: &[f64],
    targets: &[f64],
    weights: &[f64],
    ridge: f64,
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let weighted = |it: usize| -> Vec<f32> {
        columns[it]
            .iter()
            .zip(weights)
            .map(|(value, weight)| narrow(wide(*value) * weight / scale[it]))
            .collect()
    };
    let mut matrix = vec![vec![0.0; columns.len()]; columns.len()];
    let mut side = vec![0.0; columns.len()];
    for row in 0..columns.len() {
        let own = weighted(row);
        side[row] = own.iter().zip(targets).map(|(value, target)| wide(*value) * target).sum();
        for column in 0..=row {
            let value = wide(dot(&own, &columns[column])) / scale[column];
            matrix[row][column] = value;
            matrix[column][row] = value;
        }
        matrix[row][row] += ridge;
    }
    (matrix, side)
}

/// The solution of a symmetric system, by elimination with the largest element of the diagonal first.
fn solved(mut matrix: Vec<Vec<f64>>, mut side: Vec<f64>) -> Vec<f64> {
    let size = side.len();
    let mut open: Vec<usize> = (0..size).collect();
    let mut order = Vec::new();
    while let Some(place) = (0..open.len()).max_by(|a, b| {
        let diagonal = |it: &usize| matrix[open[*it]][open[*it]];
        diagonal(a).total_cmp(&diagonal(b))
    }) {
        let pivot = open.swap_remove(place);
        order.push(pivot);
        for &row in &open {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            for &column in &open {
                matrix[row][column] -= factor * matrix[pivot][column];
            }
            side[row] -= factor * side[pivot];
        }
    }
    let mut found = vec![0.0; size];
    for (place, &pivot) in order.iter().enumerate().rev() {
        let known: f64 = order[place + 1..].iter().map(|&it| matrix[pivot][it] * found[it]).sum();
        found[pivot] = (side[pivot] - known) / matrix[pivot][pivot];
    }
    found
}

fn product(column: &[f32], hinge: Hinge, rows: &[Vec<f64>]) -> Vec<f32> {
    column.iter().zip(rows).map(|(value, row)| value * narrow(hinge.value(row[hinge.size]))).collect()
}

fn unit(mut column: Vec<f32>) -> Vec<f32> {
    let length = dot(&column, &column).sqrt();
    column.iter_mut().for_each(|it| *it /= length);
    column
}

/// Removes what a column has along a direction.
fn remove(column: &mut [f32], direction: &[f32]) {
    let along = dot(column, direction);
    column.iter_mut().zip(direction).for_each(|(it, by)| *it -= along * by);
}

/// How many sums go on side by side.
const LANES: usize = 16;

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

fn thousandth(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A weight to five digits, as files have it.
fn rounded(weight: f64) -> f64 {
    format!("{weight:.4e}").parse().unwrap_or(weight)
}

fn count(count: usize) -> f32 {
    narrow(cost_models::units::exact(u64::try_from(count).unwrap_or(u64::MAX)))
}

fn wide(value: f32) -> f64 {
    f64::from(value)
}

#[expect(clippy::cast_possible_truncation, reason = "fits have two digits, and columns seven")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests;
