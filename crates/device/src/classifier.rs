//! A loss and its gradient towards scores as one task.
//!
//! In a training step the cross entropy of scores, what sums it up, and its gradient towards the scores
//! stand close to each other, and the gradient waits for nothing that is not there when the loss is
//! computed. One kernel makes both then, where the loss stands; what it hands to the sum lies in the room
//! of the task, for in its own place the gradient may lie already. That holds if one operation reads the
//! loss, if all may be issued there ([`crate::order`]), and if the gradient does not lie over what is read
//! while it is written. Where scores are converted for the loss alone, the kernel reads them as they are;
//! where their gradient is converted and not needed before, it makes what that is converted to.

use kernels::cuda::{self, Argument, Piece, Work};
use lower::{Action, Block, BufferId, Compute, Program, Stream};
use planner_ir::Op;

use crate::order::{Member, Order};
use crate::places::{is_same_place, meet};
use crate::task::{Task, buffers, pieces};
use crate::uses::Uses;

/// What the room of a task begins with is followed by other room at a multiple of this (bytes).
const ALIGNED: u64 = 64;

/// The losses of a program that are computed with their gradients, as tasks.
pub(crate) fn classifiers(program: &Program, uses: &Uses<'_>, order: &mut Order<'_>) -> Vec<Task> {
    let mut tasks = Vec::new();
    for first in 0..program.instructions.len() {
        let Some(plain) = Classifier::of(program, uses, first) else { continue };
        let task = plain.with_conversions(uses).iter().find_map(|it| it.task(order));
        if let Some(task) = task {
            order.join(&task.instructions, task.at);
            tasks.push(task);
        }
    }
    tasks
}

/// An operation on the compute stream.
fn computed(program: &Program, number: usize) -> Option<&Compute> {
    let instruction = &program.instructions[number];
    match &instruction.action {
        Action::Compute(compute) if instruction.stream == Stream::Compute => Some(compute),
        _ => None,
    }
}

