//! Stages to programs: each rank's stages, what it sends and receives, and the order of its turns.

use std::collections::BTreeMap;

use plan::{Crossing, Holding, Pipeline, Stage};
use planner_ir::AxisId;
use schedule::{Schedule, Task, Work};

use crate::action::{Action, Origin, Remote};
use crate::arena::Placed;
use crate::build::{Build, built};
use crate::ends::{Arriving, Ends, Parts};
use crate::error::{LowerError, each};
use crate::events;
use crate::expected::{Expected, room};
use crate::facts::Facts;
use crate::in_place;
use crate::joined::{Numbers, joined};
use crate::memory::at_the_fullest;
use crate::overlap;
use crate::program::{Instruction, Program, Turn};
use crate::rings;
use crate::routes::{Routes, routes};
use crate::storage::{Region, StorageId};

/// A pipeline made ready to be lowered, rank by rank.
pub struct Pipelined<'a> {
    pub(crate) pipeline: &'a Pipeline,
    facts: Vec<Facts>,
    ends: Vec<Ends>,
    numbers: Vec<Numbers>,
    expected: Expected,
    routes: Routes,
    /// For each group, the crossings that it sends after the micro-batches, in order, where groups have
    /// several stages.
    sent_last: Vec<Vec<usize>>,
}

/// The program of a stage for a rank.
pub(crate) struct OfStage {
    pub(crate) program: Program,
    /// Where what follows the micro-batches has its stretches.
    pub(crate) stretches: Vec<usize>,
    /// For each communicator the axes along which its ranks lie.
    pub(crate) axes: Vec<Vec<AxisId>>,
    /// For each message, in order, the device of the stage's mesh that each device gets from.
    pub(crate) sources: Vec<Vec<u64>>,
}

/// The programs of all ranks of a pipeline, by rank.
pub fn pipeline(pipeline: &Pipeline) -> Result<Vec<Program>, LowerError> {
    let pipelined = pipelined(pipeline)?;
    let ranks = pipeline.devices();
    let first = pipelined.program(0)?;
    LowerError::unless_few(ranks, first.instructions.len())?;
    let others = each(1..ranks, |rank| pipelined.program(rank))?;
    Ok(std::iter::once(first).chain(others).collect())
}

/// A pipeline made ready to be lowered, rank by rank.
pub fn pipelined(pipeline: &Pipeline) -> Result<Pipelined<'_>, LowerError> {
    let facts = each(&pipeline.stages, |stage| Facts::of(&stage.plan))?;
    let mut numbers = Numbers::default();
    let mut number = |stage: &Stage| {
        let graph = &stage.plan.graph;
        let own = numbers;
        numbers.values += graph.values.len();
        numbers.nodes += graph.nodes.len();
        numbers.transfers += stage.plan.transfers.len();
        own
    };
    let mut ends: Vec<Ends> = (0..pipeline.stages.len()).map(|stage| ends(pipeline, stage)).collect();
    arrivals(pipeline, &facts, &mut ends)?;
    let mut pipelined = Pipelined {
        pipeline,
        facts,
        ends,
        numbers: pipeline.stages.iter().map(&mut number).collect(),
        expected: Expected::of(pipeline.stages.iter().map(|it| &it.plan)),
        routes: routes(pipeline)?,
        sent_last: Vec::new(),
    };
    // Where every rank has one stage, all arrives in the order in which it is sent as it is.
    if pipeline.schedule.chunks > 1 {
        let groups = pipeline.schedule.groups.len();
        pipelined.sent_last = each(0..groups, |group| pipelined.sent_last(group))?;
    }
    Ok(pipelined)
}

/// The ends of crossings at a stage.
fn ends(pipeline: &Pipeline, stage: usize) -> Ends {
    let mut ends = Ends { stage, ..Ends::default() };
    ends.parts = if pipeline.schedule.splits_backward { Parts::Three } else { Parts::Two };
    for (number, crossing) in pipeline.crossings.iter().enumerate() {
        if crossing.from == stage {
            ends.sent.insert(crossing.name.clone(), number);
        }
        if crossing.to.iter().any(|arrival| arrival.stage == stage) {
            ends.received.insert(crossing.name.clone(), number);
        }
    }
    ends
}

