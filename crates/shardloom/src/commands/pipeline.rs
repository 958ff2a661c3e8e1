//! `plan` in stages: a model and a machine to the file of a pipeline.

mod there; // for a framework, by its figures

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ::export::{Job, Strategy};
use ::plan::{Pipeline, Recipe};
use autoparallel::limits::Limits;
use autoparallel::mesh;
use cost_models::cluster::Cluster;
use cost_models::quantity;
use driver::compile::{self, Imported};
use driver::derived;
use driver::pinned;
use driver::pipeline::cluster::{Answer, Pins, Question, cheapest};
use driver::pipeline::staged::{Forward, Meshes, Order, Wanted, kind, staged, too_much};
use driver::pipeline::{self, Stage, parameters};
use driver::training::derived_pipeline;
use driver::ways;
use files::model_file::ModelFile;
use files::{Doing, Failure};
use files::{model_file, plan_file, readable};
use import::Bindings;
use planner_ir::Mesh;
use report::attention::Found;
use report::summary::staged::{summary, summary_json};
use report::throughput;
use report::weight_roles::Weights;
use schedule::{Kind, Schedule};
use search::Rules;

use super::export::{Of, say_expected};
use super::{Context, Said, stopped};
use crate::arguments::{PlanArguments, Stages};
use crate::progress::Progress;

use there::{Asked, Settled};

/// Plans a training step in stages: on the mesh that is given for each group of devices, or the best
/// of several.
pub(super) fn pipeline(
    arguments: &PlanArguments,
    asked: &Stages,
    imported: &Imported,
    machines: &Cluster,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let wanted = &arguments.pipeline;
    let recipe = recipe(arguments)?;
    let candidates = candidates(arguments, asked, machines)?;
    let meshes: Vec<Meshes<'_>> = match asked {
        Stages::Meshes(meshes) => vec![Meshes::Each(meshes)],
        _ => candidates.iter().map(Meshes::Alike).collect(),
    };
    let forward = Forward::of(&imported.file, &imported.graph, &recipe)?;
    let forward = match arguments.recipe.of_every_block() {
        Some(recompute) => forward.again(&recompute),
        None => forward,
    };
    let fixed = Pins::parse(&wanted.pins)?.of_operations()?;
    forward.knows(&fixed)?;
    let order = order(&wanted.schedule)?;
    let limits = arguments.runtime.map(ways::limits).transpose()?;
    let ways = ways(limits.as_ref(), &meshes, &order)?;
    let mut best: Option<Pipeline> = None;
    let mut refused = None;
    for (meshes, rules) in &ways {
        let meshes = *meshes;
        let wanted = Wanted {
            cluster: machines,
            meshes,
            memory: arguments.target.memory(),
            steps: arguments.target.steps(),
            order: order.clone(),
            chunks: wanted.chunks,
            first: wanted.cut.clone(),
            fixed: &fixed,
            rules: rules.as_ref(),
            alike: limits.is_some(),
        };
        let progress = context.progress;
        let title = match meshes {
            Meshes::Alike(mesh) => format!("mesh {}", mesh::sizes(mesh)),
            Meshes::Each(all) => {
                format!("meshes {}", all.iter().map(mesh::sizes).collect::<Vec<_>>().join(", "))
            }
        };
        let say = |doing: Doing| progress.say(doing.within(&title));
        match staged(&forward, &imported.header, &wanted, &say) {
            Ok(made) if best.as_ref().is_none_or(|best| made.seconds() < best.seconds()) => best = Some(made),
            Ok(_) => {}
            Err(failure @ (Failure::Usage(_) | Failure::Internal(_))) => return Err(failure),
            Err(failure) => refused = Some(failure),
        }
    }
    let best =
        best.ok_or_else(|| refused.unwrap_or_else(|| Failure::internal("plan", "no mesh was tried")))?;
    let (name, before) = match (kind(&best), order) {
        (Some(found), Order::Named(asked)) if !is_of(&best, asked) => {
            (found.name(), held_back(&best, found, asked))
        }
        _ => (wanted.schedule.as_str(), String::new()),
    };
    said(&best, (name, machines), before, (arguments, &imported.file, &imported.warnings), context)
}

