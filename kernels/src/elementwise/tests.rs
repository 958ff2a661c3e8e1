//! Functions of elements against their definitions, on special values and on random shapes.

use arbtest::arbtest;
use half::f16;
use planner_ir::{Binary, DType, Op, Unary};

use crate::{Array, KernelError, evaluate};

fn one(op: &Op, operands: &[&Array]) -> Array {
    evaluate(op, operands).unwrap().remove(0)
}

fn binary(function: Binary, a: &[i64], b: &[i64]) -> Vec<i64> {
    let shape = |numbers: &[i64]| vec![u64::try_from(numbers.len()).unwrap()];
    let a = Array::of(shape(a), a).unwrap();
    let b = Array::of(shape(b), b).unwrap();
    one(&Op::Binary(function), &[&a, &b]).to_integers().unwrap()
}

#[test]
fn integers_divide_toward_zero_and_wrap() {
    assert_eq!(binary(Binary::Div, &[7, -7, i64::MIN], &[-2, 2, -1]), [-3, -3, i64::MIN]);
    assert_eq!(binary(Binary::Mod, &[7, -7, -6, 7], &[-2, 2, 2, 3]), [-1, 1, 0, 1]);
    assert_eq!(binary(Binary::Fmod, &[7, -7, -6, 7], &[-2, 2, 2, 3]), [1, -1, 0, 1]);
    assert_eq!(binary(Binary::Pow, &[3, -2, 2, -1, 5], &[4, 3, -1, -3, 0]), [81, -8, 0, -1, 1]);
    assert_eq!(binary(Binary::Add, &[i64::MAX], &[1]), [i64::MIN]);
}

#[test]
fn integer_division_by_zero_is_an_error() {
    let (one, zero) = (Array::of([1], &[1_i32]).unwrap(), Array::of([1], &[0_i32]).unwrap());
    for function in [Binary::Div, Binary::Mod, Binary::Fmod] {
        let found = evaluate(&Op::Binary(function), &[&one, &zero]);
        assert_eq!(found, Err(KernelError::DivisionByZero));
    }
}

#[test]
fn numbers_are_not_lost_where_there_is_none() {
    let a = Array::of([3], &[f32::NAN, 1.0, f32::NAN]).unwrap();
    let b = Array::of([3], &[1.0, f32::NAN, f32::NAN]).unwrap();
    for function in [Binary::Max, Binary::Min, Binary::Add] {
        let found = one(&Op::Binary(function), &[&a, &b]);
        assert!(found.elements::<f32>().unwrap().iter().all(|x| x.is_nan()), "{function:?}");
    }
    let found = one(&Op::Unary(Unary::IsNan), &[&a]).to_truths().unwrap();
    assert_eq!(found, [true, false, true]);
}

#[test]
fn halves_are_rounded_to_even() {
    let x = Array::of([5], &[0.5_f32, 1.5, 2.5, -0.5, -1.5]).unwrap();
    let found = one(&Op::Unary(Unary::Round), &[&x]);
    assert_eq!(found.elements::<f32>().unwrap(), [0.0, 2.0, 2.0, 0.0, -2.0]);
}

#[test]
fn half_precision_is_rounded_once() {
    let a = Array::of([1], &[f16::from_f32(1.0)]).unwrap();
    let b = Array::of([1], &[f16::from_f32(3.0)]).unwrap();
    let found = one(&Op::Binary(Binary::Div), &[&a, &b]);
    assert_eq!(found.elements::<f16>().unwrap(), [f16::from_f32(1.0 / 3.0)]);
}

#[test]
fn pieces_of_widened_values_are_put_together() {
    let count = 37_u64 * 1001;
    let numbers: Vec<f32> = (0..count).map(|at| f32::from(u8::try_from(at % 119).unwrap()) - 50.0).collect();
    let [x, row, column] =
        [(vec![1, 37, 1001], 37 * 1001), (vec![1001], 1001), (vec![37, 1], 37)].map(|(shape, count)| {
            let wide = Array::of(shape, &numbers[..count]).unwrap();
            (one(&Op::Cast(DType::BF16), &[&wide]), wide)
        });
    let check = |op: &Op, narrow: &[&Array], wide: &[&Array]| {
        let expected = one(&Op::Cast(DType::BF16), &[&one(op, wide)]);
        assert!(one(op, narrow) == expected, "{op:?}");
    };
    for other in [&x, &row, &column] {
        check(&Op::Binary(Binary::Sub), &[&x.0, &other.0], &[&x.1, &other.1]);
        check(&Op::Gated(Unary::Silu), &[&other.0, &x.0], &[&other.1, &x.1]);
    }
    check(&Op::Unary(Unary::Tanh), &[&x.0], &[&x.1]);
    for dim in [0, 1, 2] {
        check(&Op::Softmax { dim }, &[&x.0], &[&x.1]);
    }
    for dims in [1, 2] {
        let op = Op::LayerNorm { dims, epsilon: planner_ir::Real(1e-3) };
        check(&op, &[&x.0, &row.0, &column.0], &[&x.1, &row.1, &column.1]);
    }
}

