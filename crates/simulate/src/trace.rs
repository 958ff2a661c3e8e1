//! Timelines in the trace event format, which Perfetto and Chrome show.
//!
//! A rank is a process and each of its streams a thread, so that each has a track of its own. Times
//! are in microseconds, as the format has them.
//!
//! Source: "Trace Event Format", Google, 2016: complete events (`X`), counters (`C`), metadata (`M`).

use std::io::{self, Write};

use lower::{Program, Stream};
use serde_json::{Value, json};

use crate::timeline::{Class, Span, Timeline};

/// How many events of the instructions of all ranks a trace may have. Beyond, one rank of each
/// class is shown.
const MOST: u64 = 200_000;

const MICROSECONDS: f64 = 1e6;

/// Which ranks of a class are shown.
fn shown(timeline: &Timeline<'_>, class: &Class) -> Vec<u64> {
    if timeline.instructions() <= MOST { class.ranks.clone() } else { class.ranks[..1].to_vec() }
}

/// Writes what each rank does when: its compute and its communication, a track each, and as many tracks
/// of what it sends to other stages and receives as do so at a time. Of ranks that do the same, one
/// stands for all where there would be too many events.
pub fn trace(timeline: &Timeline<'_>, to: &mut dyn Write) -> io::Result<()> {
    let mut events = Events::new(to)?;
    for class in &timeline.classes {
        let program = timeline.program(class);
        let (tracks, lanes) = tracks(program, &timeline.spans(class).collect::<Vec<Span>>());
        for rank in shown(timeline, class) {
            events.put(&process(timeline, class, rank))?;
            for &(number, stream) in &lanes {
                events.put(&metadata("thread_name", rank, number, &json!({ "name": stream.name() })))?;
                events.put(&metadata("thread_sort_index", rank, number, &json!({ "sort_index": number })))?;
            }
            for (span, track) in timeline.spans(class).zip(&tracks) {
                let instruction = &program.instructions[span.instruction];
                let mut args = json!({
                    "instruction": span.instruction,
                    "micro-batch": span.repetition,
                    "for": instruction.origin.to_string(),
                });
                if let Some(stage) = stage(program, span.instruction) {
                    args["stage"] = json!(stage);
                }
                events.put(&json!({
                    "ph": "X",
                    "name": instruction.action.name(),
                    "cat": instruction.phase.name(),
                    "pid": rank,
                    "tid": track,
                    "ts": MICROSECONDS * span.start,
                    "dur": MICROSECONDS * (span.end - span.start),
                    "args": args,
                }))?;
            }
        }
    }
    events.end()
}

/// The stage of which an instruction is, if the program has parts of several.
fn stage(program: &Program, instruction: usize) -> Option<usize> {
    let repeated = program.repeated.as_ref().filter(|it| it.parts.len() > 1)?;
    Some(repeated.parts[repeated.part_of(instruction)?].stage)
}

/// The track of each span, and of each track its number and stream. Spans of a track do not cross.
fn tracks(program: &Program, spans: &[Span]) -> (Vec<u64>, Vec<(u64, Stream)>) {
    let mut lanes = vec![(0, Stream::Compute), (1, Stream::Communication)];
    // For each track between stages, until when it is taken.
    let mut taken: Vec<(Stream, f64, u64)> = Vec::new();
    let track = |span: &Span| match program.instructions[span.instruction].stream {
        Stream::Compute => 0,
        Stream::Communication => 1,
        stream => match taken.iter_mut().find(|it| it.0 == stream && it.1 <= span.start) {
            Some(free) => {
                free.1 = span.end;
                free.2
            }
            None => {
                let number = u64::try_from(lanes.len()).unwrap_or(u64::MAX);
                lanes.push((number, stream));
                taken.push((stream, span.end, number));
                number
            }
        },
    };
    (spans.iter().map(track).collect(), lanes)
}

/// Writes what each rank holds when, as a counter.
pub fn memory_trace(timeline: &Timeline<'_>, to: &mut dyn Write) -> io::Result<()> {
    let mut events = Events::new(to)?;
    for class in &timeline.classes {
        for rank in shown(timeline, class) {
            events.put(&process(timeline, class, rank))?;
            for level in timeline.memory(class) {
                events.put(&json!({
                    "ph": "C",
                    "name": "memory",
                    "pid": rank,
                    "ts": MICROSECONDS * level.at,
                    "args": { "bytes": level.bytes },
                }))?;
            }
        }
    }
    events.end()
}

/// An array of events, one a line.
struct Events<'a> {
    to: &'a mut dyn Write,
    first: bool,
}

impl<'a> Events<'a> {
    fn new(to: &'a mut dyn Write) -> io::Result<Self> {
        to.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self { to, first: true })
    }

    fn put(&mut self, event: &Value) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        write!(self.to, "{separator}{event}")
    }

    fn end(self) -> io::Result<()> {
        self.to.write_all(b"\n]}\n")
    }
}

fn metadata(name: &str, rank: u64, thread: u64, args: &Value) -> Value {
    json!({ "ph": "M", "name": name, "pid": rank, "tid": thread, "args": args })
}

fn process(timeline: &Timeline<'_>, class: &Class, rank: u64) -> Value {
    let others = class.ranks.len() - shown(timeline, class).len();
    let program = timeline.program(class);
    // What is one part is told without its stage.
    let several = program.repeated.as_ref().is_some_and(|it| it.parts.len() > 1);
    let stages = match &program.stages()[..] {
        _ if !several => String::new(),
        [] => String::new(),
        [only] => format!(", stage {only}"),
        all => format!(", stages {}", all.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ")),
    };
    let like = if others == 0 { String::new() } else { format!(" and {others} like it") };
    let name = format!("rank {rank}{like}{stages}");
    metadata("process_name", rank, 0, &json!({ "name": name }))
}
