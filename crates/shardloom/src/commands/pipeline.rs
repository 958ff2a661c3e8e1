//! `plan` in stages: a model and a machine to the file of a pipeline.

use std::fmt::Write as _;
use std::path::Path;

use ::plan::{Pipeline, strategy};
use cost_models::machine::Machine;
use planner_ir::schedule::{Kind, Schedule};
use serde_json::{Value, json};

use super::{Context, Said, stopped};
use crate::arguments::{PipelineArguments, PlanArguments};
use crate::compile::Imported;
use crate::failure::Failure;
use crate::pipeline::Stage;
use crate::pipeline::staged::{Forward, Order, Wanted, staged};
use crate::{mesh, plan_file, quantity};

/// Plans a training step in stages: on the mesh that is given for each group of devices, or the best
/// of several.
pub(super) fn pipeline(
    arguments: &PlanArguments,
    imported: &Imported,
    machine: &Machine,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let wanted = &arguments.pipeline;
    let groups = wanted.stages.unwrap_or(1);
    let recipe = arguments.recipe.recipe()?.ok_or_else(|| {
        Failure::Usage("a plan in stages is one to train: `--stages` goes with `--mode train`".to_owned())
    })?;
    if !machine.devices().is_multiple_of(groups) {
        return Err(Failure::Usage(format!(
            "{} devices do not fall into {groups} groups: give another number of stages or devices",
            machine.devices()
        )));
    }
    let forward = Forward::of(&imported.file, &imported.graph, &recipe)?;
    let meshes = match &arguments.target.mesh {
        Some(mesh) => vec![mesh.clone()],
        None => mesh::candidates(machine.devices() / groups),
    };
    let order = order(&wanted.schedule)?;
    let mut best: Option<Pipeline> = None;
    let mut refused = None;
    for mesh in &meshes {
        let wanted = Wanted {
            machine,
            mesh,
            capacity: arguments.target.memory.unwrap_or(machine.usable_memory().0),
            steps: arguments.target.steps(),
            order: order.clone(),
            chunks: wanted.chunks,
            first: wanted.cut.clone(),
        };
        if mesh.devices() * groups != machine.devices() {
            return Err(mismatch(machine, &wanted, groups));
        }
        let progress = context.progress;
        let say = |words: String| progress.say(format!("mesh {}: {words}", mesh::sizes(mesh)));
        match staged(&forward, &imported.header, &wanted, &say) {
            Ok(made) if best.as_ref().is_none_or(|best| made.seconds() < best.seconds()) => best = Some(made),
            Ok(_) => {}
            Err(failure @ (Failure::Usage(_) | Failure::Internal(_))) => return Err(failure),
            Err(failure) => refused = Some(failure),
        }
    }
    let best =
        best.ok_or_else(|| refused.unwrap_or_else(|| Failure::internal("plan", "no mesh was tried")))?;
    context.stages.observe(Stage::Plan, &::plan::json::write_pipeline(&best));
    plan_file::write_pipeline(&arguments.output, &best)?;
    if context.stages.stops_after(Stage::Plan) {
        return Ok(stopped(Stage::Plan));
    }
    let mut text = summary(&best, wanted);
    let _ = writeln!(text, "plan written to {}", arguments.output.display());
    Ok(Said { text, json: summary_json(&best) })
}

fn mismatch(machine: &Machine, wanted: &Wanted<'_>, groups: u64) -> Failure {
    Failure::Usage(format!(
        "{groups} groups of mesh {} are {} devices, the machine {} has {}: give a mesh of {} devices",
        mesh::sizes(wanted.mesh),
        groups * wanted.mesh.devices(),
        machine.full_name(),
        machine.devices(),
        machine.devices() / groups
    ))
}

/// The order of work that an argument names: a schedule or a file.
fn order(name: &str) -> Result<Order, Failure> {
    match name.parse::<Kind>() {
        Ok(kind) => Ok(Order::Named(kind)),
        Err(_) if Path::new(name).is_file() => {
            let path = Path::new(name);
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::file(path, format!("cannot be read: {error}")))?;
            let schedule: Result<Schedule, _> = text.parse();
            schedule.map(Order::Written).map_err(|error| Failure::file(path, error))
        }
        Err(error) => Err(Failure::Usage(format!("{error}; and there is no file of that name"))),
    }
}

