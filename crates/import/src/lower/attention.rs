//! The standard attention operator.

use planner_ir::{Attention, Binary, Blind, DType, Op, Real, Unary, ValueId};

use super::mask::{self, Offset, Places};
use super::{Outputs, Result, element_type, float, is_set, outputs, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// Queries, keys and values, each `[batch, heads, sequence, size]`.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) queries: ValueId,
    pub(super) keys: ValueId,
    pub(super) values: ValueId,
}

pub(super) fn attention(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let flat = b.rank(n.input(0)?) == 3;
    let mut heads = |place: usize, name: &str| -> Result<ValueId> {
        let x = n.input(place)?;
        if !flat {
            return Ok(x);
        }
        let heads = u64::try_from(n.required_int(name)?).unwrap_or(0);
        split_heads(b, x, heads)
    };
    let queries = heads(0, "q_num_heads")?;
    let (new_keys, new_values) = (heads(1, "kv_num_heads")?, heads(2, "kv_num_heads")?);
    let (keys, past) = after_past(b, n.optional(4), new_keys)?;
    let (values, _) = after_past(b, n.optional(5), new_values)?;
    let operands = Operands { queries, keys, values };

    let [_, _, _, size] = b.extents(queries)?;
    let (mask, aligned) = visible(b, n, operands, past)?;
    let op = Attention {
        scale: Real(scale(n, size)),
        causal: aligned.causal,
        softcap: Real(float(n, "softcap", 0.0)),
        window: aligned.window,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let mut arguments = vec![queries, keys, values];
    arguments.extend(mask);
    let y = b.emit1(Op::Attention(op), &arguments)?;
    let y = if flat { join_heads(b, y)? } else { y };
    let scores = match n.wants(3) {
        true => Some(scores(b, n, operands, past, op.scale.0)?),
        false => None,
    };
    outputs(n, [Some(y), Some(keys), Some(values), scores])
}

/// The factor of the products: by default `1 / sqrt(size)`.
pub(super) fn scale(n: &OnnxNode, size: u64) -> f64 {
    match n.float("scale").map(f64::from) {
        Some(scale) if n.domain.is_empty() || scale > 0.0 => scale,
        _ => 1.0 / real(signed(size)).sqrt(),
    }
}

/// `[batch, s, heads * d]` as `[batch, heads, s, d]`.
pub(super) fn split_heads(b: &mut Builder, x: ValueId, heads: u64) -> Result<ValueId> {
    let [batch, length, width] = b.extents(x)?;
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(b.wrong(format!("{heads} heads of width {width}")));
    }
    let apart = b.reshape(x, &[batch, length, heads, width / heads])?;
    b.transpose(apart, &[0, 2, 1, 3])
}

/// `[batch, heads, s, d]` as `[batch, s, heads * d]`.
pub(super) fn join_heads(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let [batch, heads, length, size] = b.extents(x)?;
    let turned = b.transpose(x, &[0, 2, 1, 3])?;
    b.reshape(turned, &[batch, length, heads * size])
}

/// Cached keys or values and the new ones after them; and how many were cached.
pub(super) fn after_past(
    b: &mut Builder,
    past: Option<ValueId>,
    new: ValueId,
) -> Result<(ValueId, Option<u64>)> {
    let Some(past) = past else { return Ok((new, None)) };
    let [_, _, length, _] = b.extents(past)?;
    Ok((b.concat(&[past, new], 2)?, Some(length)))
}

/// What of the masking the operation does itself.
struct Aligned {
    causal: bool,
    window: Option<u64>,
}

/// The mask of an attention, without what follows from positions that are aligned at the end.
fn visible(
    b: &mut Builder,
    n: &OnnxNode,
    operands: Operands,
    past: Option<u64>,
) -> Result<(Option<ValueId>, Aligned)> {
    let [_, _, queries, _] = b.extents(operands.queries)?;
    let [_, _, keys, _] = b.extents(operands.keys)?;
    let causal = is_set(n, "is_causal");
    let behind = n.int("left_window_size").unwrap_or(-1);
    let ahead = n.int("right_window_size").unwrap_or(-1);
    let mut mask = match n.optional(3) {
        Some(mask) => Some(mask::lengthened(b, mask, keys)?),
        None => None,
    };
    let past = past.unwrap_or(0);
    let counts = n.optional(6);
    if let Some(counts) = counts {
        let first = mask::first_keys(b, counts, keys)?;
        mask = mask::both(b, mask, Some(first))?;
    }
    if counts.is_none() && causal && past + queries == keys {
        let window = mask::window(behind);
        if ahead <= 0 || window.is_none() {
            return Ok((mask, Aligned { causal, window }));
        }
    }
    let offset = match counts {
        Some(counts) => {
            let counts = b.cast(counts, DType::I64)?;
            Offset::Each(b.with_number(Binary::Sub, counts, real(signed(queries)))?)
        }
        None => Offset::Known(signed(past)),
    };
    let places = Places::new(b, offset, queries, keys)?;
    let limit = match (causal, ahead >= 0) {
        (true, _) => Some(0),
        (false, true) => Some(ahead),
        (false, false) => None,
    };
    if let Some(limit) = limit {
        let seen = places.at_most(b, limit)?;
        mask = mask::both(b, mask, Some(seen))?;
    }
    if behind >= 0 {
        let seen = places.at_least(b, behind)?;
        mask = mask::both(b, mask, Some(seen))?;
    }
    Ok((mask, Aligned { causal: false, window: None }))
}

