//! What an operation iterates over: the one declaration everything is derived from.
//!
//! An operation is a nest of loops. Each dimension of an operand or result is indexed by a
//! product of loops, outermost first; by none if its extent is 1 or repeated, or every iteration
//! needs or makes all of it. Splitting a loop
//! over devices splits exactly the dimensions it indexes, and leaves a sum owed if the loop is
//! summed. Whether partial sums may pass *through* an operation is said by the operands it is
//! linear in.

mod index; // which loops index what, operation by operation
mod gradients; // the loops of gradients
mod linear; // which operands may be addends of a sum owed
mod narrow; // the loops of numbers of 8 bits with scales
mod nest; // loops declared one after another
mod recurrence; // the loops of recurrences
mod products; // the loops of contractions, attention, convolutions and experts
mod reshape; // the finest loops that two shapes of the same elements share

use crate::data::Type;
use crate::layout::Digit;
use crate::op::Op;
use nest::Nest;

/// Which loop of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub usize);

/// What splitting a loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Its blocks are independent: each makes a piece of the results.
    Map,
    /// Its blocks make addends of the results that it does not index, and pieces of those that it
    /// does.
    Sum,
    /// Its blocks make parts of the results that it does not index, which are merged
    /// ([`Op::merging`]). No move merges what devices hold, so that its blocks follow one another
    /// in time on each device, or on the devices that a result visits.
    Merge,
    /// It cannot be split: a result needs all of it at once.
    Whole,
}

impl Role {
    /// Whether a result that such a loop does not index is made of a part for each of its blocks.
    pub fn makes_parts(self) -> bool {
        matches!(self, Self::Sum | Self::Merge)
    }

    /// Whether blocks of such a loop may be with different devices at one step.
    pub fn splits_at_once(self) -> bool {
        matches!(self, Self::Map | Self::Sum)
    }
}

/// One loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loop {
    /// How many iterations it has.
    pub size: u64,
    /// What splitting it does.
    pub role: Role,
}

/// The loops of an operation and what they index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loops {
    /// The loops.
    pub loops: Vec<Loop>,
    /// For each operand and dimension, the loops whose product indexes it, outermost first.
    pub operands: Vec<Vec<Vec<LoopId>>>,
    /// The same for each result.
    pub results: Vec<Vec<Vec<LoopId>>>,
    /// Sets of operands in which the results are jointly linear, the others held fixed: these
    /// operands may all be addends of a sum owed, and then so are the results.
    pub linear: Vec<Vec<usize>>,
    /// Operands that are added to a sum once, each with the number of the result: what splitting summed loops leaves
    /// owed in that they owe, so that each device adds its addend.
    pub added: Vec<(usize, usize)>,
    /// Loops in which the operation depends on the position, ascending: the kernel is told where a
    /// block of such a loop lies. Along other dimensions it is told 0, wherever the block starts.
    pub positional: Vec<LoopId>,
    /// Those of them of which a block is contiguous, ascending. Of the others a block may be
    /// stripes at equal distances: one free digit, wherever it stands.
    pub contiguous: Vec<LoopId>,
    /// Whether a part that is merged has more than the results: they cannot be merged on their way
    /// from device to device.
    pub larger_parts: bool,
    /// Which rows use which parts, if each row uses few.
    pub routed: Option<Routing>,
}

/// Rows of which each uses few of many parts, as tokens do experts. What says which (gates) is indexed by
/// both, and is 0 where a row does not use a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Routing {
    /// The loop of the rows.
    pub rows: LoopId,
    /// That of the parts.
    pub parts: LoopId,
    /// How many parts a row uses at most.
    pub used: u64,
}

impl Routing {
    /// The dimension of rows of a value with these dimensions, if it has one.
    pub fn dim_of_rows(&self, dims: &[Vec<LoopId>]) -> Option<usize> {
        dims.iter().position(|dim| dim.contains(&self.rows))
    }
}

impl Loops {
    /// The loop of that number.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, id: LoopId) -> Loop {
        self.loops[id.0]
    }

    /// Every loop's number.
    pub fn ids(&self) -> impl Iterator<Item = LoopId> + use<> {
        (0..self.loops.len()).map(LoopId)
    }
}

impl Loops {
    /// Whether a kernel can be told where blocks of these digits lie: they are contiguous, or
    /// stripes where the operation takes stripes.
    pub fn tells(&self, it: LoopId, digits: &[Digit]) -> bool {
        let most = match (self.positional.contains(&it), self.contiguous.contains(&it)) {
            (_, true) => 0,
            (true, false) => 1,
            (false, false) => return true,
        };
        digits.iter().filter(|digit| digit.is_free()).count() <= most
    }
}

impl Op {
    /// The loops of this operation on operands and results of these types.
    ///
    /// The types are those that `infer` accepts and returns.
    pub fn loops(&self, operands: &[Type], results: &[Type]) -> Loops {
        let mut nest = Nest::default();
        let (operand_dims, result_dims) = self.index(&mut nest, operands, results);
        let positional = self.positional(&operand_dims, &result_dims);
        Loops {
            contiguous: if self.takes_stripes() { vec![] } else { positional.clone() },
            positional,
            loops: nest.loops,
            linear: self.linear(operands, results),
            added: self.added(operands),
            larger_parts: self.merging().is_some_and(|it| it.part != *self),
            routed: self.routed(&operand_dims),
            operands: operand_dims,
            results: result_dims,
        }
    }
}
