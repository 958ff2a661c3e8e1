//! What a program's instructions are on a device.
//!
//! Operations element by element that follow each other are one kernel, and what they hand on is not
//! written to memory where nothing else reads it. That holds of operations on the compute stream of
//! one shape, each of which reads what one before it makes, if nothing is waited for or signalled
//! between them, and if what is written lies where nothing that is read lies, or exactly there. One
//! of them may be a norm of rows, or the gradient of one: a sum with a residual and the norm of it
//! are one kernel.

use std::collections::BTreeSet;
use std::ops::Range;

use kernels::cuda::{self, Chain, Copying, Input, Piece, Step, Uncovered, Work};
use lower::{
    Action, BufferId, Compute, Copied, Direction, Instruction, Kind, Program, StorageId, Stream, Strided,
};
use planner_ir::Op;

use crate::classifier::classifiers;
use crate::places::{is_same_place, meet};

/// How many operations one kernel has at most.
const STEPS: usize = 8;

/// How many values one kernel reads at most.
const OPERANDS: usize = 12;

/// One or more instructions of a program as kernels, in the order of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Which instructions, issued where the first one stands; others between them are not part of it.
    pub instructions: Vec<usize>,
    /// What they do.
    pub what: String,
    /// What the kernels read.
    pub operands: Vec<BufferId>,
    /// What they write.
    pub results: Vec<BufferId>,
    /// The kernels, or why there are none.
    pub work: Result<Work, Uncovered>,
}

/// What the instructions of a program are on a device, but for exchanges.
pub fn tasks(program: &Program) -> Vec<Task> {
    let mut tasks = classifiers(program);
    let taken: BTreeSet<usize> = tasks.iter().flat_map(|task| task.instructions.iter().copied()).collect();
    let mut group: Option<Group> = None;
    for (number, instruction) in program.instructions.iter().enumerate() {
        if taken.contains(&number) {
            tasks.extend(group.take().map(Group::task));
            continue;
        }
        if matches!(instruction.stream, Stream::Communication | Stream::Contrary) {
            if let Action::Copy(copied) = &instruction.action {
                tasks.push(copy(program, number, copied));
            }
            continue;
        }
        if let Some(mut open) = group.take() {
            if open.takes(number, instruction) {
                group = Some(open);
                continue;
            }
            tasks.push(open.task());
        }
        match &instruction.action {
            Action::Compute(compute) => match Group::new(program, number, instruction, compute) {
                Some(open) => group = Some(open),
                None => tasks.push(alone(program, number, compute)),
            },
            Action::Copy(copied) => tasks.push(copy(program, number, copied)),
            Action::Collective(_) | Action::Message(_) | Action::Send(_) | Action::Receive(_) => {}
        }
    }
    tasks.extend(group.map(Group::task));
    tasks.sort_by_key(|task| task.instructions.first().copied());
    tasks
}

/// Whether repetitions or the guard of states begin or end at one of these instructions.
pub(crate) fn is_cut(program: &Program, numbers: Range<usize>) -> bool {
    let repeated = program.repeated.as_ref().map(|it| it.instructions.clone());
    let ends = repeated.into_iter().flat_map(|it| [it.start, it.end]);
    let cuts = ends.chain(program.barriers()).chain(program.guard);
    cuts.into_iter().any(|cut| numbers.contains(&cut))
}

pub(crate) fn pieces(program: &Program, blocks: &[lower::Block]) -> Vec<Piece> {
    let piece = |block: &lower::Block| Piece {
        type_: program.buffer(block.buffer).type_.clone(),
        spans: block.spans.clone(),
    };
    blocks.iter().map(piece).collect()
}

pub(crate) fn buffers(blocks: &[lower::Block]) -> Vec<BufferId> {
    blocks.iter().map(|block| block.buffer).collect()
}

/// What an operation is called, without its numbers: functions by their own names.
pub fn named(op: &Op) -> String {
    match op {
        Op::Unary(function) => format!("{function:?}"),
        Op::Binary(function) => format!("{function:?}"),
        _ => format!("{op:?}").chars().take_while(char::is_ascii_alphanumeric).collect(),
    }
}

fn alone(program: &Program, number: usize, compute: &Compute) -> Task {
    Task {
        instructions: vec![number],
        what: named(&compute.op),
        operands: buffers(&compute.operands),
        results: buffers(&compute.results),
        work: cuda::kernels(
            &compute.op,
            &pieces(program, &compute.operands),
            &pieces(program, &compute.results),
        ),
    }
}

