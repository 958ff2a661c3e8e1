//! A rank and what it does with its instructions.

mod exchange; // what it exchanges with others
mod room; // its memory, beside that of others

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use kernels::{Array, Tensor, TensorMut};
use lower::{
    Action, Block, Buffer, BufferId, Compute, Copied, Direction, Instruction, Kind, Port, Program, Received,
    Region, Remote, Sent, StorageId, Turn, Way,
};

use crate::collective::{Member, Stop, Target};
use crate::copy::copy;
use crate::error::RunError;
use crate::in_place::{Given, add_in_place, compute_in_place, write_in_place};
use crate::memory::{parts, read};
use crate::transport::Transport;

/// A rank: its program and its memories.
pub(crate) struct Rank {
    pub(crate) program: Program,
    /// What is at rest, by storage.
    rest: Vec<Option<Arc<Array>>>,
    arena: Array,
    /// Addends of a sum.
    scratch: Array,
    /// Which micro-batch has its turn.
    micro_batch: u64,
}

/// What a rank reports of a step.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// For each instruction, what it took, all repetitions together (seconds); 0 where that is not
    /// measured.
    pub seconds: Vec<f64>,
    /// For each instruction, what was received from other ranks, all repetitions together (bytes).
    pub received: Vec<u64>,
    /// Whether nothing was left out.
    pub complete: bool,
}

/// Blocks that are put at rest before a repetition.
pub type Feed = Vec<(BufferId, Arc<Array>)>;

/// Why a rank does not finish a step.
pub(crate) enum Halt {
    /// Another one has failed.
    GivenUp,
    /// It has.
    Failed(RunError),
}

impl Rank {
    /// One with its memory, and nothing at rest.
    pub(crate) fn new(program: Program) -> Result<Self, RunError> {
        let arena = program.arena;
        Self::with_arena(program, arena)
    }

    /// One that has no memory for steps: it is elsewhere, or that of another one.
    pub(crate) fn bare(program: Program) -> Result<Self, RunError> {
        Self::with_arena(program, 0)
    }

    /// One with an arena (bytes).
    fn with_arena(program: Program, arena: u64) -> Result<Self, RunError> {
        let (arena, scratch) = (Self::memory(arena)?, Self::memory(0)?);
        let rest = vec![None; program.storages.len()];
        Ok(Self { program, rest, arena, scratch, micro_batch: 0 })
    }

    /// Puts a value at rest where a port says.
    pub(crate) fn put(&mut self, buffer: BufferId, block: Arc<Array>) {
        let storage = self.program.buffer(buffer).storage;
        self.rest[storage.0] = Some(block);
    }

    /// What is at rest where a buffer is, if something is.
    pub(crate) fn resting(&self, buffer: BufferId) -> Option<Arc<Array>> {
        self.rest[self.program.buffer(buffer).storage.0].clone()
    }

    /// The bytes of an output.
    pub(crate) fn output(&self, port: &Port) -> Result<&[u8], RunError> {
        let missing = || RunError::Program(format!("output `{}` is nowhere", port.name));
        let bytes = match self.place(port.buffer) {
            Place::Rest(bytes) => bytes,
            Place::Arena(range) => self.arena.bytes().get(range),
        };
        bytes.ok_or_else(missing)
    }

    /// What is at rest in a buffer, if something is.
    pub(crate) fn at_rest(&self, buffer: BufferId) -> Option<&[u8]> {
        match self.place(buffer) {
            Place::Rest(bytes) => bytes,
            Place::Arena(_) => None,
        }
    }

    /// Does all instructions, those that are repeated once for each feed.
    pub(crate) fn step(&mut self, feeds: &[Feed], transport: &mut dyn Transport) -> Result<Report, Halt> {
        let instructions = std::mem::take(&mut self.program.instructions);
        let done = self.step_by(&instructions, feeds, transport);
        self.program.instructions = instructions;
        done
    }

