//! `plan --mode generate`: a decoder and a machine to plans of its steps.

use std::fmt::Write as _;

use ::plan::Generation;
use autoparallel::mesh;
use autoparallel::serving::Shared;
use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use cost_models::quantity;
use driver::compile;
use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::planned::{Step, Tried, Wanted, planned};
use driver::generation::roles::roles;
use driver::generation::together::held;
use driver::pipeline::{self, Stage};
use driver::ways;
use files::Failure;
use files::model_file;
use files::plan_file;
use models::Use;
use planner_ir::Graph;
use report::attention::Found;
use report::summary::generation::{in_json, in_words};
use report::summary::summary;
use report::throughput;

use super::super::{Context, Said, stopped};
use crate::arguments::PlanArguments;

/// Plans the steps of a decoder.
pub(crate) fn plan(
    arguments: &PlanArguments,
    machine: &Machine,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let progress = context.progress;
    progress.say(format!("reading {}", arguments.model().display()));
    let file = model_file::open_for(arguments.model(), Use::Decode)?;
    progress.say_left_out(&file);
    file.spares(&arguments.output)?;
    let told = &arguments.generation;
    let roles = roles(&file.model, &told.told()).map_err(|error| Failure::file(arguments.model(), error))?;
    let dims = arguments.bound.dims.clone();
    let sizes = Sizes { batch: told.batch, prompt: told.prompt, context: told.context, dims };
    let decoder = Decoder::of(&file, roles, &sizes)?;
    let decode = decoder.step(1)?;
    let prefill = decoder.prompt().map(|width| decoder.step(width)).transpose()?;
    let stages = &mut *context.stages;
    for graph in prefill.iter().chain([&decode]) {
        stages.observe(Stage::Import, graph);
    }
    if stages.stops_after(Stage::Import) {
        return Ok(stopped(Stage::Import));
    }
    progress.say("naming operations");
    let mut step = |graph: &Graph, width: u64| -> Result<Step, Failure> {
        let header = decoder.header(graph, width)?;
        compile::refuse_impossible(graph, &header, decoder.last_positions(graph))?;
        let prepared = pipeline::prepare(graph, &mut |stage, made| stages.observe(stage, made))?;
        Ok(Step { prepared, header })
    };
    let prefill =
        prefill.as_ref().zip(decoder.prompt()).map(|(graph, width)| step(graph, width)).transpose()?;
    let decode = step(&decode, 1)?;
    if stages.stops_after(Stage::Raise) {
        return Ok(stopped(Stage::Raise));
    }
    let mesh = arguments.target.mesh.as_ref();
    let ways = match arguments.runtime {
        None => ways::unlimited(mesh, machine),
        Some(runtime) => {
            let shared = Shared::of(&decode.prepared.graph, decoder.batch());
            ways::of_inference(runtime, mesh, machine, &shared)?
        }
    };
    let capacity = arguments.target.memory().unwrap_or(machine.usable_memory().0);
    let (steps, layout) = (arguments.target.steps(), told.cache_layout.clone());
    let wanted = Wanted { machine, ways, capacity, steps, layout };
    let (generation, tried) =
        planned(&decoder.cache(), prefill, decode, &wanted, &|words| progress.say(words))?;
    let text = ::plan::json::write_generation(&generation);
    stages.observe(Stage::Plan, &text);
    ::plan::check_generation(&generation).map_err(|error| Failure::internal("plan", error))?;
    plan_file::write_generation(&arguments.output, &generation)?;
    if stages.stops_after(Stage::Plan) {
        return Ok(stopped(Stage::Plan));
    }
    let on = Cluster::of(machine.clone());
    let mut said = said(&generation, &tried, arguments, Some(&on))?;
    if let Some(why) = decoder.moves_up() {
        let _ = writeln!(said.text, "cache      moved up at every token: {why}");
        said.json["cache"]["moves_up"] = why.into();
    }
    if let Some(why) = decoder.sees_fewer() {
        let _ = writeln!(said.text, "windows    not of all parts that could have one: {why}");
        said.json["cache"]["sees_fewer"] = why.into();
    }
    let found = Found::of(generation.plans().map(|(_, plan)| &plan.graph));
    for line in found.lines() {
        let _ = writeln!(said.text, "{line}");
    }
    found.after(&decoder.apart()?).say(&mut said.json, &|words| context.warn(words));
    Ok(said)
}

fn said(
    generation: &Generation,
    tried: &[Tried],
    arguments: &PlanArguments,
    on: Option<&Cluster>,
) -> Result<Said, Failure> {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let held = held(generation)?;
    for words in in_words(generation, held) {
        line(words);
    }
    for (mesh, layout, seconds) in tried.iter().skip(1).take(SHOWN) {
        let mesh_sizes = mesh::sizes(mesh);
        let layout = layout.display(mesh);
        line(format!(
            "tried      the cache {layout} on mesh {mesh_sizes}: {} a token",
            quantity::seconds(*seconds)
        ));
    }
    for (name, plan) in generation.plans() {
        line(format!("\n{name}"));
        let throughput = throughput::of_plan(plan, plan.seconds(), on);
        line(summary(plan, &[], &[], throughput.as_ref()).trim_end().to_owned());
    }
    line(format!("\nplan written to {}", arguments.output.display()));
    Ok(Said { text, json: in_json(generation, held, on) })
}

/// How many other layouts of the cache are listed.
const SHOWN: usize = 8;
