//! Numbers of 4 bits against their definition, whole and in blocks.

use planner_ir::{Contract, DType, Label, Nvfp4, Op};

use super::super::tests::numbers;
use super::{MAGNITUDES, SIGNS, by_chance, decoded, nearest};
use crate::evaluate;
use crate::naive::{Numbers, check, check_blocks, every_index, one};
use crate::{Array, Tensor};

fn amax(x: &Array, rotated: Option<usize>) -> Array {
    one(&Op::Amax { parts: vec![1; x.shape().len()], rotated }, &[x])
}

/// The numbers, the scales of blocks and that of all.
fn quantised(x: &Array, how: &Nvfp4) -> [Array; 3] {
    let amax = amax(x, how.rotated.then_some(how.dim));
    let number = Array::of([], &[5_i64]).unwrap();
    let mut operands = vec![x, &amax];
    if how.seed.is_some() {
        operands.push(&number);
    }
    evaluate(&Op::QuantizeNvfp4(how.clone()), &operands).unwrap().try_into().unwrap()
}

/// What a number stands for, by the definition of the format.
fn stands_for([codes, scales, all]: &[Array; 3], how: &Nvfp4, index: &[u64]) -> f64 {
    let mut byte = index.to_vec();
    byte[how.dim] /= 2;
    let place = byte.iter().zip(codes.shape()).fold(0, |place, (at, size)| place * size + at);
    let both = codes.bytes()[usize::try_from(place).unwrap()];
    let code = if index[how.dim].is_multiple_of(2) { both & 15 } else { both >> 4 };
    let mut block = index.to_vec();
    for dim in [Some(how.dim), how.across].into_iter().flatten() {
        block[dim] /= 16;
    }
    let size = f64::from(MAGNITUDES[usize::from(code & 7)]);
    let sign = if code & 8 == 0 { 1.0 } else { -1.0 };
    sign * size * Numbers::of(scales).at(&block) * all.to_floats().unwrap()[0]
}

/// The same for every number, as a value.
fn dequantised(found: &[Array; 3], how: &Nvfp4, shape: &[u64]) -> Array {
    let all: Vec<f64> = every_index(shape).iter().map(|it| stands_for(found, how, it)).collect();
    Array::of(shape, &all).unwrap()
}

const FORMS: [(usize, Option<usize>); 3] = [(1, None), (0, None), (1, Some(0))];

#[test]
fn numbers_are_the_nearest_over_scales_that_make_the_largest_of_a_block_6() {
    let x = numbers(&[32, 48]);
    let given = Numbers::of(&x);
    let most = every_index(x.shape()).iter().map(|it| given.at(it).abs()).fold(0.0, f64::max);
    for (dim, across) in FORMS {
        let how = Nvfp4 { dim, across, ..Nvfp4::default() };
        let found = quantised(&x, &how);
        check(&found[2], |_| most / (6.0 * 448.0));
        let scales = Numbers::of(&found[1]);
        for index in every_index(x.shape()) {
            let mut block = index.clone();
            for dim in [Some(dim), across].into_iter().flatten() {
                block[dim] /= 16;
            }
            let scale = scales.at(&block) * most / (6.0 * 448.0);
            let wanted = given.at(&index);
            let off = |size: f32| (f64::from(size) * scale - wanted.abs()).abs();
            let least = MAGNITUDES.into_iter().map(off).fold(f64::INFINITY, f64::min);
            let found = stands_for(&found, &how, &index);
            assert!((found - wanted).abs() <= least * (1.0 + 1e-4) + 1e-6 * most, "{found} of {wanted}");
            assert!(found.abs() < 1e-12 || found.is_sign_negative() == wanted.is_sign_negative());
        }
        // The largest number of all is 6, with the largest scale.
        let largest = every_index(x.shape()).into_iter().map(|it| stands_for(&found, &how, &it).abs());
        assert!((largest.fold(0.0, f64::max) / most - 1.0).abs() < 1e-6);
    }
    let shapes = |how: &Nvfp4| quantised(&x, how).map(|it| it.shape().to_vec());
    assert_eq!(shapes(&Nvfp4 { dim: 1, ..Nvfp4::default() }), [vec![32, 24], vec![32, 3], vec![]]);
    let square = Nvfp4 { dim: 0, across: Some(1), ..Nvfp4::default() };
    assert_eq!(shapes(&square), [vec![16, 48], vec![2, 3], vec![]]);
}

