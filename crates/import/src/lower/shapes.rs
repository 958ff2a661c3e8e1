//! Constants, and values made of shapes.

use kernels::Array;
use planner_ir::{Binary, DType, Op, Real, ValueId};

use super::{Result, element_type, extent, real, signed};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// The longest range (elements).
const MOST: u64 = 1 << 40;

/// The value of the attribute that is there.
pub(super) fn constant(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    if let Some(array) = n.tensor("value")? {
        return Ok(b.constant(array));
    }
    let built = |array: std::result::Result<Array, kernels::KernelError>| {
        array.map_err(|error| n.wrong(error.to_string()))
    };
    if let Some(number) = n.int("value_int") {
        return Ok(b.constant(built(Array::of([], &[number]))?));
    }
    if let Some(numbers) = n.ints("value_ints") {
        return b.list(numbers);
    }
    if let Some(number) = n.float("value_float") {
        return Ok(b.constant(built(Array::of([], &[number]))?));
    }
    if let Some(numbers) = n.floats("value_floats") {
        return Ok(b.constant(built(Array::of([extent(numbers.len())], numbers))?));
    }
    Err(n.unsupported("a constant that is sparse or of strings"))
}

/// The extents from `start` to `end`.
pub(super) fn shape(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let shape: Vec<_> = b.shape(n.input(0)?)?.into_iter().map(signed).collect();
    let rank = signed(extent(shape.len()));
    let place = |axis: i64| {
        let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
        usize::try_from(axis.clamp(0, rank)).unwrap_or(0)
    };
    let start = place(n.int("start").unwrap_or(0));
    let end = place(n.int("end").unwrap_or(rank)).max(start);
    b.list(&shape[start..end])
}

pub(super) fn size(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let elements = signed(b.elements(n.input(0)?)?);
    let list = b.list(&[elements])?;
    b.reshape(list, &[])
}

/// One number repeated; 0 in f32 unless the attribute says otherwise.
pub(super) fn constant_of_shape(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let shape = b.integers(n.input(0)?)?;
    let shape = shape.iter().map(|&size| u64::try_from(size)).collect::<std::result::Result<Vec<_>, _>>();
    let shape = shape.map_err(|_| n.wrong("a negative extent"))?;
    match n.tensor("value")? {
        Some(array) => {
            let one = b.constant(array);
            let one = b.reshape(one, &[])?;
            b.expand(one, &shape)
        }
        None => b.filled(DType::F32, shape, 0.0),
    }
}

/// `start, start + step, ..` up to but without the limit.
pub(super) fn range(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let operands = [n.input(0)?, n.input(1)?, n.input(2)?];
    let dtype = b.dtype(operands[0]);
    let length = if dtype.is_float() {
        let [start, limit, step] = [b.real(operands[0])?, b.real(operands[1])?, b.real(operands[2])?];
        steps(start, limit, step)
    } else {
        let [start, limit, step] =
            [b.integer(operands[0])?, b.integer(operands[1])?, b.integer(operands[2])?];
        if step == 0 { None } else { Some(integer_steps(start, limit, step)) }
    };
    let length = length.filter(|&length| length <= MOST);
    let length = length.ok_or_else(|| n.wrong("a step of 0 or a range without end"))?;
    let (start, step) = (Real(b.real(operands[0])?), Real(b.real(operands[2])?));
    b.emit1(Op::Iota { dtype, length, start, step }, &[])
}

fn integer_steps(start: i64, limit: i64, step: i64) -> u64 {
    let distance = if step > 0 { limit.saturating_sub(start) } else { start.saturating_sub(limit) };
    u64::try_from(distance).map_or(0, |distance| distance.div_ceil(step.unsigned_abs()))
}

/// `ceil((limit - start) / step)`.
fn steps(start: f64, limit: f64, step: f64) -> Option<u64> {
    let count = ((limit - start) / step).ceil().max(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked")]
    if count < 2e12 { Some(count as u64) } else { None }
}

/// Ones on a diagonal, in the shape of the operand.
pub(super) fn eye_like(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let [rows, columns] = b.extents(x)?;
    let dtype = match n.int("dtype") {
        Some(number) => element_type(n, number)?,
        None => b.dtype(x),
    };
    let diagonal = real(n.int("k").unwrap_or(0));
    let row = b.iota_from(DType::I64, rows, diagonal)?;
    let row = b.reshape(row, &[rows, 1])?;
    let column = b.iota(DType::I64, columns)?;
    let equal = b.binary(Binary::Equal, row, column)?;
    b.cast(equal, dtype)
}
