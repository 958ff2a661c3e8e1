//! `check`: a plan or a pipeline against the rules, its programs, and its model.

use std::fmt::Write as _;
use std::path::Path;

use ::plan::json::Content;
use ::plan::{Cache, Holding, Pipeline, Plan};
use import::ImportError;
use planner_ir::{Graph, Source};
use serde_json::json;

use super::{Context, Said};
use crate::arguments::CheckArguments;
use crate::failure::Failure;
use crate::model_file::ModelFile;
use crate::pipeline::Target;
use crate::train::trained::derived_pipeline;
use crate::{derived, inputs, machine, pipeline, plan_file};

/// How far outputs may be from each other, in parts of the largest number: operations are raised
/// to others that round differently.
const TOLERANCE: f64 = 1e-3;

/// Checks a plan or a pipeline.
pub(crate) fn check(arguments: &CheckArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    context.progress.say("checking the plan");
    let passed = match plan_file::read_any_checked(&arguments.plan)? {
        Content::Plan(plan) => check_plan(&plan, None, arguments, context)?,
        Content::Pipeline(pipeline) => check_pipeline(&pipeline, arguments, context)?,
        Content::Generation(generation) => {
            let rules = ::plan::GENERATION_RULES.len();
            let mut passed = vec![format!("its plans and their cache obey {rules} rules of generation")];
            for (name, plan) in generation.plans() {
                let lines = check_plan(plan, Some(&generation.cache), arguments, context)?;
                passed.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
            }
            passed
        }
    };
    let mut text = String::new();
    for line in &passed {
        // Writing to a string does not fail.
        let _ = writeln!(text, "ok  {line}");
    }
    Ok(Said { text, json: json!({ "accepted": true, "passed": passed }) })
}

fn check_pipeline(
    pipeline: &Pipeline,
    arguments: &CheckArguments,
    context: &mut Context<'_, '_>,
) -> Result<Vec<String>, Failure> {
    let path = &arguments.plan;
    let stages = pipeline.stages.len();
    let mut passed = vec![
        format!("the plans of its {stages} stages obey all {} rules", ::plan::RULES.len()),
        format!("what crosses between them fits, and its schedule of {stages} stages can be kept"),
    ];
    context.progress.say("checking the programs");
    let observed = &mut *context.stages;
    let programs = pipeline::lower_pipeline(pipeline, &mut |stage, made| observed.observe(stage, made))?;
    let instructions: usize = programs.iter().map(|program| program.instructions.len()).sum();
    passed.push(format!("its {} programs, {instructions} instructions, are verified", programs.len()));
    let memory = lower::pipelined(pipeline).and_then(|it| it.memory());
    let memory = memory.map_err(|error| Failure::internal("lower", error))?;
    let groups = pipeline.memory.len().max(memory.len());
    for group in 0..groups {
        let none = Vec::new();
        let of = |all: &[Vec<Holding>]| all.get(group).unwrap_or(&none).clone();
        holds(path, &format!("a device of group {group}"), &of(&pipeline.memory), &of(&memory))?;
    }
    passed.push("they hold what the pipeline says, byte for byte".to_owned());
    if let Some(model) = &arguments.model {
        context.progress.say("checking against the model");
        let first = pipeline.stages.first();
        let first = first.ok_or_else(|| Failure::file(path, "is a pipeline without stages"))?;
        let file = plan_file::named_model(path, &first.plan.model, Some(model))?;
        passed.push("the model is the one that was planned".to_owned());
        for stage in &pipeline.stages {
            let refused = |error: String| Failure::file(path, format!("the plan is rejected: {error}"));
            weights(&stage.plan.graph, &file).map_err(refused)?;
        }
        passed.push("its weights are there, of the types that the stages say".to_owned());
        let (graph, _) = derived_pipeline(path, pipeline, &file)?;
        let operations = graph.nodes.len();
        passed.push(format!(
            "its stages are the training step of its recipe ({operations} operations), cut as it says"
        ));
    }
    Ok(passed)
}

/// Refuses what says of a device's memory something else than programs take.
fn holds(path: &Path, what: &str, said: &[Holding], found: &[Holding]) -> Result<(), Failure> {
    if said == found {
        return Ok(());
    }
    let words = |holdings: &[Holding]| {
        let each: Vec<String> = holdings.iter().map(|it| format!("{} {}", it.kind, it.bytes)).collect();
        each.join(", ")
    };
    let message = format!(
        "the plan is rejected: it says that {what} holds {} (bytes), its programs hold {}",
        words(said),
        words(found)
    );
    Err(Failure::file(path, message))
}

/// Refuses times that the prices of the plan's machine do not make; nothing is said where these are not known.
fn times(plan: &Plan, arguments: &CheckArguments) -> Result<Option<String>, Failure> {
    let machine = match (machine::priced_as(&plan.machine, arguments.machine.as_deref()), &arguments.machine)
    {
        (Ok(machine), _) => machine,
        (Err(failure), Some(_)) => return Err(failure),
        (Err(_), None) => return Ok(None),
    };
    let target = Target::of(&machine, &plan.mesh);
    let wrong = search::mispriced(plan, &pipeline::prices(&target)?);
    match (wrong, &plan.machine.sha256) {
        (None, _) => Ok(Some(format!("its times are those of the prices of `{}`", plan.machine.name))),
        // What does not say by which prices it was made may be of others.
        (Some(_), None) if arguments.machine.is_none() => Ok(None),
        (Some(wrong), _) => Err(Failure::file(&arguments.plan, format!("the plan is rejected: {wrong}"))),
    }
}

