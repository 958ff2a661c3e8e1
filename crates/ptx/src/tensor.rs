//! Products of matrices that a warp computes together, and how their elements are spread over its lanes.
//!
//! Source: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type", and "ldmatrix".

use crate::bits::{Lanes, low, of_single, short, single};
use crate::instruction::Narrow;
use crate::numbers::{narrowed, of_bf16, of_half};

/// Rows and columns of the result, and the length of sums.
const ROWS: usize = 16;
const COLUMNS: usize = 8;
const LENGTH: usize = 16;

/// Two elements of 16 bits as numbers, the lower one first.
fn pair(narrow: Narrow, bits: u64) -> [f64; 2] {
    let number = |bits: u16| f64::from(if narrow == Narrow::Half { of_half(bits) } else { of_bf16(bits) });
    [number(short(bits)), number(short(bits >> 16))]
}

/// `a b + c`, with `a` by rows and `b` by columns.
pub(crate) fn multiplied(narrow: Narrow, a: &[Lanes; 4], b: &[Lanes; 2], c: &[Lanes; 4]) -> [Lanes; 4] {
    let mut left = [[0.0; LENGTH]; ROWS];
    let mut right = [[0.0; LENGTH]; COLUMNS];
    for lane in 0..32 {
        let (group, first) = (lane / 4, lane % 4 * 2);
        for (part, bits) in a.iter().enumerate() {
            let (row, column) = (group + part % 2 * 8, first + part / 2 * 8);
            left[row][column..column + 2].copy_from_slice(&pair(narrow, bits[lane]));
        }
        for (part, bits) in b.iter().enumerate() {
            let row = first + part * 8;
            right[group][row..row + 2].copy_from_slice(&pair(narrow, bits[lane]));
        }
    }
    let mut made = [[0; 32]; 4];
    for lane in 0..32 {
        for part in 0..4 {
            let (row, column) = (lane / 4 + part / 2 * 8, lane % 4 * 2 + part % 2);
            let sum: f64 = left[row].iter().zip(&right[column]).map(|(x, y)| x * y).sum();
            made[part][lane] = of_single(narrowed(sum + f64::from(single(c[part][lane]))));
        }
    }
    made
}

/// What the lanes get of four matrices of 8 rows of 8 elements of 16 bits, whose rows the lanes have read.
pub(crate) fn spread(rows: &[[u8; 16]; 32], turned: bool) -> [Lanes; 4] {
    let element = |matrix: usize, row: usize, column: usize| {
        let row = &rows[matrix * 8 + row];
        u64::from(u16::from_le_bytes([row[2 * column], row[2 * column + 1]]))
    };
    let mut made = [[0; 32]; 4];
    for (matrix, lanes) in made.iter_mut().enumerate() {
        for (lane, bits) in lanes.iter_mut().enumerate() {
            let (outer, first) = (lane / 4, lane % 4 * 2);
            let [lower, upper] = [first, first + 1].map(|inner| {
                if turned { element(matrix, inner, outer) } else { element(matrix, outer, inner) }
            });
            *bits = u64::from(low(upper << 16 | lower));
        }
    }
    made
}
