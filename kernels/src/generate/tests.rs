//! Values made of nothing, whole and in blocks.

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
