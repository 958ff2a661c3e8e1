//! Floating-point numbers of 8 bits: what their codes are, and the codes nearest to numbers.
//!
//! A code is a sign, an exponent and a fraction. Codes of one sign rise with their numbers, so that
//! a fraction that is rounded up into the next exponent is just the next code.

use planner_ir::DType;

/// Bits of the fraction of an f32.
const SINGLE: u32 = 23;

/// The sign of a code.
const SIGN: u8 = 0x80;

/// How the codes of an element type are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Bits of the fraction.
    fraction: u32,
    /// What the exponent of a code is above the number's.
    bias: i32,
    /// The code of the largest number.
    largest: u8,
    /// The code of what is beyond the largest number by half a step or more.
    beyond: u8,
    /// The code of what is not a number.
    nan: u8,
    /// Whether the sign of zero says instead that it is not a number.
    unsigned_zero: bool,
}

impl Format {
    /// `DType::F8E4M3FN`.
    pub(crate) const E4M3FN: Self = Self::new(3, 7, [0x7e, 0x7f, 0x7f]);
    /// `DType::F8E4M3FNUZ`.
    pub(crate) const E4M3FNUZ: Self = Self::new(3, 8, [0x7f, SIGN, SIGN]);
    /// `DType::F8E5M2`.
    pub(crate) const E5M2: Self = Self::new(2, 15, [0x7b, 0x7c, 0x7f]);
    /// `DType::F8E5M2FNUZ`.
    pub(crate) const E5M2FNUZ: Self = Self::new(2, 16, [0x7f, SIGN, SIGN]);

    const fn new(fraction: u32, bias: i32, [largest, beyond, nan]: [u8; 3]) -> Self {
        Self { fraction, bias, largest, beyond, nan, unsigned_zero: nan == SIGN }
    }

    /// That of an element type, if it has 8 bits.
    pub(crate) fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F8E4M3FN => Some(Self::E4M3FN),
            DType::F8E4M3FNUZ => Some(Self::E4M3FNUZ),
            DType::F8E5M2 => Some(Self::E5M2),
            DType::F8E5M2FNUZ => Some(Self::E5M2FNUZ),
            _ => None,
        }
    }

    /// The largest number.
    pub(crate) fn most(self) -> f32 {
        self.decoded(self.largest)
    }

    /// The number of a code.
    pub(crate) fn decoded(self, code: u8) -> f32 {
        let magnitude = code & !SIGN;
        let sign = if code & SIGN == 0 { 1.0 } else { -1.0 };
        if self.unsigned_zero && code == SIGN {
            return f32::NAN;
        }
        if magnitude > self.largest {
            return if magnitude == self.beyond && self.beyond != self.nan { sign / 0.0 } else { f32::NAN };
        }
        let exponent = i32::from(magnitude >> self.fraction);
        let below = magnitude & ((1 << self.fraction) - 1);
        let whole = if exponent == 0 { below } else { below | 1 << self.fraction };
        let step = exponent.max(1) - self.bias - self.fraction.cast_signed();
        sign * f32::from(whole) * f32::from_bits((step + 127).cast_unsigned() << SINGLE)
    }

    /// The code nearest to a number; of two, the even one.
    pub(crate) fn encoded(self, number: f32) -> u8 {
        if number.is_nan() {
            return self.nan;
        }
        let sign = if number.is_sign_negative() { SIGN } else { 0 };
        let magnitude = self.magnitude(number.abs());
        match magnitude {
            0 if self.unsigned_zero => 0,
            _ if magnitude <= self.largest => sign | magnitude,
            _ if self.unsigned_zero => self.nan,
            _ => sign | self.beyond,
        }
    }

    /// The code of a number that is not negative, or a larger one than those of numbers.
    fn magnitude(self, number: f32) -> u8 {
        let (exponent, below) = (number.to_bits() >> SINGLE, number.to_bits() & ((1 << SINGLE) - 1));
        let whole = if exponent == 0 { below } else { below | 1 << SINGLE };
        let raised = exponent.max(1).cast_signed() - 127 + self.bias;
        // Below the least exponent, steps stay as wide as they are there.
        let dropped = SINGLE - self.fraction + (1 - raised).max(0).cast_unsigned();
        if dropped > SINGLE + 1 {
            return 0;
        }
        let (kept, rest, half) = (whole >> dropped, whole & ((1 << dropped) - 1), 1 << (dropped - 1));
        let up = rest > half || rest == half && kept % 2 == 1;
        let code = ((raised.max(1) - 1).cast_unsigned() << self.fraction) + kept + u32::from(up);
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests;
