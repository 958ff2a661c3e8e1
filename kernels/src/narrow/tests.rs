//! Quantised numbers against their definition, whole and in blocks.

use planner_ir::{Contract, DType, Label, Op};

use crate::naive::{Numbers, check, check_blocks, every_index, one};
use crate::{Array, evaluate};

/// Numbers of many sizes and both signs: `(i mod 13 − 6) · 1.37^(i mod 11 − 5)`.
pub(super) fn numbers(shape: &[u64]) -> Array {
    let number = |at: u64| {
        let [sign, power] = [13, 11].map(|it| f64::from(u8::try_from(at % it).unwrap()));
        (sign - 6.0) * 1.37_f64.powf(power - 5.0)
    };
    let count: u64 = shape.iter().product();
    let wide = Array::of(shape, &(0..count).map(number).collect::<Vec<f64>>()).unwrap();
    one(&Op::Cast(DType::F32), &[&wide])
}

/// All finite numbers of 8 bits with so many bits of fraction, by their definition: the last exponent of E4M3
/// has one code that is not a number, that of E5M2 four that are none or infinite.
fn all(dtype: DType) -> Vec<f64> {
    let (fraction, bias, codes) =
        if dtype == DType::F8E4M3FN { (3_i32, 7_i32, 0..=126_u8) } else { (2, 15, 0..=123) };
    let number = |code: u8| {
        let (exponent, below) = (i32::from(code) >> fraction, i32::from(code) % (1 << fraction));
        let (whole, power) = if exponent == 0 { (below, 1) } else { (below + (1 << fraction), exponent) };
        f64::from(whole) * 2_f64.powi(power - bias - fraction)
    };
    codes.flat_map(|code| [number(code), -number(code)]).collect()
}

/// Whether each number of 8 bits is as near to the number over its scale as any is.
fn check_nearest(x: &Array, y: &Array, scale: impl Fn(&[u64]) -> f64) {
    let most = all(y.dtype()).into_iter().fold(0.0, f64::max);
    let (x, found) = (Numbers::of(x), Numbers::of(y));
    for index in every_index(y.shape()) {
        let wanted = (x.at(&index) / scale(&index)).clamp(-most, most);
        let off = |it: f64| (it - wanted).abs();
        let least = all(y.dtype()).into_iter().map(off).fold(f64::INFINITY, f64::min);
        let found = found.at(&index);
        assert!(off(found) <= least * (1.0 + 1e-6), "{found} of {wanted}, at {index:?}");
    }
}

#[test]
fn magnitudes_are_those_of_parts() {
    let x = numbers(&[4, 6, 8]);
    let all = Numbers::of(&x);
    for parts in [[1, 1, 1], [2, 3, 4], [4, 6, 8], [1, 2, 8], [4, 1, 1]] {
        let op = Op::Amax { parts: parts.to_vec(), rotated: None };
        check(&one(&op, &[&x]), |part| {
            let inside =
                |index: &Vec<u64>| (0..3).all(|dim| index[dim] * parts[dim] / x.shape()[dim] == part[dim]);
            let of_part = every_index(x.shape()).into_iter().filter(inside);
            of_part.map(|index| all.at(&index).abs()).fold(0.0, f64::max)
        });
    }
    check_blocks(&Op::Amax { parts: vec![2, 6, 4], rotated: None }, &[(&x, Some(0))], &[Some(0)], 2);
    check_blocks(&Op::Amax { parts: vec![2, 6, 4], rotated: None }, &[(&x, Some(2))], &[Some(2)], 4);
    let odd = Array::of([4], &[1.0_f32, f32::NAN, -3.0, 2.0]).unwrap();
    let found = one(&Op::Amax { parts: vec![2], rotated: None }, &[&odd]).to_floats().unwrap();
    assert!(found[0].is_nan() && found[1].to_bits() == 3.0_f64.to_bits(), "{found:?}");
    let half = one(&Op::Cast(DType::BF16), &[&x]);
    assert_eq!(one(&Op::Amax { parts: vec![1, 1, 1], rotated: None }, &[&half]).dtype(), DType::F32);
}

