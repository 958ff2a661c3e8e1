//! Attention whose keys and values are summed up in a state, token by token.
//!
//! Source: the documentation of `LinearAttention` in ONNX (opset 27), which ONNX Runtime's operator of
//! that name agrees with.

use planner_ir::{DType, Unary, ValueId};

use super::{Outputs, Result, float, outputs, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The longest sequence (tokens): each is several operations.
const LONGEST: u64 = 2048;

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
    if length > LONGEST {
        return Err(n.unsupported(format!("a sequence of {length} tokens, at most {LONGEST}")));
    }
    // `[b, t, g, more.., numbers]` in f32.
    let split = |b: &mut Builder, x: ValueId, more: &[u64]| -> Result<ValueId> {
        let [_, _, width] = b.extents(x)?;
        let parts = more.iter().product::<u64>();
        if parts == 0 || !width.is_multiple_of(parts) {
            return Err(b.wrong(format!("{width} numbers of {parts} heads")));
        }
        let x = b.cast(x, DType::F32)?;
        b.reshape(x, &[&[batch, length], more, &[width / parts]].concat())
    };
    let queries = split(b, n.input(0)?, &[groups, heads / groups])?;
    let keys = split(b, n.input(1)?, &[groups])?;
    let values = split(b, n.input(2)?, &[groups])?;
    let [_, _, _, size] = b.extents(keys)?;
    let [_, _, _, made] = b.extents(values)?;
    let fading = match (rule.gated, n.optional(4)) {
        (true, Some(decay)) => {
            let decay = split(b, decay, &[groups])?;
            Some(b.unary(Unary::Exp, decay)?)
        }
        (true, None) => return Err(n.wrong("input 4 is missing")),
        (false, _) => None,
    };
    let new = match (rule.delta, n.optional(5)) {
        (true, Some(beta)) => {
            let [_, _, width] = b.extents(beta)?;
            Some(split(b, beta, &[if width == 1 { 1 } else { groups }])?)
        }
        (true, None) => return Err(n.wrong("input 5 is missing")),
        (false, _) => None,
    };
    let mut state = match n.optional(3) {
        Some(past) => b.cast(past, DType::F32)?,
        None => b.filled(DType::F32, [batch, groups, size, made], 0.0)?,
    };
    let of_token = |b: &mut Builder, x: ValueId, token: u64| -> Result<ValueId> {
        let one = b.slice(x, 1, token, 1)?;
        b.squeeze(one, &[1])
    };
    let mut tokens = Vec::new();
    for token in 0..length {
        let key = of_token(b, keys, token)?;
        let mut value = of_token(b, values, token)?;
        if let Some(fading) = fading {
            let left = of_token(b, fading, token)?;
            let left = b.unsqueeze(left, &[3])?;
            state = b.mul(state, left)?;
        }
        if let Some(new) = new {
            let found = b.contract((key, b"bgk"), (state, b"bgkv"), b"bgv")?;
            let share = of_token(b, new, token)?;
            value = b.sub(value, found)?;
            value = b.mul(value, share)?;
        }
        let (column, row) = (b.unsqueeze(key, &[3])?, b.unsqueeze(value, &[2])?);
        let more = b.mul(column, row)?;
        state = b.add(state, more)?;
        let query = of_token(b, queries, token)?;
        let y = b.contract((query, b"bghk"), (state, b"bgkv"), b"bghv")?;
        tokens.push(b.reshape(y, &[batch, 1, heads * made])?);
    }
    if tokens.is_empty() {
        return Err(n.unsupported("a sequence without tokens"));
    }
    let y = b.concat(&tokens, 1)?;
    let given = float(n, "scale", 0.0);
    let scale = if given.abs() > 0.0 { given } else { 1.0 / real(signed(size)).sqrt() };
    let y = b.with_number(planner_ir::Binary::Mul, y, scale)?;
    let (y, state) = (b.cast(y, dtype)?, b.cast(state, n.optional(3).map_or(dtype, |past| b.dtype(past)))?);
    outputs(n, [Some(y), Some(state)])
}
