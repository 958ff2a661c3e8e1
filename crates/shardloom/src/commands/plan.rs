//! `plan`: a model and a machine to a plan file.

use std::fmt::Write as _;

use ::plan::{LeftOut, Plan, Proof, communication, strategy};
use autoparallel::mesh;
use cost_models::quantity;
use driver::compile::{self, Chosen};
use driver::derived;
use driver::pipeline::cluster::Pins;
use driver::pipeline::{self, Prepared, Stage, Training, parameters};
use files::Failure;
use files::{machine, plan_file, written};
use planner_ir::{DType, Source, StateKind};
use report::attention::Found;
use report::explained;
use report::weight_roles::Weights;
use serde_json::{Value, json};

use super::{Context, Said, stopped};
use crate::arguments::{Mode, PlanArguments, Stages};

/// How many terms of the estimate a summary has.
const TERMS: usize = 5;

/// Plans a model.
pub(crate) fn plan(arguments: &PlanArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    written::differs(&arguments.output, &[arguments.model()])?;
    let cluster = machine::cluster(&arguments.machine, arguments.devices)?;
    let single = || machine::named(&arguments.machine, arguments.devices);
    if arguments.recipe.mode == Mode::Generate {
        return super::generate::plan(arguments, &single()?, context);
    }
    if arguments.pipeline.stages == Some(Stages::Auto) {
        return super::pipeline::cluster(arguments, &cluster, context);
    }
    let progress = context.progress;
    let stages = &mut *context.stages;
    let imported = compile::imported(
        arguments.model(),
        &arguments.bound,
        arguments.recipe.recipe()?.as_ref(),
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
    let machine = single()?;
    let fixed = Pins::parse(&arguments.pipeline.pins)?.of_operations()?;
    let observe = &mut |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
    let prepared = match arguments.recipe.recipe()? {
        None => pipeline::prepare(&imported.graph, observe)?,
        Some(recipe) => {
            let (decisions, phases) = (arguments.recipe.decisions(), arguments.recipe.phases.into());
            let training = Training { recipe, decisions, phases };
            pipeline::prepare_training(&imported.file, &imported.graph, &training, observe)?
        }
    };
    let prepared = prepared.fixing(fixed)?;
    for stage in [Stage::Raise, Stage::Train] {
        if stages.stops_after(stage) {
            return Ok(stopped(stage));
        }
    }
    let observe = &mut |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
    let chosen =
        compile::planned(&prepared, &imported, &machine, &arguments.target.wanted(), observe, progress)?;
    if let Some(recipe) = &chosen.plan.recipe {
        progress.say("deriving the step again");
        derived::confirm(&arguments.output, &chosen.plan, recipe, &imported.file)?;
    }
    plan_file::write(&arguments.output, &chosen.plan)?;
    if stages.stops_after(Stage::Plan) {
        return Ok(stopped(Stage::Plan));
    }
    let mut json = summary_json(&chosen.plan);
    let mut weights = Vec::new();
    if let Some(recipe) = &chosen.plan.recipe {
        let found = parameters::roles(&imported.file, &imported.graph, &arguments.recipe.asked())?;
        let of_step = Weights::of(std::iter::once(&chosen.plan.graph), &recipe.roles, Some(&found));
        weights = of_step.lines();
        json["parameters"] = of_step.json();
    }
    let mut text = summary(&chosen, &weights);
    for line in kept(&prepared, &chosen.plan) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "plan written to {}", arguments.output.display());
    Found::of([&prepared.graph]).after(&imported.warnings).say(&mut json, &|words| context.warn(words));
    Ok(Said { text, json })
}

