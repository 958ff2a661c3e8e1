//! Random values for operations.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{DType, Op, Type};

use crate::array::Array;

/// The elements that kernels for GPUs know, truth values last.
pub(super) const COVERED: [DType; 13] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

/// The floating-point types.
pub(super) const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// How far results of an element type may be off.
pub(super) fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-12 } else { 1e-5 }
}

/// Numbers of a normal shape with that seed, of that type; integers from -8 to 8.
pub(super) fn numbers(dtype: DType, shape: &[u64], seed: u64) -> Array {
    let count: u64 = shape.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from(u32::try_from(state >> 40).unwrap()) / 16_777_216.0
    };
    let numbers: Vec<f64> = (0..count)
        .map(|_| {
            let number = next() + next() + next() + next() - 2.0;
            match dtype {
                _ if dtype.is_float() => 1.7 * number,
                DType::Bool => f64::from(u8::from(number > 0.0)),
                DType::U64 | DType::U32 | DType::U16 | DType::U8 => (number.abs() * 4.0).round(),
                _ => (number * 4.0).round(),
            }
        })
        .collect();
    cast(&Array::of(shape.to_vec(), &numbers).unwrap(), dtype)
}

/// Whole numbers from `low` to below `high`.
pub(super) fn whole(dtype: DType, shape: &[u64], low: i64, high: i64, seed: u64) -> Array {
    let count: u64 = shape.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0f0f_1234_5678_9abc;
    let numbers: Vec<i64> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            low + i64::try_from((state >> 33) % high.abs_diff(low)).unwrap()
        })
        .collect();
    cast(&Array::of(shape.to_vec(), &numbers).unwrap(), dtype)
}

/// The values as that type.
pub(super) fn cast(array: &Array, dtype: DType) -> Array {
    let mut made = Array::zeros(Type::new(dtype, array.shape())).unwrap();
    crate::compute(&Op::Cast(dtype), &[array.tensor()], &mut [made.tensor_mut()]).unwrap();
    made
}

/// A shape of that many dimensions and not too many elements; extents are ragged now and then.
pub(super) fn shape(u: &mut Unstructured, rank: usize) -> Result<Vec<u64>> {
    let mut shape = Vec::new();
    for _ in 0..rank {
        shape.push(*u.choose(&[1, 2, 3, 4, 5, 8, 16, 24, 33])?);
    }
    while shape.iter().product::<u64>() > 6000 {
        let largest = shape.iter_mut().max().unwrap();
        *largest = (*largest / 2).max(1);
    }
    Ok(shape)
}

/// A shape that repeats to another one: some extents are 1, or are left out in front.
pub(super) fn smaller(u: &mut Unstructured, shape: &[u64]) -> Result<Vec<u64>> {
    let first = if u.ratio(1, 4)? { u.int_in_range(0..=shape.len())? } else { 0 };
    shape[first..].iter().map(|&it| Ok(if u.ratio(1, 3)? { 1 } else { it })).collect()
}

/// Bytes that random choices are made from.
pub(super) fn entropy(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x2545_f491_4f6c_dd1d);
    (0..4096)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[5]
        })
        .collect()
}

/// So many trials, each from random bytes of its own.
pub(super) fn many<T>(count: u64, mut trial: impl FnMut(&mut Unstructured, u64) -> Result<T>) -> Vec<T> {
    (0..count)
        .map(|seed| {
            let bytes = entropy(seed);
            trial(&mut Unstructured::new(&bytes), seed).expect("there are bytes enough")
        })
        .collect()
}
