//! `export` of traces: a plan is simulated, and what its ranks do is written for other programs to read.

use std::path::Path;

use ::plan::json::Content;
use ::simulate::{Class, Order, Timeline, chakra, groups, snapshot};
use cost_models::quantity;
use files::written;
use files::{Failure, plan_file};
use serde_json::{Map, Value, json};

use super::super::simulate::{Asked, simulated};
use super::super::{Context, Said};
use crate::arguments::{ExportArguments, Trace};

/// How many instructions of all ranks are written. Beyond, one rank of each kind is.
const MOST: u64 = 4_000_000;

/// A file's name and what is in it.
type File = (String, Vec<u8>);

/// Writes a plan's traces.
pub(super) fn traces(
    arguments: &ExportArguments,
    trace: Trace,
    context: &Context<'_, '_>,
) -> Result<Said, Failure> {
    let ExportArguments { plan, output, .. } = arguments;
    let content = plan_file::read_any_checked(plan)?;
    let asked = Asked { plan, machine: arguments.machine.as_deref(), settings: &[], order: Order::Streams };
    let mut made = Made::default();
    simulated(&content, &asked, &|words| context.progress.say(words), &mut |name, it| {
        match trace {
            Trace::Chakra => made.chakra(name, it.timeline),
            Trace::MemoryViz => made.snapshots(name, it.timeline),
        }
        made.seconds.push((name, it.timeline.seconds));
        Ok(())
    })?;
    let named: Vec<(&str, &[u8])> = made.files.iter().map(|it| (it.0.as_str(), &it.1[..])).collect();
    let paths = written::into(output, &named, context.before)?;
    let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    Ok(Said { text: made.text(trace, &content, output), json: made.json(trace, &paths) })
}

/// What is written, and what is said of it.
#[derive(Default)]
struct Made {
    files: Vec<File>,
    lost: Vec<String>,
    seconds: Vec<(&'static str, f64)>,
}

impl Made {
    /// A trace of each rank, and of whom its groups are.
    fn chakra(&mut self, name: &'static str, timeline: &Timeline<'_>) {
        let groups = groups(timeline);
        let all = timeline.instructions() <= MOST;
        for class in &timeline.classes {
            let ranks = if all { &class.ranks[..] } else { &class.ranks[..1] };
            for &rank in ranks {
                let mut bytes = Vec::new();
                // Writing to memory does not fail.
                let _ = chakra(timeline, (class, rank), &groups, &mut bytes);
                self.files.push((format!("{name}.{rank}.et"), bytes));
            }
        }
        self.files.sort_by_key(|it| natural(&it.0));
        if !all {
            self.lost.push(format!(
                "{name}: of ranks that do the same at the same time one is written, of {MOST} instructions at most"
            ));
        }
        let named: Map<String, Value> =
            groups.iter().enumerate().map(|(number, it)| ((number + 1).to_string(), json!(it))).collect();
        self.files
            .push((format!("{name}.groups.json"), format!("{:#}\n", Value::Object(named)).into_bytes()));
    }

    /// A snapshot of one rank of each kind: the others hold the same at the same time.
    fn snapshots(&mut self, name: &'static str, timeline: &Timeline<'_>) {
        let first = |class: &Class| class.ranks.first().copied().unwrap_or(0);
        for class in &timeline.classes {
            self.files.push((format!("{name}.{}.pickle", first(class)), snapshot(timeline, class)));
            if class.ranks.len() > 1 {
                self.lost.push(format!(
                    "{name}: {} ranks hold the same as rank {}, which stands for them",
                    class.ranks.len() - 1,
                    first(class)
                ));
            }
        }
    }

    fn text(&self, trace: Trace, content: &Content, output: &Path) -> String {
        let planned = match content {
            Content::Plan(plan) => vec![plan.seconds()],
            Content::Pipeline(pipeline) => vec![pipeline.seconds()],
            Content::Generation(generation) => generation.plans().map(|it| it.1.seconds()).collect(),
        };
        let mut lines = Vec::new();
        for ((name, simulated), planned) in self.seconds.iter().zip(planned) {
            lines.push(format!(
                "{:<10} {name}: {} simulated, {} predicted",
                trace.name(),
                quantity::seconds(*simulated),
                quantity::seconds(planned)
            ));
        }
        lines.extend(self.lost.iter().map(|words| format!("alike      {words}")));
        let size = self.files.iter().map(|it| it.1.len()).sum::<usize>();
        let size = quantity::bytes(u64::try_from(size).unwrap_or(u64::MAX));
        if let (Some(first), Some(last)) = (self.files.first(), self.files.last()) {
            let count = quantity::counted(self.files.len(), "file");
            let (first, last) = (output.join(&first.0), output.join(&last.0));
            lines.push(match self.files.len() {
                1 => format!("written    {}, {size}", first.display()),
                _ => format!("written    {} to {}, {count}, {size}", first.display(), last.display()),
            });
        }
        lines.join("\n") + "\n"
    }

    fn json(&self, trace: Trace, paths: &[String]) -> Value {
        let seconds: Map<String, Value> =
            self.seconds.iter().map(|(name, it)| ((*name).to_owned(), json!(it))).collect();
        json!({
            "target": trace.name(),
            "strategy": null,
            "simulated_seconds": seconds,
            "there": null,
            "lost": self.lost,
            "files": self.files.iter().map(|it| it.0.clone()).collect::<Vec<_>>(),
            "paths": paths,
        })
    }
}

/// A name with the number in it: in the order of numbers.
fn natural(name: &str) -> (String, u64) {
    let mut parts = name.split('.');
    let first = parts.next().unwrap_or_default().to_owned();
    (first, parts.next().and_then(|it| it.parse().ok()).unwrap_or(u64::MAX))
}
