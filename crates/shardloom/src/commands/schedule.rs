//! `schedule`: a pipeline's schedule, drawn.

use std::fmt::Write as _;

use cost_models::quantity::{counted, percent};
use files::Failure;
use files::{readable, written};
use report::chart::{Chart, MAX_DRAWN, short_time};
use schedule::{
    Crossing, Durations, Kind, Live, Overlap, Schedule, Span, StageTimes, Timeline, Verified, live, timeline,
    verify,
};
use serde_json::{Value, json};

use super::Said;
use crate::arguments::ScheduleArguments;

/// Draws a schedule, and says what it takes and holds.
pub(crate) fn schedule(arguments: &ScheduleArguments) -> Result<Said, Failure> {
    let (name, verified) = match &arguments.name {
        Some(kind) => (kind.name().to_owned(), named(*kind, arguments)?),
        None => written_down(arguments)?,
    };
    let schedule = verified.schedule();
    let durations = durations(arguments, schedule.stages())?;
    let timeline =
        timeline(&verified, &durations).map_err(|error| Failure::Usage(format!("schedule: {error}")))?;
    let chart = Chart { schedule, timeline: &timeline };
    let title = format!(
        "{name}: {} on {}, {}",
        counted(schedule.stages(), "stage"),
        counted(schedule.groups.len(), "pipeline rank"),
        counted(verified.micro_batches(), "micro-batch")
    );
    let told = Told { title, chart, live: live(&verified), micro_batches: verified.micro_batches() };
    let mut text = told.text(arguments.width);
    if let Some(path) = &arguments.svg {
        if !chart.is_small() {
            let message = format!("a schedule of more than {MAX_DRAWN} tasks is too long to draw");
            return Err(Failure::Usage(message));
        }
        written::write(path, chart.svg(&told.title).as_bytes())?;
        // Writing to a string does not fail.
        let _ = write!(text, "\npicture    {}\n", path.display());
    }
    Ok(Said { text, json: told.json() })
}

/// A schedule that has a name.
fn named(kind: Kind, arguments: &ScheduleArguments) -> Result<Verified, Failure> {
    let [stages, micro_batches] = [arguments.stages, arguments.micro_batches].map(Option::unwrap_or_default);
    let chunks = arguments.chunks.unwrap_or(if kind.interleaves() { 2 } else { 1 });
    let usage = |error: String| Failure::Usage(format!("schedule: {error}"));
    if chunks > 0 && !stages.is_multiple_of(chunks) {
        let message =
            format!("{stages} stages, expected a multiple of the {chunks} chunks of a pipeline rank");
        return Err(usage(message));
    }
    let groups = stages.checked_div(chunks).unwrap_or(0);
    let schedule = kind.schedule(groups, chunks, micro_batches).map_err(|error| usage(error.to_string()))?;
    // What is generated is as good as what is written.
    verify(schedule, stages, micro_batches).map_err(|faults| Failure::internal("schedule", faults))
}

/// A schedule in a file, and the file's name.
fn written_down(arguments: &ScheduleArguments) -> Result<(String, Verified), Failure> {
    let Some(path) = &arguments.file else {
        return Err(Failure::Usage("schedule: no name and no file".to_owned()));
    };
    let text = readable::text(path)?;
    let schedule: Schedule = text.parse().map_err(|error| Failure::file(path, error))?;
    let stages = arguments.stages.unwrap_or_else(|| schedule.stages());
    let micro_batches = arguments.micro_batches.unwrap_or_else(|| schedule.micro_batches());
    let verified = verify(schedule, stages, micro_batches).map_err(|faults| Failure::file(path, faults))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((name, verified))
}

/// How long everything takes.
fn durations(arguments: &ScheduleArguments, stages: usize) -> Result<Durations, Failure> {
    let forward = each("forward", &arguments.forward, stages, "stages")?;
    let backward = each("backward", &arguments.backward, stages, "stages")?;
    let weight = each("weight", &arguments.weight, stages, "stages")?;
    let message = each("message", &arguments.message, stages.saturating_sub(1), "ways to a next stage")?;
    let times = |stage: usize| StageTimes {
        forward: forward[stage],
        backward: backward[stage],
        weight: weight[stage],
    };
    let next = |(from, &time): (usize, &f64)| Crossing { from, to: from + 1, forward: time, backward: time };
    let crossings = message.iter().enumerate().map(next).chain(arguments.crossings.iter().copied());
    Ok(Durations {
        stages: (0..stages).map(times).collect(),
        crossings: crossings.collect(),
        overlap: if arguments.blocking { Overlap::Blocking } else { Overlap::Overlapped },
    })
}

/// One time for each of so many, if there is one for all or one for each.
fn each(option: &str, times: &[f64], count: usize, of: &str) -> Result<Vec<f64>, Failure> {
    match times {
        [all] => Ok(vec![*all; count]),
        _ if times.len() == count => Ok(times.to_vec()),
        _ => Err(Failure::Usage(format!(
            "schedule: --{option} has {} times, expected one, or one for each of {count} {of}",
            times.len()
        ))),
    }
}

/// What is said of a schedule.
struct Told<'a> {
    title: String,
    chart: Chart<'a>,
    live: Vec<Live>,
    micro_batches: usize,
}

impl Told<'_> {
    fn text(&self, width: usize) -> String {
        let Timeline { makespan, idle, .. } = self.chart.timeline;
        let bubble = 100.0 * self.chart.timeline.bubble();
        let mut text =
            format!("{}\ntakes {}, of which {bubble:.1} % idle\n\n", self.title, short_time(*makespan));
        if self.chart.is_small() {
            text += &self.chart.text(width);
            text.push('\n');
        }
        text += "group     holds at once     idle\n";
        for (group, (live, idle)) in self.live.iter().zip(idle).enumerate() {
            let parts: Vec<String> = live.chunks.iter().map(usize::to_string).collect();
            let of_chunks = if parts.len() > 1 { format!(" ({})", parts.join(" + ")) } else { String::new() };
            let held = format!("{}{of_chunks}", live.together);
            let idle = format!("{} ({})", short_time(*idle), percent(*idle, *makespan).trim());
            // Writing to a string does not fail.
            let _ = writeln!(text, "{group:<9} {held:<17} {idle}");
        }
        text
    }

    fn json(&self) -> Value {
        let Chart { schedule, timeline } = self.chart;
        let span = |span: &Span| json!([span.start, span.end]);
        let group = |number: usize| {
            let tasks = schedule.groups[number].iter().zip(&timeline.groups[number]);
            let tasks: Vec<Value> =
                tasks.map(|(task, at)| json!({ "task": task.to_string(), "time": span(at) })).collect();
            let live = &self.live[number];
            json!({
                "holds": live.together, "holds_of_chunks": live.chunks, "idle": timeline.idle[number],
                "tasks": tasks
            })
        };
        let message = |it: &schedule::Message| {
            let (task, from, to) = (it.of.to_string(), it.from, it.to);
            json!({ "of": task, "from_stage": from, "to_stage": to, "time": span(&it.span) })
        };
        json!({
            "schedule": self.title,
            "stages": schedule.stages(),
            "chunks": schedule.chunks,
            "micro_batches": self.micro_batches,
            "makespan": timeline.makespan,
            "bubble": timeline.bubble(),
            "groups": (0..schedule.groups.len()).map(group).collect::<Vec<_>>(),
            "messages": timeline.messages.iter().map(message).collect::<Vec<_>>(),
            "text": schedule.to_string(),
        })
    }
}
