//! exp, tanh, erf and what is made of them, for vectors of f32.
//!
//! Branches are only choices between two numbers, so that loops over these functions become
//! vector instructions. The polynomials are Chebyshev fits; each states its interval.

use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

/// `((a x + b) x + c) ...`: written out, because a loop would not become vector instructions.
macro_rules! polynomial {
    ($x:expr, $first:expr $(, $next:expr)* $(,)?) => {{
        let (x, sum) = ($x, $first);
        $(let sum = sum * x + $next;)*
        sum
    }};
}

/// `e ^ x`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Beyond these the result is infinite, or 0.
    const ABOVE: f32 = 88.8;
    const BELOW: f32 = -104.0;
    /// Adding it leaves no room for a fraction, so that a number is rounded.
    const ROUNDER: f32 = 12_582_912.0;
    /// ln 2 in two pieces, the first of which has few bits.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// Where the exponent's bits begin, and the exponent of 1.
    const MANTISSA_BITS: u32 = 23;
    const BIAS: u32 = 127;

    let x = if x > ABOVE { ABOVE } else { x };
    let x = if x < BELOW { BELOW } else { x };
    let rounded = x * LOG2_E + ROUNDER;
    let power = rounded - ROUNDER;
    let rest = (x - power * LN_2_HIGH) - power * LN_2_LOW;
    // (e^r - 1 - r) / r^2 for |r| < ln(2) / 2.
    let tail = polynomial!(rest, 0.001_392_639_2, 0.008_363_346, 0.041_666_553, 0.166_665_76, 0.5);
    let mantissa = 1.0 + (rest + rest * rest * tail);
    // The power of two is applied in halves: it may be too small or large for one number.
    let power = rounded.to_bits().wrapping_sub(ROUNDER.to_bits()).cast_signed();
    let half = power >> 1;
    let scale = |power: i32| f32::from_bits(power.cast_unsigned().wrapping_add(BIAS) << MANTISSA_BITS);
    mantissa * scale(half) * scale(power.wrapping_sub(half))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    // (tanh(x) / x - 1) / x^2 for |x| < 0.64.
    let tail = polynomial!(
        square,
        0.002_246_003_6,
        -0.008_301_695,
        0.021_755_7,
        -0.053_957_596,
        0.133_332_96,
        -0.333_333_34
    );
    let near = magnitude + magnitude * square * tail;
    let far = 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0);
    (if magnitude < 0.625 { near } else { far }).copysign(x)
}

/// The error function.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    // erf(x) / x - 1 as a function of x^2, for |x| < 0.93.
    let tail = polynomial!(
        x * x,
        8.334_718_6e-5,
        -8.134_709e-4,
        0.005_200_368_5,
        -0.026_859_151,
        0.112_836_92,
        -0.376_126_34,
        0.128_379_17,
    );
    let near = magnitude + magnitude * tail;
    let far = 1.0 - erfc_of_positive(magnitude);
    (if magnitude < 0.92 { near } else { far }).copysign(x)
}

/// `1 - erf(x)` for x not below 0.
#[inline(always)]
fn erfc_of_positive(x: f32) -> f32 {
    /// Beyond this the result is 0.
    const ABOVE: f32 = 11.0;
    let x = if x > ABOVE { ABOVE } else { x };
    let inverse = 1.0 / (2.0 + x);
    let place = x * inverse;
    // (ln(erfc(x) / (1 - p)) + x^2) / p as a function of p = x / (2 + x), for x < 10; beyond, the
    // exponential is 0.
    let slope = polynomial!(
        place,
        -0.159_788_35,
        0.517_738_75,
        -0.544_116,
        0.211_183_49,
        -0.159_128_73,
        0.076_142_87,
        0.190_774_71,
        0.161_594_61,
        -0.303_241_34,
        -1.256_758_3,
    );
    2.0 * inverse * exp(place * slope - x * x)
}

/// `x Φ(x)`.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let outside = 0.5 * erfc_of_positive(x.abs() * FRAC_1_SQRT_2);
    x * if x > 0.0 { 1.0 - outside } else { outside }
}

/// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    /// `2 √(2/π)`: half of one plus a tangent is a sigmoid of the double.
    const SLOPE: f32 = 1.595_769_2;
    x * sigmoid(SLOPE * (x + 0.044_715 * x * x * x))
}

/// `x sigmoid(1.702 x)`.
#[inline(always)]
pub(crate) fn gelu_quick(x: f32) -> f32 {
    x * sigmoid(1.702 * x)
}

/// `x sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

#[cfg(test)]
mod tests;