    fn step_by(
        &mut self,
        instructions: &[Instruction],
        feeds: &[Feed],
        transport: &mut dyn Transport,
    ) -> Result<Report, Halt> {
        let count = instructions.len();
        let mut report = Report { seconds: vec![0.0; count], received: vec![0; count], complete: true };
        let repetition = self.program.repetition();
        let mut part = |rank: &mut Self, part: Range<usize>| -> Result<(), Halt> {
            for (number, instruction) in part.clone().zip(&instructions[part]) {
                transport.begins(number, rank.micro_batch);
                let start = Instant::now();
                let received = rank.instruction(instruction, transport);
                let halt = |fault| rank.halt(number, rank.program.show(instruction), fault);
                report.received[number] += received.map_err(halt)?;
                report.seconds[number] += start.elapsed().as_secs_f64();
            }
            Ok(())
        };
        part(self, 0..repetition.start)?;
        let repeated = self.program.repeated.as_ref();
        let turns: Vec<(u64, Range<usize>)> = repeated.map_or_else(Vec::new, |repeated| {
            let turn = |turn: &Turn| (turn.micro_batch, repeated.parts[turn.part].instructions.clone());
            repeated.turns.iter().map(turn).collect()
        });
        for (micro_batch, instructions) in turns {
            self.micro_batch = micro_batch;
            let feed = usize::try_from(micro_batch).ok().and_then(|it| feeds.get(it));
            for (buffer, block) in feed.into_iter().flatten() {
                self.put(*buffer, Arc::clone(block));
            }
            part(self, instructions)?;
        }
        self.micro_batch = 0;
        let guard = self.program.guard.unwrap_or(count);
        part(self, repetition.end..guard)?;
        let complete = self.program.guard.is_none() || self.outputs_are_finite().map_err(Halt::Failed)?;
        if complete {
            part(self, guard..count)?;
        }
        report.complete = complete;
        Ok(report)
    }

    /// Does an instruction: what is received from other ranks (bytes).
    fn instruction(
        &mut self,
        instruction: &Instruction,
        transport: &mut dyn Transport,
    ) -> Result<u64, Fault> {
        let mut taken = self.take(&instruction.action.writes())?;
        let done = match &instruction.action {
            Action::Compute(compute) => self.compute(compute, &mut taken).map(|()| 0),
            Action::Copy(copy) => self.copy(copy, &mut taken).map(|()| 0),
            Action::Collective(it) => it.each().try_fold(0, |received, it| {
                let buffers = [it.input, it.output];
                let routes = self.routes(&it)?;
                let get = |member: &mut Member, output: Target| member.get(it.kind, output);
                let given = (it.communicator, buffers, routes.as_ref());
                Ok(received + self.exchange(given, &mut taken, transport, &get)?)
            }),
            Action::Message(it) => {
                let buffers = [it.input, it.output];
                self.exchange((it.communicator, buffers, None), &mut taken, transport, &|member, output| {
                    member.get_from(&it.to, it.from, output.bytes)
                })
            }
            Action::Send(it) => self.send(it, transport).map(|()| 0),
            Action::Receive(it) => self.receive(it, transport),
        };
        for (storage, state) in taken {
            self.rest[storage.0] = Some(state);
        }
        done
    }

    /// Takes states and inputs that are to be written away from what is at rest. An input that somebody else has too
    /// is copied.
    fn take(&mut self, writes: &[BufferId]) -> Result<Vec<(StorageId, Arc<Array>)>, Fault> {
        let mut taken = Vec::new();
        for &buffer in writes {
            if self.program.storage(buffer).kind.region() == Region::Resident {
                let storage = self.program.buffer(buffer).storage;
                let mut block = self.rest[storage.0].take().ok_or(Fault::Memory)?;
                if self.program.storages[storage.0].kind == Kind::Input {
                    Arc::make_mut(&mut block);
                }
                taken.push((storage, block));
            }
        }
        Ok(taken)
    }