/// The meshes that are tried, and what their axes are for where another runtime runs the plan.
fn ways<'a>(
    limits: Option<&Limits>,
    meshes: &[Meshes<'a>],
    order: &Order,
) -> Result<Vec<(Meshes<'a>, Option<Rules>)>, Failure> {
    let Some(limits) = limits else { return Ok(meshes.iter().map(|&it| (it, None)).collect()) };
    let runs = match order {
        Order::Named(kind) => limits.schedules.contains(kind),
        Order::Written(_) => limits.schedules.len() == Kind::ALL.len(),
    };
    if limits.schedules.is_empty() {
        let words =
            format!("`--for`: {} has no pipelines: leave `--stages` out, or `--pin pp=1`", limits.title);
        return Err(Failure::Usage(words));
    }
    if !runs {
        let names: Vec<&str> = limits.schedules.iter().map(|kind| kind.name()).collect();
        return Err(Failure::Usage(format!(
            "`--for`: {} has no such schedule, expected `--schedule` {}",
            limits.title,
            names.join(" or ")
        )));
    }
    let of = |&meshes: &Meshes<'a>| match meshes {
        Meshes::Alike(mesh) => Ok(limits
            .rules(mesh, usize::MAX, None)
            .into_iter()
            .map(|it| (meshes, Some(it)))
            .collect::<Vec<_>>()),
        Meshes::Each(_) => Err(Failure::Usage(format!(
            "`--for`: {} has one mesh for all stages, expected `--stages N`",
            limits.title
        ))),
    };
    Ok(meshes.iter().map(of).collect::<Result<Vec<_>, _>>()?.concat())
}

/// How a model is trained in stages.
fn recipe(arguments: &PlanArguments) -> Result<Recipe, Failure> {
    arguments
        .recipe
        .recipe(arguments.runtime)
        .ok_or_else(|| Failure::Usage("a plan in stages is one to train, expected `--mode train`".to_owned()))
}

/// Whether a pipeline has a schedule.
fn is_of(pipeline: &Pipeline, kind: Kind) -> bool {
    let own = &pipeline.schedule;
    let count = usize::try_from(pipeline.micro_batches()).unwrap_or(usize::MAX);
    kind.schedule(own.groups.len(), own.chunks, count).is_ok_and(|made| made == *own)
}

/// Why a pipeline has another schedule than was asked for.
fn held_back(pipeline: &Pipeline, found: Kind, asked: Kind) -> String {
    let too_much = too_much(pipeline).into_iter().find(|it| it.kind == asked);
    let why = too_much.map_or(format!("{asked} was not found to fit"), |it| {
        format!(
            "by {asked} group {} would hold {} of {}",
            it.group,
            quantity::bytes(it.bytes),
            quantity::bytes(pipeline.capacity_of(it.group))
        )
    });
    format!("schedule   {found}: {why}\n")
}

/// Writes a pipeline and says what it comes to.
fn said(
    pipeline: &Pipeline,
    (schedule, machines): (&str, &Cluster),
    before: String,
    (arguments, file, warnings): (&PlanArguments, &ModelFile, &[String]),
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    context.stages.observe(Stage::Plan, &::plan::json::write_pipeline(pipeline));
    context.progress.say("deriving the step again");
    let step = derived_pipeline(&arguments.output, pipeline, file);
    step.map_err(|failure| Failure::internal("plan", failure))?;
    plan_file::write_pipeline(&arguments.output, pipeline)?;
    if context.stages.stops_after(Stage::Plan) {
        return Ok(stopped(Stage::Plan));
    }
    let imported =
        derived::imported_pipeline(file, pipeline).map_err(|error| compile::refusal(file, &error))?;
    let found = parameters::roles(file, &imported, &arguments.recipe.asked())?;
    let graphs = pipeline.stages.iter().map(|stage| &stage.plan.graph);
    let weights = Weights::of(graphs, &pipeline.recipe.roles, Some(&found));
    let throughput = throughput::of_pipeline(pipeline, pipeline.seconds(), Some(machines));
    let mut text = before + &summary(pipeline, schedule, throughput.as_ref());
    for line in weights.lines() {
        let _ = writeln!(text, "{line}");
    }
    let found = found_in(pipeline).after(warnings);
    for line in found.lines() {
        let _ = writeln!(text, "{line}");
    }
    let mut json = summary_json(pipeline, throughput.as_ref());
    json["parameters"] = weights.json();
    let told = (Job::of_pipeline(pipeline), arguments.runtime);
    let of = Of { model: Some(arguments.model()), work: &throughput::work_of_stages(pipeline) };
    say_expected(told, (machines, of), &mut text, &mut json);
    let _ = writeln!(text, "plan written to {}", arguments.output.display());
    found.say(&mut json, &|words| context.warn(words));
    Ok(Said { text, json })
}

