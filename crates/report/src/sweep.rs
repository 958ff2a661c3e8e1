//! Plans on clusters that differ in one thing, in words, as a table and as a picture.

use std::fmt::Write as _;

use autoparallel::cluster::Answer;
use cost_models::quantity;
use cost_models::throughput::Throughput;
use files::Failure;
use serde_json::{Value, json};

use crate::plot::{Across, Line, Panel, Scale, Stroke, svg};
use crate::throughput;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// How many devices there are.
    Devices,
    /// The examples of a step.
    Batch,
    /// The memory of a device.
    Memory,
}

/// A plan of the sweep.
pub struct Point {
    /// What was given: devices, examples, or bytes.
    pub at: u64,
    /// On how many devices.
    pub devices: u64,
    /// What was found, or why nothing.
    pub found: Result<Answer, Failure>,
    /// How fast what was found is.
    pub throughput: Option<Throughput>,
}

/// What changes, and to what, by the text of an argument.
///
/// # Errors
///
/// If the text is no sweep.
pub fn parsed(over: &str) -> Result<(What, Vec<u64>), Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "`--over {over}` is no sweep, expected devices=64,128 or batch=256,512 or memory=40GB,80GB"
        ))
    };
    let (what, values) = over.split_once('=').ok_or_else(wrong)?;
    let what = match what {
        "devices" => What::Devices,
        "batch" => What::Batch,
        "memory" => What::Memory,
        _ => return Err(wrong()),
    };
    let value = |text: &str| match what {
        What::Memory => quantity::parse_bytes(text).ok(),
        _ => text.parse().ok().filter(|&it: &u64| it > 0),
    };
    let values: Option<Vec<u64>> = values.split(',').map(value).collect();
    Ok((what, values.ok_or_else(wrong)?))
}

/// What was given, in words.
pub fn shown(what: What, at: u64) -> String {
    match what {
        What::Memory => quantity::bytes(at),
        _ => at.to_string(),
    }
}

/// For people.
pub fn text(what: What, points: &[Point]) -> String {
    let mut text = String::new();
    for point in points {
        let words = match &point.found {
            Ok(answer) => format!(
                "{} a step, {}{} on the fullest of {} devices; {}, {}",
                quantity::seconds(answer.pipeline.seconds()),
                point
                    .throughput
                    .iter()
                    .flat_map(Throughput::lines)
                    .map(|(_, words)| words + ", ")
                    .collect::<String>(),
                quantity::bytes(answer.pipeline.held()),
                point.devices,
                answer.in_words(),
                answer.kind.name()
            ),
            Err(failure) => failure.to_string(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<10} {words}", shown(what, point.at));
    }
    text
}

/// The name of what changes, as a column.
fn column(what: What) -> &'static str {
    match what {
        What::Devices => "devices",
        What::Batch => "batch",
        What::Memory => "memory_bytes",
    }
}

/// As a table: comma-separated values.
pub fn table(what: What, points: &[Point]) -> String {
    let mut text = format!(
        "{},step_seconds,held_bytes,groups,mesh,microbatches,recompute,schedule,tokens_per_second,tflops_per_device,mfu\n",
        column(what)
    );
    for point in points {
        let _ = match &point.found {
            Ok(answer) => writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{}",
                point.at,
                answer.pipeline.seconds(),
                answer.pipeline.held(),
                answer.chosen.meshes.len(),
                answer.chosen.sizes(),
                answer.chosen.micro_batches,
                answer.recomputed(),
                answer.kind.name(),
                cell(point.throughput.as_ref().and_then(Throughput::tokens_per_second)),
                cell(point.throughput.as_ref().map(Throughput::tflops_per_device)),
                cell(point.throughput.as_ref().and_then(Throughput::mfu))
            ),
            Err(_) => writeln!(text, "{},,,,,,,,,,", point.at),
        };
    }
    text
}

/// A number as a field of a table, empty if there is none.
fn cell(number: Option<f64>) -> String {
    number.map_or_else(String::new, |it| it.to_string())
}

/// For programs.
pub fn object(what: What, point: &Point) -> Value {
    let mut object = match &point.found {
        Ok(answer) => json!({
            column(what): point.at,
            "step_seconds": answer.pipeline.seconds(),
            "held_bytes": answer.pipeline.held(),
            "groups": answer.chosen.meshes.len(),
            "mesh": answer.chosen.sizes(),
            "microbatches": answer.chosen.micro_batches,
            "recompute": answer.recomputed(),
            "schedule": answer.kind.name(),
        }),
        Err(failure) => json!({ column(what): point.at, "refused": failure.to_string() }),
    };
    throughput::add(point.throughput.as_ref(), &mut object);
    object
}

/// A picture of step times and memory, one point after another; what was refused is 0.
pub fn drawn(what: What, points: &[Point]) -> String {
    let line = |title: &str, height: &dyn Fn(&Answer) -> f64| Line {
        title: title.to_owned(),
        stroke: Stroke::Fine,
        heights: points.iter().map(|point| point.found.as_ref().map_or(0.0, height)).collect(),
    };
    let panel = |title, lines| Panel { title, scale: Scale::Linear, lines };
    let names: Vec<String> = points.iter().map(|point| shown(what, point.at)).collect();
    let title = match what {
        What::Devices => "devices",
        What::Batch => "examples of a step",
        What::Memory => "memory of a device",
    };
    svg(
        Across { title, names: &names },
        &[
            panel("step (s)", vec![line("predicted", &|answer| answer.pipeline.seconds())]),
            panel(
                "fullest device (GB)",
                vec![line("held", &|answer| cost_models::units::exact(answer.pipeline.held()) / 1e9)],
            ),
        ],
    )
}