#[test]
fn ties_go_to_the_even_code_and_what_is_too_large_to_6() {
    let cases = [
        (0.25, 0.0),
        (0.75, 1.0),
        (1.25, 1.0),
        (1.75, 2.0),
        (2.5, 2.0),
        (3.5, 4.0),
        (5.0, 4.0),
        (5.1, 6.0),
        (7.0, 6.0),
        (-2.6, -3.0),
    ];
    for (number, expected) in cases {
        assert_eq!(decoded(nearest(number)).to_bits(), f32::to_bits(expected), "{number}");
    }
}

/// Nothing but zeros stays so, and what is not finite leaves no number.
#[test]
fn zeros_stay_and_what_is_not_finite_is_seen() {
    let how = Nvfp4::default();
    let found = quantised(&Array::of([16], &[0.0_f32; 16]).unwrap(), &how);
    assert_eq!(dequantised(&found, &how, &[16]).to_floats().unwrap(), [0.0; 16]);
    let mut odd = [1.0_f32; 16];
    odd[3] = f32::INFINITY;
    let found = quantised(&Array::of([16], &odd).unwrap(), &how);
    assert!(dequantised(&found, &how, &[16]).to_floats().unwrap().iter().all(|it| it.is_nan()));
}

/// Both operands of a product are turned by one orthogonal matrix, so that their product is what it was.
#[test]
fn the_transform_is_that_of_its_matrix_and_keeps_products() {
    let x = numbers(&[32, 3]);
    let turned = super::rotated(0, &x.tensor()).unwrap();
    let given = Numbers::of(&x);
    for (at, index) in every_index(x.shape()).into_iter().enumerate() {
        let (block, to) = (index[0] / 16, index[0] % 16);
        let term = |from: u64| {
            let sign = if (from & to).count_ones().is_multiple_of(2) { 0.25 } else { -0.25 };
            sign * f64::from(SIGNS[usize::try_from(from).unwrap()]) * given.at(&[16 * block + from, index[1]])
        };
        let expected: f64 = (0..16).map(term).sum();
        assert!((f64::from(turned[at]) - expected).abs() < 1e-4, "{index:?}");
    }
    let dot =
        |a: &dyn Fn(usize) -> f64, b: &dyn Fn(usize) -> f64| (0..32).map(|it| a(it) * b(it)).sum::<f64>();
    let of = |column: usize| move |row: usize| (row, column);
    let before = |(row, column): (usize, usize)| {
        given.at(&[u64::try_from(row).unwrap(), u64::try_from(column).unwrap()])
    };
    let after = |(row, column): (usize, usize)| f64::from(turned[3 * row + column]);
    let [a, b] = [of(0), of(2)];
    let expected = dot(&|it| before(a(it)), &|it| before(b(it)));
    let found = dot(&|it| after(a(it)), &|it| after(b(it)));
    assert!((found - expected).abs() < 1e-3 * expected.abs().max(1.0), "{found}, expected {expected}");
}

