//! `export`: a plan in the words of another runtime.

mod expected; // what a framework takes for it
mod traces; // of what is simulated

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ::export::{Device, Exported, Job, Runs, Target};
use ::plan::MachineName;
use ::plan::json::Content;
use cost_models::cluster::Cluster;
use cost_models::machine::{Machine, Margin};
use cost_models::model_flops::StepWork;
use cost_models::quantity;
use cost_models::units::Bytes;
use driver::projected;
use files::written;
use files::{Failure, machine, plan_file};
use report::throughput;
use serde_json::{Value, json};

use super::{Context, Said};
use crate::arguments::{ExportArguments, To};
use expected::Expected;

pub(super) use expected::{Of, expected_there, say_expected};

/// Writes a plan for another runtime.
pub(crate) fn export(arguments: &ExportArguments, context: &Context<'_, '_>) -> Result<Said, Failure> {
    match arguments.target {
        To::Runtime(target) => for_runtime(arguments, target, context),
        To::Trace(trace) => traces::traces(arguments, trace, context),
    }
}

/// Writes what a runtime is told.
fn for_runtime(
    arguments: &ExportArguments,
    target: Target,
    context: &Context<'_, '_>,
) -> Result<Said, Failure> {
    let ExportArguments { plan, output, .. } = arguments;
    let content = plan_file::read_any_checked(plan)?;
    let job = match &content {
        Content::Plan(plan) => Job::of_plan(plan),
        Content::Pipeline(pipeline) => Job::of_pipeline(pipeline),
        Content::Generation(generation) => Job::of_generation(generation),
    };
    let cluster = machine::priced_as(made_for(&content), arguments.machine.as_deref());
    let cluster = cluster.map(|it| with_room(it, &content));
    let job = job.on(cluster.as_ref().ok().and_then(device));
    let frequencies = frequencies(plan, &content, &job);
    let job = job.rotating(frequencies.as_deref());
    let exported = ::export::export(&job, target).map_err(|error| Failure::file(plan, error))?;
    let named: Vec<(&str, &[u8])> = exported.files.iter().map(|it| (it.name, it.text.as_bytes())).collect();
    let paths = written::into(output, &named, context.before)?;
    let (mut there, mut runs_in) = (None, None);
    match (&exported.runs, cluster) {
        (Runs::Parameters, _) => {}
        (runs, Ok(cluster)) => {
            context.progress.say("pricing what the target runs");
            there = Some(projected::price(plan, &content, runs, &cluster)?);
            let model = plan_file::named_model(plan, model_of(&content), None).ok().map(|it| it.path);
            let of = Of { model: model.as_deref(), work: &work(&content) };
            runs_in = expected::of(&job, &exported, &cluster, of);
        }
        (_, Err(failure)) if arguments.machine.is_some() => return Err(failure),
        (_, Err(failure)) => there = Some(Err(failure.to_string())),
    }
    let own = job.seconds();
    let mut said = exported.json();
    said["seconds"] = seconds(&own.iter().map(|it| it.1).collect::<Vec<_>>(), &own);
    said["there"] = match &there {
        Some(Ok(there)) => json!({ "seconds": seconds(there, &own) }),
        Some(Err(why)) => json!({ "impossible": why }),
        None => Value::Null,
    };
    said["expected"] = runs_in.as_ref().map_or(Value::Null, Expected::json);
    said["paths"] = json!(paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>());
    let expected = runs_in.as_ref().map(Expected::lines).unwrap_or_default();
    Ok(Said { text: text(&exported, &own, there.as_ref(), &expected, &paths), json: said })
}

/// The frequencies of positions, if the model's file is there and has one list of them.
fn frequencies(plan: &Path, content: &Content, job: &Job<'_>) -> Option<Vec<f64>> {
    let names = job.frequency_names();
    if names.is_empty() {
        return None;
    }
    let file = plan_file::named_model(plan, model_of(content), None).ok()?;
    let mut all = names.into_iter().map(|name| run::whole(&file, name).ok()?.to_floats().ok());
    let first = all.next()??;
    all.all(|it| it.as_ref() == Some(&first)).then_some(first)
}

/// What a step of a plan needs.
fn work(content: &Content) -> StepWork {
    match content {
        Content::Plan(plan) => throughput::work(plan),
        Content::Pipeline(pipeline) => throughput::work_of_stages(pipeline),
        Content::Generation(generation) => throughput::work(&generation.decode),
    }
}

