//! What a rank does in a step.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use planner_ir::{NodeId, Op, Phase, Piece, StateKind, Type, ValueId};

use crate::action::{Action, Block, CommunicatorId, Compute, Origin};
use crate::storage::{ALIGNMENT, Buffer, BufferId, Kind, Region, Storage, StorageId};

/// The program of one rank.
///
/// Instructions stand in the order in which a host issues them: an event is signalled before it
/// is waited for. Instructions of one stream run in that order; those of different streams run
/// at the same time unless events forbid it. A step starts when the one before it is over.
///
/// A training step repeats some of them for each micro-batch, see [`Repeated`], and changes its
/// states in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Whose it is.
    pub rank: u64,
    /// How many ranks there are.
    pub ranks: u64,
    /// For each communicator the ranks that exchange, in the order of their blocks. The same
    /// number means the same axes on every rank.
    pub communicators: Vec<Vec<u64>>,
    /// The pieces of memory.
    pub storages: Vec<Storage>,
    /// What lies in them.
    pub buffers: Vec<Buffer>,
    /// The size of the memory of what is at rest between steps (bytes).
    pub resident: u64,
    /// The size of the memory that a step writes (bytes): exactly its peak.
    pub arena: u64,
    /// What is computed once, before the first step, on whole values.
    pub preparation: Arc<[Preparation]>,
    /// What is given at every step, cut as the pieces say; what is given for every micro-batch
    /// stands with what is repeated.
    pub inputs: Vec<Port>,
    /// What is read from the model file, cut as the pieces say.
    pub weights: Vec<Port>,
    /// What the preparation leaves, cut as the pieces say.
    pub prepared: Vec<Port>,
    /// What is kept from one step to the next, cut as the pieces say; the kinds of their storages
    /// say what of a parameter they are.
    pub states: Vec<Port>,
    /// What is returned.
    pub outputs: Vec<Port>,
    /// What is done in a step.
    pub instructions: Vec<Instruction>,
    /// What of it is done for each micro-batch, in a training step.
    pub repeated: Option<Repeated>,
    /// The first instruction that changes a state that lasts. It and those after it are left out
    /// of a step if an output that every rank has whole is not finite: such outputs are made
    /// before. None if some are not, or if there is no such state.
    pub guard: Option<usize>,
}

/// What is done once for each micro-batch of a training step.
///
/// It is done in turns: one part for one micro-batch. A turn starts when everything before it is over
/// on its rank, but for what is sent to other stages: that is over when a turn writes where it is
/// kept. What follows the last turn starts likewise if there are several parts; after a single one it
/// only waits as its streams and events say.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// Which instructions. Those before them, which set sums to zero, and those after them are
    /// done once.
    pub instructions: Range<usize>,
    /// The parts, one after another, all of the instructions: one, or in a pipeline for each stage
    /// of the rank the forward part, the backward part, and perhaps that of the weights' gradients.
    pub parts: Vec<RepeatedPart>,
    /// What is done when: each part once for each micro-batch.
    pub turns: Vec<Turn>,
    /// How many micro-batches there are.
    pub times: u64,
    /// What is given anew for each micro-batch, cut as the pieces say.
    pub inputs: Vec<Port>,
}

/// Instructions that are done at a stretch for a micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedPart {
    /// Which.
    pub instructions: Range<usize>,
    /// Of which stage of the model.
    pub stage: usize,
}

/// A part that is done for a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which part.
    pub part: usize,
    /// For which micro-batch.
    pub micro_batch: u64,
}

/// A computation on whole values before the first step.
#[derive(Clone, Debug, PartialEq)]
pub struct Preparation {
    /// Which operation of the graph it is.
    pub node: NodeId,
    /// What the model file calls it.
    pub origin: String,
    /// What is computed.
    pub op: Op,
    /// From which values: weights or earlier results.
    pub operands: Vec<Whole>,
    /// Which values.
    pub results: Vec<ValueId>,
}

/// A whole value on the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whole {
    /// A weight, by its name in the model file.
    Weight(String),
    /// The result of an earlier preparation.
    Prepared(ValueId),
}

/// A value that enters or leaves a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; of prepared values, that of the operation that makes them.
    pub name: String,
    /// Which value of the graph.
    pub value: ValueId,
    /// The type of the whole value.
    pub type_: Type,
    /// The factors of each dimension: which blocks of the whole this rank holds.
    pub pieces: Vec<Vec<Piece>>,
    /// Where this rank holds them.
    pub buffer: BufferId,
}