#[test]
fn numbers_over_one_scale_are_the_nearest() {
    let x = numbers(&[6, 8]);
    for (to, largest) in [(DType::F8E4M3FN, 448.0), (DType::F8E5M2, 57344.0)] {
        let amax = one(&Op::Amax { parts: vec![6, 1], rotated: None }, &[&x]);
        let all = amax.to_floats().unwrap();
        let most = all.iter().copied().fold(0.0, f64::max);
        assert!(all[0] < most && all[5] < most, "the largest is in the middle: {all:?}");
        let op = Op::Quantize { to, parts: None };
        let [y, scale] = evaluate(&op, &[&x, &amax]).unwrap().try_into().unwrap();
        check(&scale, |_| most / largest);
        check_nearest(&x, &y, |_| scale.to_floats().unwrap()[0]);
        let largest_found = y.to_floats().unwrap().into_iter().map(f64::abs).fold(0.0, f64::max);
        assert_eq!(largest_found.to_bits(), largest.to_bits(), "the whole range is used");
        check_blocks(&op, &[(&x, Some(1)), (&amax, None)], &[Some(1), None], 4);
    }
    // Of nothing but zeros, and of what is not finite, the scale is 1.
    for (number, left) in [(0.0_f32, 0.0), (f32::INFINITY, f64::INFINITY)] {
        let x = Array::of([2], &[number, 1.0]).unwrap();
        let amax = Array::of([1], &[number]).unwrap();
        let [y, scale] = evaluate(&Op::Quantize { to: DType::F8E5M2, parts: None }, &[&x, &amax])
            .unwrap()
            .try_into()
            .unwrap();
        assert_eq!(y.to_floats().unwrap(), [left, 1.0]);
        assert_eq!(scale.to_floats().unwrap(), [1.0]);
    }
}

/// With the magnitudes of steps before, what is larger is the largest number, and what was found is remembered.
#[test]
fn magnitudes_of_steps_before_are_followed_and_replaced() {
    let x = numbers(&[4, 8]);
    let history = Array::of([3], &[0.5_f32, 2.0, 1.0]).unwrap();
    let op = Op::Quantize { to: DType::F8E4M3FN, parts: Some(vec![2, 4]) };
    let [y, scale, found] = evaluate(&op, &[&x, &history]).unwrap().try_into().unwrap();
    check(&scale, |_| 2.0 / 448.0);
    check_nearest(&x, &y, |_| 2.0 / 448.0);
    assert!(y.to_floats().unwrap().iter().any(|it| it.abs().to_bits() == 448.0_f64.to_bits()));
    let alone = one(&Op::Amax { parts: vec![2, 4], rotated: None }, &[&x]);
    assert_eq!(found.bytes(), alone.bytes());
    let most = found.to_floats().unwrap().into_iter().fold(0.0, f64::max);
    assert!(most > 2.0, "something is too large: {most}");
    check_blocks(&op, &[(&x, Some(0)), (&history, None)], &[Some(0), None, Some(0)], 2);
    let after = one(&Op::Remember, &[&history, &found]).to_floats().unwrap();
    assert_eq!(after, [2.0, 1.0, most]);
}