/// What attention in the stages of a pipeline is found to be.
pub(super) fn found_in(pipeline: &Pipeline) -> Found {
    Found::of(pipeline.stages.iter().map(|stage| &stage.plan.graph))
}

/// Plans a training step on a whole cluster.
pub(super) fn cluster(
    arguments: &PlanArguments,
    machines: &Cluster,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    let examples = examples(arguments)?;
    let file = model_file::open_for(arguments.model(), arguments.recipe.graph(arguments.runtime))?;
    context.progress.say_left_out(&file);
    file.spares(&arguments.output)?;
    let Settled { answer, led } =
        answer((arguments, &file), machines, examples, arguments.target.memory(), context.progress)?;
    let found = led.unwrap_or_else(|| of_all(&answer, machines));
    let mut before = format!("chosen     {}; {found}\n", answer.in_words());
    let capacity = arguments.target.memory().or_else(|| Some(machines.single()?.usable_memory().0));
    if let (Some(runtime), Some(capacity)) = (arguments.runtime, capacity)
        && answer.pipeline.capacity < capacity
    {
        let _ = writeln!(
            before,
            "room       {} of {} of a device: {} holds more than our programs, by its figures",
            quantity::bytes(answer.pipeline.capacity),
            quantity::bytes(capacity),
            runtime.title()
        );
    }
    // Names of dimensions are taken apart where shapes of inputs say so, and these are not given here.
    said(&answer.pipeline, (answer.kind.name(), machines), before, (arguments, &file, &[]), context)
}

/// How many setups an answer is chosen among by our prices, and what is proven of the others, in words.
fn of_all(answer: &Answer, machines: &Cluster) -> String {
    let (all, priced) = answer.looked_at;
    let meshes = &answer.chosen.meshes;
    // Of groups that are alike, on nodes of one kind, more is proven than of all.
    let alike = machines.single().is_some() && meshes.iter().all(|it| *it == meshes[0]);
    let others = if alike { "the others" } else { "all there are" };
    let gap = match answer.pipeline.proof {
        ::plan::Proof::Optimal => "none is better".to_owned(),
        ::plan::Proof::Gap { lower_bound } if lower_bound <= 0.0 => {
            format!("how fast {others} may be is not known")
        }
        ::plan::Proof::Gap { lower_bound } => {
            format!("none of {others} is below {} (proven)", quantity::seconds(lower_bound))
        }
    };
    format!("{all} setups, {priced} of them priced, {gap}")
}

/// How many examples a step has.
pub(super) fn examples(arguments: &PlanArguments) -> Result<u64, Failure> {
    arguments.pipeline.global_batch.ok_or_else(|| {
        Failure::Usage("`--stages auto` takes the examples of a step: `--global-batch N`".to_owned())
    })
}