/// On the average a number is what it was, and it is never another than its two neighbours.
#[test]
fn rounding_by_chance_is_right_on_the_average() {
    for number in [0.1_f32, 0.6, 2.2, 3.9, 4.5, 5.9, -1.3, 6.0, 3.0] {
        let count = 4096;
        let found = (0..count).map(|it| decoded(by_chance(number, crate::random::mixed(it))));
        let mean = found.map(f64::from).sum::<f64>() / 4096.0;
        assert!((mean - f64::from(number)).abs() < 0.06, "{mean} of {number}");
    }
    let x = numbers(&[16, 32]);
    let of = |seed| quantised(&x, &Nvfp4 { dim: 1, seed: Some(seed), ..Nvfp4::default() });
    assert_eq!(of(3)[0].bytes(), of(3)[0].bytes());
    assert_ne!(of(3)[0].bytes(), of(4)[0].bytes());
}

/// Blocks of a value are quantised as the whole is: by position, not by place.
#[test]
fn blocks_are_quantised_as_the_whole_is() {
    let x = numbers(&[32, 64]);
    let number = Array::of([], &[5_i64]).unwrap();
    for (dim, across) in FORMS {
        for rotated in [false, true] {
            let turned = rotated.then_some(dim);
            let mut parts = vec![32, 32];
            parts[dim] = 4 / 2;
            check_blocks(&Op::Amax { parts, rotated: turned }, &[(&x, Some(dim))], &[Some(dim)], 2);
            let amax = amax(&x, turned);
            for cut in [0, 1] {
                let op = Op::QuantizeNvfp4(Nvfp4 { dim, across, rotated, seed: Some(9) });
                let operands = [(&x, Some(cut)), (&amax, None), (&number, None)];
                check_blocks(&op, &operands, &[Some(cut), Some(cut), None], 2);
            }
        }
    }
}

/// A product against the sum of products of what numbers stand for, in f64: forward, towards x by the same
/// numbers of the weight, and towards the weight.
#[test]
fn products_are_of_what_numbers_stand_for() {
    let [m, k, n] = [0, 1, 2].map(Label);
    let (x, w, dy) = (numbers(&[16, 64]), numbers(&[64, 32]), numbers(&[16, 32]));
    let form = |dim, across| Nvfp4 { dim, across, ..Nvfp4::default() };
    let weight = form(0, Some(1));
    let cases = [
        ([m, k], &x, form(1, None), [k, n], &w, weight.clone(), [m, n]),
        ([m, n], &dy, form(1, None), [k, n], &w, weight, [m, k]),
        ([m, k], &x, form(0, None), [m, n], &dy, form(0, None), [k, n]),
    ];
    for (left, a, how_a, right, b, how_b, result) in cases {
        let contract = Contract { left: left.to_vec(), right: right.to_vec(), result: result.to_vec() };
        let (of_a, of_b) = (quantised(a, &how_a), quantised(b, &how_b));
        let wide = [dequantised(&of_a, &how_a, a.shape()), dequantised(&of_b, &how_b, b.shape())];
        let expected = Numbers::of(&one(&Op::Contract(contract.clone()), &[&wide[0], &wide[1]]));
        let operands = [&of_a[0], &of_b[0], &of_a[1], &of_b[1], &of_a[2], &of_b[2]];
        let op = Op::ScaledContract { contract: contract.clone(), to: DType::F32 };
        let found = one(&op, &operands);
        check(&found, |at| expected.at(at));
        let narrow = one(&Op::ScaledContract { contract, to: DType::BF16 }, &operands);
        assert_eq!(narrow.bytes(), one(&Op::Cast(DType::BF16), &[&found]).bytes());
    }
}

/// A shape that does not fall into blocks is refused, not read beyond its end.
#[test]
fn other_shapes_are_refused() {
    let x = numbers(&[16, 24]);
    assert!(super::rotated(1, &x.tensor()).is_err());
    let amax = amax(&x, None);
    assert!(evaluate(&Op::QuantizeNvfp4(Nvfp4 { dim: 1, ..Nvfp4::default() }), &[&x, &amax]).is_err());
    let bytes = [0_u8; 12];
    let shape = [3, 4];
    let codes = Tensor { dtype: DType::U8, shape: &shape, bytes: &bytes, spans: &[] };
    assert!(super::unpacked(&codes, &codes).is_err());
}
