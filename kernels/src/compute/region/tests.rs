//! Programs whose shapes depend on data.

use planner_ir::{Binary, DType, Dynamic, Extreme, Op, Real, Region, RegionNode, Type};

use crate::naive::one;
use crate::{Array, KernelError, compute, evaluate};

fn vector(numbers: &[i64]) -> Array {
    Array::of([u64::try_from(numbers.len()).unwrap()], numbers).unwrap()
}

fn dynamic(op: Dynamic, operands: &[&Array]) -> (Vec<u64>, Vec<i64>) {
    let found = one(&Op::Dynamic(op), operands);
    (found.shape().to_vec(), found.to_integers().unwrap())
}

fn matrix() -> Array {
    Array::of([2, 3], &[0_i64, 1, 2, 3, 4, 5]).unwrap()
}

#[test]
fn shapes_are_what_operands_say() {
    let x = matrix();
    assert_eq!(dynamic(Dynamic::Shape, &[&x]), (vec![2], vec![2, 3]));
    assert_eq!(dynamic(Dynamic::NonZero, &[&x]), (vec![2, 5], vec![0, 0, 1, 1, 1, 1, 2, 0, 1, 2]));
    let reshape =
        |shape: &[i64], zero_is_zero| dynamic(Dynamic::Reshape { zero_is_zero }, &[&x, &vector(shape)]).0;
    assert_eq!(reshape(&[-1, 2], false), [3, 2]);
    assert_eq!(reshape(&[0, -1, 1], false), [2, 3, 1]);
    assert_eq!(dynamic(Dynamic::Expand, &[&vector(&[7]), &vector(&[2, 1])]), (vec![2, 1], vec![7, 7]));
    let start = Array::of(vec![], &[7_i64]).unwrap();
    let limit = Array::of(vec![], &[0_i64]).unwrap();
    let step = Array::of(vec![], &[-3_i64]).unwrap();
    assert_eq!(dynamic(Dynamic::Range, &[&start, &limit, &step]), (vec![3], vec![7, 4, 1]));
    assert_eq!(dynamic(Dynamic::Range, &[&limit, &start, &step]), (vec![0], vec![]));
    let fill = Dynamic::Fill { dtype: DType::I16, value: Real(-4.0) };
    assert_eq!(dynamic(fill, &[&vector(&[1, 2])]), (vec![1, 2], vec![-4, -4]));
    assert_eq!(dynamic(Dynamic::Tile, &[&vector(&[1, 2]), &vector(&[2])]), (vec![4], vec![1, 2, 1, 2]));
    assert_eq!(dynamic(Dynamic::Unsqueeze { dims: vec![0, 3] }, &[&x]).0, [1, 2, 3, 1]);
    let thin = one(&Op::Reshape { shape: vec![1, 6, 1] }, &[&x]);
    assert_eq!(dynamic(Dynamic::Squeeze { dims: vec![0, 2] }, &[&thin]).0, [6]);
}

#[test]
fn slices_are_cut_as_in_numpy() {
    let x = vector(&[0, 1, 2, 3, 4]);
    let slice = |start, end, step| {
        let operands = [&x, &vector(&[start]), &vector(&[end]), &vector(&[-1]), &vector(&[step])];
        dynamic(Dynamic::Slice, &operands).1
    };
    assert_eq!(slice(1, 4, 2), [1, 3]);
    assert_eq!(slice(-3, i64::MAX, 1), [2, 3, 4]);
    assert_eq!(slice(i64::MAX, i64::MIN, -2), [4, 2, 0]);
    assert_eq!(slice(i64::MAX, i64::MIN, i64::MIN), [4]);
    assert_eq!(slice(1, i64::MAX, i64::MAX), [1]);
    assert_eq!(slice(3, 0, -1), [3, 2, 1]);
    assert_eq!(slice(3, -10, -1), [3, 2, 1, 0]);
    assert_eq!(slice(4, 2, 1), [0; 0]);
    assert_eq!(slice(7, 9, 1), [0; 0]);
}