/// What each kind of block keeps, where some of it is computed again.
fn kept(prepared: &Prepared, plan: &Plan) -> Vec<String> {
    let (Some(variants), Some(recipe)) = (&prepared.variants, &plan.recipe) else { return vec![] };
    let stories = explained::blocks(plan, &variants.sections(recipe));
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

/// What a plan comes to, in a few lines; with those about its weights, if it trains them.
pub(crate) fn summary(chosen: &Chosen, weights: &[String]) -> String {
    let plan = &chosen.plan;
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let dims: Vec<String> = plan.model.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    let dims = if dims.is_empty() { String::new() } else { format!(" with {}", dims.join(", ")) };
    line(format!("model      {}{dims}", plan.model.path));
    line(format!("machine    {}, mesh {} ({})", plan.machine.name, mesh::sizes(&plan.mesh), plan.mesh));
    if chosen.tried.len() > 1 {
        let tried: Vec<String> = chosen.tried.iter().map(tried).collect();
        line(format!("tried      {}", tried.join(", ")));
    }
    let strategy = strategy(plan);
    if !strategy.is_empty() {
        line(format!("strategy   {}", strategy.join("; ")));
    }
    for pin in explained::pinned(std::iter::once(plan)) {
        line(format!("pinned     {pin}"));
    }
    weights.iter().for_each(|it| line(it.clone()));
    if plan.recipe.is_some() && has_half_parameters(plan) {
        line(
            "note       the model computes in f16, in which small gradients are 0: bf16 has the range of f32, \
             `--precision bf16`"
                .to_owned(),
        );
    }
    line(format!("step       {} predicted, {}", quantity::seconds(plan.seconds()), proof(plan)));
    let mut terms: Vec<_> = plan.estimate.iter().collect();
    terms.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for term in terms.iter().take(TERMS) {
        let part = quantity::percent(term.seconds, plan.seconds());
        line(format!("  {:<18} {:>12} {part:>8}", term.name, quantity::seconds(term.seconds)));
    }
    let total = plan.memory.iter().map(|it| it.bytes).sum();
    line(format!(
        "memory     {} of {} on the fullest device",
        quantity::bytes(total),
        quantity::bytes(plan.capacity)
    ));
    for traffic in communication(plan).iter().filter(|it| it.bytes > 0) {
        line(format!("moved      {} x {}, {}", traffic.count, traffic.name, quantity::bytes(traffic.bytes)));
    }
    text
}

/// Whether parameters are trained in f16 alone.
fn has_half_parameters(plan: &Plan) -> bool {
    plan.graph.values.iter().any(|value| {
        let parameter = matches!(&value.source, Source::State(state) if state.kind == StateKind::Parameter);
        parameter && value.type_.dtype == DType::F16
    })
}

fn tried((mesh, outcome): &(planner_ir::Mesh, Result<f64, Failure>)) -> String {
    let words = outcome.as_ref().map_or_else(|_| "no plan".to_owned(), |it| quantity::seconds(*it));
    format!("{} ({words})", mesh::sizes(mesh))
}

/// What a search did not look at, in words.
pub(crate) fn left_out(plan: &Plan) -> String {
    let words = |it: &LeftOut| match it {
        LeftOut::Stripes => "no stripes of sequences",
        LeftOut::Skews => "nothing skewed",
        LeftOut::Steps => "no time steps",
        LeftOut::Splits => "few splits at once",
    };
    plan.space.left_out.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// How good a plan is, in words.
pub(crate) fn proof(plan: &Plan) -> String {
    let space = match &left_out(plan)[..] {
        _ if plan.space.saturated => "the space",
        "" => "a part of the space",
        words => &format!("a part of the space ({words})"),
    };
    match plan.proof {
        Proof::Optimal => format!("optimal in {space} by these prices"),
        Proof::Gap { lower_bound } => format!(
            "at most {:.2} % above the best in {space} (proven bound {})",
            (plan.seconds() / lower_bound - 1.0) * 100.0,
            quantity::seconds(lower_bound)
        ),
    }
}

/// The same for programs.
pub(crate) fn summary_json(plan: &Plan) -> Value {
    let terms: Vec<Value> =
        plan.estimate.iter().map(|it| json!({ "name": it.name, "seconds": it.seconds })).collect();
    let memory: Vec<Value> =
        plan.memory.iter().map(|it| json!({ "kind": it.kind, "bytes": it.bytes })).collect();
    let moved: Vec<Value> = communication(plan)
        .iter()
        .map(|it| json!({ "move": it.name, "count": it.count, "bytes": it.bytes }))
        .collect();
    let dims: serde_json::Map<String, Value> =
        plan.model.dims.iter().map(|(name, size)| (name.clone(), json!(size))).collect();
    json!({
        "model": { "path": plan.model.path, "sha256": plan.model.sha256, "dims": dims },
        "machine": plan.machine.name,
        "devices": plan.machine.devices,
        "mesh": plan.mesh.to_string(),
        "strategy": strategy(plan),
        "seconds": plan.seconds(),
        "estimate": terms,
        "memory": memory,
        "capacity": plan.capacity,
        "communication": moved,
        "proof": match plan.proof {
            Proof::Optimal => json!({ "optimal": true }),
            Proof::Gap { lower_bound } => json!({ "optimal": false, "lower_bound": lower_bound }),
        },
        "space": {
            "unique_blocks": plan.space.unique_blocks,
            "blocks": plan.space.blocks,
            "nodes": plan.space.nodes,
            "classes": plan.space.classes,
            "saturated": plan.space.saturated,
            "left_out": plan.space.left_out.iter().map(|it| it.name()).collect::<Vec<_>>(),
            "choices": plan.space.choices,
        },
    })
}
