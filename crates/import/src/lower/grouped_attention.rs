//! ONNX Runtime's attention operator with grouped heads and a cache.
//!
//! Batch elements may be padded at the right: element b has `lengths[b] + 1` keys, the new ones
//! included, so that its new keys stand in the cache after those that it has already.

use planner_ir::{Attention, Binary, Blind, DType, Op, Pairing, Real, ValueId};

use super::attention::{Operands, join_heads, scale, split_heads};
use super::mask::{self, Offset, Places};
use super::rotary::{self, Heads, Tables};
use super::{Outputs, Result, float, indexing, is_cleared, is_set, outputs, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// Queries, keys, values, cached keys and values, lengths, the length of the longest, tables of
/// cosines and sines, positions, numbers to add.
pub(super) fn attention(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let inputs = [
        (12, "quantised keys"),
        (13, "quantised values"),
        (14, "normalised queries"),
        (15, "normalised keys"),
        (16, "lengths of new queries"),
    ];
    if let Some((_, what)) = inputs.into_iter().find(|&(place, _)| n.optional(place).is_some()) {
        return Err(n.unsupported(what));
    }
    if n.int("qk_output").unwrap_or(0) != 0 {
        return Err(n.unsupported("scores as a result"));
    }
    if is_set(n, "sliding_window_cache") || is_cleared(n, "causal") {
        return Err(n.unsupported("a cache of the length of a window, or queries that see later keys"));
    }
    let new = new_operands(b, n)?;
    let [batch, _, length, _] = b.extents(new.queries)?;
    let total = u64::try_from(b.integer(n.input(6)?)?).map_err(|_| n.wrong("a negative length"))?;
    if total < length {
        return Err(n.wrong(format!("{length} new keys of {total}")));
    }
    let offset = offset(b, n, batch, (length, total))?;
    let new = rotated(b, n, new, offset, length)?;
    let keys = cached(b, n.optional(3), new.keys, offset, total)?;
    let values = cached(b, n.optional(4), new.values, offset, total)?;
    let y = attend(b, n, Operands { queries: new.queries, keys, values }, offset, total)?;
    outputs(n, [Some(y), Some(keys), Some(values)])
}

/// The new queries, keys and values, which may be packed in the first operand.
fn new_operands(b: &mut Builder, n: &OnnxNode) -> Result<Operands> {
    let count = |name: &str| -> Result<u64> {
        let number = n.required_int(name)?;
        u64::try_from(number).ok().filter(|&it| it > 0).ok_or_else(|| n.wrong(format!("{name} is {number}")))
    };
    let (heads, groups) = (count("num_heads")?, count("kv_num_heads")?);
    let first = n.input(0)?;
    let (q, k, v) = match (n.optional(1), n.optional(2)) {
        (Some(k), Some(v)) => (first, k, v),
        _ => {
            let [_, _, width] = b.extents(first)?;
            if heads > width || groups > width || !width.is_multiple_of(heads + 2 * groups) {
                return Err(n.wrong(format!("width {width} of {heads} and twice {groups} heads")));
            }
            let size = width / (heads + 2 * groups);
            let parts = b.split(first, 2, &[heads * size, groups * size, groups * size])?;
            (parts[0], parts[1], parts[2])
        }
    };
    let queries = split_heads(b, q, heads)?;
    let keys = split_heads(b, k, groups)?;
    Ok(Operands { queries, keys, values: split_heads(b, v, groups)? })
}

/// How many keys each batch element has before the new ones. None if all keys are new; in a
/// batch of one they are what the longest has more, unless the cache has had room for them: then it
/// may have room to spare.
fn offset(b: &mut Builder, n: &OnnxNode, batch: u64, lengths: (u64, u64)) -> Result<Offset> {
    let (length, total) = lengths;
    if length == total {
        return Ok(Offset::Known(0));
    }
    let room = match n.optional(3) {
        Some(past) => b.extents::<4>(past)?[2],
        None => 0,
    };
    if batch == 1 && room < total {
        return Ok(Offset::Known(signed(total - length)));
    }
    let last = n.input(5)?;
    if b.known(last).is_some() {
        let last = b.integers(last)?;
        if last.iter().all(|&last| last + 1 == signed(total)) {
            return Ok(Offset::Known(signed(total - length)));
        }
    }
    let last = b.cast(last, DType::I64)?;
    let last = b.reshape(last, &[batch])?;
    Ok(Offset::Each(b.with_number(Binary::Sub, last, super::real(signed(length) - 1))?))
}

/// Queries and keys rotated by their positions, where the node says so.
fn rotated(b: &mut Builder, n: &OnnxNode, new: Operands, offset: Offset, length: u64) -> Result<Operands> {
    if !is_set(n, "do_rotary") {
        return Ok(new);
    }
    let tables = Tables { cosines: n.input(7)?, sines: n.input(8)? };
    let tables = match (n.optional(9), offset) {
        // Of a first prompt only the first position is used, for all batch elements.
        (Some(positions), Offset::Known(0)) => {
            let count = b.elements(positions)?;
            let flat = b.reshape(positions, &[count])?;
            let first = b.slice(flat, 0, 0, 1)?;
            let positions = rotary::positions_from(b, first, length)?;
            rotary::at_positions(b, tables, positions)?
        }
        (Some(positions), _) => rotary::at_positions(b, tables, positions)?,
        (None, Offset::Known(offset)) => {
            let start = u64::try_from(offset).unwrap_or(0);
            Tables {
                cosines: b.slice(tables.cosines, 0, start, length)?,
                sines: b.slice(tables.sines, 0, start, length)?,
            }
        }
        (None, Offset::Each(offsets)) => {
            let positions = rotary::positions_from(b, offsets, length)?;
            rotary::at_positions(b, tables, positions)?
        }
    };
    let interleaved = is_set(n, "rotary_interleaved");
    let pairing = if interleaved { Pairing::Neighbours } else { Pairing::Halves };
    Ok(Operands {
        queries: rotary::rotate(b, new.queries, tables, pairing, Heads::Before)?,
        keys: rotary::rotate(b, new.keys, tables, pairing, Heads::Before)?,
        values: new.values,
    })
}

/// The cache with the new keys or values in it; it has room for the longest batch element at
/// least.
fn cached(
    b: &mut Builder,
    past: Option<ValueId>,
    new: ValueId,
    offset: Offset,
    total: u64,
) -> Result<ValueId> {
    let [batch, heads, length, size] = b.extents(new)?;
    let there = match past {
        Some(past) => b.extents::<4>(past)?[2],
        None => 0,
    };
    let room = there.max(total);
    let Some(past) = past.filter(|_| there > 0) else {
        return if length == room { Ok(new) } else { Err(b.wrong("no cache")) };
    };
    match offset {
        Offset::Known(offset) => {
            let offset = u64::try_from(offset).unwrap_or(0);
            let before = b.slice(past, 2, 0, offset)?;
            let end = offset + length;
            let mut parts = vec![before, new];
            if offset == 0 {
                parts.remove(0);
            }
            if end < there {
                parts.push(b.slice(past, 2, end, there - end)?);
            }
            b.concat(&parts, 2)
        }
        Offset::Each(offsets) => {
            let mut cache = past;
            if there < room {
                let more = b.filled(b.dtype(new), [batch, heads, room - there, size], 0.0)?;
                cache = b.concat(&[past, more], 2)?;
            }
            indexing::write_from(b, cache, new, offsets, 2, None)
        }
    }
}

/// Attention to one key more, whose score is the head's sink and whose value is 0.
fn with_sinks(b: &mut Builder, op: Attention, arguments: &[ValueId], sinks: ValueId) -> Result<ValueId> {
    let made = b.emit(Op::Attention(Attention { statistics: true, ..op }), arguments)?;
    let &[y, statistics] = made.as_slice() else { return Err(b.wrong("attention without statistics")) };
    let [batch, heads, length, _] = b.extents(y)?;
    let given = b.elements(sinks)?;
    if given != heads && given != 1 {
        return Err(b.wrong(format!("{given} sinks for {heads} heads")));
    }
    // Of the one key the largest score is the sink, and the sum is 1.
    let rows = [batch, heads, length, 1];
    let largest = b.cast(sinks, b.dtype(statistics))?;
    let largest = b.reshape(largest, &[1, given, 1, 1])?;
    let largest = b.expand(largest, &rows)?;
    let sum = b.filled(b.dtype(statistics), rows, 1.0)?;
    let sunk = b.concat(&[largest, sum], 3)?;
    let nothing = b.filled(b.dtype(y), b.shape(y)?, 0.0)?;
    b.emit1(Op::AttentionMerge, &[y, statistics, nothing, sunk])
}

fn attend(b: &mut Builder, n: &OnnxNode, operands: Operands, offset: Offset, total: u64) -> Result<ValueId> {
    // What the cache has room for beyond the longest batch element is not seen.
    let queries = operands.queries;
    let keys = b.slice(operands.keys, 2, 0, total)?;
    let values = b.slice(operands.values, 2, 0, total)?;
    let [_, _, length, size] = b.extents(queries)?;
    let window = n.int("local_window_size").filter(|&window| window > 0);
    let mut mask = n.optional(10);
    let aligned = matches!(offset, Offset::Known(_));
    if !aligned {
        let places = Places::new(b, offset, length, total)?;
        let seen = places.at_most(b, 0)?;
        mask = mask::both(b, mask, Some(seen))?;
        if let Some(window) = window {
            let seen = places.at_least(b, window - 1)?;
            mask = mask::both(b, mask, Some(seen))?;
        }
    }
    let op = Attention {
        scale: Real(scale(n, size)),
        causal: aligned,
        softcap: Real(float(n, "softcap", 0.0)),
        window: window.filter(|_| aligned).and_then(|window| u64::try_from(window).ok()),
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let mut arguments = vec![queries, keys, values];
    arguments.extend(mask);
    let smooth = n.int("smooth_softmax").unwrap_or(0) > 0;
    let y = match n.optional(11) {
        Some(sinks) => with_sinks(b, op, &arguments, sinks)?,
        None if smooth => {
            let sink = b.filled(b.dtype(queries), [1], 0.0)?;
            with_sinks(b, op, &arguments, sink)?
        }
        None => b.emit1(Op::Attention(op), &arguments)?,
    };
    join_heads(b, y)
}