/// A moment of a step: when the instruction that signals it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event(pub usize);

/// A sequence of instructions that run one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Operations.
    Compute,
    /// Collectives and messages, and what is packed and unpacked for them.
    Communication,
    /// What is sent to other stages; what goes to one rank does not wait for what goes to others.
    Sending,
    /// What is received from other stages, likewise.
    Receiving,
    /// Messages of blocks that go round a ring the other way than those of the communication stream.
    Contrary,
    /// Collectives of weights that are gathered ahead and of gradients that are summed behind, and what is packed
    /// and unpacked for them: what computing waits for does not wait for them.
    Beside,
}

impl Stream {
    /// Every stream.
    pub const ALL: [Self; 6] =
        [Self::Compute, Self::Communication, Self::Sending, Self::Receiving, Self::Contrary, Self::Beside];

    /// Its place among all.
    pub fn number(self) -> usize {
        self as usize
    }

    /// Whether ranks of a stage exchange on it.
    pub fn exchanges(self) -> bool {
        matches!(self, Self::Communication | Self::Contrary | Self::Beside)
    }

    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Sending => "sending",
            Self::Receiving => "receiving",
            Self::Contrary => "contrary",
            Self::Beside => "beside",
        }
    }
}

/// What is done, when.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// After which others.
    pub stream: Stream,
    /// And after which events.
    pub waits: Vec<Event>,
    /// The event of its end.
    pub signals: Option<Event>,
    /// What.
    pub action: Action,
    /// Why.
    pub origin: Origin,
    /// For which part of a training step; of moves, that of the operation that uses them first.
    pub phase: Phase,
}

impl Repeated {
    /// Everything in one part, one micro-batch after another.
    pub fn whole(instructions: Range<usize>, times: u64) -> Self {
        let parts = vec![RepeatedPart { instructions: instructions.clone(), stage: 0 }];
        let turns = (0..times).map(|micro_batch| Turn { part: 0, micro_batch }).collect();
        Self { instructions, parts, turns, times, inputs: Vec::new() }
    }

    /// The parts of which turns come between the turn of one part for a micro-batch and that of another one for the same.
    pub(crate) fn between(&self, first: usize, last: usize) -> BTreeSet<usize> {
        let (mut between, mut open) = (BTreeSet::new(), 0_usize);
        for turn in &self.turns {
            open -= usize::from(turn.part == last && open > 0);
            if open > 0 {
                between.insert(turn.part);
            }
            open += usize::from(turn.part == first);
        }
        between
    }

    /// The part that an instruction is of.
    pub fn part_of(&self, instruction: usize) -> Option<usize> {
        self.parts.iter().position(|part| part.instructions.contains(&instruction))
    }
}

impl Port {
    /// Whether it is a floating-point value of which this rank, and so every rank, has the whole.
    pub fn is_checked(&self) -> bool {
        self.type_.dtype.is_float() && self.pieces.iter().flatten().all(|piece| piece.index.is_none())
    }
}

impl Program {
    /// The buffer of that number.
    ///
    /// # Panics
    /// If there is none.
    pub fn buffer(&self, buffer: BufferId) -> &Buffer {
        &self.buffers[buffer.0]
    }

