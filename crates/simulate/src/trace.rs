//! Timelines in the trace event format, which Perfetto and Chrome show.
//!
//! A rank is a process and each of its streams a thread, so that each has a track of its own. Times
//! are in microseconds, as the format has them.
//!
//! Source: "Trace Event Format", Google, 2016: complete events (`X`), counters (`C`), metadata (`M`).

use std::io::{self, Write};

use lower::{Action, Instruction, Stream};
use serde_json::{Value, json};

use crate::timeline::{Class, Timeline};

/// How many events of the instructions of all ranks a trace may have. Beyond, one rank of each
/// class is shown.
const MOST: u64 = 200_000;

const MICROSECONDS: f64 = 1e6;

/// Which ranks of a class are shown.
fn shown(timeline: &Timeline<'_>, class: &Class) -> Vec<u64> {
    if timeline.instructions() <= MOST { class.ranks.clone() } else { class.ranks[..1].to_vec() }
}

/// Writes what each rank does when: its compute and its communication, a track each. Of ranks that
/// do the same, one stands for all where there would be too many events.
pub fn trace(timeline: &Timeline<'_>, to: &mut dyn Write) -> io::Result<()> {
    let mut events = Events::new(to)?;
    for class in &timeline.classes {
        for rank in shown(timeline, class) {
            events.put(&process(timeline, class, rank))?;
            for (number, name) in [(0, "compute"), (1, "communication")] {
                events.put(&metadata("thread_name", rank, number, &json!({ "name": name })))?;
                events.put(&metadata("thread_sort_index", rank, number, &json!({ "sort_index": number })))?;
            }
            for span in timeline.spans(class) {
                let instruction = &timeline.alike.program.instructions[span.instruction];
                events.put(&json!({
                    "ph": "X",
                    "name": name(instruction),
                    "cat": instruction.phase.name(),
                    "pid": rank,
                    "tid": thread(instruction),
                    "ts": MICROSECONDS * span.start,
                    "dur": MICROSECONDS * (span.end - span.start),
                    "args": {
                        "instruction": span.instruction,
                        "micro-batch": span.repetition,
                        "for": instruction.origin.to_string(),
                    },
                }))?;
            }
        }
    }
    events.end()
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
    let name = if others == 0 { format!("rank {rank}") } else { format!("rank {rank} and {others} like it") };
    metadata("process_name", rank, 0, &json!({ "name": name }))
}

fn thread(instruction: &Instruction) -> u64 {
    u64::from(instruction.stream == Stream::Communication)
}

fn name(instruction: &Instruction) -> &str {
    match &instruction.action {
        Action::Compute(compute) => &compute.name,
        Action::Copy(_) => "copy",
        Action::Collective(it) => it.kind.name(),
        Action::Message(_) => "message",
        Action::Send(_) => "send",
        Action::Receive(_) => "receive",
    }
}
