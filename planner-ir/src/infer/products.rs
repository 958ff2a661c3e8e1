//! The results of contractions, attention, convolutions, experts and regions.

use super::checks::{broadcast, checked_elements, expect, is_index, same_dtype};
use super::{Result, TypeError};
use crate::data::{DType, Type};
use crate::op::{Attention, Blind, Contract, Conv, Label, Region};

pub(super) fn contract_type(contract: &Contract, operands: &[Type]) -> Result<Vec<Type>> {
    same_dtype(operands, 0, 1)?;
    let dtype = operands[0].dtype;
    let sum = Type::new(dtype, contract_shape(contract, operands)?);
    if operands.len() < 3 {
        return Ok(vec![sum]);
    }
    Ok(vec![sum_type(&sum, operands, 2)?])
}

/// The type of a sum that is added to an operand: that of the operand, in the sum's elements or those in which it is
/// accumulated.
pub(super) fn sum_type(sum: &Type, operands: &[Type], index: usize) -> Result<Type> {
    let addend = &operands[index];
    let wide = Type { dtype: sum.dtype.accumulated(), ..sum.clone() };
    let right = sum.dtype.has_sums() && (addend == sum || *addend == wide);
    expect(operands, index, right, &format!("{sum} or {wide}"))?;
    Ok(addend.clone())
}

/// The shape of the sum of products of the first two operands.
pub(super) fn contract_shape(contract: &Contract, operands: &[Type]) -> Result<Vec<u64>> {
    let Contract { left, right, result } = contract;
    for (index, labels) in [left, right].into_iter().enumerate() {
        expect(
            operands,
            index,
            operands[index].rank() == labels.len(),
            &format!("{} dimensions", labels.len()),
        )?;
    }
    let bad = |message: &str| Err(TypeError::Attribute(message.to_owned()));
    for labels in [left, right, result] {
        let mut sorted = labels.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != labels.len() {
            return bad("a label occurs twice in one list");
        }
    }
    let extent = |label: &Label| {
        let in_left = left.iter().position(|it| it == label).map(|dim| operands[0].shape[dim]);
        let in_right = right.iter().position(|it| it == label).map(|dim| operands[1].shape[dim]);
        (in_left, in_right)
    };
    for label in left.iter().chain(right) {
        match extent(label) {
            (Some(a), Some(b)) if a != b => {
                return Err(TypeError::Attribute(format!("extents {a} and {b} for one label")));
            }
            (Some(_), Some(_)) => {}
            _ if result.contains(label) => {}
            _ => return bad("a label of one operand only is missing in the result"),
        }
    }
    let mut shape = Vec::new();
    for label in result {
        match extent(label) {
            (Some(a), _) | (None, Some(a)) => shape.push(a),
            (None, None) => return bad("a label of the result is missing in the operands"),
        }
    }
    checked_elements(&shape)?;
    Ok(shape)
}

pub(super) fn attention_type(attention: &Attention, operands: &[Type]) -> Result<Vec<Type>> {
    expect(operands, 0, operands[0].dtype.is_float(), "floating-point numbers")?;
    for index in 0..3 {
        expect(operands, index, operands[index].rank() == 4, "[batch, heads, sequence, size]")?;
        same_dtype(operands, 0, index)?;
    }
    let (q, k, v) = (&operands[0].shape, &operands[1].shape, &operands[2].shape);
    expect(operands, 1, k[0] == q[0] && k[3] == q[3], "the batch and size of the queries")?;
    expect(operands, 1, k[1] > 0 && q[1].is_multiple_of(k[1]), "heads that divide the queries'")?;
    expect(operands, 2, v[..3] == k[..3], "the batch, heads and sequence of the keys")?;
    let (mask, documents) = attention.masks(&operands[3..]);
    if let Some(mask) = mask {
        let right = mask.dtype == DType::Bool || mask.dtype == operands[0].dtype;
        expect(operands, 3, right, "truth values or the elements of the queries")?;
        expect_repeated(operands, 3, vec![q[0], q[1], q[2], k[2]])?;
    }
    if documents.is_some() {
        let first = 3 + attention.masking(&operands[3..]).len() - 2;
        for (index, shape) in [(first, [q[0], q[1], q[2], 1]), (first + 1, [q[0], q[1], 1, k[2]])] {
            expect(operands, index, is_index(operands[index].dtype), "documents (i64 or i32)")?;
            same_dtype(operands, first, index)?;
            expect_repeated(operands, index, shape.to_vec())?;
        }
    }
    if attention.sinks {
        let last = operands.len() - 1;
        same_dtype(operands, 0, last)?;
        expect_repeated(operands, last, vec![q[0], q[1], q[2], 1])?;
        if attention.blind != Blind::Zero {
            return Err(TypeError::Attribute("queries with a sink that see no key and get no 0".to_owned()));
        }
    }
    let mut results = vec![Type::new(operands[0].dtype, vec![q[0], q[1], q[2], v[3]])];
    if attention.statistics {
        results.push(statistics_type(&results[0]));
    }
    Ok(results)
}

/// Refuses an operand that does not broadcast to a shape.
fn expect_repeated(operands: &[Type], index: usize, shape: Vec<u64>) -> Result<()> {
    let joined = broadcast(&shape, operands, index..index + 1)?;
    expect(operands, index, joined == shape, &format!("what broadcasts to {shape:?}"))
}

