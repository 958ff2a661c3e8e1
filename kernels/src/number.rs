//! The numbers that kernels compute with: f32, f64, i64 and u64.
//!
//! Every other element is widened to one of these first. Integers wrap around.

use planner_ir::DType;

use crate::approximate;
use crate::array::Element;

/// A number that kernels compute with.
pub(crate) trait Number: Element + PartialOrd {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// What is not above any number.
    const LOWEST: Self;
    /// What is not below any number.
    const HIGHEST: Self;

    /// The number nearest to that one, or the outermost.
    fn of_f64(number: f64) -> Self;
    /// It as f64.
    fn to_f64(self) -> f64;
    /// `self + other`.
    fn plus(self, other: Self) -> Self;
    /// `self - other`.
    fn minus(self, other: Self) -> Self;
    /// `self * other`.
    fn times(self, other: Self) -> Self;
    /// `self / other`, of integers toward zero, where other is not the integer 0.
    fn over(self, other: Self) -> Self;
    /// The remainder with the divisor's sign, where other is not the integer 0.
    fn modulo(self, other: Self) -> Self;
    /// The remainder with the dividend's sign, where other is not the integer 0.
    fn remainder(self, other: Self) -> Self;
    /// `self ^ other`.
    fn power(self, other: Self) -> Self;
    /// The larger, or what is not a number.
    fn larger(self, other: Self) -> Self;
    /// The smaller, or what is not a number.
    fn smaller(self, other: Self) -> Self;
    /// Whether it is not a number.
    fn is_not_a_number(self) -> bool;
}

/// A number with a fraction.
pub(crate) trait Float: Number {
    /// `e ^ self`.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The root.
    fn root(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
}

/// What both floats share; how f64 is rounded and powers are theirs.
macro_rules! float {
    ($float:ty, $rounded:expr, $power:expr) => {
        impl Number for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = Self::NEG_INFINITY;
            const HIGHEST: Self = Self::INFINITY;

            #[inline(always)]
            fn of_f64(number: f64) -> Self {
                $rounded(number)
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }

            fn modulo(self, other: Self) -> Self {
                let remainder = self % other;
                if remainder != 0.0 && (remainder < 0.0) != (other < 0.0) {
                    remainder + other
                } else {
                    remainder
                }
            }

            fn remainder(self, other: Self) -> Self {
                self % other
            }

            fn power(self, other: Self) -> Self {
                $power(self, other)
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if (self > other) | self.is_nan() { self } else { other }
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if (self < other) | self.is_nan() { self } else { other }
            }

            #[inline(always)]
            fn is_not_a_number(self) -> bool {
                self.is_nan()
            }
        }
    };
}

float!(f32, nearest, libm::powf);
float!(f64, std::convert::identity, libm::pow);

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is meant")]
fn nearest(number: f64) -> f32 {
    number as f32
}

impl Float for f32 {
    #[inline(always)]
    fn exp(self) -> Self {
        approximate::exp(self)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        libm::logf(self)
    }

    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        approximate::tanh(self)
    }
}

impl Float for f64 {
    fn exp(self) -> Self {
        libm::exp(self)
    }

    fn ln(self) -> Self {
        libm::log(self)
    }

    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }

    fn tanh(self) -> Self {
        libm::tanh(self)
    }
}

/// What both integers share; the remainder with the divisor's sign and powers are theirs.
macro_rules! integer {
    ($integer:ty, $modulo:expr, $power:expr) => {
        impl Number for $integer {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = Self::MIN;
            const HIGHEST: Self = Self::MAX;

            #[expect(
                clippy::cast_possible_truncation,
                reason = "toward zero, and at most the outermost integer, is meant"
            )]
            fn of_f64(number: f64) -> Self {
                number as Self
            }

            #[expect(clippy::cast_precision_loss, reason = "rounding to the nearest is meant")]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self.wrapping_div(other)
            }

            fn modulo(self, other: Self) -> Self {
                $modulo(self, other)
            }

            fn remainder(self, other: Self) -> Self {
                self.wrapping_rem(other)
            }

            fn power(self, other: Self) -> Self {
                $power(self, other)
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn is_not_a_number(self) -> bool {
                false
            }
        }
    };
}

integer!(i64, signed_modulo, signed_power);
integer!(u64, u64::wrapping_rem, unsigned_power);

fn signed_modulo(number: i64, divisor: i64) -> i64 {
    let remainder = number.wrapping_rem(divisor);
    let signs_differ = (remainder < 0) != (divisor < 0);
    if remainder != 0 && signs_differ { remainder + divisor } else { remainder }
}

/// `base ^ exponent`; a negative exponent gives the reciprocal, toward zero.
fn signed_power(base: i64, exponent: i64) -> i64 {
    if exponent >= 0 {
        return wrapping_power(base, exponent.unsigned_abs(), i64::wrapping_mul, 1);
    }
    match base {
        1 => 1,
        -1 if exponent % 2 == 0 => 1,
        -1 => -1,
        _ => 0,
    }
}

fn unsigned_power(base: u64, exponent: u64) -> u64 {
    wrapping_power(base, exponent, u64::wrapping_mul, 1)
}

fn wrapping_power<T: Copy>(base: T, exponent: u64, times: impl Fn(T, T) -> T, one: T) -> T {
    let (mut square, mut rest, mut power) = (base, exponent, one);
    while rest > 0 {
        if rest % 2 == 1 {
            power = times(power, square);
        }
        square = times(square, square);
        rest /= 2;
    }
    power
}

/// Evaluates an expression with `$number` naming the number of that type.
macro_rules! with_number {
    ($dtype:expr, $of:expr, $number:ident => $body:expr) => {
        match $dtype {
            planner_ir::DType::F32 => {
                type $number = f32;
                $body
            }
            planner_ir::DType::F64 => {
                type $number = f64;
                $body
            }
            planner_ir::DType::I64 => {
                type $number = i64;
                $body
            }
            planner_ir::DType::U64 => {
                type $number = u64;
                $body
            }
            found => Err(crate::error::KernelError::Elements { of: $of, found }),
        }
    };
}

/// Evaluates an expression with `$float` naming the floating-point number of that type.
macro_rules! with_float {
    ($dtype:expr, $of:expr, $float:ident => $body:expr) => {
        match $dtype {
            planner_ir::DType::F32 => {
                type $float = f32;
                $body
            }
            planner_ir::DType::F64 => {
                type $float = f64;
                $body
            }
            found => Err(crate::error::KernelError::Elements { of: $of, found }),
        }
    };
}

pub(crate) use {with_float, with_number};

/// The number that kernels compute with in the place of an element; truth values stay.
pub(crate) fn computed_as(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        DType::F32 | DType::F16 | DType::BF16 => DType::F32,
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => DType::F32,
        DType::I64 | DType::I32 | DType::I16 | DType::I8 => DType::I64,
        DType::U64 | DType::U32 | DType::U16 | DType::U8 => DType::U64,
        DType::Bool => DType::Bool,
    }
}
