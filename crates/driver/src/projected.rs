//! What a plan costs as another runtime runs it: planned again, where each axis does what it does there and
//! nothing else.

use std::path::Path;

use autoparallel::serving::{Shared, ruled as ruled_serving};
use autoparallel::target::Target;
use cost_models::cluster::Cluster;
use export::{Runs, Serving, Strategy};
use files::{Failure, machine, plan_file};
use plan::json::Content;
use plan::{Generation, Pipeline, Plan, Precision, Recipe, examples};
use planner_ir::Mesh;
use rewrite::Steps;
use search::Rules;

use crate::derived;
use crate::generation::planned::{self, Step};
use crate::pinned::{self, Job};
use crate::pipeline::{self, Prepared};

/// What each program of a file takes as a target runs it (seconds), or why that is not known: the cheapest of all in
/// which no axis does more than its kind of parallelism, states are sharded no further, and stages, schedule,
/// micro-batches and recomputation are those of the strategy. A runtime that has less choice takes longer.
pub fn price(
    path: &Path,
    content: &Content,
    runs: &Runs,
    cluster: &Cluster,
) -> Result<Result<Vec<f64>, String>, Failure> {
    let one = |seconds: f64| vec![seconds];
    let made = match (content, runs) {
        (Content::Plan(plan), Runs::Strategy(strategy)) => of_plan(path, plan, strategy, cluster).map(one),
        (Content::Pipeline(pipeline), Runs::Strategy(strategy)) => {
            of_pipeline(path, pipeline, strategy, cluster).map(one)
        }
        (Content::Plan(plan), Runs::Serving(serving)) => of_inference(path, plan, serving, cluster).map(one),
        (Content::Generation(generation), Runs::Serving(serving)) => {
            of_generation(path, generation, serving, cluster)
        }
        _ => Err(Failure::Input("such plans are not priced so".to_owned())),
    };
    match made {
        Ok(seconds) => Ok(Ok(seconds)),
        Err(failure @ Failure::Internal(_)) => Err(failure),
        Err(failure) => Ok(Err(failure.to_string())),
    }
}

fn of_inference(path: &Path, plan: &Plan, serving: &Serving, cluster: &Cluster) -> Result<f64, Failure> {
    let machine = machine::single(cluster)?;
    let file = plan_file::model(path, plan, None)?;
    let imported = derived::imported(&file, plan, None).map_err(|error| Failure::file(&file.path, error))?;
    let prepared = pipeline::prepare(&imported, &mut |_, _| {})?;
    let (mesh, rules) = ruled_as(serving, &prepared);
    let target = Target {
        capacity: plan.capacity,
        steps: Steps::One,
        rules: Some(&rules),
        ..Target::of(&machine, &mesh)
    };
    Ok(pipeline::plan(&prepared, &plan.model, &target, &mut |_, _| {})?.seconds())
}

fn of_generation(
    path: &Path,
    generation: &Generation,
    serving: &Serving,
    cluster: &Cluster,
) -> Result<Vec<f64>, Failure> {
    let machine = machine::single(cluster)?;
    let file = plan_file::named_model(path, generation.model(), None)?;
    let step = |plan: &Plan| -> Result<Step, Failure> {
        let graph = derived::step(&file, plan, Some(&generation.cache))
            .map_err(|error| Failure::file(&file.path, error))?;
        Ok(Step { prepared: pipeline::prepare(&graph, &mut |_, _| {})?, header: plan.model.clone() })
    };
    let prefill = generation.prefill.as_ref().map(step).transpose()?;
    let decode = step(&generation.decode)?;
    let (mesh, rules) = ruled_as(serving, &decode.prepared);
    let wanted = planned::Wanted {
        machine: &machine,
        ways: vec![(mesh, Some(rules))],
        capacity: generation.capacity,
        steps: Steps::One,
        layout: None,
    };
    let (there, _) = planned::planned(&generation.cache, prefill, decode, &wanted, &|_| {})?;
    Ok(there.plans().map(|(_, plan)| plan.seconds()).collect())
}

/// The mesh of a server, and what its axes are for.
fn ruled_as(serving: &Serving, prepared: &Prepared) -> (Mesh, Rules) {
    ruled_serving(&serving.served, &Shared::of(&prepared.graph, serving.sequences))
}

fn of_plan(path: &Path, plan: &Plan, strategy: &Strategy, cluster: &Cluster) -> Result<f64, Failure> {
    let recipe =
        plan.recipe.as_ref().ok_or_else(|| Failure::Input("the plan is for inference".to_owned()))?;
    has_the_same_batches(plan, recipe, strategy)?;
    let file = plan_file::model(path, plan, None)?;
    let graph = derived::imported(&file, plan, None).map_err(|error| Failure::file(&file.path, error))?;
    let (header, memory) = (&plan.model, Some(plan.capacity));
    let recipe = &runs(recipe, strategy);
    Ok(pinned::plan(
        &Job { file: &file, graph: &graph, header, recipe, memory, cluster, exact: false },
        strategy,
    )?
    .seconds())
}

/// The recipe as a target runs it: without narrow products where it is not told of them, and with parameters in f32
/// where it has them.
fn runs(recipe: &Recipe, strategy: &Strategy) -> Recipe {
    let narrow = recipe.precision.scaling();
    let precision =
        if narrow.is_some() && strategy.scaling.is_none() { Precision::Bf16 } else { recipe.precision };
    Recipe { precision, masters: strategy.masters.unwrap_or(recipe.masters), ..recipe.clone() }
}

fn of_pipeline(
    path: &Path,
    pipeline: &Pipeline,
    strategy: &Strategy,
    cluster: &Cluster,
) -> Result<f64, Failure> {
    let Some(first) = pipeline.stages.first().map(|stage| &stage.plan) else {
        return Err(Failure::Input("the pipeline has no stages".to_owned()));
    };
    has_the_same_batches(first, &pipeline.recipe, strategy)?;
    let file = plan_file::named_model(path, &first.model, None)?;
    let graph =
        derived::imported_pipeline(&file, pipeline).map_err(|error| Failure::file(&file.path, error))?;
    let (header, recipe) = (&first.model, &runs(&pipeline.recipe, strategy));
    let memory = Some(pipeline.capacity);
    let job = Job { file: &file, graph: &graph, header, recipe, memory, cluster, exact: false };
    Ok(pinned::pipeline(&job, (strategy, &[]), Some(&pipeline.schedule), &|_| {})?.seconds())
}

/// Refuses a strategy whose micro-batches are others: the program would be another.
fn has_the_same_batches(plan: &Plan, recipe: &Recipe, strategy: &Strategy) -> Result<(), Failure> {
    let at_once = examples(&plan.graph);
    let own = (strategy.micro_batches, strategy.data * strategy.micro_batch);
    if own == (recipe.micro_batches, at_once) {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "it has {} micro-batches of {} examples, the plan {} of {at_once}: plan with `--dim batch={} --microbatches {}`",
        own.0, own.1, recipe.micro_batches, own.1, own.0
    )))
}
