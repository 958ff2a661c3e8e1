//! Arithmetic of floating-point numbers as a GPU rounds it.

/// To the nearest number of 32 bits, of two the even one.
pub(crate) fn narrowed(number: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
    let narrow = number as f32;
    narrow
}

/// A sum of numbers of 64 bits, rounded so that rounding it again to 32 bits gives what rounding the exact sum
/// does: if it is not exact, its last bit is 1.
///
/// Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008: rounding to odd.
fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's two-sum: what rounding left out.
    let of_b = sum - a;
    let rest = (a - (sum - of_b)) + (b - of_b);
    let is_exact = rest.abs() < f64::MIN_POSITIVE * f64::EPSILON || !rest.is_finite();
    if is_exact || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // Its neighbour on the side where the exact sum is.
    if rest > 0.0 { sum.next_up() } else { sum.next_down() }
}

/// `a b + c`, rounded once to the nearest.
pub(crate) fn fused(a: f32, b: f32, c: f32) -> f32 {
    narrowed(odd_sum(f64::from(a) * f64::from(b), f64::from(c)))
}

/// The same, rounded down.
pub(crate) fn fused_down(a: f32, b: f32, c: f32) -> f32 {
    let exact = odd_sum(f64::from(a) * f64::from(b), f64::from(c));
    let nearest = narrowed(exact);
    if f64::from(nearest) > exact { nearest.next_down() } else { nearest }
}

/// The same, rounded up.
pub(crate) fn fused_up(a: f32, b: f32, c: f32) -> f32 {
    -fused_down(-a, b, -c)
}

/// The same, rounded toward zero.
pub(crate) fn fused_toward_zero(a: f32, b: f32, c: f32) -> f32 {
    let exact = odd_sum(f64::from(a) * f64::from(b), f64::from(c));
    let nearest = narrowed(exact);
    let is_larger = f64::from(nearest).abs() > exact.abs();
    if is_larger { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// A number, or zero of its sign if it is smaller than normal ones.
pub(crate) fn flushed(number: f32) -> f32 {
    if number.is_subnormal() { 0.0_f32.copysign(number) } else { number }
}

/// A power of 2.
pub(crate) fn power_of_2(exponent: f32) -> f32 {
    narrowed(f64::from(exponent).exp2())
}

/// A number of 16 bits of IEEE 754 as one of 32.
pub(crate) fn of_half(bits: u16) -> f32 {
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    let sign = u32::from(bits >> 15) << 31;
    let size = match exponent {
        // Subnormal ones are so many 2^-24.
        0 => (f32::from(bits & 0x3ff) * f32::from_bits(0x3380_0000)).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | size)
}

/// The nearest number of 16 bits of IEEE 754, of two the even one.
pub(crate) fn half(number: f32) -> u16 {
    let (bits, size) = (number.to_bits(), number.abs());
    let sign = bits >> 16 & 0x8000;
    let made = if number.is_nan() {
        return 0x7fff;
    } else if size >= 65_520.0 {
        0x7c00
    } else if size < f32::from_bits(0x3880_0000) {
        // Below 2^-14: adding 2^-1 rounds to a multiple of 2^-24, which then are the lowest bits.
        (size + 0.5).to_bits() - 0.5_f32.to_bits()
    } else {
        let magnitude = size.to_bits();
        let up = 0xfff + (magnitude >> 13 & 1);
        ((magnitude + up) >> 13) - (112 << 10)
    };
    u16::try_from(sign | made).unwrap_or(0)
}

/// The nearest bf16, of two the even one.
pub(crate) fn bf16(number: f32) -> u16 {
    if number.is_nan() {
        return 0x7fff;
    }
    let bits = number.to_bits();
    let up = 0x7fff + (bits >> 16 & 1);
    u16::try_from((bits + up) >> 16).unwrap_or(0)
}

/// A bf16 as a number of 32 bits.
pub(crate) fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}
