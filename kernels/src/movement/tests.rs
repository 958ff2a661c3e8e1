//! Movements against their definitions by index.

use arbtest::arbtest;
use planner_ir::{DType, Edge, Op, Real, Triangle, Type};

use crate::naive::{Numbers, arbitrary, check, check_blocks, every_index, one};
use crate::{Array, KernelError, evaluate};

/// A value in which every element is its own place.
fn places(shape: &[u64]) -> Array {
    let count: u64 = shape.iter().product();
    Array::of(shape, &(0..count).collect::<Vec<u64>>()).unwrap()
}

#[test]
fn permuted_dimensions_are_where_the_permutation_says() {
    arbtest(|u| {
        let rank = u.int_in_range(0..=5)?;
        let shape: Vec<u64> = (0..rank).map(|_| u.int_in_range(1..=5)).collect::<Result<_, _>>()?;
        let mut permutation: Vec<usize> = Vec::new();
        for dim in 0..rank {
            permutation.insert(u.int_in_range(0..=permutation.len())?, dim);
        }
        let x = places(&shape);
        let numbers = Numbers::of(&x);
        let dtype = *u.choose(&[DType::U8, DType::F16, DType::I32, DType::F64])?;
        let narrow = one(&Op::Cast(dtype), &[&x]);
        let op = Op::Transpose { permutation: permutation.clone() };
        let expected = one(&Op::Cast(dtype), &[&one(&op, &[&x])]);
        assert_eq!(one(&op, &[&narrow]), expected);
        check(&one(&op, &[&x]), |index| {
            let mut source = vec![0; rank];
            for (dim, &from) in permutation.iter().enumerate() {
                source[from] = index[dim];
            }
            numbers.at(&source)
        });
        Ok(())
    });
}

#[test]
fn large_transposition_is_by_blocks() {
    let x = places(&[3, 35, 50]);
    let numbers = Numbers::of(&x);
    let found = one(&Op::Transpose { permutation: vec![2, 0, 1] }, &[&x]);
    check(&found, |index| numbers.at(&[index[1], index[2], index[0]]));
    let op = Op::Transpose { permutation: vec![0, 2, 1] };
    check(&one(&op, &[&x]), |index| numbers.at(&[index[0], index[2], index[1]]));
    check_blocks(&op, &[(&x, Some(2))], &[Some(1)], 5);
}

#[test]
fn slices_take_every_step() {
    arbtest(|u| {
        let rank = u.int_in_range(1..=3)?;
        let shape: Vec<u64> = (0..rank).map(|_| u.int_in_range(1..=5)).collect::<Result<_, _>>()?;
        let (mut starts, mut steps, mut sizes) = (vec![], vec![], vec![]);
        for &extent in &shape {
            let start = u.int_in_range(0..=extent - 1)?;
            let step: i64 = *u.choose(&[-2, -1, 1, 2, 3])?;
            let room = if step < 0 { start } else { extent - 1 - start };
            starts.push(start);
            steps.push(step);
            sizes.push(u.int_in_range(0..=room / step.unsigned_abs() + 1)?);
        }
        let x = places(&shape);
        let numbers = Numbers::of(&x);
        let op = Op::Slice { starts: starts.clone(), steps: steps.clone(), sizes: sizes.clone() };
        check(&one(&op, &[&x]), |index| {
            let at = |dim: usize| {
                let start = i64::try_from(starts[dim]).unwrap();
                u64::try_from(start + steps[dim] * i64::try_from(index[dim]).unwrap()).unwrap()
            };
            numbers.at(&(0..rank).map(at).collect::<Vec<_>>())
        });
        Ok(())
    });
}

#[test]
fn slices_of_one_dimension_can_be_blocks_of_another() {
    let x = places(&[4, 6]);
    let op = Op::Slice { starts: vec![0, 5], steps: vec![1, -2], sizes: vec![4, 3] };
    check_blocks(&op, &[(&x, Some(0))], &[Some(0)], 2);
    let op = Op::Pad { before: vec![0, 2], after: vec![0, -1], edge: Edge::Reflect };
    check_blocks(&op, &[(&x, Some(0))], &[Some(0)], 2);
    check_blocks(&op, &[(&x, None)], &[Some(1)], 7);
}

