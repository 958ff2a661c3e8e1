//! Numbers of fewer than 8 bits: several share a byte of the file, low bits first.
//!
//! A weight of them stays as it is in the file, bytes; what is computed from it is one number an
//! element. Elsewhere in the graph such a number is an element of the type that holds it.

use kernels::Array;
use planner_ir::{Binary, DType, Op, Type, ValueId};

use crate::builder::Builder;
use crate::error::ImportError;

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
    fn each(self) -> u8 {
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

    /// The numbers of that shape that a value of bytes holds.
    pub(crate) fn unpacked(
        self,
        b: &mut Builder,
        bytes: ValueId,
        shape: &[u64],
    ) -> Result<ValueId, ImportError> {
        let each = u64::from(self.each());
        let numbers: u64 = shape.iter().product();
        // Where bytes do not cross rows, rows stay dimensions, which can be split.
        let rows = shape.last().filter(|&&last| last % each == 0);
        let mut columns: Vec<u64> = match rows {
            Some(last) => [&shape[..shape.len() - 1], &[last / each]].concat(),
            None => vec![numbers.div_ceil(each)],
        };
        let bytes = b.reshape(bytes, &columns)?;
        columns.push(1);
        let number = |b: &mut Builder, binary, x, number: f64| {
            let number = b.scalar(b.type_of(x).dtype, number)?;
            b.emit1(Op::Binary(binary), &[x, number])
        };
        let full = f64::from(1_u32 << self.bits);
        let mut parts = Vec::new();
        for at in 0..self.each() {
            let mut part = bytes;
            if at > 0 {
                part = number(b, Binary::Div, part, f64::from(1_u32 << (at * self.bits)))?;
            }
            if at + 1 < self.each() {
                part = number(b, Binary::Mod, part, full)?;
            }
            parts.push(b.reshape(part, &columns)?);
        }
        let mut codes = b.emit1(Op::Concat { dim: columns.len() - 1 }, &parts)?;
        if rows.is_none() {
            codes = b.reshape(codes, &[numbers.div_ceil(each) * each])?;
            codes = b.emit1(Op::Slice { starts: vec![0], steps: vec![1], sizes: vec![numbers] }, &[codes])?;
        }
        let codes = b.reshape(codes, shape)?;
        match self.dtype {
            DType::U8 => Ok(codes),
            DType::I8 => {
                let signed = b.cast(codes, DType::I8)?;
                self.wrapped(b, signed)
            }
            _ => {
                let table = fractions().map_err(|message| b.wrong(message))?;
                let table = b.constant(table);
                let codes = b.cast(codes, DType::I32)?;
                b.emit1(Op::Gather { dim: 0 }, &[table, codes])
            }
        }
    }

    /// The lowest bits of integers that have their own bytes, as such a number.
    pub(crate) fn wrapped(self, b: &mut Builder, x: ValueId) -> Result<ValueId, ImportError> {
        let [least, largest] = self.range();
        let mut number = |binary, x, number: f64| {
            let number = b.scalar(self.dtype, number)?;
            b.emit1(Op::Binary(binary), &[x, number])
        };
        let raised = if least < 0.0 { number(Binary::Sub, x, least)? } else { x };
        let kept = number(Binary::Mod, raised, largest - least + 1.0)?;
        if least < 0.0 { number(Binary::Add, kept, least) } else { Ok(kept) }
    }
}

/// The numbers of 4 bits with a fraction, by code.
fn fractions() -> Result<Array, String> {
    let numbers: Vec<f32> = FRACTIONS.into_iter().chain(FRACTIONS.map(|it| -it)).collect();
    let failed = |error: kernels::KernelError| error.to_string();
    let table = Array::of([16], &numbers).map_err(failed)?;
    let narrow = kernels::evaluate(&Op::Cast(DType::F8E4M3FN), &[&table]).map_err(failed)?;
    narrow.into_iter().next().ok_or_else(|| "no numbers".to_owned())
}
