//! Dequantisation against the bits one by one.

use arbtest::arbtest;
use planner_ir::Op;

use crate::Array;
use crate::naive::{Numbers, arbitrary, check, check_blocks, one};

/// The bits from a place of some bytes, low ones first.
fn bits_at(bytes: &[u8], first: u64, bits: u64) -> f64 {
    let bit = |index: u64| {
        let byte = bytes[usize::try_from(index / 8).unwrap()];
        f64::from(byte >> (index % 8) & 1)
    };
    (0..bits).rev().fold(0.0, |number, index| 2.0 * number + bit(first + index))
}

#[test]
fn numbers_are_the_bits_less_zero_times_scale() {
    arbtest(|u| {
        let bits: u64 = *u.choose(&[2, 4, 8])?;
        let (n, blocks, block) = (2, 4_u64, 8);
        let columns = blocks * block - u.int_in_range(0..=1)? * 3;
        let row = blocks * block * bits / 8;
        let packed: Vec<u8> = (0..n * row).map(|_| u.arbitrary()).collect::<Result<_, _>>()?;
        let zero_row = (blocks * bits).div_ceil(8);
        let zeros: Vec<u8> = (0..n * zero_row).map(|_| u.arbitrary()).collect::<Result<_, _>>()?;
        let scales = arbitrary(u, &[n, blocks])?;
        let factors = Numbers::of(&scales);
        let data = Array::of([n, blocks, block * bits / 8], &packed).unwrap();
        let points = Array::of([n, zero_row], &zeros).unwrap();
        let op = Op::Dequantize { bits, block, columns };
        let number = |index: &[u64]| bits_at(&packed, (index[0] * row) * 8 + index[1] * bits, bits);
        let middle = f64::from(1_u32 << (bits - 1));
        check(&one(&op, &[&data, &scales]), |index| {
            (number(index) - middle) * factors.at(&[index[0], index[1] / block])
        });
        check(&one(&op, &[&data, &scales, &points]), |index| {
            let at = index[1] / block;
            let zero = bits_at(&zeros, index[0] * zero_row * 8 + at * bits, bits);
            (number(index) - zero) * factors.at(&[index[0], at])
        });
        let operands = [(&data, Some(0)), (&scales, Some(0)), (&points, Some(0))];
        check_blocks(&op, &operands, &[Some(0)], 2);
        if columns == blocks * block {
            let operands = [(&data, Some(1)), (&scales, Some(1)), (&points, None)];
            check_blocks(&op, &operands, &[Some(1)], 2);
            check_blocks(&op, &operands, &[Some(1)], 4);
        }
        Ok(())
    });
}
