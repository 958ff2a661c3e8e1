//! Attention whose keys and values are summed up in a state, token by token.
//!
//! Source: the documentation of `LinearAttention` in ONNX (opset 27), which ONNX Runtime's operator of
//! that name agrees with.

use planner_ir::{DType, Op, Recurrence, ValueId};

use super::{Outputs, Result, float, outputs, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// What a token changes of the state.
struct Rule {
    /// The state fades.
    gated: bool,
    /// What a key finds there already is taken away.
    delta: bool,
}

impl Rule {
    fn of(n: &OnnxNode) -> Result<Self> {
        let (gated, delta) = match n.string("update_rule").unwrap_or("gated_delta") {
            "linear" => (false, false),
            "gated" => (true, false),
            "delta" => (false, true),
            "gated_delta" => (true, true),
            other => return Err(n.unsupported(format!("the rule `{other}`"))),
        };
        Ok(Self { gated, delta })
    }
}

/// Queries, keys, values `[b, t, heads * size]`, what came before `[b, heads, k, v]`, how states fade,
/// how much of a value is new.
pub(super) fn attention(b: &mut Builder, n: &OnnxNode) -> Outputs {
    if n.int("state_window").is_some_and(|window| window != 0) {
        return Err(n.unsupported("states of several tokens"));
    }
    let rule = Rule::of(n)?;
    let count = |name: &str| -> Result<u64> {
        let number = n.required_int(name)?;
        u64::try_from(number).ok().filter(|&it| it > 0).ok_or_else(|| n.wrong(format!("{name} is {number}")))
    };
    let (heads, groups) = (count("q_num_heads")?, count("kv_num_heads")?);
    if !heads.is_multiple_of(groups) {
        return Err(n.unsupported(format!("{heads} heads of queries over {groups} of keys")));
    }
    let dtype = b.dtype(n.input(0)?);
    let [batch, length, _] = b.extents(n.input(0)?)?;
    // `[b, t, parts, numbers]` in f32.
    let split = |b: &mut Builder, x: ValueId, parts: u64| -> Result<ValueId> {
        let [_, _, width] = b.extents(x)?;
        if parts == 0 || !width.is_multiple_of(parts) {
            return Err(b.wrong(format!("{width} numbers of {parts} heads")));
        }
        let x = b.cast(x, DType::F32)?;
        b.reshape(x, &[batch, length, parts, width / parts])
    };
    let queries = split(b, n.input(0)?, heads)?;
    let keys = split(b, n.input(1)?, groups)?;
    let values = split(b, n.input(2)?, groups)?;
    let [_, _, _, size] = b.extents(keys)?;
    let [_, _, _, made] = b.extents(values)?;
    let fading = match (rule.gated, n.optional(4)) {
        (true, Some(decay)) => split(b, decay, groups)?,
        (true, None) => return Err(n.wrong("input 4 is missing")),
        (false, _) => b.filled(DType::F32, [batch, length, groups, 1], 0.0)?,
    };
    let new = match (rule.delta, n.optional(5)) {
        (true, Some(beta)) => {
            let [_, _, width] = b.extents(beta)?;
            let share = split(b, beta, if width == 1 { 1 } else { groups })?;
            let share = b.expand(share, &[batch, length, groups, 1])?;
            Some(b.squeeze(share, &[3])?)
        }
        (true, None) => return Err(n.wrong("input 5 is missing")),
        (false, _) => None,
    };
    let state = match n.optional(3) {
        Some(past) => b.cast(past, DType::F32)?,
        None => b.filled(DType::F32, [batch, groups, size, made], 0.0)?,
    };
    // Several queries of one state: each has a state of its own, all of them equal.
    let times = heads / groups;
    let repeated = |b: &mut Builder, x: ValueId, dim: usize| -> Result<ValueId> {
        if times == 1 {
            return Ok(x);
        }
        let shape = b.shape(x)?;
        let mut apart = shape.clone();
        apart.insert(dim + 1, times);
        let (mut together, x) = (shape, b.unsqueeze(x, &[dim + 1])?);
        together[dim] *= times;
        let x = b.expand(x, &apart)?;
        b.reshape(x, &together)
    };
    let mut operands = vec![queries];
    for (x, dim) in [keys, values, fading].into_iter().chain(new).map(|x| (x, 2)).chain([(state, 1)]) {
        operands.push(repeated(b, x, dim)?);
    }
    let op = if rule.delta { Recurrence::GatedDelta } else { Recurrence::SelectiveScan };
    let [y, state] = b.emit(Op::Recurrence(op), &operands)?[..] else {
        return Err(n.wrong("a recurrence has two results"));
    };
    let y = b.reshape(y, &[batch, length, heads * made])?;
    let state = if times == 1 {
        state
    } else {
        let state = b.reshape(state, &[batch, groups, times, size, made])?;
        let state = b.slice(state, 2, 0, 1)?;
        b.squeeze(state, &[2])?
    };
    let given = float(n, "scale", 0.0);
    let scale = if given.abs() > 0.0 { given } else { 1.0 / real(signed(size)).sqrt() };
    let y = b.with_number(planner_ir::Binary::Mul, y, scale)?;
    let (y, state) = (b.cast(y, dtype)?, b.cast(state, n.optional(3).map_or(dtype, |past| b.dtype(past)))?);
    outputs(n, [Some(y), Some(state)])
}