/// Finds out what arrives at stages in which part and order: that in which it is sent, which does not
/// depend on what is received.
fn arrivals(pipeline: &Pipeline, facts: &[Facts], ends: &mut [Ends]) -> Result<(), LowerError> {
    let parts = pipeline.schedule.works().len();
    let backward = 1;
    let mut arriving = vec![vec![Vec::new(); parts + 1]; ends.len()];
    let built = |from: usize| Ok(built(&pipeline.stages[from].plan, &facts[from], &ends[from], 0)?.program);
    for (from, program) in each(0..pipeline.stages.len(), built)?.into_iter().enumerate() {
        for (index, instruction) in program.instructions.iter().enumerate() {
            let (Action::Send(_), Origin::Crossing(crossing)) = (&instruction.action, instruction.origin)
            else {
                continue;
            };
            let sent_in = program.repeated.as_ref().and_then(|repeated| repeated.part_of(index));
            let Crossing { name, to, .. } = &pipeline.crossings[crossing];
            for arrival in to {
                // What goes back to earlier stages comes after their forward part.
                let part = match sent_in {
                    None => parts,
                    Some(part) if arrival.stage < from => part.max(backward),
                    Some(part) => part,
                };
                arriving[arrival.stage][part].push(Arriving { from, name: name.clone() });
            }
        }
    }
    for (ends, arriving) in ends.iter_mut().zip(arriving) {
        ends.arriving = arriving;
    }
    Ok(())
}

