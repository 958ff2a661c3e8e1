//! Functions of one element.

use planner_ir::{DType, Unary};

use crate::approximate;
use crate::array::{Element, Tensor, TensorMut, element_count};
use crate::error::KernelError;
use crate::number::{Number, with_number};

/// `y[..] = function(x[..])` as one loop, with the function inlined if it is always inlined.
macro_rules! map {
    ($x:expr, $y:expr, $function:expr) => {
        crate::wide::call(
            #[inline(always)]
            |(x, y): (&[Self], &mut [Self])| {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = $function(x);
                }
            },
            ($x, $y),
        )
    };
}

/// `y[..] = function(x[..])`.
pub(crate) fn unary(function: Unary, x: &Tensor, y: &mut TensorMut) -> Result<(), KernelError> {
    if element_count(x.shape)? != element_count(y.shape)? {
        return Err(KernelError::Shape {
            of: "a function's result",
            found: y.shape.to_vec(),
            expected: x.shape.to_vec(),
        });
    }
    match function {
        Unary::Not => {
            for (y, &x) in y.truths_mut()?.iter_mut().zip(x.truths()?) {
                *y = u8::from(x == 0);
            }
            Ok(())
        }
        Unary::IsNan => test(x, y, f64::is_nan),
        Unary::IsInf => test(x, y, f64::is_infinite),
        _ => with_number!(x.dtype, function.name(), T => {
            activate(function, x.elements::<T>()?, y.elements_mut::<T>()?)
        }),
    }
}

/// `y[..] = function(x[..])` of numbers that kernels compute with.
pub(crate) fn activate<T: Activated>(function: Unary, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    T::activate(function, x, y)
}

/// The numbers, each with the functions that are defined on it.
pub(crate) trait Activated: Number {
    /// `y[..] = function(x[..])`.
    fn activate(function: Unary, x: &[Self], y: &mut [Self]) -> Result<(), KernelError>;
}

impl Activated for f32 {
    fn activate(function: Unary, x: &[Self], y: &mut [Self]) -> Result<(), KernelError> {
        match function {
            Unary::Abs => map!(x, y, Self::abs),
            Unary::Ceil => map!(x, y, Self::ceil),
            Unary::Cos => map!(x, y, libm::cosf),
            Unary::Erf => map!(x, y, approximate::erf),
            Unary::Exp => map!(x, y, approximate::exp),
            Unary::Floor => map!(x, y, Self::floor),
            Unary::Gelu => map!(x, y, approximate::gelu),
            Unary::GeluTanh => map!(x, y, approximate::gelu_tanh),
            Unary::GeluQuick => map!(x, y, approximate::gelu_quick),
            Unary::Log => map!(x, y, libm::logf),
            Unary::Neg => map!(x, y, std::ops::Neg::neg),
            Unary::Reciprocal => map!(x, y, Self::recip),
            Unary::Relu => map!(x, y, positive),
            Unary::Round => map!(x, y, Self::round_ties_even),
            Unary::Sigmoid => map!(x, y, approximate::sigmoid),
            Unary::Sign => map!(x, y, sign),
            Unary::Silu => map!(x, y, approximate::silu),
            Unary::Sin => map!(x, y, libm::sinf),
            Unary::Softplus => map!(x, y, softplus_f32),
            Unary::Sqrt => map!(x, y, Self::sqrt),
            Unary::Tanh => map!(x, y, approximate::tanh),
            Unary::Not | Unary::IsInf | Unary::IsNan => return undefined::<Self>(function),
        }
        Ok(())
    }
}

