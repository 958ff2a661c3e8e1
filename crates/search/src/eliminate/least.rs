//! The least of sums of rows: what minimising one node out of a table comes to, in vector instructions.

use pulp::{Simd, WithSimd};

/// The most vectors of columns that are kept in registers.
const STRETCH: usize = 4;

/// [`least_by_rows`] of these, with the vectors that the machine has.
pub(crate) struct LeastByRows<'a> {
    pub(crate) least: &'a mut [f64],
    pub(crate) addends: &'a [f64],
    pub(crate) matrix: &'a [f64],
}

impl WithSimd for LeastByRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        least_by_rows(simd, self.least, self.addends, self.matrix);
    }
}

/// `least[j] = min_i addends[i] + matrix[i][j]`, where infinite addends are skipped.
///
/// The sums and their least are the same numbers whatever vectors the machine has.
#[inline(always)]
pub(super) fn least_by_rows<S: Simd>(simd: S, least: &mut [f64], addends: &[f64], matrix: &[f64]) {
    if addends.is_empty() {
        return least.fill(f64::INFINITY);
    }
    let width = least.len();
    let mut start = 0;
    while start < width {
        let columns = (width - start).min(STRETCH * S::F64_LANES);
        let (least, matrix) = (&mut least[start..][..columns], &matrix[start..]);
        match columns.div_ceil(S::F64_LANES) {
            _ if columns < S::F64_LANES => few_columns(simd, least, addends, matrix, width),
            1 => stretch::<S, 1>(simd, least, addends, matrix, width),
            2 => stretch::<S, 2>(simd, least, addends, matrix, width),
            3 => stretch::<S, 3>(simd, least, addends, matrix, width),
            _ => stretch::<S, STRETCH>(simd, least, addends, matrix, width),
        }
        start += columns;
    }
}

/// Columns that fill `N` vectors; the last one overlaps the one before where they do not quite.
#[inline(always)]
fn stretch<S: Simd, const N: usize>(
    simd: S,
    least: &mut [f64],
    addends: &[f64],
    matrix: &[f64],
    width: usize,
) {
    let columns = least.len();
    let starts: [usize; N] = std::array::from_fn(|at| (at * S::F64_LANES).min(columns - S::F64_LANES));
    let mut best = [simd.splat_f64s(f64::INFINITY); N];
    for (choice, &addend) in addends.iter().enumerate() {
        if addend < f64::INFINITY {
            let row = &matrix[choice * width..][..columns];
            let addend = simd.splat_f64s(addend);
            for (best, start) in best.iter_mut().zip(starts) {
                let (values, _) = S::as_simd_f64s(&row[start..]);
                *best = simd.min_f64s(*best, simd.add_f64s(values[0], addend));
            }
        }
    }
    for (best, start) in best.into_iter().zip(starts) {
        S::as_mut_simd_f64s(&mut least[start..]).0[0] = best;
    }
}

/// Fewer columns than a vector has.
#[inline(always)]
fn few_columns<S: Simd>(simd: S, least: &mut [f64], addends: &[f64], matrix: &[f64], width: usize) {
    let columns = least.len();
    let mut best = simd.splat_f64s(f64::INFINITY);
    for (choice, &addend) in addends.iter().enumerate() {
        if addend < f64::INFINITY {
            let row = simd.partial_load_f64s(&matrix[choice * width..][..columns]);
            best = simd.min_f64s(best, simd.add_f64s(row, simd.splat_f64s(addend)));
        }
    }
    simd.partial_store_f64s(least, best);
}

#[cfg(test)]
mod tests {
    use pulp::{Arch, Scalar};

    use super::*;
    use crate::problem::tests::Dice;

    #[test]
    fn the_least_is_that_of_one_sum_after_another() {
        let mut dice = Dice(1);
        for width in 1..80 {
            for choices in [0, 1, 2, 7] {
                let mut times = |many: usize| -> Vec<f64> { (0..many).map(|_| dice.time(4)).collect() };
                let (addends, matrix) = (times(choices), times(choices * width));
                let sum = |at: usize| (0..choices).map(move |it| (it, at));
                let least = |sums: &mut dyn Iterator<Item = (usize, usize)>| {
                    sums.map(|(it, at)| addends[it] + matrix[it * width + at]).fold(f64::INFINITY, f64::min)
                };
                let truth: Vec<f64> = (0..width).map(|at| least(&mut sum(at))).collect();
                let mut ours = vec![f64::NAN; width];
                Arch::new().dispatch(LeastByRows { least: &mut ours, addends: &addends, matrix: &matrix });
                assert_eq!(ours, truth, "{width} {choices}");
                ours.fill(f64::NAN);
                least_by_rows(Scalar::new(), &mut ours, &addends, &matrix);
                assert_eq!(ours, truth, "{width} {choices}");
            }
        }
    }
}
