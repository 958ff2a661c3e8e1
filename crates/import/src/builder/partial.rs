//! Lists of integers some of which are known: shapes of values some of whose extents are.

use planner_ir::{DType, Op, Type, ValueId};

use super::Builder;

/// The elements of a list, where they are known.
pub(crate) type Partial = Vec<Option<i64>>;

/// What is known of the result of an operation that moves elements of such lists.
pub(crate) fn infer(b: &Builder, op: &Op, operands: &[ValueId], result: &Type) -> Option<Partial> {
    if operands.iter().all(|&operand| b.partial(operand).is_none()) || result.rank() > 1 {
        return None;
    }
    let first = *operands.first()?;
    let elements = match op {
        Op::Cast(DType::I64) | Op::Reshape { .. } => elements(b, first)?,
        Op::Concat { .. } => {
            let lists: Option<Vec<Partial>> = operands.iter().map(|&operand| elements(b, operand)).collect();
            lists?.concat()
        }
        Op::Gather { .. } => {
            let data = elements(b, first)?;
            let indices = elements(b, *operands.get(1)?)?;
            let pick = |index: Option<i64>| {
                let count = i64::try_from(data.len()).ok()?;
                let index = index?;
                let place = usize::try_from(if index < 0 { index + count } else { index }).ok()?;
                data.get(place).copied().flatten()
            };
            indices.into_iter().map(pick).collect()
        }
        Op::Slice { starts, steps, sizes } => {
            let (data, start) = (elements(b, first)?, i64::try_from(*starts.first()?).ok()?);
            let size = i64::try_from(*sizes.first()?).ok()?;
            let step = *steps.first()?;
            let places =
                (0..size).map(|index| usize::try_from(step.checked_mul(index)?.checked_add(start)?).ok());
            places.map(|place| data.get(place?).copied().flatten()).collect()
        }
        _ => return None,
    };
    (u64::try_from(elements.len()) == Ok(result.elements())).then_some(elements)
}

fn elements(b: &Builder, value: ValueId) -> Option<Partial> {
    if let Some(partial) = b.partial(value) {
        return Some(partial);
    }
    if b.known(value).is_some() {
        return Some(b.integers(value).ok()?.into_iter().map(Some).collect());
    }
    // A list of which nothing is known.
    let type_ = b.type_of(value);
    let few = type_.dtype == DType::I64 && type_.rank() <= 1 && !b.is_open(value);
    let count = usize::try_from(type_.elements()).ok().filter(|&count| few && count <= LONGEST)?;
    Some(vec![None; count])
}

/// Shapes are not longer than this (dimensions).
const LONGEST: usize = 64;
