//! Min-plus products of dense tables.

use pulp::Arch;
use rayon::prelude::*;

use crate::eliminate::{LeastByRows, WORTH_THREADS};

/// `result[i, j] = min_m left[i, m] + right[m, j]`, where `m` runs below `inner`.
pub fn product(left: &[f64], right: &[f64], inner: usize) -> Vec<f64> {
    let columns = right.len() / inner;
    let mut result = vec![0.0; left.len() / inner * columns];
    let arch = Arch::new();
    let fill =
        |(addends, least): (&[f64], &mut [f64])| arch.dispatch(LeastByRows { least, addends, matrix: right });
    if left.len() * columns < WORTH_THREADS {
        left.chunks(inner).zip(result.chunks_mut(columns)).for_each(fill);
    } else {
        left.par_chunks(inner).zip(result.par_chunks_mut(columns)).for_each(fill);
    }
    result
}