    /// Whether the outputs that every rank has whole are finite: all ranks say the same.
    fn outputs_are_finite(&self) -> Result<bool, RunError> {
        for port in self.program.outputs.iter().filter(|port| port.is_checked()) {
            let failed = |error| RunError::Whole(port.name.clone(), error);
            let array = Array::from_bytes(port.type_.clone(), self.output(port)?).map_err(failed)?;
            if array.to_floats().map_err(failed)?.iter().any(|it| !it.is_finite()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn halt(&self, number: usize, text: String, fault: Fault) -> Halt {
        match fault {
            Fault::Stop(Stop::GivenUp) => Halt::GivenUp,
            Fault::Stop(Stop::Kernel(error)) => {
                Halt::Failed(RunError::Instruction { rank: self.program.rank, number, text, error })
            }
            Fault::Run(error) => Halt::Failed(error),
            Fault::Memory => Halt::Failed(RunError::Program(format!(
                "rank {}, instruction {number} ({text}) uses what is not there or what it writes",
                self.program.rank
            ))),
        }
    }

    fn compute<'b>(&'b mut self, compute: &'b Compute, taken: &'b mut Taken) -> Result<(), Fault> {
        let Self { program, rest, arena, micro_batch, .. } = self;
        let micro_batch = *micro_batch;
        let in_arena = |block: &&Block| program.storage(block.buffer).kind.region() == Region::Step;
        let writes = ranges(program, compute.results.iter().filter(in_arena), micro_batch)?;
        let parts = parts(arena.bytes_mut(), &writes).ok_or(Fault::Memory)?;
        let mut states: Vec<(StorageId, Option<&mut [u8]>)> = Vec::new();
        for (storage, state) in taken {
            states.push((*storage, Some(Arc::get_mut(state).ok_or(Fault::Memory)?.bytes_mut())));
        }
        let mut written = parts.written.into_iter();
        let mut results: Vec<TensorMut> = Vec::with_capacity(compute.results.len());
        let mut places: Vec<(StorageId, usize)> = Vec::new();
        // The results that lie in the arena, as `writes`.
        let mut made: Vec<usize> = Vec::new();
        for Block { buffer, spans } in &compute.results {
            let storage = program.buffer(*buffer).storage;
            let type_ = &program.buffer(*buffer).type_;
            let bytes = match states.iter_mut().find(|it| it.0 == storage) {
                Some((_, bytes)) => {
                    places.push((storage, results.len()));
                    let length = usize::try_from(type_.bytes()).map_err(|_| Fault::Memory)?;
                    bytes.take().and_then(|bytes| bytes.get_mut(..length))
                }
                None => {
                    made.push(results.len());
                    written.next()
                }
            };
            let bytes = bytes.ok_or(Fault::Memory)?;
            results.push(TensorMut { dtype: type_.dtype, shape: &type_.shape, bytes, spans });
        }
        let mut operands = Vec::with_capacity(compute.operands.len());
        for block in &compute.operands {
            let Block { buffer, spans } = block;
            let type_ = &program.buffer(*buffer).type_;
            let own = places.iter().find(|(storage, _)| *storage == program.buffer(*buffer).storage);
            operands.push(match own {
                Some(&(_, result)) if results[result].shape == type_.shape => Given::Result(result),
                Some(_) => return Err(Fault::Memory),
                None => match place(program, rest, *buffer, micro_batch) {
                    Place::Arena(range) if !range.is_empty() && writes.contains(&range) => {
                        let over = made.iter().zip(&writes).find(|it| *it.1 == range).map(|it| *it.0);
                        let over = over.filter(|&it| results[it].shape == type_.shape);
                        Given::Result(over.ok_or(Fault::Memory)?)
                    }
                    there => {
                        let bytes = match there {
                            Place::Rest(bytes) => bytes,
                            Place::Arena(range) => read(&parts.between, &range),
                        };
                        let bytes = bytes.ok_or(Fault::Memory)?;
                        Given::There(Tensor { dtype: type_.dtype, shape: &type_.shape, bytes, spans })
                    }
                },
            });
        }
        let there: Option<Vec<Tensor>> = operands.iter().map(Given::there).collect();
        let done = match there {
            Some(operands) => kernels::compute(&compute.op, &operands, &mut results),
            None if program.is_elementwise(compute) => compute_in_place(&compute.op, &operands, &mut results),
            None => write_in_place(&compute.op, &operands, &mut results)
                .or_else(|| add_in_place(&compute.op, &operands, &mut results))
                .ok_or(Fault::Memory)?,
        };
        Ok(done.map_err(Stop::Kernel)?)
    }

    fn copy(&mut self, copied: &Copied, taken: &mut Taken) -> Result<(), Fault> {
        let Self { program, rest, arena, micro_batch, .. } = self;
        let micro_batch = *micro_batch;
        let size = program.buffer(copied.to).type_.dtype.bytes();
        let source = place(program, rest, copied.from, micro_batch);
        if let [(_, state)] = &mut taken[..] {
            let from = match source {
                Place::Rest(bytes) => bytes,
                Place::Arena(range) => arena.bytes().get(range),
            };
            let to = Arc::get_mut(state).ok_or(Fault::Memory)?.bytes_mut();
            return Ok(copy(&copied.strided, copied.direction, size, from.ok_or(Fault::Memory)?, to)?);
        }
        let Place::Arena(to) = place(program, rest, copied.to, micro_batch) else {
            return Err(Fault::Memory);
        };
        let parts = parts(arena.bytes_mut(), &[to]).ok_or(Fault::Memory)?;
        let from = match source {
            Place::Rest(bytes) => bytes,
            Place::Arena(range) => read(&parts.between, &range),
        };
        let from = from.ok_or(Fault::Memory)?;
        for to in parts.written {
            copy(&copied.strided, copied.direction, size, from, to)?;
        }
        Ok(())
    }

    /// Sends parts of a buffer to other ranks.
    fn send(&self, sent: &Sent, transport: &mut dyn Transport) -> Result<(), Fault> {
        let Whole { bytes, size } = self.whole(sent.input)?;
        for part in &sent.parts {
            self.give(part, bytes, size, transport)?;
        }
        Ok(())
    }

    fn give(
        &self,
        part: &Remote,
        from: &[u8],
        size: u64,
        transport: &mut dyn Transport,
    ) -> Result<(), Fault> {
        let length = part.strided.elements().checked_mul(size).and_then(|it| usize::try_from(it).ok());
        let mut message = vec![0; length.ok_or(Fault::Memory)?];
        copy(&part.strided, Direction::Take, size, from, &mut message)?;
        transport.send(part.rank, message).ok_or(Fault::Memory)
    }

    /// Puts a buffer together from what other ranks send, and passes parts of it on: what has been
    /// received (bytes).
    fn receive(&mut self, received: &Received, transport: &mut dyn Transport) -> Result<u64, Fault> {
        let own = self.program.rank;
        let mut count = 0;
        for part in &received.parts {
            if part.way == Way::To {
                let Whole { bytes, size } = self.whole(received.output)?;
                self.give(part, bytes, size, transport)?;
                continue;
            }
            let Self { program, rest, arena, micro_batch, .. } = self;
            let size = program.buffer(received.output).type_.dtype.bytes();
            let expected = part.strided.elements().checked_mul(size);
            let length = expected.and_then(|it| usize::try_from(it).ok()).ok_or(Fault::Memory)?;
            let message = transport.receive(part.rank, length).ok_or(Fault::Memory)?.map_err(Stop::from)?;
            let Place::Arena(range) = place(program, rest, received.output, *micro_batch) else {
                return Err(Fault::Memory);
            };
            let to = arena.bytes_mut().get_mut(range).ok_or(Fault::Memory)?;
            if message.len() != length {
                return Err(Fault::Memory);
            }
            copy(&part.strided, Direction::Put, size, &message, to)?;
            if part.rank != own {
                count += expected.unwrap_or(0);
            }
        }
        Ok(count)
    }

    /// All of a buffer.
    fn whole(&self, buffer: BufferId) -> Result<Whole<'_>, Fault> {
        let size = self.program.buffer(buffer).type_.dtype.bytes();
        let bytes = match self.place(buffer) {
            Place::Rest(bytes) => bytes,
            Place::Arena(range) => self.arena.bytes().get(range),
        };
        Ok(Whole { bytes: bytes.ok_or(Fault::Memory)?, size })
    }

    fn place(&self, buffer: BufferId) -> Place<'_> {
        place(&self.program, &self.rest, buffer, self.micro_batch)
    }
}