/// Two numbers for each row of what attention makes.
fn statistics_type(y: &Type) -> Type {
    let mut shape = y.shape.clone();
    shape.pop();
    shape.push(2);
    Type::new(y.dtype.accumulated(), shape)
}

/// Operands y, s, y, s: two parts.
pub(super) fn attention_merge_type(operands: &[Type]) -> Result<Vec<Type>> {
    let y = &operands[0];
    expect(operands, 0, y.dtype.is_float() && y.rank() > 0, "rows of floating-point numbers")?;
    let rows = statistics_type(y);
    expect(operands, 1, operands[1] == rows, &rows.to_string())?;
    for index in [2, 3] {
        let first = &operands[index - 2];
        expect(operands, index, operands[index] == *first, &first.to_string())?;
    }
    Ok(operands[..2].to_vec())
}

pub(super) fn conv_type(conv: &Conv, operands: &[Type]) -> Result<Vec<Type>> {
    let (x, w) = (&operands[0].shape, &operands[1].shape);
    let spatial = conv.strides.len();
    expect(operands, 0, x.len() == spatial + 2, &format!("{} dimensions", spatial + 2))?;
    expect(operands, 1, w.len() == spatial + 2, &format!("{} dimensions", spatial + 2))?;
    let lists = [&conv.dilations, &conv.before, &conv.after];
    if lists.iter().any(|list| list.len() != spatial) || conv.strides.contains(&0) || conv.groups == 0 {
        return Err(TypeError::Attribute("attributes of another number of dimensions, or zero".to_owned()));
    }
    expect(operands, 1, w[1].checked_mul(conv.groups) == Some(x[1]), "the channels of operand 0")?;
    expect(operands, 1, w[0].is_multiple_of(conv.groups), "channels that the groups divide")?;
    if operands.len() == 3 {
        expect(operands, 2, operands[2].shape == [w[0]], "one number for each channel")?;
    }
    let mut shape = vec![x[0], w[0]];
    for dim in 0..spatial {
        let window = conv.dilations[dim].saturating_mul(w[dim + 2].max(1) - 1).saturating_add(1);
        let extent = x[dim + 2].saturating_add(conv.before[dim]).saturating_add(conv.after[dim]);
        expect(
            operands,
            0,
            extent >= window,
            &format!("an extent of {window} at least in dimension {}", dim + 2),
        )?;
        shape.push((extent - window) / conv.strides[dim] + 1);
    }
    Ok(vec![Type::new(operands[0].dtype, shape)])
}

pub(super) fn experts_type(operands: &[Type]) -> Result<Vec<Type>> {
    let x = &operands[0];
    expect(operands, 0, x.rank() == 2, "[tokens, hidden]")?;
    let gates = &operands[1].shape;
    expect(operands, 1, gates.len() == 2 && gates[0] == x.shape[0], "[tokens, experts]")?;
    let up = operands[2].shape.clone();
    let right = up.len() == 3 && up[0] == gates[1] && up[2] == x.shape[1];
    expect(operands, 2, right, "[experts, units, hidden]")?;
    let down = if operands.len() == 4 { 3 } else { 4 };
    if down == 4 {
        expect(operands, 3, operands[3].shape == up, "[experts, units, hidden]")?;
    }
    for index in down + 1..operands.len() {
        expect(operands, index, operands[index].shape == up[..2], "[experts, units]")?;
    }
    expect(operands, down, operands[down].shape == [up[0], up[2], up[1]], "[experts, hidden, units]")?;
    for index in 1..operands.len() {
        same_dtype(operands, 0, index)?;
    }
    Ok(vec![x.clone()])
}

pub(super) fn dequantize_type(bits: u64, block: u64, columns: u64, operands: &[Type]) -> Result<Vec<Type>> {
    if !matches!(bits, 2 | 4 | 8) || block == 0 || columns == 0 {
        return Err(TypeError::Attribute(format!("{bits} bits in blocks of {block}")));
    }
    let blocks = columns.div_ceil(block);
    let packed = &operands[0].shape;
    let block_bytes = block.checked_mul(bits).map(|bits| bits / 8);
    let right = packed.len() == 3 && packed[1] == blocks && Some(packed[2]) == block_bytes;
    expect(operands, 0, right && operands[0].dtype == DType::U8, "packed rows (u8)")?;
    let rows = packed[0];
    let fits = |shape: &[u64], per_row: u64| match shape {
        [all] => Some(*all) == rows.checked_mul(per_row),
        [first, second, rest @ ..] => *first == rows && *second == per_row && rest.iter().all(|&it| it == 1),
        [] => false,
    };
    expect(operands, 1, fits(&operands[1].shape, blocks), "a number for each block")?;
    if operands.len() == 3 {
        let bytes = blocks.checked_mul(bits).map_or(u64::MAX, |bits| bits.div_ceil(8));
        let right = operands[2].dtype == DType::U8 && fits(&operands[2].shape, bytes);
        expect(operands, 2, right, "packed zero points (u8)")?;
    }
    Ok(vec![Type::new(operands[1].dtype, vec![packed[0], columns])])
}

pub(super) fn region_type(region: &Region) -> Result<Vec<Type>> {
    if region.types.len() != region.results.len() {
        return Err(TypeError::Attribute(format!(
            "{} types for {} results",
            region.types.len(),
            region.results.len()
        )));
    }
    Ok(region.types.clone())
}
