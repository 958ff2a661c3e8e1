//! Min-plus products and powers of dense tables.

use pulp::Arch;
use rayon::prelude::*;

use crate::eliminate::{LeastByRows, WORTH_THREADS, first_least};

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

/// The least costs of `count` equal steps, by repeated squaring.
#[derive(Clone, Debug)]
pub struct Powers {
    size: usize,
    /// The table of 1, 2, 4, … steps.
    squares: Vec<Vec<f64>>,
    /// For each binary digit of the count that is one, lowest first: its index, and the table of
    /// the steps of this digit and all lower ones.
    sums: Vec<(usize, Vec<f64>)>,
}

impl Powers {
    /// The powers of a table of `size` columns, and of as many rows unless `count` is 1.
    pub fn new(table: Vec<f64>, size: usize, count: usize) -> Self {
        let mut squares = vec![table];
        let mut sums: Vec<(usize, Vec<f64>)> = Vec::new();
        for digit in 0.. {
            if count >> digit & 1 == 1 {
                let square = &squares[digit];
                let sum = match sums.last() {
                    Some((_, sum)) => product(sum, square, size),
                    None => square.clone(),
                };
                sums.push((digit, sum));
            }
            if count >> digit <= 1 {
                break;
            }
            squares.push(product(&squares[digit], &squares[digit], size));
        }
        Self { size, squares, sums }
    }

    /// The least cost of all steps, for each first and last state.
    pub fn table(&self) -> &[f64] {
        &self.sums[self.sums.len() - 1].1
    }

    /// The states before, between and after the steps of a cheapest path, ties to the first.
    pub fn path(&self, first: usize, last: usize) -> Vec<usize> {
        let mut ends = vec![last];
        for pair in self.sums.windows(2).rev() {
            let [(_, sum), (digit, _)] = pair else {
                continue;
            };
            let last = ends[ends.len() - 1];
            ends.push(self.middle(sum, &self.squares[*digit], first, last));
        }
        let mut path = vec![first];
        for ((digit, _), &end) in self.sums.iter().zip(ends.iter().rev()) {
            self.extend(*digit, end, &mut path);
        }
        path
    }

    /// Extends a path by the `2^digit` steps to a state.
    fn extend(&self, digit: usize, last: usize, path: &mut Vec<usize>) {
        if digit == 0 {
            path.push(last);
            return;
        }
        let half = &self.squares[digit - 1];
        let middle = self.middle(half, half, path[path.len() - 1], last);
        self.extend(digit - 1, middle, path);
        self.extend(digit - 1, last, path);
    }

    fn middle(&self, left: &[f64], right: &[f64], first: usize, last: usize) -> usize {
        let row = &left[first * self.size..][..self.size];
        first_least(row.iter().enumerate().map(|(at, cost)| cost + right[at * self.size + last]))
    }
}
