//! What the same ranks have and the same ranks need.
//!
//! Along each dimension the blocks of both layouts begin and end at some places; between two
//! neighbouring places lies a cell, which has one block number, and so the same digits, on each
//! side. Cells with the same digits on both sides have the same holders and go together. As all
//! combinations of a layout's digits are held by some device, the pairs of digits of one
//! dimension combine freely with those of the others: no device is compared with a portion.
//!
//! Source: unit tasks of Zhuang et al., "On Optimizing the Communication of Model Parallelism"
//! (MLSys 2023), as Alpa makes them; those have to be of one size, ours need not.

use std::collections::BTreeMap;
use std::sync::Arc;

use planner_ir::{Digit, Type};

use crate::error::{End, ReshardError};
use crate::portion::{Portion, Span};
use crate::side::{Place, Side};

/// Portions of a value that the same ranks have and the same ranks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitTask {
    /// The portions, of the whole value. Each lies in one block of either layout.
    pub portions: Vec<Portion>,
    /// How large they are together (bytes).
    pub bytes: u64,
    /// Where they are, in the order of the devices.
    pub senders: Arc<[Place]>,
    /// Where they are needed, in the order of the devices.
    pub receivers: Arc<[Place]>,
}

/// What has the same digits on both sides along one dimension.
struct Cells {
    /// The digits on the sending side, as one number.
    from: u64,
    /// The digits on the receiving side.
    to: u64,
    /// Where the cells lie.
    spans: Vec<Span>,
}

/// What has to be brought from one side to the other, in the order of the blocks that are needed,
/// then of those that are there.
pub fn unit_tasks(type_: &Type, from: &Side, to: &Side) -> Result<Vec<UnitTask>, ReshardError> {
    from.check(End::Sending, type_)?;
    to.check(End::Receiving, type_)?;
    different_ranks(from, to)?;
    let elements = type_.shape.iter().try_fold(1u64, |elements, &extent| elements.checked_mul(extent));
    elements.and_then(|it| it.checked_mul(type_.dtype.bytes())).ok_or(ReshardError::Large)?;

    let blocks = |digits: &[Digit]| -> u64 {
        digits.iter().filter(|digit| !digit.is_free()).map(|digit| digit.size).product()
    };
    let start = BTreeMap::from([((0, 0), vec![Portion { spans: vec![] }])]);
    let dims = from.layout.dims.iter().zip(&to.layout.dims).zip(&type_.shape);
    let portions = dims.fold(start, |before, ((have, need), &extent)| {
        let (of_from, of_to) = (blocks(have), blocks(need));
        let mut after: BTreeMap<(u64, u64), Vec<Portion>> = BTreeMap::new();
        let cells = cells(have, need, extent);
        for ((need, have), portions) in before {
            for it in &cells {
                after
                    .insert((need * of_to + it.to, have * of_from + it.from), combined(&portions, &it.spans));
            }
        }
        after
    });

    let senders: Vec<Arc<[Place]>> = from.holders().into_iter().map(Arc::from).collect();
    let receivers: Vec<Arc<[Place]>> = to.holders().into_iter().map(Arc::from).collect();
    let holders = |of: &[Arc<[Place]>], block: u64| {
        usize::try_from(block).ok().and_then(|block| of.get(block)).cloned().unwrap_or_default()
    };
    let task = |((need, have), portions): ((u64, u64), Vec<Portion>)| UnitTask {
        bytes: portions.iter().map(Portion::elements).sum::<u64>() * type_.dtype.bytes(),
        portions,
        senders: holders(&senders, have),
        receivers: holders(&receivers, need),
    };
    Ok(portions.into_iter().map(task).filter(|task| task.bytes > 0).collect())
}

/// Whether no rank stands for two devices.
fn different_ranks(from: &Side, to: &Side) -> Result<(), ReshardError> {
    let mut ranks: Vec<u64> = from.places.iter().chain(&to.places).map(|place| place.rank).collect();
    ranks.sort_unstable();
    match ranks.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ReshardError::Rank(pair[0])),
        None => Ok(()),
    }
}

/// Portions with one more dimension.
fn combined(portions: &[Portion], spans: &[Span]) -> Vec<Portion> {
    let longer = |portion: &Portion, span: Span| Portion {
        spans: portion.spans.iter().copied().chain([span]).collect(),
    };
    portions.iter().flat_map(|portion| spans.iter().map(|&span| longer(portion, span))).collect()
}

/// The cells of a dimension, by their digits on both sides.
fn cells(from: &[Digit], to: &[Digit], extent: u64) -> Vec<Cells> {
    let block = |digits: &[Digit]| extent / digits.iter().map(|digit| digit.size).product::<u64>();
    let (of_from, of_to) = (block(from).max(1), block(to).max(1));
    let mut cells: BTreeMap<(u64, u64), Vec<Span>> = BTreeMap::new();
    let mut start = 0;
    while start < extent {
        let (have, need) = (start / of_from, start / of_to);
        let end = ((have + 1) * of_from).min((need + 1) * of_to);
        let digits = (held_digits(from, have), held_digits(to, need));
        cells.entry(digits).or_default().push(Span { start, length: end - start });
        start = end;
    }
    cells.into_iter().map(|((from, to), spans)| Cells { from, to, spans }).collect()
}

/// The digits of a block's number as one number, without the free ones.
fn held_digits(digits: &[Digit], block: u64) -> u64 {
    let (mut rest, mut place, mut number) = (block, 1, 0);
    for digit in digits.iter().rev() {
        if !digit.is_free() {
            number += rest % digit.size * place;
            place *= digit.size;
        }
        rest /= digit.size;
    }
    number
}
