//! The loops of numbers of 8 bits with scales.

use super::nest::{Dims, Index, Nest};
use super::{LoopId, Role};
use crate::data::Type;
use crate::op::{Contract, Label, Nvfp4, numbers, packed_dim};

/// Parts are independent, and each is of all that is in it.
pub(super) fn amax_dims(nest: &mut Nest, parts: &[u64], x: &[u64]) -> (Index, Index) {
    let mut dim = |(&parts, &size): (&u64, &u64)| {
        let part = nest.dim(parts, Role::Map);
        let inside = nest.dim(size.checked_div(parts).unwrap_or(1), Role::Whole);
        ([part.clone(), inside].concat(), part)
    };
    let (from, to) = parts.iter().zip(x).map(&mut dim).unzip();
    (vec![from], vec![to])
}

/// Every device makes the scale, of the magnitudes of all parts.
pub(super) fn quantize_dims(nest: &mut Nest, parts: Option<&[u64]>, operands: &[Type]) -> (Index, Index) {
    let shape = &operands[0].shape;
    let (x, magnitudes) = match parts {
        Some(parts) => {
            let (from, to) = amax_dims(nest, parts, shape);
            (from.concat(), to)
        }
        None => (nest.dims(shape, Role::Map), vec![]),
    };
    let amax = nest.dims(&operands[1].shape, Role::Whole);
    (vec![x.clone(), amax], [vec![x, vec![]], magnitudes].concat())
}

pub(super) fn quantize_blocks_dims(nest: &mut Nest, dim: usize, block: u64, x: &[u64]) -> (Index, Index) {
    let mut blocks = nest.dims(&counts(x, dim, block), Role::Map);
    let scales = blocks.clone();
    blocks[dim].extend(nest.dim(block, Role::Whole));
    (vec![blocks.clone()], vec![blocks, scales])
}

/// Blocks of 16 stay whole, and so does each byte, which has two numbers of one.
pub(super) fn quantize_nvfp4_dims(nest: &mut Nest, it: &Nvfp4, operands: &[Type]) -> (Index, Index) {
    let x = &operands[0].shape;
    let blocks = nest.dims(&it.blocks(x).unwrap_or_default(), Role::Map);
    let (mut from, mut codes) = (blocks.clone(), blocks.clone());
    let inside = in_block(nest);
    from[it.dim].extend(&inside);
    codes[it.dim].extend(&inside[..1]);
    if let Some(across) = it.across {
        let rows = nest.dim(Nvfp4::BLOCK, Role::Whole);
        from[across].extend(&rows);
        codes[across].extend(&rows);
    }
    let mut all = vec![from, nest.dims(&operands[1].shape, Role::Whole)];
    all.extend(it.seed.map(|_| vec![]));
    (all, vec![codes, blocks, vec![]])
}

/// The loops over a block of 16: over bytes, and over the two numbers of one.
fn in_block(nest: &mut Nest) -> Vec<LoopId> {
    [nest.dim(Nvfp4::BLOCK / 2, Role::Whole), nest.dim(2, Role::Whole)].concat()
}

/// How many blocks there are along each dimension.
fn counts(x: &[u64], dim: usize, block: u64) -> Vec<u64> {
    let mut counts = x.to_vec();
    counts[dim] /= block.max(1);
    counts
}

/// A loop for each label, as of a contraction; more where blocks of it have scales: over the blocks, and in a
/// block, which stays whole.
pub(super) fn scaled_contract_dims(
    nest: &mut Nest,
    contract: &Contract,
    operands: &[Type],
) -> (Index, Index) {
    let four = operands.len() >= 6;
    let mut known: Vec<(Label, Vec<LoopId>)> = Vec::new();
    for (labels, x) in [(&contract.left, 0), (&contract.right, 1)] {
        for (dim, &label) in labels.iter().enumerate() {
            if known.iter().any(|(it, _)| *it == label) {
                continue;
            }
            let role = if contract.result.contains(&label) { Role::Map } else { Role::Sum };
            let size = numbers(&operands[x], &operands[x + 2]).shape[dim];
            let blocks = blocks_along(contract, operands, label);
            let mut loops = nest.dim(blocks, role);
            let inside = if blocks > 1 { Role::Whole } else { role };
            match size.checked_div(blocks).unwrap_or(1) {
                Nvfp4::BLOCK if four => loops.extend(in_block(nest)),
                size => loops.extend(nest.dim(size, inside)),
            }
            known.push((label, loops));
        }
    }
    let loops_of = |label: &Label| {
        let found = known.iter().find(|(it, _)| it == label);
        found.map(|(_, loops)| loops.clone()).unwrap_or_default()
    };
    let dims = |labels: &[Label]| -> Dims { labels.iter().map(loops_of).collect() };
    let codes = |labels: &[Label], x: usize| {
        let mut dims = dims(labels);
        if let Some(packed) = packed_dim(&operands[x], &operands[x + 2]) {
            dims[packed].pop();
        }
        dims
    };
    let scales = |labels: &[Label], scale: &Type| -> Dims {
        let dim = |(label, &blocks): (&Label, &u64)| {
            let mut loops = loops_of(label);
            loops.truncate(usize::from(blocks > 1));
            loops
        };
        labels.iter().zip(&scale.shape).map(dim).collect()
    };
    let Contract { left, right, result } = contract;
    let mut from =
        vec![codes(left, 0), codes(right, 1), scales(left, &operands[2]), scales(right, &operands[3])];
    from.resize(operands.len() / 2 * 2, vec![]);
    // What the sum is added to is indexed as the sum is.
    from.resize(operands.len(), dims(result));
    (from, vec![dims(result)])
}

/// How many blocks with scales there are along a label, in either operand; 1 if there are none.
fn blocks_along(contract: &Contract, operands: &[Type], label: Label) -> u64 {
    let of = |labels: &[Label], scale: &Type| {
        let dim = labels.iter().position(|it| *it == label)?;
        scale.shape.get(dim).copied()
    };
    let [left, right] = [(&contract.left, 2), (&contract.right, 3)].map(|(it, at)| of(it, &operands[at]));
    left.into_iter().chain(right).max().unwrap_or(1).max(1)
}
