//! ONNX Runtime's attention operators for whole sequences.

use planner_ir::{Attention, Binary, Blind, DType, Op, Real, ValueId};

use super::attention::{Operands, after_past, join_heads, scale, split_heads};
use super::{Outputs, Result, float, is_set, linear, mask, outputs};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// What is added to the scores of a hidden key if the node does not say.
const HIDDEN: f64 = -10_000.0;

/// `Attention`: x, weights of queries, keys and values side by side, their bias, padding, past.
pub(super) fn attention(b: &mut Builder, n: &OnnxNode) -> Outputs {
    if is_set(n, "do_rotary") || is_set(n, "past_present_share_buffer") {
        return Err(n.unsupported("rotation or a shared cache"));
    }
    let projected = linear::product(b, n, n.input(0)?, n.input(1)?)?;
    let projected = match n.optional(2) {
        Some(bias) => b.add(projected, bias)?,
        None => projected,
    };
    let [_, _, width] = b.extents(projected)?;
    let sizes = match n.ints("qkv_hidden_sizes") {
        Some(sizes) => sizes.iter().map(|&size| u64::try_from(size).unwrap_or(0)).collect(),
        None => vec![width / 3; 3],
    };
    if sizes.len() != 3 || sizes.iter().any(|&size| size > width) || sizes.iter().sum::<u64>() != width {
        return Err(n.wrong(format!("parts {sizes:?} of width {width}")));
    }
    let parts = b.split(projected, 2, &sizes)?;
    let heads = u64::try_from(n.required_int("num_heads")?).unwrap_or(0);
    let queries = split_heads(b, parts[0], heads)?;
    let (mut keys, mut values) = (split_heads(b, parts[1], heads)?, split_heads(b, parts[2], heads)?);
    if let Some(past) = n.optional(4) {
        let past = b.split(past, 0, &[1, 1])?;
        let (old_keys, old_values) = (b.squeeze(past[0], &[0])?, b.squeeze(past[1], &[0])?);
        keys = after_past(b, Some(old_keys), keys)?.0;
        values = after_past(b, Some(old_values), values)?.0;
    }
    let y = attend(b, n, Operands { queries, keys, values }, n.optional(3), n.optional(5))?;
    let present = match n.wants(1) {
        true => {
            let both = [b.unsqueeze(keys, &[0])?, b.unsqueeze(values, &[0])?];
            Some(b.concat(&both, 0)?)
        }
        false => None,
    };
    outputs(n, [Some(y), present])
}

/// `MultiHeadAttention`: queries, keys, values, their bias, padding, numbers to add, past.
pub(super) fn multi_head_attention(b: &mut Builder, n: &OnnxNode) -> Outputs {
    if n.optional(8).is_some() || n.optional(9).is_some() {
        return Err(n.unsupported("a shared cache"));
    }
    let heads = u64::try_from(n.required_int("num_heads")?).unwrap_or(0);
    let [q, k, v] = apart(b, n)?;
    let biases = biases(b, n, [q, k, v])?;
    let mut operand = |x: ValueId, bias: Option<ValueId>| -> Result<ValueId> {
        if b.rank(x) == 4 {
            return Ok(x);
        }
        let x = match bias {
            Some(bias) => b.add(x, bias)?,
            None => x,
        };
        split_heads(b, x, heads)
    };
    let queries = operand(q, biases[0])?;
    let (keys, values) = (operand(k, biases[1])?, operand(v, biases[2])?);
    let keys = after_past(b, n.optional(6), keys)?.0;
    let values = after_past(b, n.optional(7), values)?.0;
    let operands = Operands { queries, keys, values };
    let y = attend(b, n, operands, n.optional(4), n.optional(5))?;
    outputs(n, [Some(y), Some(keys), Some(values)])
}

