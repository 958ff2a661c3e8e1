//! Programs that are put together by hand.

use std::sync::Arc;

use lower::{
    Action, Block, BufferId, Compute, Instruction, Kind, Origin, Program, Storage, StorageId, Stream,
};
use planner_ir::{DType, NodeId, Op, Phase, Type};

use crate::task::Task;
use crate::tasks::tasks;

/// A program that is put together by hand.
pub(super) struct Script(pub(super) Program);

impl Script {
    pub(super) fn new() -> Self {
        Self(Program {
            rank: 0,
            ranks: 1,
            communicators: vec![],
            storages: vec![],
            buffers: vec![],
            resident: 0,
            arena: 0,
            preparation: Arc::from([]),
            inputs: vec![],
            weights: vec![],
            prepared: vec![],
            states: vec![],
            outputs: vec![],
            instructions: vec![],
            repeated: None,
            guard: None,
        })
    }

    pub(super) fn value(&mut self, kind: Kind, dtype: DType, shape: &[u64], offset: u64) -> BufferId {
        let type_ = Type::new(dtype, shape);
        let storage = Storage { kind, bytes: type_.bytes(), offset, places: 1, over: None };
        self.0.storages.push(storage);
        self.0.buffers.push(lower::Buffer { storage: StorageId(self.0.storages.len() - 1), type_ });
        BufferId(self.0.buffers.len() - 1)
    }

    pub(super) fn step(&mut self, dtype: DType, shape: &[u64], offset: u64) -> BufferId {
        self.value(Kind::Activation, dtype, shape, offset)
    }

    pub(super) fn op(&mut self, op: Op, operands: &[BufferId], result: BufferId) {
        let block = |&buffer: &BufferId| Block { buffer, spans: vec![] };
        let compute = Compute {
            op: Arc::new(op),
            name: Arc::from("made"),
            operands: operands.iter().map(block).collect(),
            results: vec![block(&result)],
        };
        self.0.instructions.push(Instruction {
            stream: Stream::Compute,
            waits: vec![],
            signals: None,
            action: Action::Compute(compute),
            origin: Origin::Node(NodeId(self.0.instructions.len())),
            phase: Phase::Forward,
        });
    }

    /// Which instructions are one kernel.
    pub(super) fn groups(&self) -> Vec<Vec<usize>> {
        tasks(&self.0).into_iter().map(|task| task.instructions).collect()
    }

    pub(super) fn task(&self, number: usize) -> Task {
        let mut all = tasks(&self.0).into_iter();
        all.find(|task| task.instructions.contains(&number)).expect("every instruction is of a task")
    }
}
