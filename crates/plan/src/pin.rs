//! What a user has fixed: how operations of a name are computed.

use planner_ir::{Mesh, Node, Partition, Phase};

use crate::pattern::within;

/// How operations of a name are computed, because a user said so.
///
/// Which blocks each device computes, when, is fixed. Which way round a ring blocks go, and in how many
/// slots, is not, nor of how many devices one passes rows on; nor whether rows are routed, unless it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// What they are called, or the module that they are in; `*` stands for any text.
    pub operations: String,
    /// Which block each device computes.
    pub partition: Partition,
}

impl Pin {
    /// Whether it is of an operation of so many loops: a forward one of the name. Several operations
    /// come of one of the model file, and those of other loops than the partition's are not meant.
    pub fn is_of(&self, node: &Node, loops: usize) -> bool {
        is_called(node, &self.operations) && loops == self.partition.loops.len()
    }

    /// Whether an operation that is computed so is computed as is fixed.
    pub fn is_kept(&self, found: &Partition) -> bool {
        let Partition { steps, loops, passed, through, streams, ways: _, slots: _, routed, routed_by: _ } =
            found;
        let pinned = &self.partition;
        (*steps, loops, passed, streams) == (pinned.steps, &pinned.loops, &pinned.passed, &pinned.streams)
            && (passed.is_empty() || *through == pinned.through)
            && (pinned.routed.is_empty() || *routed == pinned.routed)
    }

    /// As a user says it.
    pub fn text(&self, mesh: &Mesh) -> String {
        format!("{}={}", self.operations, self.partition.display(mesh))
    }
}

/// Whether pins of this name are of an operation: a forward one that is called so, or is in a module that is.
pub fn is_called(node: &Node, operations: &str) -> bool {
    node.phase == Phase::Forward && within(operations, &node.origin)
}
