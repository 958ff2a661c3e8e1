//! What ranks exchange by kind, and how much of it nothing is computed beside.

use std::collections::BTreeMap;

use lower::{Instruction, Stream};
use planner_ir::Phase;

use crate::timeline::{Class, Span, Timeline, common};

/// Exchanges of a kind in a part of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchanged {
    /// What they are called; `copy` is what is packed and unpacked for them on their streams.
    pub kind: &'static str,
    /// For which part of a training step.
    pub phase: Phase,
    /// How many there are.
    pub count: usize,
    /// What they take together (seconds).
    pub seconds: f64,
    /// What of that nothing is computed beside (seconds).
    pub exposed: f64,
}

impl Timeline<'_> {
    /// What a rank of a class exchanges with others of its stage, by kind and part of a step, most exposed
    /// first. Exchanges of several streams that run at the same time count each.
    pub fn exchanged(&self, class: &Class) -> Vec<Exchanged> {
        let program = self.program(class);
        let instruction = |span: &Span| &program.instructions[span.instruction];
        let spans = || self.spans(class);
        let computing: Vec<Span> = spans().filter(|it| instruction(it).stream == Stream::Compute).collect();
        let mut kinds: BTreeMap<(&'static str, Phase), Vec<Span>> = BTreeMap::new();
        for span in spans() {
            let Instruction { stream, action, phase, .. } = instruction(&span);
            if stream.exchanges() {
                kinds.entry((action.exchange().unwrap_or("copy"), *phase)).or_default().push(span);
            }
        }
        let sum = |((kind, phase), spans): ((&'static str, Phase), Vec<Span>)| {
            let seconds = spans.iter().map(|it| it.end - it.start).sum::<f64>();
            let exposed = seconds - common(&spans, &computing);
            Exchanged { kind, phase, count: spans.len(), seconds, exposed }
        };
        let mut all: Vec<Exchanged> = kinds.into_iter().map(sum).collect();
        all.sort_by(|a, b| b.exposed.total_cmp(&a.exposed).then(b.seconds.total_cmp(&a.seconds)));
        all
    }
}