/// The kernel of a copy of elements of so many bytes, between two orders of them.
pub(crate) fn strided(strided: &Strided, direction: Direction, bytes: u64) -> Work {
    let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    let turned = direction == Direction::Put;
    let pair =
        |from: u64, to: u64| if turned { [signed(to), signed(from)] } else { [signed(from), signed(to)] };
    cuda::copied(&Copying {
        bytes,
        starts: pair(strided.start, 0),
        loops: strided.loops.iter().map(|it| (it.count, pair(it.from, it.to))).collect(),
    })
}

fn copy(program: &Program, number: usize, copied: &Copied) -> Task {
    let bytes = program.buffer(copied.to).type_.dtype.bytes();
    Task {
        instructions: vec![number],
        what: "copy".to_owned(),
        operands: vec![copied.from],
        results: vec![copied.to],
        work: Ok(strided(&copied.strided, copied.direction, bytes)),
    }
}

/// Operations that one kernel computes: functions of elements, and perhaps a norm.
struct Group<'a> {
    program: &'a Program,
    numbers: Vec<usize>,
    computes: Vec<&'a Compute>,
    chain: Chain,
    operands: Vec<BufferId>,
    /// The results of each step.
    made: Vec<Vec<BufferId>>,
    /// Whether the last one signals an event: nothing may follow it.
    signals: bool,
}

impl<'a> Group<'a> {
    fn new(
        program: &'a Program,
        number: usize,
        instruction: &Instruction,
        compute: &'a Compute,
    ) -> Option<Self> {
        let first = compute.results.first()?;
        let chain = Chain {
            shape: program.buffer(first.buffer).type_.shape.clone(),
            spans: vec![],
            operands: vec![],
            steps: vec![],
            results: vec![],
        };
        let mut group = Self {
            program,
            numbers: vec![],
            computes: vec![],
            chain,
            operands: vec![],
            made: vec![],
            signals: false,
        };
        let fits = group.has_shape(compute) && group.has_kind(compute);
        fits.then(|| {
            group.add(number, instruction, compute);
            group
        })
    }

    /// Whether all results are of the group's shape.
    fn has_shape(&self, compute: &Compute) -> bool {
        let shape = |it: &lower::Block| self.program.buffer(it.buffer).type_.shape == self.chain.shape;
        compute.results.iter().all(shape)
    }

    /// Whether a kernel may compute an operation with others.
    fn has_kind(&self, compute: &Compute) -> bool {
        cuda::is_pointwise(&compute.op) || self.norm().is_none() && cuda::is_norm(&compute.op)
    }

    /// Which step is a norm, if one is.
    fn norm(&self) -> Option<usize> {
        self.chain.steps.iter().position(|step| cuda::is_norm(&step.op))
    }

    /// Adds an instruction if it belongs to the group.
    fn takes(&mut self, number: usize, instruction: &Instruction) -> bool {
        let (Action::Compute(compute), Some(&last)) = (&instruction.action, self.numbers.last()) else {
            return false;
        };
        let belongs = self.numbers.len() < STEPS
            && !self.signals
            && instruction.waits.is_empty()
            && !is_cut(self.program, last + 1..number + 1)
            && self.reads_own(compute)
            && self.has_shape(compute)
            && self.has_kind(compute)
            && self.lies_with(compute);
        if !belongs {
            return false;
        }
        // The borrow of the program outlives the group.
        let program = self.program;
        let Action::Compute(compute) = &program.instructions[number].action else { return false };
        let before = (self.chain.clone(), self.operands.clone());
        self.add(number, instruction, compute);
        if self.operands.len() <= OPERANDS && self.is_sound() && self.is_covered() {
            return true;
        }
        (self.chain, self.operands) = before;
        self.numbers.pop();
        self.computes.pop();
        self.made.pop();
        self.signals = false;
        false
    }

    /// Whether what an operation makes lies in the whole where that of the group does, if both depend
    /// on it.
    fn lies_with(&self, compute: &Compute) -> bool {
        let own = self.computes.iter().find_map(|it| placed(it));
        placed(compute).is_none_or(|spans| own.is_none_or(|own| own == spans))
    }

    /// Whether an operand is what the group makes, and what else lies there is not read.
    fn reads_own(&self, compute: &Compute) -> bool {
        let made: Vec<BufferId> = self.made.iter().flatten().copied().collect();
        let storages: Vec<StorageId> = made.iter().map(|&it| self.program.buffer(it).storage).collect();
        let is_own = |block: &lower::Block| made.contains(&block.buffer);
        let is_near = |block: &lower::Block| storages.contains(&self.program.buffer(block.buffer).storage);
        compute.operands.iter().any(is_own) && compute.operands.iter().all(|it| is_own(it) || !is_near(it))
    }