impl Activated for f64 {
    fn activate(function: Unary, x: &[Self], y: &mut [Self]) -> Result<(), KernelError> {
        match function {
            Unary::Abs => map!(x, y, Self::abs),
            Unary::Ceil => map!(x, y, Self::ceil),
            Unary::Cos => map!(x, y, libm::cos),
            Unary::Erf => map!(x, y, libm::erf),
            Unary::Exp => map!(x, y, libm::exp),
            Unary::Floor => map!(x, y, Self::floor),
            Unary::Gelu => map!(x, y, gelu_f64),
            Unary::GeluTanh => map!(x, y, gelu_tanh_f64),
            Unary::GeluQuick => map!(x, y, gelu_quick_f64),
            Unary::Log => map!(x, y, libm::log),
            Unary::Neg => map!(x, y, std::ops::Neg::neg),
            Unary::Reciprocal => map!(x, y, Self::recip),
            Unary::Relu => map!(x, y, positive),
            Unary::Round => map!(x, y, Self::round_ties_even),
            Unary::Sigmoid => map!(x, y, sigmoid_f64),
            Unary::Sign => map!(x, y, sign),
            Unary::Silu => map!(x, y, silu_f64),
            Unary::Sin => map!(x, y, libm::sin),
            Unary::Softplus => map!(x, y, softplus_f64),
            Unary::Sqrt => map!(x, y, Self::sqrt),
            Unary::Tanh => map!(x, y, libm::tanh),
            Unary::Not | Unary::IsInf | Unary::IsNan => return undefined::<Self>(function),
        }
        Ok(())
    }
}

impl Activated for i64 {
    fn activate(function: Unary, x: &[Self], y: &mut [Self]) -> Result<(), KernelError> {
        match function {
            Unary::Abs => map!(x, y, Self::wrapping_abs),
            Unary::Neg => map!(x, y, Self::wrapping_neg),
            Unary::Sign => map!(x, y, Self::signum),
            Unary::Relu => map!(x, y, positive),
            Unary::Ceil | Unary::Floor | Unary::Round => y.copy_from_slice(x),
            _ => return undefined::<Self>(function),
        }
        Ok(())
    }
}

impl Activated for u64 {
    fn activate(function: Unary, x: &[Self], y: &mut [Self]) -> Result<(), KernelError> {
        match function {
            Unary::Neg => map!(x, y, Self::wrapping_neg),
            Unary::Sign => map!(x, y, sign),
            Unary::Abs | Unary::Relu | Unary::Ceil | Unary::Floor | Unary::Round => {
                y.copy_from_slice(x);
            }
            _ => return undefined::<Self>(function),
        }
        Ok(())
    }
}

fn undefined<T: Element>(function: Unary) -> Result<(), KernelError> {
    Err(KernelError::Elements { of: function.name(), found: T::DTYPE })
}

/// `y[..] = test(x[..])`, which is false of integers.
fn test(x: &Tensor, y: &mut TensorMut, test: fn(f64) -> bool) -> Result<(), KernelError> {
    let y = y.truths_mut()?;
    match x.dtype {
        DType::F32 => {
            for (y, &x) in y.iter_mut().zip(x.elements::<f32>()?) {
                *y = u8::from(test(f64::from(x)));
            }
        }
        DType::F64 => {
            for (y, &x) in y.iter_mut().zip(x.elements::<f64>()?) {
                *y = u8::from(test(x));
            }
        }
        _ => y.fill(0),
    }
    Ok(())
}

#[inline(always)]
fn positive<T: Number>(x: T) -> T {
    x.larger(T::ZERO)
}

#[inline(always)]
fn sign<T: Number>(x: T) -> T {
    if x > T::ZERO {
        T::ONE
    } else if x < T::ZERO {
        T::ZERO.minus(T::ONE)
    } else {
        x
    }
}

fn softplus_f32(x: f32) -> f32 {
    x.max(0.0) + libm::log1pf(approximate::exp(-x.abs()))
}

fn softplus_f64(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

fn sigmoid_f64(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

fn silu_f64(x: f64) -> f64 {
    x * sigmoid_f64(x)
}

fn gelu_f64(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn gelu_tanh_f64(x: f64) -> f64 {
    const SLOPE: f64 = 0.797_884_560_802_865_4;
    let inner = SLOPE * (x + 0.044_715 * x * x * x);
    x * sigmoid_f64(2.0 * inner)
}

fn gelu_quick_f64(x: f64) -> f64 {
    x * sigmoid_f64(1.702 * x)
}
