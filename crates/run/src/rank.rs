//! A rank and what it does with its instructions.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use kernels::{Array, KernelError, Tensor, TensorMut};
use lower::{Action, Block, BufferId, Collective, Compute, Copied, Port, Program, Region};
use planner_ir::{DType, Type};

use crate::collective::{Member, Stop};
use crate::copy::{Direction, copy};
use crate::error::RunError;
use crate::meeting::{Failure, Meeting};
use crate::memory::{parts, read};

/// A rank: its program and its memories.
pub(crate) struct Rank {
    pub(crate) program: Program,
    /// What is at rest, by storage.
    rest: Vec<Option<Arc<Array>>>,
    arena: Array,
    /// For each communicator, which meeting it is and which member this rank is.
    places: Vec<(usize, usize)>,
    /// Addends of a sum.
    scratch: Array,
}

/// What a rank reports of a step.
#[derive(Default)]
pub(crate) struct Report {
    /// For each instruction, what it took (seconds).
    pub(crate) seconds: Vec<f64>,
    /// For each instruction, what was received from other ranks (bytes).
    pub(crate) received: Vec<u64>,
}

/// Why a rank does not finish a step.
pub(crate) enum Halt {
    /// Another one has failed.
    GivenUp,
    /// It has.
    Failed(RunError),
}

impl Rank {
    pub(crate) fn new(program: Program, places: Vec<(usize, usize)>) -> Result<Self, RunError> {
        let failed = |error: KernelError| RunError::Whole("arena".to_owned(), error);
        let bytes = |length| Array::zeros(Type::new(DType::U8, [length])).map_err(failed);
        let (arena, scratch) = (bytes(program.arena)?, bytes(0)?);
        let rest = vec![None; program.storages.len()];
        Ok(Self { program, rest, arena, places, scratch })
    }

    /// Puts a value at rest where a port says.
    pub(crate) fn put(&mut self, buffer: BufferId, block: Arc<Array>) {
        let storage = self.program.buffer(buffer).storage;
        self.rest[storage.0] = Some(block);
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

    /// Does all instructions.
    pub(crate) fn step(&mut self, meetings: &[Meeting], failure: &Failure) -> Result<Report, Halt> {
        let mut report = Report::default();
        let mut rounds = vec![0; self.places.len()];
        let instructions = std::mem::take(&mut self.program.instructions);
        let mut outcome = Ok(());
        for (number, instruction) in instructions.iter().enumerate() {
            let start = Instant::now();
            let done = match &instruction.action {
                Action::Compute(compute) => self.compute(compute).map(|()| 0),
                Action::Copy(copy) => self.copy(copy).map(|()| 0),
                Action::Collective(collective) => {
                    let (meeting, member) = self.places[collective.communicator.0];
                    let rounds = &mut rounds[collective.communicator.0];
                    let mut member = Member {
                        meeting: &meetings[meeting],
                        failure,
                        number: member,
                        rounds: *rounds,
                        received: 0,
                    };
                    let done = self.collective(collective, &mut member);
                    *rounds = member.rounds;
                    done.map(|()| member.received)
                }
            };
            match done {
                Ok(received) => report.received.push(received),
                Err(fault) => {
                    outcome = Err(self.halt(number, self.program.show(instruction), fault));
                    break;
                }
            }
            report.seconds.push(start.elapsed().as_secs_f64());
        }
        self.program.instructions = instructions;
        outcome.map(|()| report)
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

    fn compute<'b>(&'b mut self, compute: &'b Compute) -> Result<(), Fault> {
        let Self { program, rest, arena, .. } = self;
        let writes = ranges(program, &compute.results)?;
        let parts = parts(arena.bytes_mut(), &writes).ok_or(Fault::Memory)?;
        let mut operands = Vec::with_capacity(compute.operands.len());
        for block in &compute.operands {
            let type_ = &program.buffer(block.buffer).type_;
            let bytes = match place(program, rest, block.buffer) {
                Place::Rest(bytes) => bytes,
                Place::Arena(range) => read(&parts.between, &range),
            };
            let bytes = bytes.ok_or(Fault::Memory)?;
            operands.push(Tensor { dtype: type_.dtype, shape: &type_.shape, bytes, spans: &block.spans });
        }
        let targets = compute.results.iter().zip(parts.written);
        let result = |(Block { buffer, spans }, bytes): (&'b Block, _)| {
            let type_ = &program.buffer(*buffer).type_;
            TensorMut { dtype: type_.dtype, shape: &type_.shape, bytes, spans }
        };
        let mut results: Vec<TensorMut> = targets.map(result).collect();
        Ok(kernels::compute(&compute.op, &operands, &mut results).map_err(Stop::Kernel)?)
    }

    fn copy(&mut self, copied: &Copied) -> Result<(), Fault> {
        let Self { program, rest, arena, .. } = self;
        let Place::Arena(to) = place(program, rest, copied.to) else { return Err(Fault::Memory) };
        let parts = parts(arena.bytes_mut(), &[to]).ok_or(Fault::Memory)?;
        let from = match place(program, rest, copied.from) {
            Place::Rest(bytes) => bytes,
            Place::Arena(range) => read(&parts.between, &range),
        };
        let size = program.buffer(copied.to).type_.dtype.bytes();
        let from = from.ok_or(Fault::Memory)?;
        for to in parts.written {
            copy(&copied.strided, Direction::Take, size, from, to)?;
        }
        Ok(())
    }

    fn collective(&mut self, collective: &Collective, member: &mut Member) -> Result<(), Fault> {
        let Self { program, rest, arena, scratch, .. } = self;
        let given = match place(program, rest, collective.input) {
            Place::Rest(bytes) => bytes,
            Place::Arena(range) => arena.bytes().get(range),
        };
        member.give(given.ok_or(Fault::Memory)?).map_err(Stop::from)?;
        let Place::Arena(to) = place(program, rest, collective.output) else { return Err(Fault::Memory) };
        let to = arena.bytes_mut().get_mut(to).ok_or(Fault::Memory)?;
        let dtype = program.buffer(collective.output).type_.dtype;
        Ok(member.get(collective.kind, dtype, to, scratch)?)
    }

    fn place(&self, buffer: BufferId) -> Place<'_> {
        place(&self.program, &self.rest, buffer)
    }
}

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

/// Where a buffer is.
enum Place<'a> {
    /// At rest; none if nothing is there.
    Rest(Option<&'a [u8]>),
    /// In the arena.
    Arena(Range<usize>),
}

fn place<'a>(program: &Program, rest: &'a [Option<Arc<Array>>], buffer: BufferId) -> Place<'a> {
    let (storage, type_) = (program.storage(buffer), &program.buffer(buffer).type_);
    // What does not fit an address is past any memory.
    let address = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
    let length = address(type_.bytes());
    match storage.kind.region() {
        Region::Resident => {
            let block = rest[program.buffer(buffer).storage.0].as_ref();
            Place::Rest(block.and_then(|block| block.bytes().get(..length)))
        }
        Region::Step => {
            let start = address(storage.offset);
            Place::Arena(start..start.saturating_add(length))
        }
    }
}

fn ranges(program: &Program, blocks: &[Block]) -> Result<Vec<Range<usize>>, Fault> {
    let range = |block: &Block| match place(program, &[], block.buffer) {
        Place::Arena(range) => Ok(range),
        Place::Rest(_) => Err(Fault::Memory),
    };
    blocks.iter().map(range).collect()
}