/// Queries, keys and values as `[batch, s, width]`; keys and values may have heads already,
/// `[batch, heads, s, d]`. Packed ones are taken apart.
fn apart(b: &mut Builder, n: &OnnxNode) -> Result<[ValueId; 3]> {
    let q = n.input(0)?;
    let mut unpacked = |x: ValueId, count: usize| -> Result<Vec<ValueId>> {
        // [batch, s, heads, count, d]
        let [batch, length, heads, packed, size] = b.extents(x)?;
        if packed != super::extent(count) {
            return Err(n.wrong(format!("{packed} packed operands, expected {count}")));
        }
        let parts = b.split(x, 3, &vec![1; count])?;
        parts.into_iter().map(|part| b.reshape(part, &[batch, length, heads * size])).collect()
    };
    match (n.optional(1), n.optional(2)) {
        (None, _) => {
            let parts = unpacked(q, 3)?;
            Ok([parts[0], parts[1], parts[2]])
        }
        (Some(k), None) => {
            let parts = unpacked(k, 2)?;
            Ok([q, parts[0], parts[1]])
        }
        (Some(k), Some(v)) => Ok([q, k, v]),
    }
}

/// The parts of a bias for operands that have no heads yet.
fn biases(b: &mut Builder, n: &OnnxNode, operands: [ValueId; 3]) -> Result<[Option<ValueId>; 3]> {
    let Some(bias) = n.optional(3) else { return Ok([None; 3]) };
    let mut parts = [None; 3];
    let mut start = 0;
    for (part, operand) in parts.iter_mut().zip(operands) {
        let width = if b.rank(operand) == 4 {
            let [_, heads, _, size] = b.extents(operand)?;
            heads * size
        } else {
            let [_, _, width] = b.extents(operand)?;
            width
        };
        *part = Some(b.slice(bias, 0, start, width)?);
        start += width;
    }
    Ok(parts)
}

/// The attention of operands with padding and numbers to add, heads joined again.
fn attend(
    b: &mut Builder,
    n: &OnnxNode,
    operands: Operands,
    padding: Option<ValueId>,
    bias: Option<ValueId>,
) -> Result<ValueId> {
    let Operands { queries, keys, values } = operands;
    let dtype = b.dtype(queries);
    let [batch, _, count, size] = b.extents(queries)?;
    let [_, _, length, _] = b.extents(keys)?;
    let mut added = bias;
    let seen = match padding {
        Some(padding) => not_padding(b, n, padding, batch, (count, length))?,
        None => None,
    };
    if let Some(seen) = seen {
        let zero = b.scalar(dtype, 0.0)?;
        let hidden = b.scalar(dtype, float(n, "mask_filter_value", HIDDEN))?;
        let padded = b.select(seen, zero, hidden)?;
        added = Some(match added {
            Some(bias) => b.add(bias, padded)?,
            None => padded,
        });
    }
    let op = Attention {
        scale: Real(scale(n, size)),
        causal: is_set(n, "unidirectional"),
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let mut arguments = vec![queries, keys, values];
    arguments.extend(added);
    let y = b.emit1(Op::Attention(op), &arguments)?;
    join_heads(b, y)
}

/// Which keys are not padding: `lengths` are those of queries and keys. The operand has one of
/// several forms, and one of extent 1 says nothing.
fn not_padding(
    b: &mut Builder,
    n: &OnnxNode,
    padding: ValueId,
    batch: u64,
    lengths: (u64, u64),
) -> Result<Option<ValueId>> {
    let (queries, keys) = lengths;
    let shape = b.shape(padding)?;
    let positive = |b: &mut Builder, x: ValueId| b.with_number(Binary::Greater, x, 0.0);
    match shape.as_slice() {
        [count] if *count == batch => mask::first_keys(b, padding, keys).map(Some),
        [count] if *count == 2 * batch => {
            let parts = b.split(padding, 0, &[batch, batch])?;
            let first = mask::first_keys(b, parts[0], keys)?;
            let last = mask::last_keys(b, parts[1], keys)?;
            b.binary(Binary::And, first, last).map(Some)
        }
        [_, 1] if keys != 1 => Ok(None),
        [_, _] => {
            let seen = positive(b, padding)?;
            b.unsqueeze(seen, &[1, 2]).map(Some)
        }
        [_, _, _] => {
            let seen = positive(b, padding)?;
            b.unsqueeze(seen, &[1]).map(Some)
        }
        [_, _, rows, columns] if *rows >= keys && *columns >= keys && keys >= queries => {
            let part = b.slice(padding, 2, keys - queries, queries)?;
            let part = b.slice(part, 3, 0, keys)?;
            let part = b.cast(part, DType::F32)?;
            positive(b, part).map(Some)
        }
        _ => Err(n.unsupported(format!("padding of shape {shape:?}"))),
    }
}
