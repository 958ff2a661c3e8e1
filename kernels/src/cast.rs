//! Conversion of elements.
//!
//! Floating-point numbers go to the nearest, or toward zero and at most to the outermost
//! integer; numbers of 8 bits that are too large are infinite, or not numbers where there are no
//! infinities; integers keep their low bits; a truth value is 0 or 1, and says of a number whether
//! it is not 0.

use std::cmp::Ordering;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use planner_ir::DType;

use crate::array::{Element, Tensor, TensorMut, element_count};
use crate::error::KernelError;
use crate::float8::Format;

/// `y[..] = x[..]` with the elements of y.
pub(crate) fn cast(x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    if element_count(x.shape)? != element_count(y.shape)? {
        return Err(KernelError::Shape {
            of: "a conversion",
            found: y.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    let decoded = |y: &mut TensorMut, format: Format| {
        let numbers: Vec<f32> = x.bytes.iter().map(|&code| format.decoded(code)).collect();
        from::<f32>(&Tensor { dtype: DType::F32, bytes: bytemuck::cast_slice(&numbers), ..*x }, y)
    };
    match (x.dtype, y.dtype) {
        (from, to) if from == to => y.bytes.copy_from_slice(x.bytes),
        (DType::F16, DType::F32) => {
            x.elements::<f16>()?.convert_to_f32_slice(y.elements_mut::<f32>()?);
        }
        (DType::F32, DType::F16) => {
            y.elements_mut::<f16>()?.convert_from_f32_slice(x.elements::<f32>()?);
        }
        (DType::F64, _) => from::<f64>(x, y)?,
        (DType::F32, _) => from::<f32>(x, y)?,
        (DType::F16, _) => from::<f16>(x, y)?,
        (DType::BF16, _) => from::<bf16>(x, y)?,
        (DType::F8E4M3FN, _) => decoded(y, Format::E4M3FN)?,
        (DType::F8E4M3FNUZ, _) => decoded(y, Format::E4M3FNUZ)?,
        (DType::F8E5M2, _) => decoded(y, Format::E5M2)?,
        (DType::F8E5M2FNUZ, _) => decoded(y, Format::E5M2FNUZ)?,
        (DType::I64, _) => from::<i64>(x, y)?,
        (DType::I32, _) => from::<i32>(x, y)?,
        (DType::I16, _) => from::<i16>(x, y)?,
        (DType::I8, _) => from::<i8>(x, y)?,
        (DType::U64, _) => from::<u64>(x, y)?,
        (DType::U32, _) => from::<u32>(x, y)?,
        (DType::U16, _) => from::<u16>(x, y)?,
        (DType::U8, _) => from::<u8>(x, y)?,
        (DType::Bool, _) => {
            let truths: Vec<u8> = x.bytes.iter().map(|&byte| u8::from(byte != 0)).collect();
            let numbers = Tensor { dtype: DType::U8, shape: x.shape, bytes: &truths, spans: x.spans };
            from::<u8>(&numbers, y)?;
        }
    }
    Ok(())
}

/// An element that others are made from.
trait Source: Element {
    fn cast<T: Target>(self) -> T;
}

/// An element that is made from the widest of each kind.
trait Target {
    fn of_f64(number: f64) -> Self;
    fn of_f32(number: f32) -> Self;
    fn of_i64(number: i64) -> Self;
    fn of_u64(number: u64) -> Self;
}

fn from<S: Source>(x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    let x = x.elements::<S>()?;
    let encode = |y: &mut [u8], format: Format| {
        for (y, &x) in y.iter_mut().zip(x) {
            let Single(number) = x.cast();
            *y = format.encoded(number);
        }
    };
    match y.dtype {
        DType::F64 => convert(x, y.elements_mut::<f64>()?),
        DType::F32 => convert(x, y.elements_mut::<f32>()?),
        DType::F16 => convert(x, y.elements_mut::<f16>()?),
        DType::BF16 => convert(x, y.elements_mut::<bf16>()?),
        DType::F8E4M3FN => encode(y.bytes, Format::E4M3FN),
        DType::F8E4M3FNUZ => encode(y.bytes, Format::E4M3FNUZ),
        DType::F8E5M2 => encode(y.bytes, Format::E5M2),
        DType::F8E5M2FNUZ => encode(y.bytes, Format::E5M2FNUZ),
        DType::I64 => convert(x, y.elements_mut::<i64>()?),
        DType::I32 => convert(x, y.elements_mut::<i32>()?),
        DType::I16 => convert(x, y.elements_mut::<i16>()?),
        DType::I8 => convert(x, y.elements_mut::<i8>()?),
        DType::U64 => convert(x, y.elements_mut::<u64>()?),
        DType::U32 => convert(x, y.elements_mut::<u32>()?),
        DType::U16 => convert(x, y.elements_mut::<u16>()?),
        DType::U8 => convert(x, y.elements_mut::<u8>()?),
        DType::Bool => {
            for (y, &x) in y.truths_mut()?.iter_mut().zip(x) {
                *y = u8::from(x.cast::<bool>());
            }
        }
    }
    Ok(())
}

fn convert<S: Source, T: Target>(x: &[S], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x.cast();
    }
}

impl Source for f64 {
    #[inline(always)]
    fn cast<T: Target>(self) -> T {
        T::of_f64(self)
    }
}

impl Source for f32 {
    #[inline(always)]
    fn cast<T: Target>(self) -> T {
        T::of_f32(self)
    }
}

impl Source for f16 {
    #[inline(always)]
    fn cast<T: Target>(self) -> T {
        T::of_f32(self.to_f32())
    }
}

impl Source for bf16 {
    #[inline(always)]
    fn cast<T: Target>(self) -> T {
        T::of_f32(self.to_f32())
    }
}

/// A number that one of fewer bits is rounded from: wider ones are rounded to odd.
struct Single(f32);

/// Numbers that are made from f32, and from wider ones by way of it.
macro_rules! halves {
    ($($half:ty, $from:expr;)*) => {$(
        impl Target for $half {
            fn of_f64(number: f64) -> Self {
                $from(rounded_to_odd(number))
            }

            #[inline(always)]
            fn of_f32(number: f32) -> Self {
                $from(number)
            }

            #[expect(clippy::cast_precision_loss, reason = "rounding to the nearest is meant")]
            fn of_i64(number: i64) -> Self {
                Self::of_f64(number as f64)
            }

            #[expect(clippy::cast_precision_loss, reason = "rounding to the nearest is meant")]
            fn of_u64(number: u64) -> Self {
                Self::of_f64(number as f64)
            }
        }
    )*};
}

halves! {
    f16, Self::from_f32;
    bf16, Self::from_f32;
    Single, Self;
}

/// A neighbour of a number that rounds to the same shorter number: of two, the odd one, which is
/// never half way between two shorter numbers.
///
/// Source: Boldo and Melquiond, "When double rounding is odd", 2005.
#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
fn rounded_to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let excess = f64::from(nearest).abs().partial_cmp(&number.abs());
    let is_odd = nearest.to_bits() % 2 == 1;
    match excess {
        Some(Ordering::Greater) if !is_odd => f32::from_bits(nearest.to_bits() - 1),
        Some(Ordering::Less) if !is_odd => f32::from_bits(nearest.to_bits() + 1),
        _ => nearest,
    }
}

impl Target for bool {
    fn of_f64(number: f64) -> Self {
        number != 0.0
    }

    fn of_f32(number: f32) -> Self {
        number != 0.0
    }

    fn of_i64(number: i64) -> Self {
        number != 0
    }

    fn of_u64(number: u64) -> Self {
        number != 0
    }
}

/// Numbers that Rust converts with `as`, in just the way that is meant.
macro_rules! targets {
    ($($number:ty)*) => {$(
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            trivial_numeric_casts,
            reason = "the nearest, outermost or lowest bits are meant; some number types lose none"
        )]
        impl Target for $number {
            #[inline(always)]
            fn of_f64(number: f64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn of_f32(number: f32) -> Self {
                number as Self
            }

            #[inline(always)]
            fn of_i64(number: i64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn of_u64(number: u64) -> Self {
                number as Self
            }
        }
    )*};
}

targets!(f64 f32 i64 i32 i16 i8 u64 u32 u16 u8);

/// Integers that fit into the widest of their kind.
macro_rules! sources {
    ($make:ident, $($number:ty)*) => {$(
        impl Source for $number {
            #[inline(always)]
            fn cast<T: Target>(self) -> T {
                T::$make(self.into())
            }
        }
    )*};
}

sources!(of_i64, i64 i32 i16 i8);
sources!(of_u64, u64 u32 u16 u8);

#[cfg(test)]
mod tests;