/// Checks a plan, of generation with what its inputs and outputs are.
fn check_plan(
    plan: &Plan,
    cache: Option<&Cache>,
    arguments: &CheckArguments,
    context: &mut Context<'_, '_>,
) -> Result<Vec<String>, Failure> {
    let path = &arguments.plan;
    let mut passed = vec![format!("the plan obeys all {} rules", ::plan::RULES.len())];
    context.progress.say("checking the programs");
    let stages = &mut *context.stages;
    let programs = pipeline::lower(plan, &mut |stage, made| stages.observe(stage, made))?;
    let instructions: usize = programs.iter().map(|program| program.instructions.len()).sum();
    passed.push(format!("its {} programs, {instructions} instructions, are verified", programs.len()));
    let memory = lower::memory(plan).map_err(|error| Failure::internal("lower", error))?;
    holds(path, "a device", &plan.memory, &memory)?;
    passed.push("they hold what the plan says, byte for byte".to_owned());
    passed.extend(times(plan, arguments)?);
    if let Some(model) = &arguments.model {
        context.progress.say("checking against the model");
        let file = plan_file::model(path, plan, Some(model))?;
        passed.push("the model is the one that was planned".to_owned());
        let refused = |error: String| Failure::file(path, format!("the plan is rejected: {error}"));
        weights(&plan.graph, &file).map_err(refused)?;
        passed.push("its weights are there, of the types that the plan says".to_owned());
        passed.push(match &plan.recipe {
            None => same_outputs(path, plan, derived::imported(&file, plan, cache), &file)?,
            Some(recipe) => {
                derived::ties(path, plan, recipe, &file)?;
                let operations = plan.graph.nodes.len();
                format!("its program is the training step of its recipe ({operations} operations)")
            }
        });
    }
    Ok(passed)
}

fn weights(graph: &Graph, file: &ModelFile) -> Result<(), String> {
    let there = file.model.weights();
    let mut faults = Vec::new();
    for value in &graph.values {
        // Parameters of a step are of other element types if it computes in them.
        let Source::Weight(name) = &value.source else { continue };
        match there.iter().find(|(it, _)| it == name) {
            None => faults.push(format!("the model has no weight `{name}`")),
            Some((_, type_)) if *type_ != value.type_ => {
                faults.push(format!("weight `{name}` is {}, the model's is {type_}", value.type_));
            }
            Some(_) => {}
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// Evaluates the model, imported again, and the plan's program on one device.
fn same_outputs(
    path: &Path,
    plan: &Plan,
    imported: Result<Graph, ImportError>,
    file: &ModelFile,
) -> Result<String, Failure> {
    let refused = |error: String| Failure::file(path, format!("the plan is rejected: {error}"));
    let imported = match imported {
        Ok(imported) => imported,
        Err(ImportError::DependsOnData { .. }) => {
            return Ok("inputs that decide control flow are part of the plan: not evaluated again".to_owned());
        }
        Err(error) => return Err(refused(format!("the model is not of these sizes: {error}"))),
    };
    let types = |graph: &Graph| -> Vec<(String, planner_ir::Type)> {
        graph.outputs.iter().map(|it| (it.name.clone(), graph.type_of(it.value).clone())).collect()
    };
    if types(&imported) != types(&plan.graph) {
        return Err(refused("its outputs are not those of the model".to_owned()));
    }
    if !file.missing.is_empty() {
        return Ok(
            "the model imports to the same outputs; its weights are not there to evaluate it".to_owned()
        );
    }
    // Inputs that nothing uses are gone from the plan.
    let mut inputs = inputs::made(&imported, 0);
    inputs.extend(inputs::made(&plan.graph, 0));
    let sources = run::Sources { inputs: &inputs, weights: file };
    let evaluated = |graph: &Graph| {
        run::reference(graph, sources).map_err(|error| refused(format!("it cannot be evaluated: {error}")))
    };
    let (before, after) = (evaluated(&imported)?, evaluated(&plan.graph)?);
    for (name, expected) in &before {
        let numbers = after.get(name).and_then(|it| it.to_floats().ok()).zip(expected.to_floats().ok());
        let (found, expected) =
            numbers.ok_or_else(|| refused(format!("output `{name}` cannot be compared")))?;
        let most = expected.iter().filter(|it| it.is_finite()).fold(1e-6, |most: f64, it| most.max(it.abs()));
        let near = |(a, b): (&f64, &f64)| {
            (a - b).abs() <= TOLERANCE * most || a.is_nan() && b.is_nan() || a.to_bits() == b.to_bits()
        };
        if let Some((index, (a, b))) = found.iter().zip(&expected).enumerate().find(|(_, it)| !near(*it)) {
            return Err(refused(format!(
                "it does not compute what the model does: output `{name}`, element {index} is {a}, expected {b}"
            )));
        }
    }
    Ok(format!("evaluated on one rank it computes what the model does ({} outputs)", before.len()))
}