/// States and inputs that are written, taken from what is at rest.
type Taken = [(StorageId, Arc<Array>)];

/// Why an instruction is not done.
enum Fault {
    Stop(Stop),
    Run(RunError),
    /// A buffer is not where it could be used.
    Memory,
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// All of a buffer, and the size of its elements (bytes).
struct Whole<'a> {
    bytes: &'a [u8],
    size: u64,
}

/// Where a buffer is.
enum Place<'a> {
    /// At rest; none if nothing is there.
    Rest(Option<&'a [u8]>),
    /// In the arena.
    Arena(Range<usize>),
}

fn place<'a>(
    program: &Program,
    rest: &'a [Option<Arc<Array>>],
    buffer: BufferId,
    micro_batch: u64,
) -> Place<'a> {
    let Buffer { storage, type_ } = program.buffer(buffer);
    // What does not fit an address is past any memory.
    let address = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
    let length = address(type_.bytes());
    match program.storages[storage.0].kind.region() {
        Region::Resident => {
            let block = rest[storage.0].as_ref();
            Place::Rest(block.and_then(|block| block.bytes().get(..length)))
        }
        Region::Step => {
            let start = address(program.start(*storage, micro_batch));
            Place::Arena(start..start.saturating_add(length))
        }
    }
}

fn ranges<'a>(
    program: &Program,
    blocks: impl Iterator<Item = &'a Block>,
    micro_batch: u64,
) -> Result<Vec<Range<usize>>, Fault> {
    let range = |block: &Block| match place(program, &[], block.buffer, micro_batch) {
        Place::Arena(range) => Ok(range),
        Place::Rest(_) => Err(Fault::Memory),
    };
    blocks.map(range).collect()
}
