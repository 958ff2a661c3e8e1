//! How the results of blocks of a merged loop become those of all its blocks.

use super::{Attention, Op};

/// The two operations by which an operation is computed one block of its merged loop after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merging {
    /// What is computed of a block. It has the operands and the loops of the operation, and its
    /// results begin with those of the operation.
    pub part: Op,
    /// Makes the part of two sets of blocks from those of each: its operands are the results of one
    /// part and then those of the other, its results those of a part. In whichever order parts are
    /// merged, the result is the same but for rounding.
    pub merge: Op,
}

impl Op {
    /// How results of blocks of a merged loop are made one, if the operation has such a loop
    /// ([`Role::Merge`](crate::Role::Merge)).
    pub fn merging(&self) -> Option<Merging> {
        let Self::Attention(attention) = self else { return None };
        let part = Self::Attention(Attention { statistics: true, ..*attention });
        Some(Merging { part, merge: Self::AttentionMerge })
    }
}