impl Pipelined<'_> {
    /// The program of a rank.
    ///
    /// # Errors
    /// If the rank is in no group, or its stages' plans cannot be lowered.
    pub fn program(&self, rank: u64) -> Result<Program, LowerError> {
        Ok(events::ordered(self.placed(rank)?.program))
    }

    /// The program of a rank of the pipeline with places, and what is held of it.
    fn placed(&self, rank: u64) -> Result<Placed, LowerError> {
        let Self { pipeline, .. } = self;
        let has = |stage: &Stage| {
            (stage.first_device..stage.first_device + stage.plan.mesh.devices()).contains(&rank)
        };
        let own: Vec<usize> = (0..pipeline.stages.len()).filter(|&it| has(&pipeline.stages[it])).collect();
        let missing = || LowerError::Schedule(format!("rank {rank} has no stage"));
        let group = pipeline.group(*own.first().ok_or_else(missing)?);
        let built = own.iter().map(|&stage| self.stage(stage, rank)).collect::<Result<Vec<_>, _>>()?;
        self.whole(group, built)
    }

    /// The program of a rank of a group, of those of its stages, with places.
    pub(crate) fn whole(&self, group: usize, built: Vec<OfStage>) -> Result<Placed, LowerError> {
        let missing = || LowerError::Schedule(format!("group {group} has no stage"));
        let programs = built.into_iter().map(|it| (it.program, it.stretches)).collect();
        let mut program = joined(programs).ok_or_else(missing)?;
        if !self.sent_last.is_empty() {
            program = self.in_order(program);
        }
        if let Some(repeated) = &mut program.repeated {
            repeated.turns = turns(&self.pipeline.schedule, group)?;
        }
        let program = rings::counted(in_place::reduced(program));
        let plans = self.stages_of(group).map(|stage| &self.pipeline.stages[stage].plan);
        let room = room(plans, self.pipeline.capacity_of(group));
        Ok(overlap::placed(program, &self.expected, room))
    }

    /// The stages of a group, in order.
    pub(crate) fn stages_of(&self, group: usize) -> impl Iterator<Item = usize> {
        (0..self.pipeline.stages.len()).filter(move |&stage| self.pipeline.group(stage) == group)
    }

    /// The crossings that a group sends after the micro-batches, in order.
    fn sent_last(&self, group: usize) -> Result<Vec<usize>, LowerError> {
        let programs = self.stages_of(group).map(|stage| {
            let built = self.stage(stage, self.pipeline.stages[stage].first_device)?;
            Ok((built.program, built.stretches))
        });
        let Some(program) = joined(programs.collect::<Result<_, _>>()?) else { return Ok(Vec::new()) };
        let sent = |instruction: &Instruction| match (&instruction.action, instruction.origin) {
            (Action::Send(_), Origin::Crossing(crossing)) => Some(crossing),
            _ => None,
        };
        Ok(program.instructions[program.repetition().end..].iter().filter_map(sent).collect())
    }

    /// The program with what it receives after the micro-batches from one group in the order in which
    /// that group sends it: where several stages of a rank do, some arrives earlier than it is needed.
    fn in_order(&self, mut program: Program) -> Program {
        let mut rest = program.instructions.split_off(program.repetition().end);
        let crossing = |instruction: &Instruction| match (&instruction.action, instruction.origin) {
            (Action::Receive(_), Origin::Crossing(crossing)) => Some(crossing),
            _ => None,
        };
        while !rest.is_empty() {
            let mut next = 0;
            if let Some(wanted) = crossing(&rest[0]) {
                let order = &self.sent_last[self.pipeline.group(self.pipeline.crossings[wanted].from)];
                let place = |it: usize| order.iter().position(|&sent| sent == it).unwrap_or(usize::MAX);
                let from = |it: usize| self.pipeline.group(self.pipeline.crossings[it].from);
                let arrives = rest.iter().enumerate().filter_map(|(at, it)| Some((at, crossing(it)?)));
                let same = arrives.filter(|&(_, it)| from(it) == from(wanted));
                next = same.min_by_key(|&(at, it)| (place(it), at)).map_or(0, |(at, _)| at);
            }
            program.instructions.push(rest.remove(next));
        }
        program
    }

    /// The program of a stage for a rank, with ranks of the whole pipeline.
    pub(crate) fn stage(&self, number: usize, rank: u64) -> Result<OfStage, LowerError> {
        let stage = &self.pipeline.stages[number];
        let build = built(&stage.plan, &self.facts[number], &self.ends[number], rank - stage.first_device)?;
        let axes = build.axes();
        let Build { mut program, stretches, sources, .. } = build;
        program.rank = rank;
        program.ranks = self.pipeline.devices();
        let first = stage.first_device;
        for members in &mut program.communicators {
            members.iter_mut().for_each(|member| *member += first);
        }
        for instruction in &mut program.instructions {
            let remotes = self.remotes(instruction, number, rank);
            match (&mut instruction.action, remotes) {
                (Action::Message(message), _) => {
                    message.from += first;
                    message.to.iter_mut().for_each(|to| *to += first);
                }
                (Action::Send(sent), Some(remotes)) => sent.parts = remotes,
                (Action::Receive(received), Some(remotes)) => received.parts = remotes,
                _ => {}
            }
        }
        Ok(OfStage { program: self.numbers[number].shift(program), stretches, axes, sources })
    }

    /// What a rank sends or receives between stages in an instruction of a stage, if that does so.
    pub(crate) fn remotes(&self, instruction: &Instruction, number: usize, rank: u64) -> Option<Vec<Remote>> {
        let Origin::Crossing(crossing) = instruction.origin else { return None };
        let routes = self.routes[crossing].iter();
        let of_rank = |ranks: &BTreeMap<u64, Vec<Remote>>| ranks.get(&rank).cloned().unwrap_or_default();
        match &instruction.action {
            Action::Send(_) => Some(routes.flat_map(|(_, route)| of_rank(&route.sent)).collect()),
            Action::Receive(_) => {
                let own = routes.filter(|(stage, _)| *stage == number);
                Some(own.flat_map(|(_, route)| of_rank(&route.received)).collect())
            }
            _ => None,
        }
    }

    /// For each group, what its first rank's program holds, by kind (bytes).
    ///
    /// - `weights`, `masters`, `optimizer`, `gradients`, `inputs`: as in one program
    /// - `activations`: what is kept from one part of a micro-batch to another, for as many
    ///   micro-batches as need it at a time
    /// - `communication`: what else is sent to other stages or received
    /// - `temporaries`: the rest of what a turn or the update makes
    pub fn memory(&self) -> Result<Vec<Vec<Holding>>, LowerError> {
        Ok(self.held()?.into_iter().map(|it| it.0).collect())
    }

    /// The same, and what the first rank of each group would hold at least: if nothing were exchanged ahead (bytes).
    pub fn held(&self) -> Result<Vec<(Vec<Holding>, u64)>, LowerError> {
        let groups = self.pipeline.schedule.groups.len();
        let first = |group: usize| {
            let of_group = |stage: &usize| self.pipeline.group(*stage) == group;
            let stage = (0..self.pipeline.stages.len()).find(of_group);
            let rank = stage.map_or(0, |stage| self.pipeline.stages[stage].first_device);
            let placed = self.placed(rank)?;
            let built = placed.built;
            Ok((holdings(placed), built))
        };
        each(0..groups, first)
    }
}

