//! Which way the matrices of a product lie in memory.
//!
//! A thread cuts the result into tiles that are longer along its rows, as they lie in memory: the operand
//! that has the labels of these rows is read a row of a tile at a time. If its own rows run along the sums,
//! it lies across and is turned.

use planner_ir::{Contract, Label, Type};

use crate::units::Bytes;

/// An operand that lies across tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turned {
    /// All of it.
    pub(super) all: Bytes,
    /// How far apart neighbours in a tile lie.
    pub(super) row: Bytes,
}

/// The operand that lies across tiles, if one does.
pub(super) fn turned(contract: &Contract, operands: &[Type]) -> Option<Turned> {
    let sides = [(&contract.left, &contract.right), (&contract.right, &contract.left)];
    // Of labels with one element nothing is seen in memory.
    let place = |labels: &[Label], type_: &Type, label: &Label| {
        let dim = labels.iter().position(|it| it == label)?;
        (type_.shape[dim] > 1).then_some(dim)
    };
    contract.result.iter().rev().find_map(|label| {
        let (side, dim) = (0..2).find_map(|side| {
            let (own, other) = sides[side];
            if other.contains(label) { None } else { Some((side, place(own, &operands[side], label)?)) }
        })?;
        let apart: u64 = operands[side].shape[dim + 1..].iter().product();
        let element = operands[side].dtype.bytes();
        let row = Bytes(apart * element);
        Some((apart > 1).then_some(Turned { all: Bytes(operands[side].bytes()), row }))
    })?
}

#[cfg(test)]
mod tests;
