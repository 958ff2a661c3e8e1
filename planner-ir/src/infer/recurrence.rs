//! The results of recurrences.

use super::Result;
use super::checks::expect;
use crate::data::Type;
use crate::op::Recurrence;

/// Of the operands that [`Recurrence`] says.
pub(super) fn recurrence_type(it: Recurrence, operands: &[Type]) -> Result<Vec<Type>> {
    let (q, v) = (&operands[0], &operands[2]);
    expect(operands, 0, q.dtype.is_float() && q.rank() == 4, "[batch, tokens, key heads, size]")?;
    expect(operands, 1, operands[1] == *q, &q.to_string())?;
    let fits = v.rank() == 4 && v.dtype == q.dtype && v.shape[..2] == q.shape[..2];
    expect(operands, 2, fits, "[batch, tokens, heads, size] of the elements of operand 0")?;
    let [batch, tokens, groups, size] = [0, 1, 2, 3].map(|dim: usize| q.shape[dim]);
    let heads = v.shape[2];
    expect(
        operands,
        2,
        groups > 0 && heads.is_multiple_of(groups),
        &format!("a multiple of {groups} heads"),
    )?;
    let wide = q.dtype.accumulated();
    let of_heads = |index: usize, last: &[u64]| {
        let it: &Type = &operands[index];
        let right = it.shape[..] == [&[batch, tokens, heads], last].concat();
        right && (it.dtype == q.dtype || it.dtype == wide)
    };
    let expected = format!("{wide} or {}, of shape [{batch}, {tokens}, {heads}, 1 or {size}]", q.dtype);
    expect(operands, 3, of_heads(3, &[1]) || of_heads(3, &[size]), &expected)?;
    if it.replaces() {
        let expected = format!("{wide} or {}, of shape [{batch}, {tokens}, {heads}]", q.dtype);
        expect(operands, 4, of_heads(4, &[]), &expected)?;
    }
    let given = it.operands();
    let state = Type::new(wide, [batch, heads, size, v.shape[3]]);
    expect(operands, given - 1, operands[given - 1] == state, &state.to_string())?;
    if it.gradient().is_some() {
        return Ok(vec![v.clone(), state]);
    }
    expect(operands, given, operands[given] == *v, &v.to_string())?;
    expect(operands, given + 1, operands[given + 1] == state, &state.to_string())?;
    Ok(operands[..given].to_vec())
}
