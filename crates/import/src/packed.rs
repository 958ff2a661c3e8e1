//! Numbers of fewer than 8 bits: several share a byte of the file, low bits first.
//!
//! A weight of them stays as it is in the file, bytes; what is computed from it is one number an
//! element. Elsewhere in the graph such a number is an element of the type that holds it.

use kernels::Array;
use planner_ir::{DType, Op, Type};

/// How numbers lie in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Bits of a number.
    pub(crate) bits: u8,
    /// What the numbers are elements of, where each has its own byte.
    pub(crate) dtype: DType,
}

/// The numbers of 4 bits with a fraction, by their codes: a sign, 2 bits of exponent, 1 of fraction.
///
/// Source: "OCP Microscaling Formats (MX) Specification 1.0", 2023, section 5.3.3.
const FRACTIONS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

impl Packed {
    /// That of a number of the format.
    pub(crate) fn of(number: i32) -> Option<Self> {
        let (bits, dtype) = match number {
            21 => (4, DType::U8),
            22 => (4, DType::I8),
            23 => (4, DType::F8E4M3FN),
            25 => (2, DType::U8),
            26 => (2, DType::I8),
            _ => return None,
        };
        Some(Self { bits, dtype })
    }

    /// How many numbers share a byte.
    pub(crate) fn each(self) -> u8 {
        8 / self.bits
    }

    /// The least and the largest number.
    pub(crate) fn range(self) -> [f64; 2] {
        let half = f64::from(1_u8 << (self.bits - 1));
        match self.dtype {
            DType::U8 => [0.0, 2.0 * half - 1.0],
            DType::I8 => [-half, half - 1.0],
            _ => [-f64::from(FRACTIONS[7]), f64::from(FRACTIONS[7])],
        }
    }

    /// The type of the bytes that hold numbers of that shape.
    pub(crate) fn stored(self, shape: &[u64]) -> Type {
        let numbers: u64 = shape.iter().product();
        Type::new(DType::U8, [numbers.div_ceil(self.each().into())])
    }

    /// The numbers of that shape that bytes hold.
    pub(crate) fn array(self, shape: &[u64], bytes: &[u8]) -> Result<Array, String> {
        let failed = |error: kernels::KernelError| error.to_string();
        let count = usize::try_from(shape.iter().product::<u64>()).map_err(|error| error.to_string())?;
        let mask = u8::MAX >> (8 - self.bits);
        let codes =
            bytes.iter().flat_map(|byte| (0..self.each()).map(move |at| byte >> (at * self.bits) & mask));
        let codes: Vec<u8> = codes.take(count).collect();
        if self.dtype == DType::U8 {
            return Array::of(shape, &codes).map_err(failed);
        }
        if self.dtype == DType::I8 {
            let half = 1 << (self.bits - 1);
            let signed: Vec<i8> =
                codes.iter().map(|&it| (it ^ half).cast_signed() - half.cast_signed()).collect();
            return Array::of(shape, &signed).map_err(failed);
        }
        let table = fractions()?;
        let codes =
            Array::of(shape, &codes.iter().copied().map(i32::from).collect::<Vec<_>>()).map_err(failed)?;
        let made = kernels::evaluate(&Op::Gather { dim: 0 }, &[&table, &codes]).map_err(failed)?;
        made.into_iter().next().ok_or_else(|| "no numbers".to_owned())
    }
}

/// The numbers of 4 bits with a fraction, by code.
pub(crate) fn fractions() -> Result<Array, String> {
    let numbers: Vec<f32> = FRACTIONS.into_iter().chain(FRACTIONS.map(|it| -it)).collect();
    let failed = |error: kernels::KernelError| error.to_string();
    let table = Array::of([16], &numbers).map_err(failed)?;
    let narrow = kernels::evaluate(&Op::Cast(DType::F8E4M3FN), &[&table]).map_err(failed)?;
    narrow.into_iter().next().ok_or_else(|| "no numbers".to_owned())
}
