//! A loss and its gradient towards scores as one task.
//!
//! In a training step the cross entropy of scores, what sums it up, and its gradient towards the scores
//! stand close to each other, and the gradient waits for nothing that is not there when the loss is
//! computed. One kernel makes both then, where the loss stands; what it hands to the sum lies in the room
//! of the task, for in its own place the gradient may lie already. That holds if nothing is waited for
//! between them, if one operation reads the loss, and if where the gradient is to lie nothing lies that
//! is still read or written before its turn.

use kernels::cuda::{self, Argument, Work};
use lower::{Action, BufferId, Compute, Kind, Program, Stream};
use planner_ir::Op;

use crate::places::{is_same_place, meet};
use crate::tasks::{Task, buffers, is_cut, pieces};

/// What the room of a task begins with is followed by other room at a multiple of this (bytes).
const ALIGNED: u64 = 64;

/// The losses of a program that are computed with their gradients, as tasks.
pub(crate) fn classifiers(program: &Program) -> Vec<Task> {
    (0..program.instructions.len()).filter_map(|number| classifier(program, number)).collect()
}

/// An operation on the compute stream.
fn computed(program: &Program, number: usize) -> Option<&Compute> {
    let instruction = &program.instructions[number];
    match &instruction.action {
        Action::Compute(compute) if instruction.stream == Stream::Compute => Some(compute),
        _ => None,
    }
}

/// The task of a loss, if it is computed with its gradient.
fn classifier(program: &Program, first: usize) -> Option<Task> {
    let loss = computed(program, first)?;
    let Op::CrossEntropy { ignored } = *loss.op else { return None };
    let is_gradient = |&number: &usize| {
        computed(program, number).is_some_and(|it| {
            matches!(*it.op, Op::CrossEntropyGradient { ignored: its } if its == ignored)
                && it.operands[..2] == loss.operands[..]
        })
    };
    let last = (first + 1..program.instructions.len()).find(is_gradient)?;
    let gradient = computed(program, last)?;
    let reader = only_reader(program, loss.results[0].buffer)?;
    let sum = computed(program, reader)?;
    let apart = Apart { program, own: [first, reader, last] };
    if !(first..last).contains(&reader) || is_cut(program, first + 1..last + 1) || !apart.holds() {
        return None;
    }
    let ([x, labels, dloss], [dx]) = (
        <[_; 3]>::try_from(pieces(program, &gradient.operands)).ok()?,
        &pieces(program, &gradient.results)[..],
    ) else {
        return None;
    };
    let [losses] = &pieces(program, &loss.results)[..] else { return None };
    let made = cuda::classified(ignored, [&x, &labels, &dloss], [losses, dx]).ok()?;
    let summed =
        cuda::kernels(&sum.op, &pieces(program, &sum.operands), &pieces(program, &sum.results)).ok()?;
    Some(Task {
        instructions: vec![first, reader, last],
        what: "CrossEntropy, its sum, CrossEntropyGradient".to_owned(),
        operands: buffers(&gradient.operands).into_iter().chain(buffers(&sum.operands)).collect(),
        results: buffers(&gradient.results).into_iter().chain(buffers(&sum.results)).collect(),
        work: Ok(together(made, summed, losses.type_.bytes(), |operand| {
            sum.operands[operand].buffer == loss.results[0].buffer
        })),
    })
}

/// The kernels of a classifier and of what reads its losses, which lie in the room.
fn together(made: Work, summed: Work, losses: u64, is_loss: impl Fn(usize) -> bool) -> Work {
    let room = losses.next_multiple_of(ALIGNED);
    let made = made.given(|argument| match argument {
        Argument::Result(0) => Argument::Room(0),
        Argument::Result(_) => Argument::Result(0),
        other => other,
    });
    let more = summed.room;
    let summed = summed.given(|argument| match argument {
        Argument::Operand(number) if is_loss(number) => Argument::Room(0),
        Argument::Operand(number) => Argument::Operand(3 + number),
        Argument::Result(number) => Argument::Result(1 + number),
        Argument::Room(from) => Argument::Room(room + from),
        other => other,
    });
    Work { launches: made.launches.into_iter().chain(summed.launches).collect(), room: room + more }
}

/// The only instruction that reads a value, if there is one and nothing else needs it.
fn only_reader(program: &Program, buffer: BufferId) -> Option<usize> {
    let storage = program.buffer(buffer).storage;
    let is_it = |it: &BufferId| program.buffer(*it).storage == storage;
    let all = program.instructions.iter().enumerate();
    let mut readers = all.filter(|(_, it)| it.action.reads().iter().any(is_it)).map(|(number, _)| number);
    let only = readers.next().filter(|_| readers.next().is_none())?;
    let returned = program.outputs.iter().any(|port| is_it(&port.buffer));
    (program.storages[storage.0].kind == Kind::Activation && !returned).then_some(only)
}

/// That a sum and a gradient may be computed where their loss is.
struct Apart<'a> {
    program: &'a Program,
    /// The loss, its sum, its gradient.
    own: [usize; 3],
}

impl Apart<'_> {
    fn holds(&self) -> bool {
        let [first, reader, last] = self.own;
        let program = self.program;
        let waits = |number: usize| {
            let it = &program.instructions[number];
            it.stream == Stream::Compute && !it.waits.is_empty()
        };
        // What waits brings what is read later, or lets something be written over.
        if (first + 1..last + 1).any(waits) {
            return false;
        }
        let action = |number: usize| &program.instructions[number].action;
        let between = || (first + 1..last).filter(|it| *it != reader);
        // What they read is there.
        let made: Vec<BufferId> = between().flat_map(|it| action(it).writes()).collect();
        let read = [reader, last].into_iter().flat_map(|it| action(it).reads());
        let early = read.into_iter().any(|it| made.iter().any(|&made| meet(program, it, made)));
        // What they write is not needed for anything else before their turn.
        let needed = |number: usize, until: usize| {
            let written = action(number).writes();
            let others = between().filter(move |it| *it < until);
            let others = others.flat_map(|it| action(it).reads().into_iter().chain(action(it).writes()));
            others.into_iter().any(|other| written.iter().any(|&it| meet(program, it, other)))
        };
        // The gradient is written while scores and labels are read, before its sum is.
        let gradient = action(last).writes();
        let own = action(last).reads().into_iter().chain(action(reader).writes());
        let others = action(reader).reads().into_iter().filter(|it| !action(first).writes().contains(it));
        let written_over = own.chain(others).any(|other| {
            gradient.iter().any(|&it| meet(program, it, other) && !is_same_place(program, it, other))
        });
        !early && !needed(reader, reader) && !needed(last, last) && !written_over
    }
}