#[test]
fn numbers_over_scales_of_blocks_are_the_nearest_and_scales_powers_of_two() {
    let x = numbers(&[2, 64, 3]);
    let op = Op::QuantizeBlocks { to: DType::F8E4M3FN, dim: 1, block: 32 };
    let [y, exponents] = evaluate(&op, &[&x]).unwrap().try_into().unwrap();
    assert_eq!((exponents.shape(), exponents.dtype()), (&[2, 2, 3][..], DType::U8));
    let all = Numbers::of(&x);
    // The largest magnitude is from 2^8 to below 2^9 times the scale.
    check(&exponents, |block| {
        let of_block = (0..32).map(|it| all.at(&[block[0], 32 * block[1] + it, block[2]]).abs());
        of_block.fold(0.0, f64::max).log2().floor() - 8.0 + 127.0
    });
    let powers = Numbers::of(&exponents);
    let scale = |index: &[u64]| 2_f64.powf(powers.at(&[index[0], index[1] / 32, index[2]]) - 127.0);
    check_nearest(&x, &y, scale);
    check_blocks(&op, &[(&x, Some(1))], &[Some(1), Some(1)], 2);
    check_blocks(&op, &[(&x, Some(2))], &[Some(2), Some(2)], 3);
    // 3 · 2^7 is a number of the format; what is between its largest and the next power is the largest; zeros
    // have the least scale, and what is not finite leaves nothing.
    let numbers = [[3.0_f32, 1.0], [1.9375, -1.9375], [0.0, 0.0], [f32::INFINITY, 1.0]].concat();
    let x = Array::of([4, 2], &numbers).unwrap();
    let op = Op::QuantizeBlocks { to: DType::F8E4M3FN, dim: 1, block: 2 };
    let [y, exponents] = evaluate(&op, &[&x]).unwrap().try_into().unwrap();
    assert_eq!(exponents.bytes(), [120, 119, 0, 255]);
    let found = y.to_floats().unwrap();
    assert_eq!(found[..6], [384.0, 128.0, 448.0, -448.0, 0.0, 0.0]);
    assert!(found[6..].iter().all(|it| it.is_nan()));
}

/// A product against the sum of products of numbers times their scales, in f64.
#[test]
fn products_are_of_numbers_times_scales() {
    let [m, k, n] = [0, 1, 2].map(Label);
    let contract = Contract { left: vec![m, k], right: vec![k, n], result: vec![m, n] };
    let [a, b] = [numbers(&[4, 64]), numbers(&[64, 6])];
    let one_scale = |x: &Array, to: DType| -> [Array; 2] {
        let amax = one(&Op::Amax { parts: vec![1, 1], rotated: None }, &[x]);
        evaluate(&Op::Quantize { to, parts: None }, &[x, &amax]).unwrap().try_into().unwrap()
    };
    let blocks = |x: &Array, dim: usize| -> [Array; 2] {
        let op = Op::QuantizeBlocks { to: DType::F8E4M3FN, dim, block: 32 };
        evaluate(&op, &[x]).unwrap().try_into().unwrap()
    };
    let whole = [one_scale(&a, DType::F8E4M3FN), one_scale(&b, DType::F8E5M2)];
    let scaled = |[codes, scale]: &[Array; 2], index: &[u64], dim: usize| {
        let factor = if scale.dtype() == DType::F32 {
            scale.to_floats().unwrap()[0]
        } else {
            let mut block = index.to_vec();
            block[dim] /= 32;
            2_f64.powf(Numbers::of(scale).at(&block) - 127.0)
        };
        Numbers::of(codes).at(index) * factor
    };
    for [left, right] in [whole, [blocks(&a, 1), blocks(&b, 0)]] {
        let op = Op::ScaledContract { contract: contract.clone(), to: DType::F32 };
        let operands = [&left[0], &right[0], &left[1], &right[1]];
        let found = one(&op, &operands);
        check(&found, |at| {
            let term = |k| scaled(&left, &[at[0], k], 1) * scaled(&right, &[k, at[1]], 0);
            (0..64).map(term).sum()
        });
        let narrow = one(&Op::ScaledContract { contract: contract.clone(), to: DType::BF16 }, &operands);
        assert_eq!(narrow.bytes(), one(&Op::Cast(DType::BF16), &[&found]).bytes());
        let rows = if left[1].shape().is_empty() { None } else { Some(0) };
        let cut = [(&left[0], Some(0)), (&right[0], None), (&left[1], rows), (&right[1], None)];
        check_blocks(&op, &cut, &[Some(0)], 2);
    }
}
