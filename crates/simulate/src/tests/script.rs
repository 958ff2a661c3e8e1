//! Programs made by hand.

use std::sync::Arc;

use cost_models::machine::{Machine, shipped};
use lower::{
    Action, Alike, Block, Buffer, BufferId, Collective, CollectiveKind, CommunicatorId, Compute, Event,
    Instruction, Kind, Message, Origin, Program, Storage, StorageId, Stream,
};
use planner_ir::{AxisId, DType, Mesh, Op, Phase, Type, Unary, ValueId};

/// A program as it is written down.
pub(super) struct Script {
    pub(super) alike: Alike,
}

/// A machine on which nothing is slower for what goes on beside it: closed forms are of such.
pub(super) fn machine(name: &str) -> Machine {
    let mut machine = shipped::named(name).unwrap();
    machine.transport.beside = None;
    machine
}

impl Script {
    /// Nothing yet, on a mesh, with communicators along these axes.
    pub(super) fn new(sizes: &[u64], axes: &[&[usize]]) -> Self {
        let mesh = Mesh::of_sizes(sizes);
        let axes: Vec<Vec<AxisId>> =
            axes.iter().map(|axes| axes.iter().map(|&it| AxisId(it)).collect()).collect();
        let program = Program {
            rank: 0,
            ranks: mesh.devices(),
            communicators: axes.iter().map(|axes| mesh.group(0, axes)).collect(),
            storages: Vec::new(),
            buffers: Vec::new(),
            resident: 0,
            arena: 0,
            preparation: Arc::new([]),
            inputs: Vec::new(),
            weights: Vec::new(),
            prepared: Vec::new(),
            states: Vec::new(),
            outputs: Vec::new(),
            instructions: Vec::new(),
            repeated: None,
            guard: None,
        };
        Self { alike: Alike { program, mesh, axes, sources: Vec::new() } }
    }

    /// A buffer of so many numbers of 4 bytes, after all others.
    pub(super) fn buffer(&mut self, elements: u64) -> BufferId {
        let program = &mut self.alike.program;
        let bytes = 4 * elements;
        program.storages.push(Storage {
            kind: Kind::Activation,
            bytes,
            offset: program.arena,
            places: 1,
            over: None,
        });
        program.arena += bytes.next_multiple_of(lower::ALIGNMENT);
        let storage = StorageId(program.storages.len() - 1);
        program.buffers.push(Buffer { storage, type_: Type::new(DType::F32, [elements]) });
        BufferId(program.buffers.len() - 1)
    }

    /// Computes one buffer from another.
    pub(super) fn compute(&mut self, from: BufferId, to: BufferId) -> &mut Instruction {
        let block = |buffer| Block { buffer, spans: Vec::new() };
        let action = Action::Compute(Compute {
            op: Arc::new(Op::Unary(Unary::Relu)),
            name: "relu".into(),
            operands: vec![block(from)],
            results: vec![block(to)],
        });
        self.push(Stream::Compute, action)
    }

    pub(super) fn collective(
        &mut self,
        kind: CollectiveKind,
        communicator: usize,
        [input, output]: [BufferId; 2],
        elements: u64,
    ) -> &mut Instruction {
        let communicator = CommunicatorId(communicator);
        self.push(
            Stream::Communication,
            Action::Collective(Collective {
                kind,
                communicator,
                input,
                output,
                elements,
                further: Vec::new(),
                rows: None,
            }),
        )
    }

    /// Every rank gets the input of another one.
    pub(super) fn message(
        &mut self,
        communicator: usize,
        sources: Vec<u64>,
        [input, output]: [BufferId; 2],
    ) -> &mut Instruction {
        let to = (0..).zip(&sources).filter(|&(rank, &from)| from == 0 && rank != 0).map(|it| it.0).collect();
        let (communicator, from) = (CommunicatorId(communicator), sources[0]);
        self.alike.sources.push(sources);
        self.push(Stream::Communication, Action::Message(Message { communicator, to, from, input, output }))
    }

    /// Sends or receives between stages, at the crossing of that number.
    pub(super) fn crossing(&mut self, stream: Stream, action: Action, number: usize) {
        self.push(stream, action).origin = Origin::Crossing(number);
    }

    fn push(&mut self, stream: Stream, action: Action) -> &mut Instruction {
        self.alike.program.instructions.push(Instruction {
            stream,
            waits: Vec::new(),
            signals: None,
            action,
            origin: Origin::State(ValueId(0)),
            phase: Phase::Forward,
        });
        self.alike.program.instructions.last_mut().unwrap()
    }
}

/// Makes an instruction wait for an earlier one.
pub(super) fn wait(script: &mut Script, instruction: usize, earlier: usize) {
    let instructions = &mut script.alike.program.instructions;
    let count = instructions.iter().filter(|it| it.signals.is_some()).count();
    let event = *instructions[earlier].signals.get_or_insert(Event(count));
    instructions[instruction].waits.push(event);
}
