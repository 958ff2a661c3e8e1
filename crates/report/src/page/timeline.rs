//! What ranks do when, as a page draws it.

use std::collections::BTreeMap;

use lower::{Program, Repeated, Stream};
use planner_ir::Phase;
use serde_json::{Value, json};
use simulate::{Level, Span, Timeline};

use super::exchanges::{Ranks, exchanges};
use super::spans::on;

/// How many kinds of ranks are drawn.
const RANKS: usize = 64;

/// How many spans of single instructions are told, of the ranks that are told in full.
const SPANS: usize = 12_000;

/// How many moments of memory are told of a rank.
const MOMENTS: usize = 400;

/// A step of all ranks: for each kind of them what the first one does when, what it exchanges with whom, what it
/// holds; the instructions of the kind that computes longest one by one. Times are in nanoseconds.
pub fn timeline(timeline: &Timeline<'_>, meshes: &[Ranks<'_>]) -> Value {
    let mut names = Names::default();
    let busiest = timeline.classes.iter().enumerate().max_by(|a, b| a.1.computing.total_cmp(&b.1.computing));
    let busiest = busiest.map_or(0, |it| it.0);
    let shown = timeline.classes.iter().enumerate().take(RANKS.max(busiest + 1));
    let shown = shown.filter(|(number, _)| *number < RANKS || *number == busiest);
    let ranks: Vec<Value> = shown
        .map(|(number, class)| {
            let program = timeline.program(class);
            let spans: Vec<Span> = timeline.spans(class).collect();
            let mut value = json!({
                "ranks": class.ranks,
                "computing": nanoseconds(class.computing),
                "exchanging": nanoseconds(class.communicating),
                "exposed": nanoseconds(class.exposed),
                "stages": program.stages(),
                "turns": turns(program, &spans, timeline.seconds),
                "exchanged": busy(program, &spans, timeline.seconds),
                "memory": moments(&timeline.memory(class), timeline.seconds),
                "with": exchanges(program, class, &spans, meshes),
            });
            if number == busiest {
                value["instructions"] = json!(instructions(program, &spans, &mut names));
                value["left_out"] = json!(spans.len().saturating_sub(SPANS));
            }
            value
        })
        .collect();
    json!({
        "length": nanoseconds(timeline.seconds),
        "ranks": ranks,
        "kinds": timeline.classes.len(),
        "streams": Stream::ALL.map(Stream::name),
        "names": names.all,
    })
}

/// Whole nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a step are positive and below 2^63 ns"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Names by number.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Names {
    fn number(&mut self, name: &str) -> usize {
        if let Some(&known) = self.numbers.get(name) {
            return known;
        }
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}

/// What is computed in one go: a part of a step, for a micro-batch.
#[derive(Clone, Copy, PartialEq)]
struct Turn {
    phase: Phase,
    micro_batch: u32,
    stage: Option<usize>,
}

/// The turns of a rank: from when to when, what, for which micro-batch, of which stage.
fn turns(program: &Program, spans: &[Span], length: f64) -> Vec<Value> {
    let parts: Vec<Phase> = program.repeated.iter().flat_map(|it| phases(program, it)).collect();
    let of = |span: &Span| {
        let own = program.instructions[span.instruction].phase;
        let repeated = program.repeated.as_ref();
        let part = repeated.and_then(|it| it.part_of(span.instruction).map(|part| (it, part)));
        match part {
            // Gradients of weights are a turn of their own only where a schedule has them apart.
            Some((it, part)) => Turn {
                phase: if own == Phase::Gradient { parts[part].max(Phase::Backward) } else { own },
                micro_batch: span.repetition,
                stage: Some(it.parts[part].stage),
            },
            None => Turn { phase: own, micro_batch: 0, stage: None },
        }
    };
    let mut turns: Vec<(Turn, f64, f64)> = Vec::new();
    for span in on(program, spans, &|it| it == Stream::Compute) {
        let turn = of(&span);
        match turns.last_mut() {
            Some(last) if last.0 == turn && span.start - last.2 < length / 200.0 => last.2 = span.end,
            _ => turns.push((turn, span.start, span.end)),
        }
    }
    let value = |(turn, start, end): &(Turn, f64, f64)| {
        json!([nanoseconds(*start), nanoseconds(*end), turn.phase.name(), turn.micro_batch, turn.stage])
    };
    turns.iter().map(value).collect()
}

/// For each part of what is repeated, what it is first of all: forward, backward, or gradients of weights alone.
fn phases(program: &Program, repeated: &Repeated) -> Vec<Phase> {
    let of = |part: &lower::RepeatedPart| {
        let phases = program.instructions[part.instructions.clone()].iter().map(|it| it.phase);
        phases.min().unwrap_or(Phase::Forward)
    };
    repeated.parts.iter().map(of).collect()
}

/// When a rank exchanges anything, with other ranks of its stage or other stages. What a picture cannot tell apart
/// is one.
fn busy(program: &Program, spans: &[Span], length: f64) -> Vec<Value> {
    let mut busy: Vec<(f64, f64)> = Vec::new();
    for span in on(program, spans, &|it| it != Stream::Compute) {
        match busy.last_mut() {
            Some(last) if span.start - last.1 < length / 4000.0 => last.1 = last.1.max(span.end),
            _ => busy.push((span.start, span.end)),
        }
    }
    busy.iter().map(|&(start, end)| json!([nanoseconds(start), nanoseconds(end)])).collect()
}

/// What a rank holds: the most in each of some lengths of time.
fn moments(levels: &[Level], length: f64) -> Vec<Value> {
    let bin = |at: f64| nanoseconds(at).saturating_mul(MOMENTS as u64) / nanoseconds(length).max(1);
    let mut moments: Vec<(u64, u64, u64)> = Vec::new();
    for level in levels {
        match moments.last_mut() {
            Some(last) if last.0 == bin(level.at) => last.2 = last.2.max(level.bytes),
            _ => moments.push((bin(level.at), nanoseconds(level.at), level.bytes)),
        }
    }
    moments.iter().map(|&(_, at, bytes)| json!([at, bytes])).collect()
}

/// Instructions one by one, in the order in which they start: from when, how long, on which stream, what (by
/// number), for what, for which micro-batch.
fn instructions(program: &Program, spans: &[Span], names: &mut Names) -> Vec<Value> {
    let mut all = on(program, spans, &|_| true);
    all.truncate(SPANS);
    let mut value = |span: &Span| {
        let instruction = &program.instructions[span.instruction];
        let name = names.number(instruction.action.name());
        json!([
            nanoseconds(span.start),
            nanoseconds(span.end - span.start),
            instruction.stream.number(),
            name,
            instruction.phase.name(),
            span.repetition
        ])
    };
    all.iter().map(&mut value).collect()
}
