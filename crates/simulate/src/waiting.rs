//! What computing waits for, and why.

use std::collections::{BTreeMap, BTreeSet};

use lower::{Instruction, Program, Stream};
use planner_ir::Phase;

use crate::precedence::{Precedence, Step, walk};
use crate::timeline::{Class, Span, Timeline};

/// Why an operation waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It uses what that makes.
    Value,
    /// It takes a place that that still reads or writes.
    Place,
    /// A micro-batch begins when all of the one before is over.
    Turn,
}

/// What computing waits for, of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waited {
    /// What is waited for, as [`crate::Exchanged`] calls it; `operation` where another part of a step computes it.
    pub kind: &'static str,
    /// For which part of a training step.
    pub phase: Phase,
    /// Why.
    pub why: Why,
    /// How often.
    pub count: usize,
    /// How long together (seconds).
    pub seconds: f64,
}

impl Timeline<'_> {
    /// What the operations of a rank of a class wait for, longest first: of all that an operation waits for, what is over
    /// last.
    pub fn waited(&self, class: &Class) -> Vec<Waited> {
        let program = self.program(class);
        let spans: Vec<Span> = self.spans(class).collect();
        let mut precedence = Precedence::start(program, self.order);
        let (mut next, mut over, mut turns) = (0, 0.0_f64, BTreeSet::new());
        let mut waited: BTreeMap<(&'static str, Phase, Why), (usize, f64)> = BTreeMap::new();
        walk(program, &mut |step| match step {
            Step::Turn(turn) => {
                let before = precedence.turn(turn.as_ref());
                turns = before.iter().copied().collect();
                precedence.starts(before);
            }
            Step::Instruction(index, micro_batch) => {
                let instruction = &program.instructions[index];
                let span = spans[next];
                if instruction.stream == Stream::Compute {
                    let last = precedence.before(instruction).into_iter();
                    let last = last.max_by(|&a: &usize, &b: &usize| spans[a].end.total_cmp(&spans[b].end));
                    if let Some(last) = last.filter(|_| span.start > over) {
                        let cause = &program.instructions[spans[last].instruction];
                        let kind = match cause.stream {
                            Stream::Compute => "operation",
                            _ => cause.action.exchange().unwrap_or("copy"),
                        };
                        let why = if turns.contains(&last) { Why::Turn } else { why(program, cause, instruction) };
                        let sum = waited.entry((kind, cause.phase, why)).or_default();
                        sum.0 += 1;
                        if std::env::var("DBGW").is_ok() && micro_batch == 1 {
                            let c = spans[last];
                            eprintln!("{:.6} +{:.3}ms {:?} op {} {:?} {} <- {} {:?} {} [{:.6} {:.6}] stream {:?}", span.start, (span.start-over)*1e3, why, index, instruction.phase, name(&instruction.action), c.instruction, cause.phase, name(&cause.action), c.start, c.end, cause.stream);
                        }
                        sum.1 += span.start - over;
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

/// Why one instruction waits for another.
fn why(program: &Program, cause: &Instruction, instruction: &Instruction) -> Why {
    let storage = |buffer| program.lowest(program.buffer(buffer).storage);
    let made: BTreeSet<_> = cause.action.writes().into_iter().map(storage).collect();
    if instruction.action.reads().into_iter().any(|it| made.contains(&storage(it))) { Why::Value } else { Why::Place }
}

fn name(a: &lower::Action) -> String { format!("{a:?}").chars().take(110).collect() }
