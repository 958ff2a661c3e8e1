//! What a user has fixed of a model's operations, and which of its blocks have those.

use std::collections::BTreeSet;

use files::Failure;
use planner_ir::{Source, ValueId};
use rewrite::Segment;
use search::Fixed;

use super::Forward;
use crate::pins;

impl Forward {
    /// Refuses what is fixed of names that there are not.
    pub fn names(&self, fixed: &[Fixed]) -> Result<(), Failure> {
        pins::named(fixed, &[&self.blocks.graph])
    }

    /// Refuses what is fixed of operations that there are not.
    pub fn knows(&self, fixed: &[Fixed]) -> Result<(), Failure> {
        pins::known(fixed, &[&self.blocks.graph])
    }

    /// What is fixed of all blocks that are alike, or of none: so that some stand for all.
    pub fn everywhere(&self, fixed: &[Fixed]) -> Vec<Fixed> {
        let same = |a: &Segment, b: &Segment| a.block == b.block;
        let is = |it: &&Fixed| {
            let of = |segment: &Segment| self.pinned(segment, it).collect::<Vec<_>>();
            let mut runs = self.blocks.segments.chunk_by(same);
            runs.all(|run| run.iter().all(|segment| of(segment) == of(&run[0])))
        };
        fixed.iter().filter(is).cloned().collect()
    }

    /// How many loops the operations have that something is fixed of.
    pub fn loops(&self, fixed: &Fixed) -> BTreeSet<usize> {
        fixed.counts(&self.blocks.graph)
    }

    /// For each block, whether something is fixed of one of its operations.
    pub fn having(&self, fixed: &Fixed) -> Vec<bool> {
        self.blocks.segments.iter().map(|it| self.pinned(it, fixed).any(|is| is)).collect()
    }

    /// For each block, the names of the weights and parameters that its operations use.
    pub fn weights(&self) -> Vec<Vec<&str>> {
        let graph = &self.blocks.graph;
        let name = |value: &ValueId| match &graph.value(*value).source {
            Source::Weight(name) => Some(name.as_str()),
            Source::State(state) => Some(state.name.as_str()),
            Source::Input(_) | Source::Result { .. } => None,
        };
        let of = |segment: &Segment| {
            graph.nodes[segment.nodes.clone()]
                .iter()
                .flat_map(|node| &node.operands)
                .filter_map(name)
                .collect()
        };
        self.blocks.segments.iter().map(of).collect()
    }

    /// For each operation of a block, whether something is fixed of it.
    fn pinned(&self, segment: &Segment, fixed: &Fixed) -> impl Iterator<Item = bool> {
        segment.nodes.clone().map(|node| fixed.is_of(&self.blocks.graph.nodes[node]))
    }
}
