//! Conversions at the edges of each type.

use half::{bf16, f16};
use planner_ir::{DType, Op};

use crate::Array;
use crate::naive::one;

fn cast(x: &Array, dtype: DType) -> Array {
    one(&Op::Cast(dtype), &[x])
}

#[test]
fn floats_go_toward_zero_and_stop_at_the_outermost_integer() {
    let x = Array::of([6], &[1.9_f32, -1.9, 1e20, -1e20, f32::NAN, 300.0]).unwrap();
    let found = cast(&x, DType::I64);
    assert_eq!(found.elements::<i64>().unwrap(), [1, -1, i64::MAX, i64::MIN, 0, 300]);
    assert_eq!(cast(&x, DType::I8).elements::<i8>().unwrap(), [1, -1, 127, -128, 0, 127]);
    assert_eq!(cast(&x, DType::U8).elements::<u8>().unwrap(), [1, 0, 255, 0, 0, 255]);
}

#[test]
fn integers_keep_their_low_bits() {
    let x = Array::of([3], &[257_i64, -1, i64::MAX]).unwrap();
    assert_eq!(cast(&x, DType::U8).elements::<u8>().unwrap(), [1, 255, 255]);
    assert_eq!(cast(&x, DType::I32).elements::<i32>().unwrap(), [257, -1, -1]);
    assert_eq!(cast(&x, DType::U64).elements::<u64>().unwrap(), [257, u64::MAX, i64::MAX.cast_unsigned()]);
}

#[test]
fn truth_is_not_being_zero() {
    let x = Array::of([5], &[0.0_f64, -0.0, 0.25, f64::NAN, -3.0]).unwrap();
    assert_eq!(cast(&x, DType::Bool).to_truths().unwrap(), [false, false, true, true, true]);
    let truths = Array::of_truths([2], &[true, false]).unwrap();
    assert_eq!(cast(&truths, DType::BF16).elements::<bf16>().unwrap(), [bf16::ONE, bf16::ZERO]);
}

#[test]
fn every_pair_of_types_keeps_small_integers() {
    let x = Array::of([3], &[0_u8, 1, 96]).unwrap();
    for from in DType::ALL {
        for to in DType::ALL {
            let expected = if from == DType::Bool || to == DType::Bool { [0, 1, 1] } else { [0, 1, 96] };
            let found = cast(&cast(&cast(&x, from), to), DType::I64);
            assert_eq!(found.elements::<i64>().unwrap(), expected, "{from} to {to}");
        }
    }
}

#[test]
fn halves_are_the_nearest() {
    let x = Array::of([3], &[1.0_f64 + 1.0 / 2048.0 + 1e-9, 65519.0, 65520.0]).unwrap();
    let expected = [f16::from_f32(1.0 + 1.0 / 1024.0), f16::MAX, f16::INFINITY];
    assert_eq!(cast(&x, DType::F16).elements::<f16>().unwrap(), expected);
    assert_eq!(cast(&cast(&x, DType::F32), DType::F16).elements::<f16>().unwrap()[1..], expected[1..]);
}