/// What a pipeline comes to, in a few lines.
fn summary(pipeline: &Pipeline, wanted: &PipelineArguments) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let groups = pipeline.schedule.groups.len();
    let micro_batches = pipeline.micro_batches();
    let chunks = pipeline.schedule.chunks;
    let each = if chunks > 1 { format!(", {chunks} stages each") } else { String::new() };
    line(format!(
        "machine    {}, {groups} groups of devices{each}, {micro_batches} micro-batches, schedule {}",
        pipeline.machine.name, wanted.schedule
    ));
    for (number, stage) in pipeline.stages.iter().enumerate() {
        let end = pipeline
            .stages
            .get(number + 1)
            .map_or("the last".to_owned(), |next| format!("{}", next.first_block - 1));
        let (times, _) = stage.plan.phases();
        let words = strategy(&stage.plan).join("; ");
        line(format!(
            "stage {number:<4} blocks {} to {end} on devices {} to {}, mesh {}: {} forward, {} backward; {words}",
            stage.first_block,
            stage.first_device,
            stage.first_device + stage.plan.mesh.devices() - 1,
            mesh::sizes(&stage.plan.mesh),
            quantity::seconds(times.forward),
            quantity::seconds(times.backward + times.weight),
        ));
    }
    line(format!("step       {} predicted", quantity::seconds(pipeline.seconds())));
    for term in pipeline.estimate.iter().filter(|term| term.seconds > 0.0) {
        let part = quantity::percent(term.seconds, pipeline.seconds());
        line(format!("  {:<24} {:>12} {part:>8}", term.name, quantity::seconds(term.seconds)));
    }
    for (group, memory) in pipeline.memory.iter().enumerate() {
        let held = memory.iter().map(|it| it.bytes).sum();
        let kept = memory.iter().filter(|it| it.kind == "activations").map(|it| it.bytes).sum();
        line(format!(
            "memory     group {group}: {} of {}, of which {} for micro-batches under way",
            quantity::bytes(held),
            quantity::bytes(pipeline.capacity),
            quantity::bytes(kept)
        ));
    }
    for crossing in &pipeline.crossings {
        for arrival in &crossing.to {
            line(format!(
                "crossing   stage {} to {}: {} by {}, {}",
                crossing.from,
                arrival.stage,
                quantity::bytes(arrival.bytes),
                arrival.strategy,
                quantity::seconds(arrival.seconds)
            ));
        }
    }
    text
}

/// The same for programs.
fn summary_json(pipeline: &Pipeline) -> Value {
    let terms: Vec<Value> =
        pipeline.estimate.iter().map(|it| json!({ "name": it.name, "seconds": it.seconds })).collect();
    let stages: Vec<Value> = pipeline
        .stages
        .iter()
        .map(|stage| {
            let (times, update) = stage.plan.phases();
            json!({
                "first_block": stage.first_block,
                "first_device": stage.first_device,
                "mesh": stage.plan.mesh.to_string(),
                "strategy": strategy(&stage.plan),
                "forward": times.forward,
                "backward": times.backward,
                "weight": times.weight,
                "update": update,
            })
        })
        .collect();
    let memory: Vec<Value> = pipeline
        .memory
        .iter()
        .map(|group| group.iter().map(|it| json!({ "kind": it.kind, "bytes": it.bytes })).collect())
        .collect();
    json!({
        "machine": pipeline.machine.name,
        "devices": pipeline.machine.devices,
        "micro_batches": pipeline.micro_batches(),
        "schedule": pipeline.schedule.to_string().lines().collect::<Vec<_>>(),
        "seconds": pipeline.seconds(),
        "estimate": terms,
        "stages": stages,
        "memory": memory,
        "capacity": pipeline.capacity,
    })
}
