//! Functions of two elements, broadcast.

use planner_ir::{Binary, DType};

use crate::array::{Element, Tensor, TensorMut, expect_dtype, extents};
use crate::error::KernelError;
use crate::nest::{Nest, broadcast};
use crate::number::{Number, with_number};
use crate::wide::wide;
use crate::widen::converted;

/// `y[..] = function(a[..], b[..])`.
pub(crate) fn binary(function: Binary, [a, b]: [&Tensor; 2], y: &mut TensorMut) -> Result<(), KernelError> {
    if function == Binary::Pow && a.dtype != b.dtype {
        return mixed_power([a, b], y);
    }
    expect_dtype(b.dtype, a.dtype)?;
    match function {
        Binary::And => truths([a, b], y, |a, b| a & b),
        Binary::Or => truths([a, b], y, |a, b| a | b),
        Binary::Xor => truths([a, b], y, |a, b| a ^ b),
        Binary::Equal if a.dtype == DType::Bool => truths([a, b], y, |a, b| a == b),
        Binary::Equal => compare([a, b], y, Comparison::Equal),
        Binary::Greater => compare([b, a], y, Comparison::Less),
        Binary::GreaterOrEqual => compare([b, a], y, Comparison::LessOrEqual),
        Binary::Less => compare([a, b], y, Comparison::Less),
        Binary::LessOrEqual => compare([a, b], y, Comparison::LessOrEqual),
        Binary::Div | Binary::Mod | Binary::Fmod if has_zero(b)? => Err(KernelError::DivisionByZero),
        _ => with_number!(a.dtype, "arithmetic", T => arithmetic::<T>(function, [a, b], y)),
    }
}

fn arithmetic<T: Number>(
    function: Binary,
    operands: [&Tensor; 2],
    y: &mut TensorMut,
) -> Result<(), KernelError> {
    let rows = Rows::<T>::new(operands, y)?;
    let [_, exponent] = rows.operands;
    let y = y.elements_mut::<T>()?;
    match function {
        Binary::Add => rows.zip(y, T::plus),
        Binary::Sub => rows.zip(y, T::minus),
        Binary::Mul => rows.zip(y, T::times),
        Binary::Div => rows.zip(y, T::over),
        Binary::Max => rows.zip(y, T::larger),
        Binary::Min => rows.zip(y, T::smaller),
        Binary::Mod => rows.zip(y, T::modulo),
        Binary::Fmod => rows.zip(y, T::remainder),
        Binary::Pow => match *exponent {
            [two] if two == T::ONE.plus(T::ONE) => rows.zip(y, square),
            [three] if three == T::ONE.plus(T::ONE).plus(T::ONE) => rows.zip(y, cube),
            _ => rows.zip(y, T::power),
        },
        Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Equal
        | Binary::Greater
        | Binary::GreaterOrEqual
        | Binary::Less
        | Binary::LessOrEqual => {
            return Err(KernelError::Elements { of: "a truth value", found: T::DTYPE });
        }
    }
    Ok(())
}

#[inline(always)]
fn square<T: Number>(base: T, _exponent: T) -> T {
    base.times(base)
}

#[inline(always)]
fn cube<T: Number>(base: T, _exponent: T) -> T {
    base.times(base).times(base)
}

/// `y[..] = a[..] ^ b[..]` where the exponent has other elements than the base.
fn mixed_power([a, b]: [&Tensor; 2], y: &mut TensorMut) -> Result<(), KernelError> {
    if a.dtype.is_float() || !b.dtype.is_float() {
        let exponent = converted(b, a.dtype)?;
        return binary(Binary::Pow, [a, &exponent.tensor()], y);
    }
    let (base, exponent) = (converted(a, DType::F64)?, converted(b, DType::F64)?);
    let mut power = converted(&y.tensor(), DType::F64)?;
    let operands = [&base.tensor(), &exponent.tensor()];
    binary(Binary::Pow, operands, &mut power.tensor_mut())?;
    crate::cast::cast(&power.tensor(), y)
}

