//! What a user has fixed: how operations of a name are computed.

use planner_ir::{Node, Partition, Phase};

use crate::pattern::matches;

/// How operations of a name are computed, because a user said so.
///
/// Which blocks each device computes, when, is fixed. Which way round a ring blocks go, and in how many
/// slots, is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// What they are called in the model file; `*` stands for any text.
    pub operations: String,
    /// Which block each device computes.
    pub partition: Partition,
}

impl Pin {
    /// Whether it is of an operation of so many loops: a forward one of the name. Several operations
    /// come of one of the model file, and those of other loops than the partition's are not meant.
    pub fn is_of(&self, node: &Node, loops: usize) -> bool {
        let named = node.phase == Phase::Forward && matches(&self.operations, &node.origin);
        named && loops == self.partition.loops.len()
    }

    /// Whether an operation that is computed so is computed as is fixed.
    pub fn is_kept(&self, found: &Partition) -> bool {
        let Partition { steps, loops, passed, through, streams, ways: _, slots: _ } = found;
        let pinned = &self.partition;
        (*steps, loops, passed, streams) == (pinned.steps, &pinned.loops, &pinned.passed, &pinned.streams)
            && (passed.is_empty() || *through == pinned.through)
    }
}