    fn add(&mut self, number: usize, instruction: &Instruction, compute: &'a Compute) {
        if let Some(spans) = placed(compute) {
            self.chain.spans = spans.to_vec();
        }
        let pieces = pieces(self.program, &compute.operands);
        let mut inputs = Vec::new();
        for (block, piece) in compute.operands.iter().zip(pieces) {
            // What was made last in a place is what is there.
            let own = self.made.iter().enumerate().rev().find_map(|(step, made)| {
                Some(Input::Step(step, made.iter().position(|it| *it == block.buffer)?))
            });
            let known = self.operands.iter().position(|it| *it == block.buffer);
            inputs.push(own.or(known.map(Input::Operand)).unwrap_or_else(|| {
                self.operands.push(block.buffer);
                self.chain.operands.push(piece);
                Input::Operand(self.operands.len() - 1)
            }));
        }
        let dtypes = compute.results.iter().map(|it| self.program.buffer(it.buffer).type_.dtype);
        self.chain.steps.push(Step { op: (*compute.op).clone(), inputs, results: dtypes.collect() });
        self.made.push(buffers(&compute.results));
        self.numbers.push(number);
        self.computes.push(compute);
        self.signals = instruction.signals.is_some();
    }

    /// What is read or returned elsewhere and so is stored: steps and results, and their buffers.
    fn stored(&self) -> Vec<((usize, usize), BufferId)> {
        let program = self.program;
        let is_read = |storage: StorageId| {
            let reads = |(number, instruction): (usize, &Instruction)| {
                !self.numbers.contains(&number)
                    && instruction.action.reads().iter().any(|&it| program.buffer(it).storage == storage)
            };
            let returned = |port: &lower::Port| program.buffer(port.buffer).storage == storage;
            program.storages[storage.0].kind != Kind::Activation
                || program.instructions.iter().enumerate().any(reads)
                || program.outputs.iter().any(returned)
        };
        let all = self.made.iter().enumerate();
        let all = all.flat_map(|(step, made)| {
            made.iter().enumerate().map(move |(result, &buffer)| ((step, result), buffer))
        });
        let last = self.made.len() - 1;
        let lasts = |&((step, _), buffer): &((usize, usize), BufferId)| {
            // Of what lies in one place only the last stays there.
            let storage = program.buffer(buffer).storage;
            let later = self.made[step + 1..].iter().flatten();
            !later.into_iter().any(|&it| program.buffer(it).storage == storage)
        };
        let all: Vec<_> = all.filter(lasts).collect();
        let needed = |&((step, _), buffer): &((usize, usize), BufferId)| {
            step == last || is_read(program.buffer(buffer).storage)
        };
        // Where something before a norm is stored, what is read in several passes over rows is read
        // from where it is stored: what it is computed from may be written over.
        let norm = self.norm().unwrap_or(0);
        let is_again = all.iter().any(|it| it.0.0 < norm && needed(it));
        let passes = self.chain.steps.iter().skip(norm).flat_map(|step| &step.inputs);
        let passes: Vec<&Input> = passes.collect();
        let again = |&((step, result), _): &((usize, usize), BufferId)| {
            is_again && step < norm && passes.contains(&&Input::Step(step, result))
        };
        all.into_iter().filter(|it| needed(it) || again(it)).collect()
    }

    /// Whether there is a kernel for it: there may be none for what is around a norm.
    fn is_covered(&self) -> bool {
        self.norm().is_none() || cuda::chained(&self.chain()).is_ok()
    }

    /// The chain with what is stored of it.
    fn chain(&self) -> Chain {
        let results = self.stored().into_iter().map(|(place, _)| place).collect();
        Chain { results, ..self.chain.clone() }
    }

    /// Whether what is stored lies where nothing else of the group lies, or exactly there.
    fn is_sound(&self) -> bool {
        let stored: Vec<BufferId> = self.stored().into_iter().map(|(_, buffer)| buffer).collect();
        let others = self.operands.iter().chain(&stored);
        let is_sound = |it: BufferId, other: BufferId| {
            it == other || !meet(self.program, it, other) || is_same_place(self.program, it, other)
        };
        others.into_iter().all(|&other| stored.iter().all(|&it| is_sound(it, other)))
    }

    fn task(self) -> Task {
        let names: Vec<String> = self.computes.iter().map(|it| named(&it.op)).collect();
        Task {
            work: cuda::chained(&self.chain()),
            results: self.stored().into_iter().map(|(_, buffer)| buffer).collect(),
            instructions: self.numbers,
            what: names.join(", "),
            operands: self.operands,
        }
    }
}

/// Where what an operation makes lies in the whole, if its elements depend on that.
fn placed(compute: &Compute) -> Option<&[kernels::Span]> {
    let first = match &*compute.op {
        Op::Dropout { .. } | Op::RoundStochastically { .. } => compute.operands.first()?,
        Op::Triangle { .. } | Op::Iota { .. } => compute.results.first()?,
        _ => return None,
    };
    Some(&first.spans)
}