/// The fourth result: scores as they are, bounded, masked, or as shares, by attribute.
fn scores(
    b: &mut Builder,
    n: &OnnxNode,
    operands: Operands,
    past: Option<u64>,
    scale: f64,
) -> Result<ValueId> {
    let mode = n.int("qk_matmul_output_mode").unwrap_or(0);
    let dtype = b.dtype(operands.queries);
    let products = products(b, operands, scale)?;
    if mode == 0 {
        return Ok(products);
    }
    let softcap = float(n, "softcap", 0.0);
    let bounded = if softcap > 0.0 {
        let small = b.with_number(Binary::Div, products, softcap)?;
        let small = b.unary(Unary::Tanh, small)?;
        b.with_number(Binary::Mul, small, softcap)?
    } else {
        products
    };
    if mode == 1 {
        return Ok(bounded);
    }
    let mask = written_out(b, n, operands, past)?;
    let added = match mask {
        Some(mask) => mask::added(b, mask, dtype)?,
        None => b.scalar(dtype, 0.0)?,
    };
    let masked = b.add(bounded, added)?;
    match mode {
        2 => Ok(masked),
        3 => {
            let precise = match n.int("softmax_precision") {
                Some(number) => element_type(n, number)?,
                None => dtype,
            };
            let precise = b.cast(masked, precise)?;
            let shares = b.softmax(precise, 3)?;
            let shares = b.cast(shares, dtype)?;
            // Rows that see no key.
            let hidden = b.with_number(Binary::Equal, added, f64::NEG_INFINITY)?;
            let hidden = b.cast(hidden, DType::U8)?;
            let rank = b.rank(hidden);
            if rank == 0 {
                return Ok(shares);
            }
            let blind = b.reduce(planner_ir::Reduction::Min, hidden, &[rank - 1])?;
            let blind = b.cast(blind, DType::Bool)?;
            let zero = b.scalar(dtype, 0.0)?;
            b.select(blind, zero, shares)
        }
        _ => Err(n.unsupported(format!("mode {mode} of the fourth output"))),
    }
}

/// The whole mask, with what the operation does itself.
fn written_out(
    b: &mut Builder,
    n: &OnnxNode,
    operands: Operands,
    past: Option<u64>,
) -> Result<Option<ValueId>> {
    let (mut mask, aligned) = visible(b, n, operands, past)?;
    if !aligned.causal {
        return Ok(mask);
    }
    let [_, _, queries, _] = b.extents(operands.queries)?;
    let [_, _, keys, _] = b.extents(operands.keys)?;
    let places = Places::new(b, Offset::Known(signed(keys) - signed(queries)), queries, keys)?;
    let seen = places.at_most(b, 0)?;
    mask = mask::both(b, mask, Some(seen))?;
    if let Some(window) = aligned.window {
        let seen = places.at_least(b, signed(window) - 1)?;
        mask = mask::both(b, mask, Some(seen))?;
    }
    Ok(mask)
}

/// `scale q·k` for every pair, `[batch, heads, queries, keys]`. Both are scaled by the root, as
/// the standard says.
fn products(b: &mut Builder, operands: Operands, scale: f64) -> Result<ValueId> {
    let queries = b.with_number(Binary::Mul, operands.queries, scale.sqrt())?;
    let keys = b.with_number(Binary::Mul, operands.keys, scale.sqrt())?;
    let [batch, heads, length, size] = b.extents(queries)?;
    let [_, groups, count, _] = b.extents(keys)?;
    if groups == 0 || !heads.is_multiple_of(groups) {
        return Err(b.wrong(format!("{heads} heads of queries, {groups} of keys")));
    }
    let grouped = b.reshape(queries, &[batch, groups, heads / groups, length, size])?;
    let scores = b.contract((grouped, b"bgrsd"), (keys, b"bgtd"), b"bgrst")?;
    b.reshape(scores, &[batch, heads, length, count])
}