/// The model that a plan is of.
fn model_of(content: &Content) -> &::plan::ModelFile {
    match content {
        Content::Plan(plan) => &plan.model,
        Content::Pipeline(pipeline) => &pipeline.stages[0].plan.model,
        Content::Generation(generation) => &generation.decode.model,
    }
}

/// The machine that a plan was made for.
fn made_for(content: &Content) -> &MachineName {
    match content {
        Content::Plan(plan) => &plan.machine,
        Content::Pipeline(pipeline) => &pipeline.machine,
        Content::Generation(generation) => &generation.decode.machine,
    }
}

/// The machines, of whose memory as much is left free as plans leave, and no more than this one does.
fn with_room(cluster: Cluster, content: &Content) -> Cluster {
    let capacity = match content {
        Content::Plan(plan) => plan.capacity,
        Content::Pipeline(pipeline) => pipeline.capacity,
        Content::Generation(generation) => generation.decode.capacity,
    };
    let margin = cluster.single().map(|it| margin(it, capacity));
    cluster.leaving(margin)
}

/// What is usually left free of a machine's memory, or what a plan of such a capacity (bytes) leaves, if that is less.
fn margin(machine: &Machine, capacity: u64) -> Margin {
    let usual = Margin::usual(machine).of(machine.device.memory_capacity.value);
    Margin::Bytes(usual.min(machine.usable_memory().saturating_sub(Bytes(capacity))))
}

/// What servers are told of the devices; nothing of nodes that differ.
pub(super) fn device(cluster: &Cluster) -> Option<Device> {
    let machine = cluster.single()?;
    Some(Device { memory: machine.device.memory_capacity.value.0, of_node: machine.devices_per_node() })
}

/// Seconds of programs: of one that is a step, a number.
fn seconds(all: &[f64], names: &[(&'static str, f64)]) -> Value {
    match (all, names) {
        ([one], [("step", _)]) => json!(one),
        _ => names.iter().zip(all).map(|(it, seconds)| (it.0.to_owned(), json!(seconds))).collect(),
    }
}

fn text(
    exported: &Exported,
    own: &[(&'static str, f64)],
    there: Option<&Result<Vec<f64>, String>>,
    expected: &[String],
    paths: &[PathBuf],
) -> String {
    let mut text = String::new();
    let of = |name: &str| match name {
        "prefill" => "for tokens of prompts",
        "decode" => "for a token",
        _ => "for a step",
    };
    let first: Vec<String> =
        own.iter().map(|(name, it)| format!("{} predicted {}", quantity::seconds(*it), of(name))).collect();
    // Writing to a string does not fail.
    let _ = writeln!(text, "plan       {}", first.join(", "));
    let _ = writeln!(text, "{:<10} {}", exported.target.name(), exported.runs.in_words());
    for words in &exported.lost {
        let _ = writeln!(text, "lost       {words}");
    }
    if exported.lost.is_empty() {
        let _ = writeln!(text, "lost       nothing");
    }
    match there {
        Some(Ok(there)) => {
            let line = |((name, own), there): (&(&str, f64), &f64)| {
                let more = (there - own) / own * 100.0;
                let of = if *name == "step" { String::new() } else { format!(" {}", of(name)) };
                format!("{} predicted{of} ({more:+.1} %)", quantity::seconds(*there))
            };
            let lines: Vec<String> = own.iter().zip(there).map(line).collect();
            let _ = writeln!(text, "there      {}", lines.join(", "));
        }
        Some(Err(why)) => {
            let _ = writeln!(text, "there      not priced: {why}");
        }
        None => {}
    }
    for line in expected {
        let _ = writeln!(text, "{line}");
    }
    for path in paths {
        let _ = writeln!(text, "written    {}", path.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use cost_models::machine::Margin;
    use cost_models::units::Bytes;

    use super::margin;

    #[test]
    fn as_much_is_left_free_as_plans_leave() {
        let machine = files::machine::named("h100-80g-8x", None).unwrap();
        let (all, usual) = (machine.usable_memory(), machine.clone().leaving(None).usable_memory());
        assert!(usual < all);
        let left = |capacity: Bytes| {
            let margin = margin(&machine, capacity.0);
            machine.clone().leaving(Some(margin)).usable_memory()
        };
        assert_eq!((left(usual), left(all), left(Bytes(1))), (usual, all, usual));
        assert_eq!(margin(&machine, all.0), Margin::Bytes(Bytes::ZERO));
    }
}
