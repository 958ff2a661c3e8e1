//! One program for each group of a pipeline's devices, and in what those of its ranks differ.
//!
//! Ranks of a group have the same instructions over buffers of the same sizes. They differ in which blocks
//! of values they hold, in whom they exchange with, and in what they send and receive between stages:
//! the first decides no time, the second follows from the meshes, and the third from the crossings. So
//! what is to be known of a thousand programs is known of one for each group.

use std::collections::BTreeMap;
use std::ops::Range;

use plan::Pipeline;

use crate::action::{Action, Remote};
use crate::error::{LowerError, each};
use crate::events;
use crate::pipeline::{Pipelined, pipelined};
use crate::program::Program;
use crate::storage::BufferId;

/// The program of a group's first rank, and whom the others exchange with.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// The ranks of the group.
    pub ranks: Range<u64>,
    /// What its first rank does, and all others do with other ranks.
    pub program: Program,
    /// For each communicator the groups of ranks that have it, each once.
    pub communicators: Vec<Vec<Vec<u64>>>,
    /// For each message, in the order of the program, the rank that each rank of the group gets from.
    pub sources: Vec<Vec<u64>>,
    /// For each rank of the group what it sends and receives between stages: by instruction, in order.
    pub remotes: Vec<BTreeMap<usize, Vec<Remote>>>,
}

/// What [`pipeline`](crate::pipeline()) makes, without making it for each rank: for each group, in order.
pub fn grouped(pipeline: &Pipeline) -> Result<Vec<Grouped>, LowerError> {
    let pipelined = pipelined(pipeline)?;
    each(0..pipeline.schedule.groups.len(), |group| pipelined.group(group))
}

impl Pipelined<'_> {
    fn group(&self, group: usize) -> Result<Grouped, LowerError> {
        let stages = &self.pipeline.stages;
        let own: Vec<usize> = self.stages_of(group).collect();
        let missing = || LowerError::Schedule(format!("group {group} has no stage"));
        let place = &stages[*own.first().ok_or_else(missing)?];
        let ranks = place.first_device..place.first_device + place.plan.mesh.devices();
        let built = own.iter().map(|&stage| self.stage(stage, ranks.start)).collect::<Result<Vec<_>, _>>()?;

        let (mut communicators, mut sources, mut buffers) = (Vec::new(), Vec::new(), 0);
        // Where the buffers of each stage end.
        let mut ends = Vec::new();
        for (built, &stage) in built.iter().zip(&own) {
            let mesh = &stages[stage].plan.mesh;
            let moved = |ranks: &Vec<u64>| ranks.iter().map(|rank| rank + place.first_device).collect();
            communicators.extend(
                built.axes.iter().map(|axes| mesh.groups(axes).iter().map(moved).collect::<Vec<Vec<u64>>>()),
            );
            sources.push(built.sources.iter().map(moved).collect::<Vec<Vec<u64>>>().into_iter());
            buffers += built.program.buffers.len();
            ends.push(buffers);
        }
        let stage_of = |buffer: BufferId| ends.partition_point(|&end| end <= buffer.0);
        let program = events::ordered(self.whole(group, built)?.program);

        // Instructions of a stage stay in order.
        let messages = program.instructions.iter().filter_map(|it| match &it.action {
            Action::Message(message) => sources.get_mut(stage_of(message.input))?.next(),
            _ => None,
        });
        let messages = messages.collect();
        let of_rank = |rank: u64| {
            let crossing = program.instructions.iter().enumerate().filter_map(|(index, it)| {
                let stage = match &it.action {
                    Action::Receive(received) => own.get(stage_of(received.output)).copied()?,
                    _ => own[0],
                };
                Some((index, self.remotes(it, stage, rank)?))
            });
            crossing.collect()
        };
        let remotes = ranks.clone().map(of_rank).collect();
        Ok(Grouped { ranks, program, communicators, sources: messages, remotes })
    }
}