#[test]
fn parts_and_extremes_are_many_results() {
    let x = matrix();
    let parts = evaluate(&Op::Dynamic(Dynamic::Split { dim: 1 }), &[&x, &vector(&[1, 0, 2])]).unwrap();
    let numbers: Vec<Vec<i64>> = parts.iter().map(|part| part.to_integers().unwrap()).collect();
    assert_eq!(numbers, [vec![0, 3], vec![], vec![1, 2, 4, 5]]);
    assert!(evaluate(&Op::Dynamic(Dynamic::Split { dim: 1 }), &[&x, &vector(&[1, 1])]).is_err());
    let top = Dynamic::TopK { dim: 1, extreme: Extreme::Largest };
    let found = evaluate(&Op::Dynamic(top), &[&x, &vector(&[2])]).unwrap();
    assert_eq!(found[1].to_integers().unwrap(), [2, 1, 2, 1]);
}

/// The sum of the elements of a vector that are not zero, found by their indices.
fn sum_of_non_zero() -> Region {
    let node = |op, operands: &[usize]| RegionNode { op, operands: operands.to_vec(), results: 1 };
    Region {
        operands: 1,
        nodes: vec![
            node(Op::Dynamic(Dynamic::NonZero), &[0]),
            node(Op::Dynamic(Dynamic::Squeeze { dims: vec![0] }), &[1]),
            node(Op::Gather { dim: 0 }, &[0, 2]),
            node(Op::Reduce { reduction: planner_ir::Reduction::Sum, dims: vec![0] }, &[3]),
        ],
        results: vec![4, 0],
        types: vec![Type::new(DType::I64, [1]), Type::new(DType::I64, [4])],
    }
}

#[test]
fn regions_are_programs() {
    let region = Op::Region(Box::new(sum_of_non_zero()));
    let x = vector(&[3, 0, 0, 4]);
    let found = evaluate(&region, &[&x]).unwrap();
    assert_eq!(found, [vector(&[7]), x.clone()]);
    let (mut sum, mut copy) = (vector(&[0]), vector(&[0; 4]));
    compute(&region, &[x.tensor()], &mut [sum.tensor_mut(), copy.tensor_mut()]).unwrap();
    assert_eq!([sum, copy], [vector(&[7]), x.clone()]);
    let (mut sum, mut copy) = (vector(&[0]), vector(&[0; 3]));
    let found = compute(&region, &[x.tensor()], &mut [sum.tensor_mut(), copy.tensor_mut()]);
    let error = found.unwrap_err();
    assert!(matches!(error, KernelError::Given(_)) && error.is_of_numbers(), "{error}");
}

/// What a region is given says shapes that do not fit: its numbers are to blame.
#[test]
fn shapes_that_do_not_fit_are_of_what_is_given() {
    let reshape = |op: Dynamic| {
        Op::Region(Box::new(Region {
            operands: 2,
            nodes: vec![RegionNode { op: Op::Dynamic(op), operands: vec![0, 1], results: 1 }],
            results: vec![2],
            types: vec![Type::new(DType::I64, [6])],
        }))
    };
    let mut y = vector(&[0; 6]);
    for (op, shape) in [
        (Dynamic::Reshape { zero_is_zero: false }, &[5][..]),
        (Dynamic::Reshape { zero_is_zero: false }, &[-1, 4]),
        (Dynamic::Reshape { zero_is_zero: false }, &[2, 3]),
        (Dynamic::Reshape { zero_is_zero: false }, &[6, 1, 0]),
        (Dynamic::Reshape { zero_is_zero: false }, &[i64::MAX, i64::MAX]),
        (Dynamic::Expand, &[5, 4]),
        (Dynamic::Tile, &[i64::MAX, 2]),
        (Dynamic::Tile, &[1]),
    ] {
        let shape = vector(shape);
        let x = matrix();
        let error = compute(&reshape(op), &[x.tensor(), shape.tensor()], &mut [y.tensor_mut()]).unwrap_err();
        assert!(error.is_of_numbers(), "{error}");
    }
}

#[test]
fn one_branch_is_taken() {
    let double = Region {
        operands: 1,
        nodes: vec![RegionNode { op: Op::Binary(Binary::Add), operands: vec![0, 0], results: 1 }],
        results: vec![1],
        types: vec![Type::new(DType::I64, [1])],
    };
    let branch = Op::Dynamic(Dynamic::If {
        yes: Box::new(double),
        no: Box::new(Region {
            operands: 1,
            nodes: vec![],
            results: vec![0],
            types: vec![Type::new(DType::I64, [1])],
        }),
    });
    for (condition, expected) in [(true, 10), (false, 7)] {
        let condition = Array::of_truths(vec![], &[condition]).unwrap();
        let found = one(&branch, &[&condition, &vector(&[5]), &vector(&[7])]);
        assert_eq!(found, vector(&[expected]));
    }
}
