//! Numbers of fewer than 8 bits, as the graph computes them from bytes.

use planner_ir::{Binary, DType, Op, ValueId};

use crate::builder::Builder;
use crate::error::ImportError;
use crate::packed::{Packed, fractions};

impl Packed {
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
