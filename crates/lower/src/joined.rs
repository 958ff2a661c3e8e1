//! The programs of a rank's stages as one.
//!
//! Parts of micro-batches keep to their stages and have their turns; what is done before and after
//! them is done stage by stage. After the micro-batches, sums that other stages wait for are sent
//! first, and what stages return comes before what changes states, as in one program.

use crate::action::{Action, CommunicatorId, Origin};
use crate::program::{Instruction, Program, RepeatedPart};
use crate::storage::{BufferId, StorageId};

/// How many values, operations and transfers the stages before have: numbers of one stage are not
/// those of another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) values: usize,
    pub(crate) nodes: usize,
    pub(crate) transfers: usize,
}

impl Numbers {
    /// The program with the numbers of the whole pipeline.
    pub(crate) fn shift(self, mut program: Program) -> Program {
        for instruction in &mut program.instructions {
            match &mut instruction.origin {
                Origin::Node(node) | Origin::Motion { node, .. } => node.0 += self.nodes,
                Origin::Move { transfer, .. } => *transfer += self.transfers,
                Origin::State(value) => value.0 += self.values,
                Origin::Crossing(_) => {}
            }
        }
        let given = program.repeated.iter_mut().flat_map(|repeated| &mut repeated.inputs);
        let ports = [&mut program.inputs, &mut program.weights, &mut program.prepared, &mut program.states];
        for port in ports.into_iter().flatten().chain(&mut program.outputs).chain(given) {
            port.value.0 += self.values;
        }
        let shifted = program.preparation.iter().map(|it| {
            let mut it = it.clone();
            it.node.0 += self.nodes;
            it.results.iter_mut().for_each(|value| value.0 += self.values);
            for operand in &mut it.operands {
                if let crate::program::Whole::Prepared(value) = operand {
                    value.0 += self.values;
                }
            }
            it
        });
        program.preparation = shifted.collect();
        program
    }
}

/// One program of those of a rank's stages, whose instructions after the micro-batches fall into as
/// many stretches each, done stretch by stretch: in each, the last stage's first.
pub(crate) fn joined(programs: Vec<(Program, Vec<usize>)>) -> Option<Program> {
    let mut programs = programs;
    if programs.len() == 1 {
        return programs.pop().map(|(program, _)| program);
    }
    let mut all: Option<Program> = None;
    let (mut before, mut parts, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for (mut program, stretches) in programs {
        let first =
            all.as_ref().map_or([0; 3], |it| [it.storages.len(), it.buffers.len(), it.communicators.len()]);
        renumber(&mut program, first);
        let mut instructions = std::mem::take(&mut program.instructions);
        let repetition = program.repetition();
        let mut ends = stretches;
        let mut own_after = Vec::new();
        while let Some(start) = ends.pop() {
            own_after.push(instructions.split_off(start.max(repetition.end).min(instructions.len())));
        }
        own_after.reverse();
        let mut own_parts: Vec<(Vec<Instruction>, usize)> = Vec::new();
        for part in program.repeated.iter().flat_map(|it| &it.parts).rev() {
            own_parts.push((instructions.split_off(part.instructions.start), part.stage));
        }
        own_parts.reverse();
        before.extend(instructions);
        parts.extend(own_parts);
        after.push(own_after);
        all = Some(match all {
            None => program,
            Some(all) => together(all, program),
        });
    }
    let mut all = all?;
    all.instructions = before;
    let start = all.instructions.len();
    let mut made = Vec::new();
    for (instructions, stage) in parts {
        let start = all.instructions.len();
        all.instructions.extend(instructions);
        made.push(RepeatedPart { instructions: start..all.instructions.len(), stage });
    }
    if let Some(repeated) = &mut all.repeated {
        repeated.instructions = start..all.instructions.len();
        repeated.parts = made;
    }
    let stretches = after.iter().map(Vec::len).max().unwrap_or(0);
    for stretch in 0..stretches {
        for own in after.iter_mut().rev() {
            all.instructions.extend(own.get_mut(stretch).map(std::mem::take).unwrap_or_default());
        }
    }
    Some(all)
}

/// What two programs have, but for their instructions.
fn together(mut all: Program, program: Program) -> Program {
    all.communicators.extend(program.communicators);
    all.storages.extend(program.storages);
    all.buffers.extend(program.buffers);
    all.preparation = all.preparation.iter().chain(program.preparation.iter()).cloned().collect();
    all.inputs.extend(program.inputs);
    all.weights.extend(program.weights);
    all.prepared.extend(program.prepared);
    all.states.extend(program.states);
    all.outputs.extend(program.outputs);
    if let (Some(all), Some(repeated)) = (&mut all.repeated, program.repeated) {
        all.inputs.extend(repeated.inputs);
    }
    all
}

/// Moves a program's numbers behind those of others: storages, buffers, communicators.
fn renumber(program: &mut Program, [storages, buffers, communicators]: [usize; 3]) {
    let overs = program.storages.iter_mut().filter_map(|it| it.over.as_mut());
    overs.for_each(|over| over.0 += storages);
    program.buffers.iter_mut().for_each(|buffer| buffer.storage = StorageId(buffer.storage.0 + storages));
    let given = program.repeated.iter_mut().flat_map(|repeated| &mut repeated.inputs);
    let ports = [&mut program.inputs, &mut program.weights, &mut program.prepared, &mut program.states];
    for port in ports.into_iter().flatten().chain(&mut program.outputs).chain(given) {
        port.buffer = BufferId(port.buffer.0 + buffers);
    }
    let moved = |buffer: &mut BufferId| buffer.0 += buffers;
    let met = |communicator: &mut CommunicatorId| communicator.0 += communicators;
    for instruction in &mut program.instructions {
        match &mut instruction.action {
            Action::Compute(it) => {
                it.operands.iter_mut().chain(&mut it.results).for_each(|block| moved(&mut block.buffer));
            }
            Action::Copy(it) => [&mut it.from, &mut it.to].into_iter().for_each(moved),
            Action::Collective(it) => {
                let further = it.further.iter_mut().flat_map(|it| [&mut it.input, &mut it.output]);
                let gates = it.rows.iter_mut().flat_map(|it| [&mut it.own, &mut it.others]);
                [&mut it.input, &mut it.output].into_iter().chain(further).chain(gates).for_each(moved);
                met(&mut it.communicator);
            }
            Action::Message(it) => {
                [&mut it.input, &mut it.output].into_iter().for_each(moved);
                met(&mut it.communicator);
            }
            Action::Send(it) => moved(&mut it.input),
            Action::Receive(it) => moved(&mut it.output),
        }
    }
}