    /// The storage of a buffer.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub fn storage(&self, buffer: BufferId) -> &Storage {
        &self.storages[self.buffers[buffer.0].storage.0]
    }

    /// The stages of the model of which it has parts, in order: none if nothing is repeated.
    pub fn stages(&self) -> Vec<usize> {
        let parts = self.repeated.iter().flat_map(|it| &it.parts);
        let mut stages: Vec<usize> = parts.map(|part| part.stage).collect();
        stages.dedup();
        stages
    }

    /// The communicators of the stream of exchanges beside computing.
    pub fn beside(&self) -> BTreeSet<CommunicatorId> {
        let on = self.instructions.iter().filter(|it| it.stream == Stream::Beside);
        on.filter_map(|it| it.action.communicator()).collect()
    }

    /// The ranks of a communicator.
    ///
    /// # Panics
    /// If there is none.
    pub fn members(&self, communicator: CommunicatorId) -> &[u64] {
        &self.communicators[communicator.0]
    }

    /// Everything that is given: once in a step, and for each micro-batch.
    pub fn given(&self) -> impl Iterator<Item = &Port> {
        self.inputs.iter().chain(self.repeated.iter().flat_map(|repeated| &repeated.inputs))
    }

    /// Which instructions are repeated: none of them if there are no micro-batches.
    pub fn repetition(&self) -> Range<usize> {
        self.repeated.as_ref().map_or(0..0, |repeated| repeated.instructions.clone())
    }

    /// The instructions before which all others are over, but for what is sent: the first of each
    /// part, and of what follows several.
    pub fn barriers(&self) -> Vec<usize> {
        let Some(repeated) = &self.repeated else { return Vec::new() };
        let starts = repeated.parts.iter().map(|part| part.instructions.start);
        let after = (repeated.parts.len() > 1).then_some(repeated.instructions.end);
        starts.chain(after).collect()
    }

    /// The bytes that a storage has in its region, all places together.
    ///
    /// # Panics
    /// If there is no such storage.
    pub fn extent(&self, storage: StorageId) -> u64 {
        let Storage { bytes, places, .. } = self.storages[storage.0];
        if places <= 1 { bytes } else { bytes.next_multiple_of(ALIGNMENT).saturating_mul(places) }
    }

    /// The first of the storages of which each lies over the one before; itself if it lies over none.
    /// Where micro-batches have places of their own, nothing lies over others.
    ///
    /// # Panics
    /// If there is no such storage.
    pub fn lowest(&self, storage: StorageId) -> StorageId {
        let alone = |it: StorageId| {
            let Storage { kind, places, .. } = self.storages[it.0];
            places == 1 && kind.region() == Region::Step
        };
        let mut lowest = storage;
        while let Some(below) = self.storages[lowest.0].over.filter(|&it| alone(it) && alone(lowest)) {
            lowest = below;
        }
        lowest
    }

    /// Where the place of a storage for a micro-batch starts in its region (bytes).
    ///
    /// # Panics
    /// If there is no such storage.
    pub fn start(&self, storage: StorageId, micro_batch: u64) -> u64 {
        let Storage { bytes, places, offset, .. } = self.storages[storage.0];
        offset + (micro_batch % places.max(1)) * bytes.next_multiple_of(ALIGNMENT)
    }

    /// Whether each element of an operation's results is made from the elements at the same place
    /// of its operands, and from single numbers: a result may then lie where an operand does.
    pub fn is_elementwise(&self, compute: &Compute) -> bool {
        let elementwise = matches!(*compute.op, Op::Unary(_) | Op::Binary(_) | Op::Gated(_) | Op::Update(_));
        let shape = |block: &Block| &self.buffer(block.buffer).type_.shape;
        let Some(first) = compute.results.first().map(shape) else { return false };
        let same = |block: &Block| shape(block) == first;
        let single = |block: &Block| self.buffer(block.buffer).type_.elements() == 1;
        elementwise
            && compute.results.iter().all(same)
            && compute.operands.iter().all(|operand| same(operand) || single(operand))
    }

    /// Whether a result of an operation may lie where it has this operand: it is element-wise, makes a product
    /// that is added to what is there, or writes over some of it.
    pub fn may_lie_over(&self, compute: &Compute, operand: usize, result: usize) -> bool {
        let type_ = |block: &Block| &self.buffer(block.buffer).type_;
        let stays = compute.op.addends(compute.operands.len()).contains(&(operand, result))
            || (compute.op.written() == Some(operand) && result == 0);
        let same = type_(&compute.results[result]) == type_(&compute.operands[operand]);
        (stays && same) || self.is_elementwise(compute)
    }

    /// What the rank holds, by kind (bytes): each kind at rest, and the arena at its peak.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let at_rest = |kind: Kind| {
            let bytes = self.storages.iter().filter(|it| it.kind == kind).map(|it| it.bytes).sum();
            (kind.name(), bytes)
        };
        let mut memory = vec![at_rest(Kind::Weight), at_rest(Kind::Prepared), at_rest(Kind::Input)];
        let states = StateKind::ALL.map(|kind| at_rest(Kind::State(kind)));
        memory.extend(states.into_iter().filter(|&(_, bytes)| bytes > 0));
        memory.push(("arena", self.arena));
        memory
    }
}
