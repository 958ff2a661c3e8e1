//! `plan`: a model and a machine to a plan file.

use std::fmt::Write as _;

use ::export::Job;
use ::plan::{Plan, Recompute};
use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use driver::compile::{self, Chosen, Imported, Wanted};
use driver::derived;
use driver::pipeline::cluster::Pins;
use driver::pipeline::{self, Decisions, Prepared, Stage, Training, parameters};
use files::Failure;
use files::{machine, plan_file, written};
use report::attention::Found;
use report::explained;
use report::summary::{summary, summary_json};
use report::throughput;
use report::weight_roles::Weights;

use super::export::{Of, say_expected};
use super::{Context, Said, stopped};
use crate::arguments::{Mode, PlanArguments, Stages};

/// Plans a model.
pub(crate) fn plan(arguments: &PlanArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    written::differs(&arguments.output, &[arguments.model()])?;
    if let Some(page) = &arguments.html {
        written::differs(page, &[arguments.model(), &arguments.output])?;
    }
    if context.stages.last().is_none() {
        written::possible(&arguments.output)?;
        arguments.html.as_deref().map_or(Ok(()), written::possible)?;
    } else if arguments.html.is_some() {
        let message = "`--html` is a page about a plan that is made, not with `--stop-after`";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut said = planned(arguments, context)?;
    if context.stages.last().is_none()
        && let Some(line) = super::explain::page_of_made(arguments, context)?
    {
        said.text += &line;
    }
    Ok(said)
}

/// Plans a model and writes the plan.
fn planned(arguments: &PlanArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let cluster = arguments.cluster(arguments.devices)?;
    let single = || machine::one(&arguments.machine, &cluster);
    if arguments.recipe.mode == Mode::Generate {
        return super::generate::plan(arguments, &single()?, context);
    }
    if arguments.pipeline.stages == Some(Stages::Auto) {
        return super::pipeline::cluster(arguments, &cluster, context);
    }
    let progress = context.progress;
    let stages = &mut *context.stages;
    let imported = compile::imported(
        (arguments.model(), arguments.recipe.graph(arguments.runtime)),
        &arguments.bound.bound(),
        arguments.recipe.recipe(arguments.runtime).as_ref(),
        &mut |stage, made| stages.observe(stage, made),
        progress,
    )?;
    imported.file.spares(&arguments.output)?;
    if arguments.recipe.mode == Mode::Train && !imported.controls.is_empty() {
        return Err(Failure::file(
            arguments.model(),
            format!(
                "its control flow depends on the value of `{}`, which a plan to train does not hold: export it \
                 with that value",
                imported.controls.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join("`, `")
            ),
        ));
    }
    if stages.stops_after(Stage::Import) {
        return Ok(stopped(Stage::Import));
    }
    progress.say("naming operations");
    if let Some(asked) = &arguments.pipeline.stages {
        return super::pipeline::pipeline(arguments, asked, &imported, &cluster, context);
    }
    // A plan that is no pipeline is on one mesh.
    let made = match of_one_mesh(arguments, &imported, &single()?, context)? {
        Ok(made) => made,
        Err(stage) => return Ok(stopped(stage)),
    };
    let chosen = &made.1;
    let (progress, stages) = (context.progress, &mut *context.stages);
    if let Some(recipe) = &chosen.plan.recipe {
        progress.say("deriving the step again");
        derived::confirm(&arguments.output, &chosen.plan, recipe, &imported.file)?;
    }
    plan_file::write(&arguments.output, &chosen.plan)?;
    if stages.stops_after(Stage::Plan) {
        return Ok(stopped(Stage::Plan));
    }
    said(arguments, &imported, &made, &cluster, context)
}

/// A program and the plan that was chosen of it.
type Made = (Prepared, Chosen);

/// The first plan that is found of what may be recomputed; where it is to stop before, the stage.
fn of_one_mesh(
    arguments: &PlanArguments,
    imported: &Imported,
    machine: &Machine,
    context: &mut Context<'_, '_>,
) -> Result<Result<Made, Stage>, Failure> {
    let (progress, stages) = (context.progress, &mut *context.stages);
    let fixed = Pins::parse(&arguments.pipeline.pins)?.of_operations()?;
    let wanted = Wanted { runtime: arguments.runtime, ..arguments.target.wanted() };
    let offered = decisions(arguments);
    for (number, decisions) in offered.iter().enumerate() {
        let observe = &mut |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
        let prepared = match arguments.recipe.recipe(arguments.runtime) {
            None => pipeline::prepare(&imported.graph, observe)?,
            Some(recipe) => {
                let (decisions, phases) = (decisions.clone(), arguments.recipe.phases.into());
                let training = Training { recipe, decisions, phases };
                pipeline::prepare_training(&imported.file, &imported.graph, &training, observe)?
            }
        };
        let prepared = prepared.fixing(fixed.clone())?;
        for stage in [Stage::Raise, Stage::Train] {
            if stages.stops_after(stage) {
                return Ok(Err(stage));
            }
        }
        let observe = &mut |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
        match compile::planned(&prepared, imported, machine, &wanted, observe, progress) {
            Ok(chosen) => return Ok(Ok((prepared, chosen))),
            // What computes more again may fit.
            Err(failure) if failure.is_refusal() && number + 1 < offered.len() => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::internal("plan", "nothing was offered"))
}

/// What is said of a plan that was made.
fn said(
    arguments: &PlanArguments,
    imported: &Imported,
    (prepared, chosen): &Made,
    cluster: &Cluster,
    context: &Context<'_, '_>,
) -> Result<Said, Failure> {
    let throughput = throughput::of_plan(&chosen.plan, chosen.plan.seconds(), Some(cluster));
    let mut json = summary_json(&chosen.plan, throughput.as_ref());
    let mut weights = Vec::new();
    if let Some(recipe) = &chosen.plan.recipe {
        let found = parameters::roles(&imported.file, &imported.graph, &arguments.recipe.asked())?;
        let of_step = Weights::of(std::iter::once(&chosen.plan.graph), &recipe.roles, Some(&found));
        weights = of_step.lines();
        json["parameters"] = of_step.json();
    }
    let mut text = summary(&chosen.plan, &chosen.seconds(), &weights, throughput.as_ref());
    for line in kept(prepared, &chosen.plan) {
        let _ = writeln!(text, "{line}");
    }
    let found = Found::of([&prepared.graph]).after(&imported.warnings);
    for line in found.lines() {
        let _ = writeln!(text, "{line}");
    }
    let told = (Job::of_plan(&chosen.plan), arguments.runtime);
    let of = Of { model: Some(arguments.model()), work: &throughput::work(&chosen.plan) };
    say_expected(told, (cluster, of), &mut text, &mut json);
    let _ = writeln!(text, "plan written to {}", arguments.output.display());
    found.say(&mut json, &|words| context.warn(words));
    Ok(Said { text, json })
}

/// What may be recomputed, in the order in which it is tried. Other runtimes compute the same again of every
/// block.
fn decisions(arguments: &PlanArguments) -> Vec<Decisions> {
    match (arguments.runtime, arguments.recipe.of_every_block()) {
        (Some(_), None) => {
            let all = [Recompute::Nothing, Recompute::Selective, Recompute::Full];
            all.map(Decisions::Only).to_vec()
        }
        _ => vec![arguments.recipe.decisions()],
    }
}

/// What each kind of block keeps, where some of it is recomputed.
fn kept(prepared: &Prepared, plan: &Plan) -> Vec<String> {
    let (Some(variants), Some(recipe)) = (&prepared.variants, &plan.recipe) else { return vec![] };
    let stories = explained::blocks(plan, &variants.sections(recipe, &plan.graph));
    let mut kinds: Vec<(usize, String)> = Vec::new();
    for story in stories {
        let Some(kept) = story.kept.map(|kept| kept.in_words()) else { continue };
        match kinds.iter_mut().find(|(_, known)| *known == kept) {
            Some((count, _)) => *count += story.count,
            None => kinds.push((story.count, kept)),
        }
    }
    let line = |(count, kept): &(usize, String)| match count {
        1 => format!("block      once, {kept}"),
        _ => format!("blocks     {count} times, each {kept}"),
    };
    kinds.iter().map(line).collect()
}
