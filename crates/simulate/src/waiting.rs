//! What computing waits for, and why.

use std::collections::{BTreeMap, BTreeSet};

use lower::{Instruction, Program, Stream};
use planner_ir::Phase;

use crate::precedence::{Order, Precedence, Step, walk};
use crate::timeline::{Class, Span, Timeline};

/// Why an operation waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It uses what that makes.
    Result,
    /// It writes where that still reads or writes.
    Place,
    /// A micro-batch begins when all of the one before is over, and the update after the last one.
    Turn,
}

impl Why {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Place => "place",
            Self::Turn => "turn",
        }
    }
}

/// What computing waits for, of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waited {
    /// What is waited for, as [`crate::Exchanged`] calls it.
    pub kind: &'static str,
    /// For which part of a training step that is.
    pub phase: Phase,
    /// Why.
    pub why: Why,
    /// How often.
    pub count: usize,
    /// How long together (seconds).
    pub seconds: f64,
}

impl Timeline<'_> {
    /// What the operations of a rank of a class wait for while nothing else is computed, longest first: of all that an
    /// operation waits for, that which is over last. Together that is the time until the last operation is over, less
    /// what is computed. One by one, nothing waits for anything but its turn, and nothing is said.
    pub fn waited(&self, class: &Class) -> Vec<Waited> {
        if self.order == Order::OneByOne {
            return Vec::new();
        }
        let program = self.program(class);
        let spans: Vec<Span> = self.spans(class).collect();
        let mut precedence = Precedence::start(program, self.order);
        let (mut next, mut over, mut before_turn) = (0, 0.0_f64, BTreeSet::new());
        let mut waited: BTreeMap<(&'static str, Phase, Why), (usize, f64)> = BTreeMap::new();
        walk(program, &mut |step| match step {
            Step::Turn(turn) => {
                let before = precedence.turn(turn.as_ref());
                before_turn = before.iter().copied().collect();
                precedence.starts(before);
            }
            Step::Instruction(index, micro_batch) => {
                let (instruction, span) = (&program.instructions[index], spans[next]);
                if instruction.stream == Stream::Compute {
                    let later = |one: &usize, other: &usize| spans[*one].end.total_cmp(&spans[*other].end);
                    let last = precedence.before(instruction).into_iter().max_by(later);
                    if let Some(last) = last.filter(|_| span.start > over) {
                        let of = &program.instructions[spans[last].instruction];
                        let is_turn = before_turn.contains(&last);
                        let why = if is_turn { Why::Turn } else { why(program, of, instruction) };
                        let kind = of.action.exchange().unwrap_or("copy");
                        let (count, seconds) = waited.entry((kind, of.phase, why)).or_default();
                        *count += 1;
                        *seconds += span.start - over;
                    }
                    over = over.max(span.end);
                }
                precedence.done(instruction, micro_batch, next);
                next += 1;
            }
        });
        let one = |((kind, phase, why), (count, seconds))| Waited { kind, phase, why, count, seconds };
        let mut all: Vec<Waited> = waited.into_iter().map(one).collect();
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        all
    }
}

/// Why an instruction waits for another that is before it in its turn.
fn why(program: &Program, of: &Instruction, instruction: &Instruction) -> Why {
    let storage = |buffer| program.lowest(program.buffer(buffer).storage);
    let made: BTreeSet<_> = of.action.writes().into_iter().map(storage).collect();
    let reads = instruction.action.reads().into_iter().any(|it| made.contains(&storage(it)));
    if reads { Why::Result } else { Why::Place }
}