/// The cheapest pipeline on a machine.
pub(super) fn answer(
    (arguments, file): (&PlanArguments, &ModelFile),
    cluster: &Cluster,
    examples: u64,
    memory: Option<u64>,
    progress: &Progress,
) -> Result<Settled, Failure> {
    let wanted = &arguments.pipeline;
    let recipe = recipe(arguments)?;
    let dim = &wanted.batch_dim;
    if arguments.target.mesh.is_some() || arguments.bound.dims.iter().any(|(name, _)| name == dim) {
        return Err(Failure::Usage(format!(
            "`--stages auto` chooses the mesh and the size of `{dim}`: leave `--mesh` and that `--dim` out, or \
             `--pin` decisions"
        )));
    }
    let limits = arguments.runtime.map(ways::limits).transpose()?;
    let pins = Pins { limits, ..Pins::parse(&wanted.pins)? };
    let single = parameters::single(file, &recipe.roles);
    let dims = |micro_batches: u64| {
        let mut dims: BTreeMap<String, u64> = arguments.bound.dims.iter().cloned().collect();
        dims.insert(dim.clone(), examples / micro_batches.max(1));
        dims
    };
    let header = |micro_batches: u64| ::plan::ModelFile {
        path: arguments.model().display().to_string(),
        sha256: file.sha256.clone(),
        dims: dims(micro_batches).into_iter().collect(),
    };
    let imported = |micro_batches: u64| {
        let parameters = single.clone();
        let bindings = Bindings { dims: dims(micro_batches), parameters, ..Bindings::default() };
        let graph = pipeline::import(file, &bindings, &mut |_, _| {});
        let graph = graph.map_err(|error| compile::refusal(file, &error))?;
        compile::refuse_impossible(&graph, &header(micro_batches), BTreeMap::new())?;
        Ok(graph)
    };
    let search = |pins: &Pins, memory: Option<u64>| {
        let question = Question {
            file,
            header: &header,
            imported: &imported,
            recipe: &recipe,
            cluster,
            kind: 0,
            memory,
            examples,
            pins,
            thorough: wanted.thorough,
        };
        cheapest(&question, &|words| progress.say(words))
    };
    let pinned = |strategy: &Strategy| {
        let micro_batches = strategy.micro_batches;
        progress.say(format!("planning {}", strategy.in_words()));
        let graph = imported(micro_batches)?;
        let masters = strategy.masters.unwrap_or(recipe.masters);
        let (header, recipe) = (header(micro_batches), Recipe { micro_batches, masters, ..recipe.clone() });
        let (file, graph, header, recipe) = (file, &graph, &header, &recipe);
        let job = pinned::Job { file, graph, header, recipe, memory, cluster, exact: false };
        pinned::answer(&job, (strategy, &pins.operations), &|words| progress.say(words))
    };
    let (search, pinned, pins) = (&search, &pinned, pins.clone());
    Asked { arguments, cluster, pins, memory, examples, search, pinned }.settled()
}

/// The meshes that each group may have where all have the same.
fn candidates(arguments: &PlanArguments, asked: &Stages, machines: &Cluster) -> Result<Vec<Mesh>, Failure> {
    let devices = machines.devices();
    match (asked, &arguments.target.mesh) {
        (Stages::Number(groups), _) if !devices.is_multiple_of(*groups) => Err(Failure::Usage(format!(
            "{devices} devices do not fall into {groups} groups: give another number of stages or devices"
        ))),
        (Stages::Number(groups), Some(mesh)) if mesh.devices() * groups != devices => {
            Err(Failure::Usage(format!(
                "{groups} groups of mesh {} are {} devices, the machine {} has {devices}: give a mesh of {} devices",
                mesh::sizes(mesh),
                groups * mesh.devices(),
                machines.full_name(),
                devices / groups
            )))
        }
        (Stages::Number(_), Some(mesh)) => Ok(vec![mesh.clone()]),
        (Stages::Number(groups), None) => Ok(mesh::candidates(devices / groups)),
        (_, Some(_)) => Err(Failure::Usage(
            "`--stages` has the mesh of each group already: leave `--mesh` out".to_owned(),
        )),
        (_, None) => Ok(Vec::new()),
    }
}

/// The order of work that an argument names: a schedule or a file.
fn order(name: &str) -> Result<Order, Failure> {
    match name.parse::<Kind>() {
        Ok(kind) => Ok(Order::Named(kind)),
        Err(_) if Path::new(name).exists() => {
            let path = Path::new(name);
            let schedule: Result<Schedule, _> = readable::text(path)?.parse();
            schedule.map(Order::Written).map_err(|error| Failure::file(path, error))
        }
        Err(error) => Err(Failure::Usage(format!("{error}; and there is no file of that name"))),
    }
}
