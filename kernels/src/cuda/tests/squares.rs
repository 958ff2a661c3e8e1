//! The squares of many values, summed.

use planner_ir::{Binary, DType, Op, Type};

use super::emulator::{Trial, check_works};
use super::values::{many, numbers};
use crate::array::Array;
use crate::cuda::{Work, squares};

#[test]
fn squares_of_many_values_are_summed() {
    let all = many(12, |u, seed| {
        let count = *u.choose(&[1, 2, 16, 17, 40])?;
        let mut values = Vec::new();
        for number in 0..count {
            let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F16])?;
            let length = *u.choose(&[0, 1, 7, 8, 300, 2048, 2049, 7000])?;
            values.push(numbers(dtype, &[length], seed * 100 + number));
        }
        let square = |it: &Array| it.to_floats().unwrap().iter().map(|it| it * it).sum::<f64>();
        let made = *u.choose(&[DType::F32, DType::BF16])?;
        let sum = Array::of::<f64>(vec![], &[values.iter().map(square).sum::<f64>()]).unwrap();
        let sum = super::values::cast(&sum, made);
        let types: Vec<(DType, u64)> = values.iter().map(|it| (it.dtype(), it.type_().elements())).collect();
        let work = squares(&types, made).unwrap();
        let trial = Trial {
            op: Op::Binary(Binary::Add),
            operands: values.into_iter().map(|it| (it, vec![])).collect(),
            results: vec![(Type::new(made, []), vec![])],
            tolerance: 1e-5,
            in_place: vec![None],
            chain: None,
        };
        Ok((trial, work, vec![sum]))
    });
    let most = all.iter().map(|it| it.1.launches.len()).max();
    // Three types, each of which has values for two launches at most, and what adds up.
    assert!(most.is_some_and(|it| (4..=7).contains(&it)), "{most:?} launches");
    let (mut trials, mut works, mut expected): (Vec<Trial>, Vec<Work>, Vec<Vec<Array>>) = Default::default();
    for (trial, work, sum) in all {
        trials.push(trial);
        works.push(work);
        expected.push(sum);
    }
    check_works(&trials, &works, &expected);
}

#[test]
fn squares_of_wide_numbers_and_integers_have_no_kernel() {
    assert!(squares(&[(DType::F32, 4), (DType::F64, 4)], DType::F32).is_none());
    assert!(squares(&[(DType::I32, 4)], DType::F32).is_none());
    assert!(squares(&[(DType::F32, 4)], DType::F64).is_none());
}
