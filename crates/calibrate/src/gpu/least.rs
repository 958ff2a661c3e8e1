//! Least squares: the numbers with which the sum of the squares of what is off is least.
//!
//! Source: Marquardt, "An Algorithm for Least-Squares Estimation of Nonlinear Parameters", 1963: steps between
//! those of Gauss and Newton and those down the slope, with differences in place of derivatives.

/// How far numbers are moved for differences.
const STEP: f64 = 1e-3;

/// How much steps lean towards the slope at first, and how that changes after a good and a bad one.
const LEAN: f64 = 1e-2;
const CHANGE: f64 = 5.0;

/// How many steps there are at most, and how often one is tried shorter.
const STEPS: usize = 60;
const TRIES: usize = 12;

/// What a step has to gain, as a part of the sum, and as a sum.
const GAIN: (f64, f64) = (1e-9, 1e-16);

/// The numbers in their ranges, from a start on, with which what is off is least; `off` gives as many numbers
/// each time, or nothing where there is no answer.
pub(super) fn least(
    start: &[f64],
    ranges: &[(f64, f64)],
    off: &dyn Fn(&[f64]) -> Option<Vec<f64>>,
) -> Option<Vec<f64>> {
    let mut at: Vec<f64> = start.iter().zip(ranges).map(|(it, range)| it.clamp(range.0, range.1)).collect();
    let mut is_off = off(&at)?;
    let mut lean = LEAN;
    for _ in 0..STEPS {
        let before = squares(&is_off);
        let slopes = slopes(&at, &is_off, off)?;
        let mut gained = None;
        for _ in 0..TRIES {
            if let Some((there, then)) = stepped(&at, &is_off, &slopes, lean, ranges, off)
                && squares(&then) < before
            {
                gained = Some(before - squares(&then));
                (at, is_off) = (there, then);
                lean /= CHANGE;
                break;
            }
            lean *= CHANGE;
        }
        if gained.is_none_or(|it| it <= GAIN.0 * before + GAIN.1) {
            break;
        }
    }
    Some(at)
}

fn squares(numbers: &[f64]) -> f64 {
    numbers.iter().map(|it| it * it).sum()
}

/// For each number, how what is off changes with it.
fn slopes(at: &[f64], is_off: &[f64], off: &dyn Fn(&[f64]) -> Option<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let slope = |place: usize| {
        let mut other = at.to_vec();
        other[place] -= STEP;
        let there = off(&other)?;
        Some(is_off.iter().zip(&there).map(|(here, there)| (here - there) / STEP).collect())
    };
    (0..at.len()).map(slope).collect()
}

/// The numbers after a step, and what is off there.
fn stepped(
    at: &[f64],
    is_off: &[f64],
    slopes: &[Vec<f64>],
    lean: f64,
    ranges: &[(f64, f64)],
    off: &dyn Fn(&[f64]) -> Option<Vec<f64>>,
) -> Option<(Vec<f64>, Vec<f64>)> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = slopes
        .iter()
        .map(|slope| slopes.iter().map(|other| dot(slope, other)).chain([-dot(slope, is_off)]).collect())
        .collect();
    for (place, row) in rows.iter_mut().enumerate() {
        row[place] += lean * row[place] + f64::MIN_POSITIVE;
    }
    let step = solved(rows)?;
    let moved = at.iter().zip(&step).zip(ranges);
    let there: Vec<f64> = moved.map(|((at, step), range)| (at + step).clamp(range.0, range.1)).collect();
    let then = off(&there)?;
    Some((there, then))
}

/// The solution of linear equations, a row each with its right side last; nothing if there is not one.
fn solved(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = rows.len();
    for place in 0..count {
        let best = (place..count).max_by(|&a, &b| rows[a][place].abs().total_cmp(&rows[b][place].abs()))?;
        rows.swap(place, best);
        let pivot = rows[place].clone();
        if pivot[place].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for (other, row) in rows.iter_mut().enumerate() {
            if other != place {
                let factor = row[place] / pivot[place];
                row.iter_mut().zip(&pivot).for_each(|(it, pivot)| *it -= factor * pivot);
            }
        }
    }
    Some((0..count).map(|place| rows[place][count] / rows[place][place]).collect())
}
