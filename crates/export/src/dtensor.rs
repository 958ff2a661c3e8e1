//! Placements of DTensor: a file of them, and a Python module that applies them.

use planner_ir::Mesh;
use serde_json::{Value, json};

use crate::file::File;
use crate::job::Job;
use crate::placements::{Placed, Placement, placed};

/// The module, the same for all plans.
const MODULE: &str = include_str!("dtensor/shardloom_dtensor.py");

/// The files, and in words what they do not say.
pub(crate) fn files(job: &Job<'_>) -> (Vec<File>, Vec<String>) {
    let mut lost = Vec::new();
    let mut first_device = 0;
    let mut stages = Vec::new();
    let groups = job.groups();
    for (number, plan) in job.stages().into_iter().enumerate() {
        // The stages of a group are on the same devices.
        if number.is_multiple_of(groups) {
            first_device = 0;
        }
        let (parameters, not_said) = placed(plan);
        let place = if job.stages().len() > 1 { format!("stage {number}: ") } else { String::new() };
        lost.extend(not_said.into_iter().map(|words| format!("{place}{words}")));
        let apart: Vec<&str> =
            parameters.iter().filter(|it| needs_module(it)).map(|it| it.name.as_str()).collect();
        if !apart.is_empty() {
            lost.push(format!(
                "{place}what goes into and comes out of the modules of {} parameters, such as `{}`, is unknown: DTensor \
                 chooses",
                apart.len(),
                apart[0]
            ));
        }
        stages.push(of_stage(first_device, &plan.mesh, &parameters));
        first_device += plan.mesh.devices();
    }
    if job.stages().len() > 1 {
        lost.push(
            "which stage works when: DTensor has no pipelines, each stage is placed for itself".to_owned(),
        );
    }
    let recomputes =
        |recipe: &plan::Recipe| recipe.recompute.iter().any(|it| *it != plan::Recompute::Nothing);
    if job.recipe().is_some_and(recomputes) {
        lost.push("recomputation: that is set where the model is called".to_owned());
    }
    let head = "{\n\"format\": \"shardloom-placements\", \"version\": 1,\n\"stages\": [\n";
    let files = vec![
        File { name: "placements.json", text: format!("{head}{}\n]\n}}\n", stages.join(",\n")) },
        File { name: "shardloom_dtensor.py", text: MODULE.to_owned() },
    ];
    (files, lost)
}

/// Whether a parameter is of a module of which it is not known what it takes, though that is split.
fn needs_module(it: &Placed) -> bool {
    it.module.is_none()
        && it.name.ends_with(".weight")
        && it.used.iter().any(|it| *it != Placement::Replicate)
}

/// A stage, with a line for each parameter.
fn of_stage(first_device: u64, mesh: &Mesh, parameters: &[Placed]) -> String {
    let axes: Vec<Value> = mesh.axes.iter().map(|it| json!({ "name": it.name, "size": it.size })).collect();
    let line = |it: &Placed| format!("    {}: {}", json!(it.name), of_parameter(it));
    let lines: Vec<String> = parameters.iter().map(line).collect();
    format!(
        "  {{\"first_device\": {first_device}, \"mesh\": {}, \"parameters\": {{\n{}\n  }}}}",
        Value::Array(axes),
        lines.join(",\n")
    )
}

fn of_parameter(it: &Placed) -> Value {
    let list = |all: &[Placement]| Value::Array(all.iter().map(|it| it.json()).collect());
    let mut value = json!({
        "shape": it.type_.shape,
        "at_rest": list(&it.at_rest),
        "used": list(&it.used),
        "gradient": list(&it.gradient),
        "optimizer": list(&it.optimizer),
    });
    if let Some([input, output]) = &it.module {
        value["input"] = list(input);
        value["output"] = list(output);
    }
    value
}