/// Whether there is an integer 0.
fn has_zero(b: &Tensor) -> Result<bool, KernelError> {
    match b.dtype {
        DType::I64 => Ok(b.elements::<i64>()?.contains(&0)),
        DType::U64 => Ok(b.elements::<u64>()?.contains(&0)),
        _ => Ok(false),
    }
}

#[derive(Clone, Copy)]
enum Comparison {
    Equal,
    Less,
    LessOrEqual,
}

fn compare(operands: [&Tensor; 2], y: &mut TensorMut, comparison: Comparison) -> Result<(), KernelError> {
    with_number!(operands[0].dtype, "a comparison", T => {
        let rows = Rows::<T>::new(operands, y)?;
        let y = y.truths_mut()?;
        match comparison {
            Comparison::Equal => rows.zip(y, equal),
            Comparison::Less => rows.zip(y, less),
            Comparison::LessOrEqual => rows.zip(y, less_or_equal),
        }
        Ok(())
    })
}

#[inline(always)]
fn equal<T: Number>(a: T, b: T) -> u8 {
    u8::from(a == b)
}

#[inline(always)]
fn less<T: Number>(a: T, b: T) -> u8 {
    u8::from(a < b)
}

#[inline(always)]
fn less_or_equal<T: Number>(a: T, b: T) -> u8 {
    u8::from(a <= b)
}

fn truths(
    [a, b]: [&Tensor; 2],
    y: &mut TensorMut,
    function: impl Fn(bool, bool) -> bool + Copy,
) -> Result<(), KernelError> {
    expect_dtype(a.dtype, DType::Bool)?;
    expect_dtype(b.dtype, DType::Bool)?;
    let nest = broadcast(&extents(y.shape)?, &[&extents(a.shape)?, &extents(b.shape)?])?;
    let rows = Rows { operands: [a.bytes, b.bytes], nest };
    rows.zip(y.truths_mut()?, |a, b| u8::from(function(a != 0, b != 0)));
    Ok(())
}

/// Two operands and the loops over them and their result.
struct Rows<'a, T> {
    operands: [&'a [T]; 2],
    nest: Nest<3>,
}

impl<'a, T: Element> Rows<'a, T> {
    fn new([a, b]: [&Tensor<'a>; 2], y: &TensorMut) -> Result<Self, KernelError> {
        let nest = broadcast(&extents(y.shape)?, &[&extents(a.shape)?, &extents(b.shape)?])?;
        Ok(Self { operands: [a.elements()?, b.elements()?], nest })
    }

    /// `y[..] = function(a[..], b[..])`.
    fn zip<R>(&self, y: &mut [R], function: impl Fn(T, T) -> R + Copy) {
        let row = self.nest.row();
        let [_, a_stride, b_stride] = row.strides;
        let length = |stride: usize| if stride == 0 { 1 } else { row.extent };
        let [a, b] = self.operands;
        self.nest.for_each_row([0; 3], |[y_start, a_start, b_start]| {
            let y = &mut y[y_start..y_start + row.extent];
            let a = &a[a_start..a_start + length(a_stride)];
            let b = &b[b_start..b_start + length(b_stride)];
            wide!(zip_row, (y, a, b, function));
        });
    }
}

/// A row of results of a row of a or one of it, and a row of b or one of it.
#[inline(always)]
fn zip_row<T: Copy, R, F: Fn(T, T) -> R>((y, a, b, function): (&mut [R], &[T], &[T], F)) {
    match (a, b) {
        (&[a], &[b]) => {
            for y in y {
                *y = function(a, b);
            }
        }
        (a, &[b]) => {
            for (y, &a) in y.iter_mut().zip(a) {
                *y = function(a, b);
            }
        }
        (&[a], b) => {
            for (y, &b) in y.iter_mut().zip(b) {
                *y = function(a, b);
            }
        }
        (a, b) => {
            for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                *y = function(a, b);
            }
        }
    }
}
