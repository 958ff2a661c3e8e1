//! Reductions and running sums against their definitions.

use arbtest::arbtest;
use half::bf16;
use planner_ir::{Op, Reduction, Unary};

use crate::Array;
use crate::naive::{Numbers, arbitrary, check, check_blocks, check_sum, every_index, one};

#[test]
fn every_choice_of_dimensions_is_reduced() {
    arbtest(|u| {
        let rank = u.int_in_range(0..=4)?;
        let shape: Vec<u64> = (0..rank).map(|_| u.int_in_range(1..=4)).collect::<Result<_, _>>()?;
        let mut dims = Vec::new();
        for dim in 0..rank {
            if u.arbitrary()? {
                dims.push(dim);
            }
        }
        // Products of signs do not overflow.
        let all = arbitrary(u, &shape)?;
        let signs = one(&Op::Unary(Unary::Sign), &[&all]);
        let inner: Vec<u64> = dims.iter().map(|&dim| shape[dim]).collect();
        for reduction in [Reduction::Max, Reduction::Mean, Reduction::Min, Reduction::Product, Reduction::Sum]
        {
            let op = Op::Reduce { reduction, dims: dims.clone() };
            let x = if reduction == Reduction::Product { &signs } else { &all };
            let numbers = Numbers::of(x);
            check(&one(&op, &[x]), |index| {
                let all = every_index(&inner).into_iter().map(|at| {
                    let mut index = index.to_vec();
                    for (&dim, at) in dims.iter().zip(at) {
                        index[dim] = at;
                    }
                    numbers.at(&index)
                });
                let count = f64::from(u32::try_from(inner.iter().product::<u64>()).unwrap());
                match reduction {
                    Reduction::Max => all.fold(f64::NEG_INFINITY, f64::max),
                    Reduction::Mean => all.sum::<f64>() / count,
                    Reduction::Min => all.fold(f64::INFINITY, f64::min),
                    Reduction::Product => all.product(),
                    Reduction::Sum => all.sum(),
                }
            });
        }
        Ok(())
    });
}

#[test]
fn blocks_give_addends_of_sums_and_means() {
    arbtest(|u| {
        let x = arbitrary(u, &[4, 6])?;
        for reduction in [Reduction::Sum, Reduction::Mean] {
            for dim in [0, 1] {
                let op = Op::Reduce { reduction, dims: vec![dim] };
                check_sum(&op, &[(&x, Some(dim))], 2);
                check_blocks(&op, &[(&x, Some(1 - dim))], &[Some(1 - dim)], 2);
            }
            check_sum(&Op::Reduce { reduction, dims: vec![0, 1] }, &[(&x, Some(1))], 3);
        }
        Ok(())
    });
}

#[test]
fn long_rows_are_reduced_whole() {
    let numbers: Vec<f32> = (0..1003_u16).map(f32::from).collect();
    let x = Array::of([1003], &numbers).unwrap();
    let reduce = |reduction| one(&Op::Reduce { reduction, dims: vec![0] }, &[&x]).to_floats().unwrap()[0];
    assert!((reduce(Reduction::Sum) - 502_503.0).abs() < 0.1);
    assert!((reduce(Reduction::Max) - 1002.0).abs() < 0.1);
    assert!((reduce(Reduction::Min) - 0.0).abs() < 0.1);
}

#[test]
fn half_precision_is_summed_in_single() {
    let ones = vec![bf16::from_f32(1.0); 1000];
    let x = Array::of([1000], &ones).unwrap();
    let found = one(&Op::Reduce { reduction: Reduction::Sum, dims: vec![0] }, &[&x]);
    assert_eq!(found.elements::<bf16>().unwrap(), [bf16::from_f32(1000.0)]);
}

#[test]
fn what_is_not_a_number_stays() {
    let x = Array::of([3], &[1.0_f32, f32::NAN, 2.0]).unwrap();
    for reduction in [Reduction::Max, Reduction::Min, Reduction::Sum, Reduction::Mean] {
        check(&one(&Op::Reduce { reduction, dims: vec![0] }, &[&x]), |_| f64::NAN);
    }
}

#[test]
fn sums_run_from_either_end() {
    let x = Array::of([2, 3], &[1_i32, 2, 3, 4, 5, 6]).unwrap();
    let run = |dim, exclusive, reverse| {
        one(&Op::CumSum { dim, exclusive, reverse }, &[&x]).elements::<i32>().unwrap().to_vec()
    };
    assert_eq!(run(1, false, false), [1, 3, 6, 4, 9, 15]);
    assert_eq!(run(1, true, false), [0, 1, 3, 0, 4, 9]);
    assert_eq!(run(1, false, true), [6, 5, 3, 15, 11, 6]);
    assert_eq!(run(1, true, true), [5, 3, 0, 11, 6, 0]);
    assert_eq!(run(0, false, false), [1, 2, 3, 5, 7, 9]);
}