#[test]
fn padding_is_what_numpy_pads() {
    let x = Array::of([3], &[1_i64, 2, 3]).unwrap();
    let pad = |edge, before, after| {
        let op = Op::Pad { before: vec![before], after: vec![after], edge };
        one(&op, &[&x]).to_integers().unwrap()
    };
    assert_eq!(pad(Edge::Constant(Real(7.0)), 2, 1), [7, 7, 1, 2, 3, 7]);
    assert_eq!(pad(Edge::Reflect, 2, 2), [3, 2, 1, 2, 3, 2, 1]);
    assert_eq!(pad(Edge::Repeat, 2, 1), [1, 1, 1, 2, 3, 3]);
    assert_eq!(pad(Edge::Wrap, 2, 4), [2, 3, 1, 2, 3, 1, 2, 3, 1]);
    assert_eq!(pad(Edge::Constant(Real(0.0)), -1, 2), [2, 3, 0, 0]);
}

#[test]
fn one_side_of_the_diagonal_stays() {
    arbtest(|u| {
        let (rows, columns) = (2 * u.int_in_range(1..=3)?, 2 * u.int_in_range(1..=3)?);
        let diagonal = u.int_in_range(-7..=7)?;
        let x = arbitrary(u, &[2, rows, columns])?;
        let numbers = Numbers::of(&x);
        for (triangle, sign) in [(Triangle::Upper, 1), (Triangle::Lower, -1)] {
            let op = Op::Triangle { triangle, diagonal };
            check(&one(&op, &[&x]), |index| {
                let [row, column] = [index[1], index[2]].map(|at| i64::try_from(at).unwrap());
                let is_kept = sign * (column - row - diagonal) >= 0;
                if is_kept { numbers.at(index) } else { 0.0 }
            });
            check_blocks(&op, &[(&x, Some(1))], &[Some(1)], 2);
            check_blocks(&op, &[(&x, Some(2))], &[Some(2)], 2);
        }
        Ok(())
    });
}

#[test]
fn values_follow_each_other_and_repeat() {
    let (a, b) = (places(&[2, 1, 2]), places(&[2, 2, 2]));
    let numbers = [&a, &b].map(Numbers::of);
    let op = Op::Concat { dim: 1 };
    check(&one(&op, &[&a, &b]), |index| match index[1] {
        0 => numbers[0].at(index),
        at => numbers[1].at(&[index[0], at - 1, index[2]]),
    });
    check_blocks(&op, &[(&a, Some(2)), (&b, Some(2))], &[Some(2)], 2);
    let op = Op::Expand { shape: vec![3, 2, 4, 2] };
    check(&one(&op, &[&a]), |index| numbers[0].at(&index[1..]));
    check_blocks(&op, &[(&a, Some(0))], &[Some(1)], 2);
    let op = Op::Reshape { shape: vec![4, 1] };
    check(&one(&op, &[&a]), |index| f64::from(u32::try_from(index[0]).unwrap()));
}

#[test]
fn values_without_elements_stay_so() {
    let x = Array::zeros(Type::new(DType::F32, [0, 3])).unwrap();
    for op in [
        Op::Transpose { permutation: vec![1, 0] },
        Op::Concat { dim: 0 },
        Op::Expand { shape: vec![2, 0, 3] },
        Op::Slice { starts: vec![0, 0], steps: vec![1, 2], sizes: vec![0, 2] },
        Op::Reshape { shape: vec![3, 0] },
    ] {
        assert!(every_index(one(&op, &[&x]).shape()).is_empty());
    }
    let op = Op::Pad { before: vec![1, 0], after: vec![0, 0], edge: Edge::Repeat };
    assert!(matches!(evaluate(&op, &[&x]), Err(KernelError::Index { .. }) | Err(KernelError::Type(_))));
    let op = Op::Pad { before: vec![1, 0], after: vec![0, 0], edge: Edge::Constant(Real(2.0)) };
    check(&one(&op, &[&x]), |_| 2.0);
}