#[test]
fn selection_and_gates_broadcast() {
    let condition = Array::of_truths([2, 1], &[true, false]).unwrap();
    let a = Array::of([3], &[1_i64, 2, 3]).unwrap();
    let b = Array::of(vec![], &[9_i64]).unwrap();
    let found = one(&Op::Select, &[&condition, &a, &b]);
    assert_eq!(found.shape(), [2, 3]);
    assert_eq!(found.to_integers().unwrap(), [1, 2, 3, 9, 9, 9]);

    let x = Array::of([2], &[-1.0_f32, 2.0]).unwrap();
    let y = Array::of([2, 1], &[3.0_f32, 4.0]).unwrap();
    let found = one(&Op::Gated(Unary::Relu), &[&x, &y]);
    assert_eq!(found.elements::<f32>().unwrap(), [0.0, 6.0, 0.0, 8.0]);
    let found = one(&Op::Gated(Unary::Relu), &[&x, &x]);
    assert_eq!(found.elements::<f32>().unwrap(), [0.0, 4.0]);
}

#[test]
fn powers_of_mixed_types_have_the_type_of_the_base() {
    let base = Array::of([2], &[4_i32, 9]).unwrap();
    let exponent = Array::of(vec![], &[0.5_f32]).unwrap();
    let found = one(&Op::Binary(Binary::Pow), &[&base, &exponent]);
    assert_eq!(found.elements::<i32>().unwrap(), [2, 3]);
    let base = Array::of([2], &[4_f32, 9.0]).unwrap();
    let exponent = Array::of(vec![], &[2_i64]).unwrap();
    let found = one(&Op::Binary(Binary::Pow), &[&base, &exponent]);
    assert_eq!(found.elements::<f32>().unwrap(), [16.0, 81.0]);
}

#[test]
fn truth_values_combine() {
    let a = Array::of_truths([4], &[false, false, true, true]).unwrap();
    let b = Array::of_truths([4], &[false, true, false, true]).unwrap();
    let check = |function, expected: [bool; 4]| {
        let found = one(&Op::Binary(function), &[&a, &b]);
        assert_eq!(found.dtype(), DType::Bool);
        assert_eq!(found.to_truths().unwrap(), expected, "{function:?}");
    };
    check(Binary::And, [false, false, false, true]);
    check(Binary::Or, [false, true, true, true]);
    check(Binary::Xor, [false, true, true, false]);
    check(Binary::Equal, [true, false, false, true]);
}

/// Every index of a shape, row-major.
fn every_index(shape: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for &extent in shape {
        all = all
            .into_iter()
            .flat_map(|index: Vec<u64>| (0..extent).map(move |at| [&index[..], &[at]].concat()))
            .collect();
    }
    all
}

/// The element at an index that broadcasts.
fn element(array: &Array, index: &[u64]) -> i64 {
    let missing = index.len() - array.shape().len();
    let place = array
        .shape()
        .iter()
        .zip(&index[missing..])
        .fold(0, |place, (&extent, &at)| place * extent + if extent == 1 { 0 } else { at });
    array.to_integers().unwrap()[usize::try_from(place).unwrap()]
}

#[test]
fn operands_broadcast_as_in_numpy() {
    arbtest(|u| {
        let rank = u.int_in_range(0..=4)?;
        let shape: Vec<u64> = (0..rank).map(|_| u.int_in_range(1..=3)).collect::<Result<_, _>>()?;
        let mut operand = || {
            let missing = u.int_in_range(0..=rank)?;
            let shape: Vec<u64> = shape[missing..]
                .iter()
                .map(|&extent| Ok(if u.arbitrary()? { extent } else { 1 }))
                .collect::<arbtest::arbitrary::Result<_>>()?;
            let count: u64 = shape.iter().product();
            let numbers: Vec<i64> = (0..count).map(|_| u.int_in_range(-9..=9)).collect::<Result<_, _>>()?;
            Ok(Array::of(shape, &numbers).unwrap())
        };
        let (a, b) = (operand()?, operand()?);
        for (function, name) in [(Binary::Sub, "sub"), (Binary::Less, "less")] {
            let found = one(&Op::Binary(function), &[&a, &b]);
            for (at, index) in every_index(found.shape()).into_iter().enumerate() {
                let (a, b) = (element(&a, &index), element(&b, &index));
                let expected = if name == "sub" { a - b } else { i64::from(a < b) };
                assert_eq!(found.to_integers().unwrap()[at], expected, "{name} at {index:?}");
            }
        }
        Ok(())
    });
}