/// The turns of a group.
pub(crate) fn turns(schedule: &Schedule, group: usize) -> Result<Vec<Turn>, LowerError> {
    let works = schedule.works().len();
    let tasks = schedule.groups.get(group);
    let tasks = tasks.ok_or_else(|| LowerError::Schedule(format!("there is no group {group}")))?;
    let turn = |&Task { work, chunk, micro_batch }: &Task| {
        let part = match work {
            Work::Forward => 0,
            Work::Backward => 1,
            Work::Weight => 2,
        };
        let micro_batch = u64::try_from(micro_batch).unwrap_or(u64::MAX);
        Turn { part: chunk * works + part, micro_batch }
    };
    Ok(tasks.iter().map(turn).collect())
}

fn holdings(Placed { program, lifetimes, .. }: Placed) -> Vec<Holding> {
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    let mut add = |kind: &'static str, bytes: u64| match kinds.iter_mut().find(|(it, _)| *it == kind) {
        Some((_, sum)) => *sum += bytes,
        None => kinds.push((kind, bytes)),
    };
    for kind in ["weights", "masters", "optimizer", "gradients", "inputs", "activations", "communication"] {
        add(kind, 0);
    }
    let mut rest = program.arena + program.resident;
    let bytes = |storage: usize| program.extent(StorageId(storage)).next_multiple_of(crate::ALIGNMENT);
    for (number, storage) in program.storages.iter().enumerate() {
        if storage.kind.region() == Region::Resident {
            add(crate::memory::name_at_rest(storage.kind), bytes(number));
            rest = rest.saturating_sub(bytes(number));
        }
    }
    let (crosses, kept) = (crossing_storages(&program), rings::kept(&program));
    // The update has room that micro-batches had.
    for (number, _) in at_the_fullest(&program, lifetimes, program.repetition()) {
        if kept[number] {
            add(if crosses[number] { "communication" } else { "activations" }, bytes(number));
            rest = rest.saturating_sub(bytes(number));
        }
    }
    add("temporaries", rest);
    kinds.into_iter().map(|(kind, bytes)| Holding { kind: kind.to_owned(), bytes }).collect()
}

/// For each storage, whether its content is sent to other stages or comes from them.
fn crossing_storages(program: &Program) -> Vec<bool> {
    let mut crosses = vec![false; program.storages.len()];
    for instruction in &program.instructions {
        let buffer = match &instruction.action {
            Action::Send(sent) => sent.input,
            Action::Receive(received) => received.output,
            _ => continue,
        };
        crosses[program.buffer(buffer).storage.0] = true;
    }
    crosses
}
