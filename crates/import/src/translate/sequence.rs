//! Lists of values, which exist only during import.

use planner_ir::{Op, ValueId};

use super::Bound;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::node::OnnxNode;

/// The results of an operator on lists of values; `None` for other operators.
pub(crate) fn lower(
    b: &mut Builder,
    n: &OnnxNode,
    inputs: &[Bound],
) -> Result<Option<Vec<Bound>>, ImportError> {
    let bound = match n.op_type {
        "SequenceEmpty" => Bound::Sequence(Vec::new()),
        "SequenceConstruct" => {
            let values = (0..inputs.len()).map(|index| n.input(index));
            Bound::Sequence(values.collect::<Result<_, _>>()?)
        }
        "SequenceLength" => {
            let length =
                i64::try_from(sequence(n, inputs)?.len()).map_err(|_| n.wrong("the list is too long"))?;
            let list = b.list(&[length])?;
            Bound::Value(b.reshape(list, &[])?)
        }
        "SequenceAt" => {
            let values = sequence(n, inputs)?;
            let index = position(b, n, values.len(), 1)?;
            let value = values.get(index).copied();
            Bound::Value(
                value.ok_or_else(|| n.wrong(format!("position {index} of {} values", values.len())))?,
            )
        }
        "SequenceInsert" => {
            let mut values = sequence(n, inputs)?.to_vec();
            let index = if n.optional(2).is_some() { position(b, n, values.len(), 2)? } else { values.len() };
            if index > values.len() {
                return Err(n.wrong(format!("position {index} of {} values", values.len())));
            }
            values.insert(index, n.input(1)?);
            Bound::Sequence(values)
        }
        "SequenceErase" => {
            let mut values = sequence(n, inputs)?.to_vec();
            let last = values.len().checked_sub(1).ok_or_else(|| n.wrong("the list is empty"))?;
            let index = if n.optional(1).is_some() { position(b, n, values.len(), 1)? } else { last };
            if index > last {
                return Err(n.wrong(format!("position {index} of {} values", values.len())));
            }
            values.remove(index);
            Bound::Sequence(values)
        }
        "SplitToSequence" => Bound::Sequence(split(b, n)?),
        "ConcatFromSequence" => Bound::Value(concat(b, n, sequence(n, inputs)?)?),
        _ => return Ok(None),
    };
    Ok(Some(vec![bound]))
}

fn sequence<'a>(n: &OnnxNode, inputs: &'a [Bound]) -> Result<&'a [ValueId], ImportError> {
    match inputs.first() {
        Some(Bound::Sequence(values)) => Ok(values),
        _ => Err(n.wrong("input 0 is not a list of values")),
    }
}

/// The position that an input says; negative ones count from the end.
fn position(b: &Builder, n: &OnnxNode, length: usize, input: usize) -> Result<usize, ImportError> {
    let numbers = b.integers(n.input(input)?)?;
    let number = *numbers.first().ok_or_else(|| n.wrong("a position without a number"))?;
    let length = i64::try_from(length).map_err(|_| n.wrong("the list is too long"))?;
    let counted = if number < 0 { number.checked_add(length) } else { Some(number) };
    let position = counted.and_then(|it| usize::try_from(it).ok());
    position.ok_or_else(|| n.wrong(format!("position {number} of {length} values")))
}

fn split(b: &mut Builder, n: &OnnxNode) -> Result<Vec<ValueId>, ImportError> {
    let value = n.input(0)?;
    if b.is_open(value) {
        return Err(n.depends_on_data("the shape of input 0"));
    }
    let shape = b.type_of(value).shape.clone();
    let dim = n.dimension(n.int("axis").unwrap_or(0), shape.len())?;
    let extent = shape[dim];
    let sizes = sizes(b, n, extent)?;
    let squeeze = n.optional(1).is_none() && n.int("keepdims").unwrap_or(1) == 0;
    let mut start = 0;
    let mut values = Vec::new();
    for size in sizes {
        let mut starts = vec![0; shape.len()];
        let mut piece = shape.clone();
        (starts[dim], piece[dim]) = (start, size);
        start += size;
        let op = Op::Slice { starts, steps: vec![1; shape.len()], sizes: piece.clone() };
        let mut slice = b.emit1(op, &[value])?;
        if squeeze {
            piece.remove(dim);
            slice = b.reshape(slice, &piece)?;
        }
        values.push(slice);
    }
    Ok(values)
}

/// How large the pieces are: 1 each, all but the last of one size, or as listed.
fn sizes(b: &Builder, n: &OnnxNode, extent: u64) -> Result<Vec<u64>, ImportError> {
    let wrong = || n.wrong(format!("sizes that do not split an extent of {extent}"));
    let limit = |count: u64| if count <= MOST_PIECES { Ok(()) } else { Err(n.unsupported("fewer pieces")) };
    let Some(split) = n.optional(1) else {
        limit(extent)?;
        return Ok((0..extent).map(|_| 1).collect());
    };
    let numbers = b.integers(split)?;
    let numbers =
        numbers.iter().map(|&it| u64::try_from(it).map_err(|_| wrong())).collect::<Result<Vec<_>, _>>()?;
    if b.type_of(split).rank() > 0 {
        let total = numbers.iter().try_fold(0u64, |total, &size| total.checked_add(size));
        return if total == Some(extent) { Ok(numbers) } else { Err(wrong()) };
    }
    let size = *numbers.first().filter(|&&size| size > 0).ok_or_else(wrong)?;
    limit(extent.div_ceil(size))?;
    Ok((0..extent.div_ceil(size)).map(|index| size.min(extent - index * size)).collect())
}

/// More pieces than that are no transformer.
const MOST_PIECES: u64 = 65_536;

fn concat(b: &mut Builder, n: &OnnxNode, values: &[ValueId]) -> Result<ValueId, ImportError> {
    let first = *values.first().ok_or_else(|| n.wrong("the list is empty"))?;
    let rank = b.type_of(first).rank();
    if n.int("new_axis").unwrap_or(0) == 0 {
        let dim = n.dimension(n.required_int("axis")?, rank)?;
        return b.emit1(Op::Concat { dim }, values);
    }
    let dim = n.dimension(n.required_int("axis")?, rank + 1)?;
    let mut pieces = Vec::new();
    for &value in values {
        if b.is_open(value) {
            return Err(n.depends_on_data("the shape of a value in the list"));
        }
        let mut shape = b.type_of(value).shape.clone();
        if shape.len() != rank {
            return Err(n.wrong("values of different ranks"));
        }
        shape.insert(dim, 1);
        pieces.push(b.reshape(value, &shape)?);
    }
    b.emit1(Op::Concat { dim }, &pieces)
}
