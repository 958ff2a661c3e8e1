//! What the plan of a file comes to, whatever kind of plan it is.

use std::path::Path;

use cost_models::throughput::Throughput;
use driver::generation::together::held;
use files::{Failure, machine, plan_file};
use plan::json::Content;
use plan::{Generation, Pipeline, Plan};
use report::summary::{self, generation, staged};
use report::throughput;
use serde_json::{Value, json};

/// What there is to say of a plan, for people and as JSON.
pub(crate) fn of(path: &Path, given: Option<&str>) -> Result<(String, String), Failure> {
    let content = plan_file::read_any_checked(path)?;
    let named = match &content {
        Content::Plan(plan) => &plan.machine,
        Content::Pipeline(pipeline) => &pipeline.machine,
        Content::Generation(generation) => &generation.decode.machine,
    };
    // Without its machine it is not known how much of its peak is used.
    let on = match (machine::priced_as(named, given), given) {
        (Err(failure), Some(_)) => return Err(failure),
        (on, _) => on.ok(),
    };
    let on = on.as_ref();
    let (text, facts) = match &content {
        Content::Plan(plan) => {
            let throughput = throughput::of_plan(plan, plan.seconds(), on);
            (summary::summary(plan, &[], &[], throughput.as_ref()), of_plan(plan, throughput.as_ref()))
        }
        Content::Pipeline(pipeline) => {
            let throughput = throughput::of_pipeline(pipeline, pipeline.seconds(), on);
            let name = driver::pipeline::staged::kind(pipeline).map_or("of its own", |it| it.name());
            (staged::summary(pipeline, name, throughput.as_ref()), of_pipeline(pipeline, throughput.as_ref()))
        }
        Content::Generation(generation) => {
            let held = held(generation)?;
            let decode = &generation.decode;
            let throughput = throughput::of_plan(decode, decode.seconds(), on);
            let lines = generation::in_words(generation, held);
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>()
                + &summary::summary(decode, &[], &[], throughput.as_ref());
            (text, of_generation(generation, held, throughput.as_ref()))
        }
    };
    Ok((text, facts.to_string()))
}

fn of_plan(plan: &Plan, throughput: Option<&Throughput>) -> Value {
    let mut facts = json!({
        "kind": "plan",
        "model": plan.model.path,
        "machine": plan.machine.name,
        "devices": plan.machine.devices,
        "mesh": plan.mesh.to_string(),
        "seconds": plan.seconds(),
        "lower_bound": plan.proof.bound(plan.seconds()),
        "memory_bytes": plan::held(&plan.memory),
        "capacity_bytes": plan.capacity,
        "terms": terms(&plan.estimate),
        "strategy": plan::strategy(plan),
    });
    throughput::add(throughput, &mut facts);
    facts
}

/// The fullest group is the one that is nearest to what it may hold.
fn of_pipeline(pipeline: &Pipeline, throughput: Option<&Throughput>) -> Value {
    let groups = pipeline.memory.iter().enumerate();
    let held = groups.map(|(group, memory)| (pipeline.capacity_of(group), plan::held(memory)));
    let (capacity, memory) =
        held.min_by_key(|(capacity, held)| i128::from(*capacity) - i128::from(*held)).unwrap_or_default();
    let stages = &pipeline.stages;
    let meshes: Vec<String> = stages.iter().map(|it| it.plan.mesh.to_string()).collect();
    let strategy: Vec<String> = stages
        .iter()
        .enumerate()
        .map(|(number, it)| format!("stage {number}: {}", plan::strategy(&it.plan).join("; ")))
        .collect();
    let mut facts = json!({
        "kind": "pipeline",
        "model": stages.first().map(|it| &it.plan.model.path),
        "machine": pipeline.machine.name,
        "devices": pipeline.machine.devices,
        "mesh": meshes.join(" | "),
        "seconds": pipeline.seconds(),
        "lower_bound": pipeline.proof.bound(pipeline.seconds()),
        "memory_bytes": memory,
        "capacity_bytes": capacity,
        "terms": terms(&pipeline.estimate),
        "strategy": strategy,
    });
    throughput::add(throughput, &mut facts);
    facts
}

/// Of the step that makes a token.
fn of_generation(generation: &Generation, held: u64, throughput: Option<&Throughput>) -> Value {
    let mut facts = of_plan(&generation.decode, throughput);
    facts["kind"] = json!("generation");
    facts["memory_bytes"] = json!(held);
    facts
}

fn terms(estimate: &[plan::Term]) -> Vec<Value> {
    let taken = estimate.iter().filter(|it| it.seconds > 0.0);
    taken.map(|it| json!({ "name": it.name, "seconds": it.seconds })).collect()
}
