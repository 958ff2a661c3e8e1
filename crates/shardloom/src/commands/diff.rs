//! `diff`: what differs between two plans, or two pipelines.

use std::fmt::Write as _;

use cost_models::quantity::seconds;
use files::Failure;
use files::plan_file;
use report::summary::generation::layouts;
use serde_json::{Value, json};

use ::plan::json::Content;
use ::plan::{Change, Diff, Generation, Pipeline};

use super::Said;
use crate::arguments::DiffArguments;

/// Compares two plans, or two pipelines stage by stage.
pub(crate) fn diff(arguments: &DiffArguments) -> Result<Said, Failure> {
    let before = plan_file::read_any_checked(&arguments.before)?;
    let after = plan_file::read_any_checked(&arguments.after)?;
    match (&before, &after) {
        (Content::Plan(before), Content::Plan(after)) => {
            let diff = ::plan::diff(before, after);
            Ok(Said { text: diff.to_string(), json: value(&diff) })
        }
        (Content::Pipeline(before), Content::Pipeline(after)) => of_pipelines(arguments, before, after),
        (Content::Generation(before), Content::Generation(after)) => of_generation(before, after),
        _ => Err(Failure::file(
            &arguments.after,
            "one is a plan, a pipeline or a plan of generation, and the other is not: expected two of a kind",
        )),
    }
}

/// Step by step, as far as both have them.
fn of_generation(before: &Generation, after: &Generation) -> Result<Said, Failure> {
    let mut text = String::new();
    let [kept, others] = [before, after].map(layouts);
    let is_same = before.cache == after.cache && kept == others;
    let mut json = json!({ "same_cache": is_same });
    // Writing to a string does not fail.
    let _ = match kept.iter().zip(&others).find(|(one, other)| one != other) {
        _ if is_same => writeln!(text, "cache       the same"),
        Some((one, other)) => writeln!(text, "cache       another: parts such as {one}, then {other}"),
        None => writeln!(text, "cache       another"),
    };
    for (name, one) in before.plans() {
        let Some((_, other)) = after.plans().find(|(it, _)| *it == name) else { continue };
        let diff = ::plan::diff(one, other);
        let _ = write!(text, "\n{name}\n{diff}");
        json[name] = value(&diff);
    }
    Ok(Said { text, json })
}

fn of_pipelines(arguments: &DiffArguments, before: &Pipeline, after: &Pipeline) -> Result<Said, Failure> {
    let (first, second) = (before.stages.len(), after.stages.len());
    if first != second {
        let message = format!("has {second} stages, expected {first} as the other pipeline has");
        return Err(Failure::file(&arguments.after, message));
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    line(format!("step        {} -> {}", seconds(before.seconds()), seconds(after.seconds())));
    for term in &before.estimate {
        let other = after.estimate.iter().find(|it| it.name == term.name).map_or(0.0, |it| it.seconds);
        line(format!("  {:<24} {:>12} -> {:>12}", term.name, seconds(term.seconds), seconds(other)));
    }
    let same = if before.schedule == after.schedule { "the same" } else { "another" };
    line(format!("schedule    {same}"));
    let mut stages = Vec::new();
    for (number, (one, other)) in before.stages.iter().zip(&after.stages).enumerate() {
        let diff = ::plan::diff(&one.plan, &other.plan);
        line(format!("\nstage {number}"));
        if one.first_block != other.first_block {
            line(format!("  from block {} -> {}", one.first_block, other.first_block));
        }
        line(diff.to_string().trim_end().to_owned());
        stages.push(value(&diff));
    }
    let json = json!({
        "seconds": { "before": before.seconds(), "after": after.seconds() },
        "same_schedule": before.schedule == after.schedule,
        "stages": stages,
    });
    Ok(Said { text, json })
}

fn value(diff: &Diff) -> Value {
    fn changes<T: serde::Serialize>(list: &[Change<T>]) -> Vec<Value> {
        list.iter().map(|it| json!({ "what": it.what, "before": it.before, "after": it.after })).collect()
    }
    let repeated = |list: &[::plan::Repeated]| -> Vec<Value> {
        let one = |it: &::plan::Repeated| {
            let Change { what, before, after } = &it.change;
            json!({ "count": it.count, "what": what, "before": before, "after": after })
        };
        list.iter().map(one).collect()
    };
    json!({
        "header": changes(&diff.header),
        "operations": repeated(&diff.operations),
        "values": repeated(&diff.values),
        "transfers": changes(&diff.transfers),
        "time": changes(&diff.time),
        "memory": changes(&diff.memory),
        "communication": changes(&diff.communication),
        "seconds": { "before": diff.seconds.before, "after": diff.seconds.after },
    })
}
