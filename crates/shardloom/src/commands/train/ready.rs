//! What `train` reads and refuses before a rank starts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use driver::pipeline::Stage;
use files::Failure;
use files::checkpoint::{Checkpoint, Lock, Settings, lock};
use files::model_file::ModelFile;
use files::written;
use launch::cluster::{self, Facts};
use launch::gpu;
use lower::Program;
use planner_ir::{Graph, Source, State, Type};

use crate::commands::Context;
use crate::train::arguments::TrainArguments;
use crate::train::data::Data;
use crate::train::resume::{Resumed, resumed};
use crate::train::settings::settings;
use crate::train::trained::Trained;

/// What is ready to be trained.
pub(super) struct Ready {
    pub(super) trained: Trained,
    pub(super) data: Data,
    pub(super) states: BTreeMap<State, Type>,
    pub(super) settings: Settings,
    pub(super) resumed: Option<Resumed>,
    pub(super) programs: Vec<Program>,
    /// What the files of data and weights are compared by with those of other ranks.
    pub(super) prints: Facts,
    /// The folder of checkpoints, into which nobody else writes.
    pub(super) lock: Option<Lock>,
}

/// Everything before a rank starts, or the stage after which nothing is to be done.
pub(super) fn ready(
    arguments: &TrainArguments,
    context: &mut Context<'_, '_>,
) -> Result<Result<Ready, Stage>, Failure> {
    gpu::expect(&arguments.on, context.cluster)?;
    if context.leads() {
        check_outputs(arguments)?;
    }
    context.progress.say(format!("reading {}", arguments.plan.display()));
    let progress = context.progress;
    let stages = &mut *context.stages;
    let trained = Trained::read(
        &arguments.plan,
        arguments.model.as_deref(),
        &mut |stage, made| stages.observe(stage, made),
        &|words| progress.say(words),
    )?;
    if context.stages.stops_after(Stage::Plan) {
        return Ok(Err(Stage::Plan));
    }
    check_not_read(arguments, &trained.file)?;
    context.progress.say(format!("reading {}", arguments.data.display()));
    let data = Data::open(&arguments.data, arguments.tokens, &trained.graph, &trained.recipe)?;
    let states = lasting(&trained.graph);
    // The whole of the data is read for its checksum: only where checkpoints need it.
    let checkpoints = arguments.checkpoint.is_some() || arguments.resumes().is_some();
    let settings = if checkpoints { settings(arguments, &trained.recipe, &data)? } else { Settings::new() };
    let lock = match arguments.checkpoint.as_deref().filter(|_| context.leads()) {
        // What cannot be written is known before the first step.
        Some(folder) => lock(folder)?,
        None => None,
    };
    let resumed = resumed(arguments, &trained.model, &settings, &data, &states)?;
    context.progress.say("lowering");
    let stages = &mut *context.stages;
    let programs = trained.programs(&mut |stage, made| stages.observe(stage, made))?;
    if stages.stops_after(Stage::Lower) {
        return Ok(Err(Stage::Lower));
    }
    let mut prints = context.prints(&trained.file)?;
    if context.cluster.is_some() {
        prints.push(("the data".to_owned(), data.fingerprint()?));
    }
    Ok(Ok(Ready { trained, data, states, settings, resumed, programs, prints, lock }))
}

/// How many ranks there are, and what all of them have to do alike.
pub(super) fn facts(arguments: &TrainArguments, ready: &Ready) -> (Option<u64>, Facts) {
    let TrainArguments { steps, lr, min_lr, warmup, schedule, seed, every, tokens, .. } = arguments;
    let start = ready.resumed.as_ref().map_or_else(
        || "the model".to_owned(),
        |Resumed { checkpoint: Checkpoint { manifest, .. }, .. }| {
            format!("step {} (SHA-256 {})", manifest.step, manifest.checksum().unwrap_or_default())
        },
    );
    let saves = arguments.checkpoint.is_some();
    let plan = format!("{} (SHA-256 {:.12}..)", arguments.plan.display(), ready.trained.sha256());
    let facts = cluster::facts([
        ("the plan", plan),
        ("the model", ready.trained.model.sha256.clone()),
        ("the width of tokens", format!("{tokens:?}")),
        ("the number of examples", ready.data.examples.to_string()),
        ("the checkpoint to start from", start),
        ("the learning rate", format!("{schedule:?} {lr} to {min_lr}, {warmup} steps of warm-up")),
        ("the seed", seed.unwrap_or(0).to_string()),
        ("the steps", format!("{steps}, checkpoints {saves} every {every}")),
    ]);
    (u64::try_from(ready.programs.len()).ok(), [facts, ready.prints.clone()].concat())
}

/// Refuses outputs that cannot be written, or are read.
fn check_outputs(arguments: &TrainArguments) -> Result<(), Failure> {
    let TrainArguments { plan, data, weights, export, log, .. } = arguments;
    if weights.extension().is_none_or(|it| it != "safetensors") {
        let message = format!("{}: expected a name that ends in `.safetensors`", weights.display());
        return Err(Failure::Usage(message));
    }
    let outputs: Vec<&PathBuf> =
        [Some(weights), export.as_ref(), log.as_ref()].into_iter().flatten().collect();
    for (number, output) in outputs.iter().enumerate() {
        written::differs(output, &[plan, data])?;
        let folder = output.parent().filter(|it| !it.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|it| !it.is_dir()) {
            let message = format!("cannot be written: `{}` is no folder", folder.display());
            return Err(Failure::file(output, message));
        }
        if outputs[..number].contains(output) {
            let message =
                format!("{}: is the name of two outputs, expected different ones", output.display());
            return Err(Failure::Usage(message));
        }
    }
    Ok(())
}

/// Refuses outputs that are the model or a file of its weights.
fn check_not_read(arguments: &TrainArguments, file: &ModelFile) -> Result<(), Failure> {
    let TrainArguments { weights, export, log, .. } = arguments;
    for output in [Some(weights), export.as_ref(), log.as_ref()].into_iter().flatten() {
        file.spares(output)?;
    }
    Ok(())
}

/// The states that last from step to step, and their types.
fn lasting(graph: &Graph) -> BTreeMap<State, Type> {
    let states = graph.values.iter().filter_map(|value| match &value.source {
        Source::State(state) if !state.kind.is_summed() => Some((state.clone(), value.type_.clone())),
        _ => None,
    });
    states.collect()
}
