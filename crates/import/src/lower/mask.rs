//! Which keys a query sees, as truth values that broadcast to `[batch, heads, queries, keys]`.

use planner_ir::{Binary, DType, Edge, Op, Real, ValueId};

use super::{Result, real, signed};
use crate::builder::Builder;

/// How many keys precede the first query.
#[derive(Clone, Copy)]
pub(super) enum Offset {
    /// The same number for the whole batch.
    Known(i64),
    /// A number (i64) for each batch element: `[batch]`.
    Each(ValueId),
}

/// The places of queries and keys in the sequence.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// `[batch or 1, 1, queries, 1]`.
    queries: ValueId,
    /// `[keys]`.
    keys: ValueId,
}

impl Places {
    pub(super) fn new(b: &mut Builder, offset: Offset, queries: u64, keys: u64) -> Result<Self> {
        let keys = b.iota(DType::I64, keys)?;
        let queries = match offset {
            Offset::Known(offset) => {
                let places = b.iota_from(DType::I64, queries, real(offset))?;
                b.reshape(places, &[1, 1, queries, 1])?
            }
            Offset::Each(offsets) => {
                let places = b.iota(DType::I64, queries)?;
                let places = b.reshape(places, &[1, 1, queries, 1])?;
                let offsets = for_batch(b, offsets)?;
                b.add(offsets, places)?
            }
        };
        Ok(Self { queries, keys })
    }

    /// Keys at most `ahead` places after the query.
    pub(super) fn at_most(self, b: &mut Builder, ahead: i64) -> Result<ValueId> {
        let limit = b.with_number(Binary::Add, self.queries, real(ahead))?;
        b.binary(Binary::LessOrEqual, self.keys, limit)
    }

    /// Keys at most `behind` places before the query.
    pub(super) fn at_least(self, b: &mut Builder, behind: i64) -> Result<ValueId> {
        let limit = b.with_number(Binary::Sub, self.queries, real(behind))?;
        b.binary(Binary::GreaterOrEqual, self.keys, limit)
    }
}

/// A number for each batch element, as `[batch, 1, 1, 1]` of i64.
fn for_batch(b: &mut Builder, numbers: ValueId) -> Result<ValueId> {
    let numbers = b.cast(numbers, DType::I64)?;
    let batch = b.elements(numbers)?;
    b.reshape(numbers, &[batch, 1, 1, 1])
}

/// The first `counts[batch]` of the keys.
pub(super) fn first_keys(b: &mut Builder, counts: ValueId, keys: u64) -> Result<ValueId> {
    let counts = for_batch(b, counts)?;
    let keys = b.iota(DType::I64, keys)?;
    b.binary(Binary::Less, keys, counts)
}

/// The keys from `starts[batch]` on.
pub(super) fn last_keys(b: &mut Builder, starts: ValueId, keys: u64) -> Result<ValueId> {
    let starts = for_batch(b, starts)?;
    let keys = b.iota(DType::I64, keys)?;
    b.binary(Binary::GreaterOrEqual, keys, starts)
}

/// What both masks leave. A mask of numbers, which are added, may be the first; there is always
/// one of truth values where both are given.
pub(super) fn both(b: &mut Builder, mask: Option<ValueId>, seen: Option<ValueId>) -> Result<Option<ValueId>> {
    Ok(match (mask, seen) {
        (Some(mask), Some(seen)) if b.dtype(mask) == DType::Bool => {
            Some(b.binary(Binary::And, mask, seen)?)
        }
        (Some(mask), Some(seen)) => {
            let hidden = b.number(mask, f64::NEG_INFINITY)?;
            Some(b.select(seen, mask, hidden)?)
        }
        (mask, seen) => mask.or(seen),
    })
}

/// A mask for more keys than it has: those at the end are hidden.
pub(super) fn lengthened(b: &mut Builder, mask: ValueId, keys: u64) -> Result<ValueId> {
    let shape = b.shape(mask)?;
    let missing = shape.last().map_or(0, |&there| keys.saturating_sub(there));
    if missing == 0 {
        return Ok(mask);
    }
    let hidden = if b.dtype(mask) == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    let before = vec![0; shape.len()];
    let mut after = before.clone();
    if let Some(last) = after.last_mut() {
        *last = signed(missing);
    }
    b.emit1(Op::Pad { before, after, edge: Edge::Constant(Real(hidden)) }, &[mask])
}

/// A mask of truth values as one of numbers to add.
pub(super) fn added(b: &mut Builder, mask: ValueId, dtype: DType) -> Result<ValueId> {
    if b.dtype(mask) != DType::Bool {
        return b.cast(mask, dtype);
    }
    let (zero, hidden) = (b.scalar(dtype, 0.0)?, b.scalar(dtype, f64::NEG_INFINITY)?);
    b.select(mask, zero, hidden)
}

/// How many keys a query sees of those up to its own, if it may look back that far.
pub(super) fn window(behind: i64) -> Option<u64> {
    u64::try_from(behind).ok().map(|behind| behind + 1)
}
