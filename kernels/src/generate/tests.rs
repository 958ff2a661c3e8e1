//! Values made of nothing, whole and in blocks.

use half::bf16;
use planner_ir::{DType, Op, Real, Type};

use crate::naive::{Numbers, check, check_blocks, one};
use crate::{Array, evaluate};

#[test]
fn constants_ranges_and_repeated_numbers_are_cut() {
    let data: Vec<u8> = (0..24_u8).collect();
    let op = Op::Constant { result: Type::new(DType::U8, [4, 6]), data: data.clone() };
    assert_eq!(one(&op, &[]).bytes(), data);
    check_blocks(&op, &[], &[Some(0)], 2);
    check_blocks(&op, &[], &[Some(1)], 3);

    let op = Op::Iota { dtype: DType::I32, length: 6, start: Real(3.0), step: Real(-2.0) };
    assert_eq!(one(&op, &[]).elements::<i32>().unwrap(), [3, 1, -1, -3, -5, -7]);
    check_blocks(&op, &[], &[Some(0)], 3);

    let op = Op::Fill { result: Type::new(DType::Bool, [2, 2]), value: Real(1.0) };
    assert_eq!(one(&op, &[]).to_truths().unwrap(), [true; 4]);
    check_blocks(&op, &[], &[Some(0)], 2);
}

#[test]
fn dropout_keeps_the_same_elements_in_any_block() {
    let numbers: Vec<f32> = (1..=10_000_u16).map(f32::from).collect();
    let x = Array::of([10, 50, 20], &numbers).unwrap();
    let op = Op::Dropout { ratio: Real(0.25), seed: 7 };
    let found = evaluate(&op, &[&x]).unwrap();
    let kept = found[1].to_truths().unwrap();
    let count = kept.iter().filter(|&&kept| kept).count();
    assert!((7200..7800).contains(&count), "{count} of 10000 are kept");
    let [all, mask] = [&x, &found[1]].map(Numbers::of);
    check(&found[0], |index| all.at(index) * mask.at(index) / 0.75);
    for dim in 0..3 {
        check_blocks(&op, &[(&x, Some(dim))], &[Some(dim), Some(dim)], 2);
    }
    let other = evaluate(&Op::Dropout { ratio: Real(0.25), seed: 8 }, &[&x]).unwrap();
    assert_ne!(other[1], found[1]);

    let numbered = |number: i64| {
        let number = Array::of(vec![], &[number]).unwrap();
        let found = evaluate(&op, &[&x, &number]).unwrap();
        check_blocks(&op, &[(&x, Some(1)), (&number, None)], &[Some(1), Some(1)], 2);
        found.into_iter().nth(1).unwrap()
    };
    let masks = [found.into_iter().nth(1).unwrap(), numbered(0), numbered(1), numbered(-1)];
    for (index, mask) in masks.iter().enumerate() {
        assert!(masks[..index].iter().all(|other| other != mask), "{index}");
    }
    assert_eq!(numbered(1), masks[2]);
}

/// Numbers rounded by a seed and a number.
fn rounded(numbers: &[f32], seed: u64, number: i64) -> Vec<bf16> {
    let x = Array::of([u64::try_from(numbers.len()).unwrap()], numbers).unwrap();
    let number = Array::of(vec![], &[number]).unwrap();
    let made = evaluate(&Op::RoundStochastically { seed }, &[&x, &number]).unwrap();
    made[0].elements().unwrap().to_vec()
}

/// Of n roundings of a number whose neighbours are `gap` apart, each up with the probability p, the
/// mean has a deviation of `gap sqrt(p (1 - p) / n)`, at most half a gap over the root of n.
#[test]
fn rounding_by_chance_makes_one_of_two_neighbours_and_keeps_the_mean() {
    const COUNT: u16 = 40_000;
    let deviation = 0.5 / f64::from(COUNT).sqrt();
    for (seed, x) in (0..).zip([1.001_f32, -1.001, 0.3, -7.77, 1.234e-39, 3.0e38, 1.0 + 1.0 / 65536.0]) {
        let low = f32::from_bits(x.to_bits() & 0xffff_0000);
        let high = f32::from_bits(low.to_bits() + 0x1_0000);
        let found = rounded(&vec![x; usize::from(COUNT)], seed, 7);
        let ups = found.iter().filter(|it| it.to_f32().to_bits() == high.to_bits()).count();
        let downs = found.iter().filter(|it| it.to_f32().to_bits() == low.to_bits()).count();
        assert_eq!(ups + downs, usize::from(COUNT), "{x:e} is more than two numbers");
        let [x, low, high] = [x, low, high].map(f64::from);
        let mean = found.iter().map(|it| it.to_f64()).sum::<f64>() / f64::from(COUNT);
        let off = (mean - x).abs() / (high - low).abs();
        assert!(off < 4.0 * deviation, "the mean of {x:e} is {mean:e}, off by {off} of the gap");
        // To the nearest, the mean would be off by as much as the number is.
        assert!(ups > 0 && downs > 0, "{x:e}: {ups} up, {downs} down");
    }
}

#[test]
fn what_bf16_can_say_is_not_rounded_and_what_is_finite_stays_so() {
    let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let exact: Vec<f32> = all.iter().map(|it| it.to_f32()).collect();
    for (number, (found, expected)) in rounded(&exact, 3, 1).into_iter().zip(all).enumerate() {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{number:#06x} becomes {:#06x}", found.to_bits());
    }
    let largest = bf16::MAX.to_f32();
    for (x, expected) in [(f32::MAX, largest), (f32::MIN, -largest)] {
        assert!(
            rounded(&[x; 1000], 5, 0).iter().all(|it| it.to_f32().to_bits() == expected.to_bits()),
            "{x:e}"
        );
    }
}

#[test]
fn rounding_by_chance_is_the_same_in_any_block_and_another_for_each_seed_and_number() {
    let numbers: Vec<f32> = (0..10_000_u16).map(|it| 1.0 + f32::from(it) / 65536.0).collect();
    let x = Array::of([10, 50, 20], &numbers).unwrap();
    let number = Array::of(vec![], &[-3_i64]).unwrap();
    let op = Op::RoundStochastically { seed: 7 };
    for dim in 0..3 {
        check_blocks(&op, &[(&x, Some(dim))], &[Some(dim)], 2);
        check_blocks(&op, &[(&x, Some(dim)), (&number, None)], &[Some(dim)], 2);
    }
    let alone = evaluate(&op, &[&x]).unwrap()[0].elements::<bf16>().unwrap().to_vec();
    let mut all = vec![alone];
    all.extend([(7, 0), (7, 1), (8, 0), (8, 1), (7, -1)].map(|(seed, it)| rounded(&numbers, seed, it)));
    for (index, one) in all.iter().enumerate() {
        for other in &all[..index] {
            // Two that have nothing to do with each other differ in a third of these elements.
            let differ = one.iter().zip(other).filter(|(a, b)| a != b).count();
            assert!((2500..4200).contains(&differ), "{index} differs in {differ} of 10000");
        }
    }
    assert_eq!(rounded(&numbers, 8, 1), all[4]);
}