/// A loss, what reads it, and its gradient.
#[derive(Clone)]
struct Classifier<'a> {
    program: &'a Program,
    ignored: i64,
    loss: (usize, &'a Compute),
    sum: (usize, &'a Compute),
    gradient: (usize, &'a Compute),
    /// What converts scores before them, and their gradient after them.
    conversions: [Option<(usize, &'a Compute)>; 2],
}

impl<'a> Classifier<'a> {
    /// Those of the loss of that number, if it is one.
    fn of(program: &'a Program, uses: &Uses<'_>, first: usize) -> Option<Self> {
        let loss = computed(program, first)?;
        let Op::CrossEntropy { ignored } = *loss.op else { return None };
        let is_gradient = |&number: &usize| {
            computed(program, number).is_some_and(|it| {
                matches!(*it.op, Op::CrossEntropyGradient { ignored: its } if its == ignored)
                    && it.operands[..2] == loss.operands[..]
            })
        };
        let last = (first + 1..program.instructions.len()).find(is_gradient)?;
        let [reader] = *uses.readers(loss.results[0].buffer)? else { return None };
        (first..last).contains(&reader).then_some(())?;
        Some(Self {
            program,
            ignored,
            loss: (first, loss),
            sum: (reader, computed(program, reader)?),
            gradient: (last, computed(program, last)?),
            conversions: [None; 2],
        })
    }

    /// The same with what converts scores for them alone, and their gradient; with as much of that as
    /// there is first, with nothing last.
    fn with_conversions(&self, uses: &Uses<'_>) -> Vec<Self> {
        let converts = |number: usize| {
            let it = computed(self.program, number).filter(|it| matches!(*it.op, Op::Cast(_)))?;
            Some((number, it))
        };
        let scores = self.loss.1.operands[0].buffer;
        let makes = |&number: &usize| {
            computed(self.program, number).is_some_and(|it| it.results.iter().any(|it| it.buffer == scores))
        };
        let is_own = uses.readers(scores) == Some(&[self.loss.0, self.gradient.0][..]);
        let before = (0..self.loss.0).rev().find(makes).filter(|_| is_own).and_then(converts);
        let after = match uses.readers(self.gradient.1.results[0].buffer) {
            Some(&[reader]) => converts(reader),
            _ => None,
        };
        let all = [[before, after], [before, None], [None, after], [None, None]];
        all.into_iter().map(|conversions| Self { conversions, ..self.clone() }).collect()
    }

    /// What is read for scores, and what is made for their gradient.
    fn ends(&self) -> [&'a Block; 2] {
        let [before, after] = self.conversions;
        let scores = before.map_or(self.loss.1, |it| it.1);
        let gradient = after.map_or(self.gradient.1, |it| it.1);
        [&scores.operands[0], &gradient.results[0]]
    }

    /// The instructions, in order.
    fn members(&self) -> Vec<Member> {
        let [before, after] = self.conversions;
        let own = [before, Some(self.loss), Some(self.sum), Some(self.gradient), after];
        let own: Vec<(usize, &Compute)> = own.into_iter().flatten().collect();
        let last = own.len() - 1;
        let made = |buffer: BufferId| {
            let maker = own.iter().find(|it| it.1.results.iter().any(|it| it.buffer == buffer))?;
            Some((maker.0, buffer))
        };
        let member = |(place, &(number, compute)): (usize, &(usize, &Compute))| {
            let reads = buffers(&compute.operands);
            let (handed, reads): (Vec<BufferId>, Vec<BufferId>) =
                reads.into_iter().partition(|&it| made(it).is_some());
            let is_left = number == self.sum.0 || place == last;
            Member {
                number,
                reads,
                handed: handed.into_iter().filter_map(made).collect(),
                writes: if is_left { buffers(&compute.results) } else { vec![] },
            }
        };
        own.iter().enumerate().map(member).collect()
    }

    /// The task, if there is a kernel and all may be issued where the loss is.
    fn task(&self, order: &Order<'_>) -> Option<Task> {
        let program = self.program;
        let (loss, sum, gradient) = (self.loss.1, self.sum.1, self.gradient.1);
        let at = order.at(self.loss.0);
        let members = self.members();
        if self.is_written_over() || !order.allows(&members, at) {
            return None;
        }
        let [scores, made] = self.ends();
        let piece = |block: &Block| pieces(program, std::slice::from_ref(block)).pop();
        let [_, labels, dloss] = &gradient.operands[..] else { return None };
        let operands = [piece(scores)?, piece(labels)?, piece(dloss)?];
        let (losses, dx) = (piece(&loss.results[0])?, piece(made)?);
        let operands: [&Piece; 3] = operands.each_ref();
        let classified = cuda::classified(self.ignored, operands, [&losses, &dx]).ok()?;
        let summed =
            cuda::kernels(&sum.op, &pieces(program, &sum.operands), &pieces(program, &sum.results)).ok()?;
        let read = [scores.buffer, labels.buffer, dloss.buffer];
        let what = match self.conversions {
            [None, None] => "CrossEntropy, its sum, CrossEntropyGradient",
            [Some(_), None] => "Cast, CrossEntropy, its sum, CrossEntropyGradient",
            [None, Some(_)] => "CrossEntropy, its sum, CrossEntropyGradient, Cast",
            [Some(_), Some(_)] => "Cast, CrossEntropy, its sum, CrossEntropyGradient, Cast",
        };
        Some(Task {
            instructions: members.iter().map(|it| it.number).collect(),
            at,
            what: what.to_owned(),
            operands: read.into_iter().chain(buffers(&sum.operands)).collect(),
            results: [made.buffer].into_iter().chain(buffers(&sum.results)).collect(),
            work: Ok(together(classified, summed, losses.type_.bytes(), |operand| {
                sum.operands[operand].buffer == loss.results[0].buffer
            })),
        })
    }

    /// Whether the gradient comes over something that is read while it is written, or after it; or over
    /// what is summed.
    fn is_written_over(&self) -> bool {
        let program = self.program;
        let [scores, made] = self.ends().map(|it| it.buffer);
        let losses = self.loss.1.results[0].buffer;
        let row = self.gradient.1.operands[1..].iter().map(|it| it.buffer);
        let sum = self.sum.1.operands.iter().chain(&self.sum.1.results).map(|it| it.buffer);
        let mut others = row.chain(sum.filter(|&it| it != losses));
        let over_scores = meet(program, made, scores) && !is_same_place(program, made, scores);
        over_scores || others.any(|it| meet(program, made, it))
    }
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
