//! Where along a dimension a split may begin.
//!
//! A dimension that one operation sees as a product of loops (the heads and their size, three
//! packed projections) may be split along an inner loop: the split then begins after the product
//! of the outer ones. Other operations see the same dimension as one loop, and have to be offered
//! the same split. So offsets are shared along dimensions that loops connect, to a fixed point.

use std::collections::BTreeSet;

use planner_ir::{LoopId, Loops, Type, ValueId};

/// For each value and dimension, the numbers of blocks after which a split may begin: 1 is the
/// plain split.
pub(super) type Offsets = Vec<Vec<BTreeSet<u64>>>;

/// An operation's loops with its operands and results.
pub(super) type Indexed<'a> = (&'a Loops, &'a [ValueId], &'a [ValueId]);

/// How many offsets a dimension may have; more are not offered.
const LIMIT: usize = 4;

/// Plain splits of every dimension.
pub(super) fn plain(types: &[Type]) -> Offsets {
    types.iter().map(|type_| vec![BTreeSet::from([1]); type_.rank()]).collect()
}

/// The offsets of every dimension, given some.
pub(super) fn offsets(mut offsets: Offsets, operations: &[Indexed<'_>]) -> Offsets {
    loop {
        let mut changed = false;
        for operation in operations {
            changed |= share(operation, &mut offsets);
        }
        if !changed {
            break;
        }
    }
    offsets
}

/// The offsets at which a loop may be split, given those of the dimensions it indexes.
pub(super) fn of_loop(operation: &Indexed<'_>, it: LoopId, offsets: &Offsets) -> BTreeSet<u64> {
    let loops = operation.0;
    let mut of_loop = BTreeSet::from([1]);
    for (value, dim, index) in places(operation) {
        if let Some(outer) = outer(loops, index, it) {
            let within = |&&offset: &&u64| {
                offset.is_multiple_of(outer) && loops.get(it).size.is_multiple_of(offset / outer)
            };
            of_loop.extend(offsets[value.0][dim].iter().filter(within).map(|offset| offset / outer));
        }
    }
    of_loop.into_iter().filter(|&offset| offset < loops.get(it).size).take(LIMIT).collect()
}

/// Makes the dimensions that an operation connects agree; whether anything was new.
fn share(operation: &Indexed<'_>, offsets: &mut Offsets) -> bool {
    let loops = operation.0;
    let mut changed = false;
    for it in loops.ids() {
        let of_loop = of_loop(operation, it, offsets);
        for (value, dim, index) in places(operation) {
            if let Some(outer) = outer(loops, index, it) {
                for offset in &of_loop {
                    let known = &mut offsets[value.0][dim];
                    changed |= known.len() < LIMIT && known.insert(offset * outer);
                }
            }
        }
    }
    changed
}

/// Every dimension that an operation indexes, with its loops.
fn places<'a>(operation: &Indexed<'a>) -> impl Iterator<Item = (ValueId, usize, &'a [LoopId])> + use<'a> {
    let &(loops, operands, results) = operation;
    let values = operands.iter().zip(&loops.operands).chain(results.iter().zip(&loops.results));
    values
        .flat_map(|(&value, dims)| dims.iter().enumerate().map(move |(dim, index)| (value, dim, &index[..])))
}

/// The product of the loops before this one in a dimension, if it is there and they are not empty.
fn outer(loops: &Loops, index: &[LoopId], it: LoopId) -> Option<u64> {
    let place = index.iter().position(|&other| other == it)?;
    let outer = index[..place].iter().map(|&before| loops.get(before).size).product();
    Some(outer).filter(|&outer| outer > 0)
}
