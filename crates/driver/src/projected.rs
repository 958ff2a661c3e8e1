//! What a plan costs as another runtime runs it: planned again, where each axis does what it does there and
//! nothing else.

use std::path::Path;

use autoparallel::serving::{Shared, ruled as ruled_serving};
use autoparallel::staged::{Forward, Meshes, Order, Wanted, staged};
use autoparallel::target::Target;
use autoparallel::variants::{Decisions, Phases, Training};
use cost_models::cluster::Cluster;
use export::strategy::Again;
use export::{Runs, Serving, Strategy};
use files::{Failure, machine, plan_file};
use plan::json::Content;
use plan::{Generation, Parallelism, Pipeline, Plan, Recipe, Recompute, examples};
use planner_ir::{Axis, Mesh};
use rewrite::Steps;
use search::{OverExperts, Ruled, Rules};

use crate::derived;
use crate::generation::planned::{self, Step};
use crate::pipeline::{self, Prepared};

/// What each program of a file takes as a target runs it (seconds), or why that is not known: the cheapest of all in
/// which no axis does more than its kind of parallelism, states are sharded no further, and stages, schedule,
/// micro-batches and what is computed again are those of the strategy. A runtime that has less choice takes longer.
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
        let graph = derived::imported(&file, plan, Some(&generation.cache))
            .map_err(|error| Failure::file(&file.path, error))?;
        Ok(Step { prepared: pipeline::prepare(&graph, &mut |_, _| {})?, header: plan.model.clone() })
    };
    let prefill = generation.prefill.as_ref().map(step).transpose()?;
    let decode = step(&generation.decode)?;
    let (mesh, rules) = ruled_as(serving, &decode.prepared);
    let wanted = planned::Wanted {
        machine: &machine,
        ways: vec![(mesh, Some(rules))],
        capacity: generation.decode.capacity,
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
    let machine = machine::single(cluster)?;
    let file = plan_file::model(path, plan, None)?;
    let imported = derived::imported(&file, plan, None).map_err(|error| Failure::file(&file.path, error))?;
    let recipe = Recipe { recompute: vec![], ..recipe.clone() };
    let decisions = Decisions::Only(again(strategy));
    let training = Training { recipe, decisions, phases: Phases::Together };
    let prepared = pipeline::prepare_training(&file, &imported, &training, &mut |_, _| {})?;
    let (mesh, rules) = ruled(strategy)?;
    let target = Target {
        capacity: plan.capacity,
        steps: Steps::One,
        rules: Some(&rules),
        ..Target::of(&machine, &mesh)
    };
    Ok(pipeline::plan(&prepared, &plan.model, &target, &mut |_, _| {})?.seconds())
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
    let imported =
        derived::imported_pipeline(&file, pipeline).map_err(|error| Failure::file(&file.path, error))?;
    let recipe = Recipe { recompute: vec![], ..pipeline.recipe.clone() };
    let forward = Forward::of(&file, &imported, &recipe)?.again(&again(strategy));
    let (mesh, rules) = ruled(strategy)?;
    let wanted = Wanted {
        cluster,
        meshes: Meshes::Alike(&mesh),
        memory: Some(pipeline.capacity),
        steps: Steps::One,
        order: strategy.schedule.map_or_else(|| Order::Written(pipeline.schedule.clone()), Order::Named),
        chunks: usize::try_from(strategy.chunks).unwrap_or(1),
        first: Some(first_blocks(&forward, strategy)),
        fixed: &[],
        rules: Some(&rules),
    };
    Ok(staged(&forward, &first.model, &wanted, &|_| {})?.seconds())
}

/// The first block of each stage: the first that has a parameter of its first layer, or what follows all layers.
fn first_blocks(forward: &Forward, strategy: &Strategy) -> Vec<usize> {
    let layer = |name: &str| {
        let rest = name.strip_prefix(&strategy.prefix)?;
        rest.strip_prefix('.').unwrap_or(rest).split('.').next()?.parse::<u64>().ok()
    };
    let of_blocks: Vec<Option<u64>> =
        forward.weights().iter().map(|names| names.iter().filter_map(|name| layer(name)).min()).collect();
    let end = of_blocks.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let mut start = 0;
    let first = |&layers: &u64| {
        let from = start;
        start += layers;
        match from {
            0 => 0,
            _ => of_blocks.iter().position(|it| it.is_some_and(|layer| layer >= from)).unwrap_or(end),
        }
    };
    let mut all: Vec<usize> = strategy.layers.iter().map(first).collect();
    // A first stage without layers has what comes before them.
    let before = of_blocks.iter().position(Option::is_some).unwrap_or(0);
    all.iter_mut().skip(1).filter(|first| **first == 0).for_each(|first| *first = before);
    all
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

fn again(strategy: &Strategy) -> Recompute {
    match strategy.recompute {
        Again::Nothing => Recompute::Nothing,
        Again::Selective => Recompute::Selective,
        Again::Full => Recompute::Full,
    }
}

/// The mesh of a stage group, and what its axes are for: data, context and tensor parallelism from the outermost
/// axis on, experts over the innermost data parallel devices.
fn ruled(strategy: &Strategy) -> Result<(Mesh, Rules), Failure> {
    let Strategy { data, context, tensor, experts, zero, sharded, sequence, .. } = *strategy;
    let inner = if experts > 1 { experts } else { sharded };
    if !data.is_multiple_of(inner) {
        return Err(Failure::Input(format!("{inner} devices are no part of {data} data parallel ones")));
    }
    let of = |role: Parallelism, experts: bool, shards: bool| Ruled {
        role,
        experts: if experts { OverExperts::MaySplit } else { OverExperts::AsOthers },
        shards: shards && zero > 0,
    };
    let axes = [
        ("replica", data / inner, of(Parallelism::Data, false, experts > 1)),
        ("data", inner, of(Parallelism::Data, experts > 1, true)),
        ("context", context, of(Parallelism::Context, false, true)),
        ("tensor", tensor, of(Parallelism::Tensor, false, false)),
    ];
    let mut axes: Vec<_> = axes.into_iter().filter(|it| it.1 > 1).collect();
    if axes.is_empty() {
        axes.push(("data", 1, of(Parallelism::Data, false, false)));
    }
    let named = |&(name, size, _): &(&str, u64, Ruled)| Axis { name: name.to_owned(), size };
    let mesh = Mesh { axes: axes.iter().map(named).collect() };
    Ok((mesh, Rules { axes: axes.into_iter().map(|it| it.2).collect(), sequence, zero }))
}
