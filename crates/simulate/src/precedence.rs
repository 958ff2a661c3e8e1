//! What comes before what on a rank: its streams, its events, and the turns of its micro-batches.

use std::collections::BTreeSet;
use std::ops::Range;

use lower::{Instruction, Program, StorageId, Stream};

/// In which order the instructions of a rank run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Streams run at the same time; events say what waits.
    Streams,
    /// One after another, as ranks do that are threads.
    OneByOne,
}

/// A step of a walk through a program, in the order in which a host issues it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A turn begins, of these instructions for this micro-batch, or what follows all turns of several parts.
    Turn(Option<(Range<usize>, u64)>),
    /// An instruction, for a micro-batch: 0 for those that run once.
    Instruction(usize, u64),
}

/// Walks through a program.
pub(crate) fn walk(program: &Program, step: &mut dyn FnMut(Step)) {
    let repetition = program.repetition();
    (0..repetition.start).for_each(|it| step(Step::Instruction(it, 0)));
    for turn in program.repeated.iter().flat_map(|it| &it.turns) {
        let Some(part) = program.repeated.as_ref().and_then(|it| it.parts.get(turn.part)) else {
            continue;
        };
        step(Step::Turn(Some((part.instructions.clone(), turn.micro_batch))));
        part.instructions.clone().for_each(|it| step(Step::Instruction(it, turn.micro_batch)));
    }
    if program.repeated.as_ref().is_some_and(|it| it.parts.len() > 1) {
        step(Step::Turn(None));
    }
    (repetition.end..program.instructions.len()).for_each(|it| step(Step::Instruction(it, 0)));
}

/// Where a rank is in its program. What stands for an instruction that is done is a `T`.
pub(crate) struct Precedence<'a, T> {
    program: &'a Program,
    order: Order,
    /// The last one on each stream, but for those between stages.
    last: [Option<T>; Stream::ALL.len()],
    /// What everything of a turn waits for.
    start: Vec<T>,
    /// The last one that signalled each event, and whether that sends.
    events: Vec<Option<(T, bool)>>,
    /// What was received in the turn.
    received: Vec<T>,
    /// What was sent and may be on its way still.
    sent: Vec<Sending<T>>,
}

/// Something on its way to other stages, and the place that it keeps.
#[derive(Clone, Copy)]
struct Sending<T> {
    storage: StorageId,
    place: u64,
    done: T,
}

impl<'a, T: Copy> Precedence<'a, T> {
    pub(crate) fn start(program: &'a Program, order: Order) -> Self {
        let events = program.instructions.iter().filter(|it| it.signals.is_some()).count();
        Self {
            program,
            order,
            last: [None; Stream::ALL.len()],
            start: Vec::new(),
            events: vec![None; events],
            received: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Which instructions run one after another; nothing if an instruction waits for no other of its stream.
    fn stream(&self, instruction: &Instruction) -> Option<usize> {
        match (self.order, instruction.stream) {
            (Order::OneByOne, _) => Some(0),
            (Order::Streams, Stream::Sending | Stream::Receiving) => None,
            (Order::Streams, stream) => Some(stream.number()),
        }
    }

    /// What an instruction waits for.
    pub(crate) fn before(&self, instruction: &Instruction) -> Vec<T> {
        let waits = instruction.waits.iter().filter_map(|event| self.events[event.0].map(|it| it.0));
        let behind = self.stream(instruction).and_then(|it| self.last[it]);
        let start = if behind.is_some() { &[][..] } else { &self.start[..] };
        behind.into_iter().chain(start.iter().copied()).chain(waits).collect()
    }

    /// Begins a turn: what it waits for, everything before it, of what was sent only what keeps a place that it
    /// writes. [`Self::starts`] says what stands for all that.
    pub(crate) fn turn(&mut self, turn: Option<&(Range<usize>, u64)>) -> Vec<T> {
        let mut over: Vec<T> = self.last.iter().flatten().copied().collect();
        over.append(&mut self.received);
        if let (Some((instructions, micro_batch)), false) = (turn, self.sent.is_empty()) {
            let program = self.program;
            let written: BTreeSet<StorageId> = program.instructions[instructions.clone()]
                .iter()
                .flat_map(|it| it.action.writes())
                .map(|buffer| program.buffer(buffer).storage)
                .collect();
            let sent = std::mem::take(&mut self.sent);
            let (awaited, rest): (Vec<Sending<T>>, _) = sent.into_iter().partition(|it| {
                let places = program.storages[it.storage.0].places.max(1);
                written.contains(&it.storage) && micro_batch % places == it.place
            });
            self.sent = rest;
            over.extend(awaited.iter().map(|it| it.done));
        }
        self.last = [None; Stream::ALL.len()];
        // What has been sent before may be waited for still.
        self.events.iter_mut().for_each(|it| *it = it.filter(|(_, sends)| *sends));
        over
    }

    /// Everything of the turn that begins waits for these, if there are any.
    pub(crate) fn starts(&mut self, after: Vec<T>) {
        if !after.is_empty() {
            self.start = after;
        }
    }

    /// An instruction is done for a micro-batch.
    pub(crate) fn done(&mut self, instruction: &Instruction, micro_batch: u64, done: T) {
        match (self.stream(instruction), instruction.stream) {
            (Some(stream), _) => self.last[stream] = Some(done),
            (None, Stream::Sending) => {
                let program = self.program;
                let sending = |buffer| {
                    let storage = program.buffer(buffer).storage;
                    let place = micro_batch % program.storages[storage.0].places.max(1);
                    Sending { storage, place, done }
                };
                self.sent.extend(instruction.action.reads().into_iter().map(sending));
            }
            (None, _) => self.received.push(done),
        }
        if let Some(event) = instruction.signals {
            self.events[event.0] = Some((done, instruction.stream == Stream::Sending));
        }
    }
}
