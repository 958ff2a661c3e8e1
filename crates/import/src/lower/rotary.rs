//! Rotary position embedding.

use planner_ir::{Binary, DType, Op, Pairing, ValueId};

use super::{Result, is_set};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// Tables of cosines and sines for the positions of a sequence: `[batch or 1, s, d / 2]`.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub(super) cosines: ValueId,
    pub(super) sines: ValueId,
}

/// Operands x, cosines, sines, positions.
pub(super) fn standard(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let mut tables = Tables { cosines: n.input(1)?, sines: n.input(2)? };
    if let Some(positions) = n.optional(3) {
        tables = at_positions(b, tables, positions)?;
    }
    embed(b, n, tables)
}

/// ONNX Runtime's: operands x, positions, cosines, sines. One position alone is the first of all.
pub(super) fn microsoft(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, positions) = (n.input(0)?, n.input(1)?);
    let shape = b.shape(x)?;
    let length = if shape.len() == 4 { shape[2] } else { *shape.get(1).unwrap_or(&1) };
    if is_set(n, "is_packed_batching") {
        return Err(n.unsupported("packed batches"));
    }
    let positions = if b.rank(positions) == 1 {
        let iota = b.iota(DType::I64, length)?;
        let positions = b.add(positions, iota)?;
        b.unsqueeze(positions, &[0])?
    } else {
        positions
    };
    let tables = Tables { cosines: n.input(2)?, sines: n.input(3)? };
    let tables = at_positions(b, tables, positions)?;
    embed(b, n, tables)
}

/// The rows of tables at positions `[batch, s]`.
pub(super) fn at_positions(b: &mut Builder, tables: Tables, positions: ValueId) -> Result<Tables> {
    Ok(Tables {
        cosines: b.gather(tables.cosines, positions, 0)?,
        sines: b.gather(tables.sines, positions, 0)?,
    })
}

/// x as `[batch, heads, s, d]` or `[batch, s, heads * d]`.
fn embed(b: &mut Builder, n: &OnnxNode, tables: Tables) -> Result<ValueId> {
    let x = n.input(0)?;
    let shape = b.shape(x)?;
    let pairing = if is_set(n, "interleaved") { Pairing::Neighbours } else { Pairing::Halves };
    match shape.as_slice() {
        [_, _, _, _] => rotate(b, x, tables, pairing, Heads::Before),
        &[batch, length, width] => {
            let table = b.shape(tables.cosines)?.last().copied().unwrap_or(0);
            let heads = match n.int("num_heads").unwrap_or(0) {
                0 if table > 0 => width / (2 * table),
                heads => u64::try_from(heads).unwrap_or(0),
            };
            if heads == 0 || !width.is_multiple_of(heads) {
                return Err(n.wrong(format!("{heads} heads of width {width}")));
            }
            let apart = b.reshape(x, &[batch, length, heads, width / heads])?;
            let y = rotate(b, apart, tables, pairing, Heads::After)?;
            b.reshape(y, &shape)
        }
        _ => Err(n.wrong(format!("shape {shape:?}, expected three or four dimensions"))),
    }
}

/// Where the heads stand in four dimensions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Heads {
    /// `[batch, heads, s, d]`.
    Before,
    /// `[batch, s, heads, d]`.
    After,
}

/// x with as many of its last elements rotated, from the first on, as the tables have angles for.
pub(super) fn rotate(
    b: &mut Builder,
    x: ValueId,
    tables: Tables,
    pairing: Pairing,
    heads: Heads,
) -> Result<ValueId> {
    let width = b.shape(x)?.last().copied().unwrap_or(0);
    let mut factor = |table: ValueId| -> Result<ValueId> {
        let table = b.cast(table, b.dtype(x))?;
        let mut shape = b.shape(table)?;
        let half = shape.pop().unwrap_or(0);
        if shape.is_empty() {
            return Err(b.wrong("a table without positions"));
        }
        let both = match pairing {
            Pairing::Halves => b.concat(&[table, table], shape.len())?,
            Pairing::Neighbours => {
                let apart = b.unsqueeze(table, &[shape.len() + 1])?;
                let mut twice = shape.clone();
                twice.extend([half, 2]);
                b.expand(apart, &twice)?
            }
        };
        // [batch, s, d] with a dimension for the heads; [s, d] for all batches.
        let place = match heads {
            Heads::Before => shape.len() - 1,
            Heads::After => shape.len(),
        };
        shape.push(2 * half);
        shape.insert(place, 1);
        b.reshape(both, &shape)
    };
    let (cosines, sines) = (factor(tables.cosines)?, factor(tables.sines)?);
    let rotated = b.shape(cosines)?.last().copied().unwrap_or(0);
    if rotated == width {
        return b.emit1(Op::Rotary(pairing), &[x, cosines, sines]);
    }
    if rotated > width {
        return Err(b.wrong(format!("angles for {rotated} elements, of {width}")));
    }
    let last = b.rank(x) - 1;
    let parts = b.split(x, last, &[rotated, width - rotated])?;
    let first = b.emit1(Op::Rotary(pairing), &[parts[0], cosines, sines])?;
    b.concat(&[first, parts[1]], last)
}

/// The positions `offset[batch] + 0, 1, ..` as `[batch, length]`.
pub(super) fn positions_from(b: &mut Builder, offset: ValueId, length: u64) -> Result<ValueId> {
    let iota = b.iota(b.dtype(offset), length)?;
    let offset = b.unsqueeze(offset, &[1])?;
    b.binary(Binary::Add, offset, iota)
}
