//! What `train` reads and refuses before a rank starts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use files::Failure;
use files::checkpoint::{Checkpoint, Lock, Settings, lock};
use files::model_file::Facts;
use files::model_file::ModelFile;
use files::written;
use launch::Listener;
use launch::cluster::{self, Cluster};
use lower::Program;
use planner_ir::{Graph, Source, State, Type};

use super::data::Data;
use super::job::Job;
use super::resume::{Resumed, resumed};
use super::schedule::Schedule;
use super::settings::settings;
use super::trained::Trained;
use crate::pipeline::{Observer, Stage};

/// What is ready to be trained.
pub struct Ready {
    /// The plan, its model and its recipe.
    pub trained: Trained,
    /// The examples.
    pub data: Data,
    /// The states that last from step to step.
    pub states: BTreeMap<State, Type>,
    /// What checkpoints are told.
    pub settings: Settings,
    /// What is gone on from.
    pub resumed: Option<Resumed>,
    /// The programs of all ranks, until a session takes them.
    pub programs: Vec<Program>,
    /// What the files of data and weights are compared by with those of other ranks.
    pub prints: Facts,
    /// The folder of checkpoints, into which nobody else writes.
    pub lock: Option<Lock>,
}

/// Everything before a rank starts, or the stage after which nothing is to be done.
///
/// Each of the processes of a cluster reads for itself; the first one looks at what is to be written.
pub fn ready(
    job: &Job,
    cluster: Option<&Cluster>,
    last: Option<Stage>,
    observe: Observer<'_>,
    listener: &dyn Listener,
) -> Result<Result<Ready, Stage>, Failure> {
    let leads = cluster.is_none_or(|it| it.processes.leads());
    if leads {
        check_outputs(job)?;
    }
    listener.say(format!("reading {}", job.plan.display()).into());
    let trained = Trained::read(&job.plan, job.model.as_deref(), observe, &|words| listener.say(words))?;
    if last == Some(Stage::Plan) {
        return Ok(Err(Stage::Plan));
    }
    check_not_read(job, &trained.file)?;
    listener.say(format!("reading {}", job.data.display()).into());
    let data = Data::open(&job.data, job.tokens, &trained.graph, &trained.recipe)?;
    let states = lasting(&trained.graph);
    // The whole of the data is read for its checksum: only where checkpoints need it.
    let checkpoints = job.checkpoint.is_some() || job.resumes().is_some();
    let settings =
        if checkpoints { settings(&job.schedule, &trained.recipe, &data)? } else { Settings::new() };
    let lock = match job.checkpoint.as_deref().filter(|_| leads) {
        // What cannot be written is known before the first step.
        Some(folder) => lock(folder)?,
        None => None,
    };
    let resumed = resumed(job, &trained.model, &settings, &data, &states)?;
    listener.say("lowering".into());
    let programs = trained.programs(observe)?;
    if last == Some(Stage::Lower) {
        return Ok(Err(Stage::Lower));
    }
    let mut prints = Facts::new();
    if cluster.is_some() {
        prints = trained.file.prints()?;
        prints.push(("the data".to_owned(), data.fingerprint()?));
    }
    Ok(Ok(Ready { trained, data, states, settings, resumed, programs, prints, lock }))
}

/// How many ranks there are, and what all of them have to do alike.
pub fn facts(job: &Job, ready: &Ready) -> (Option<u64>, Facts) {
    let Job { schedule, seed, every, tokens, .. } = job;
    let Schedule { peak: lr, least: min_lr, warmup, shape, last: steps } = schedule;
    let start = ready.resumed.as_ref().map_or_else(
        || "the model".to_owned(),
        |Resumed { checkpoint: Checkpoint { manifest, .. }, .. }| {
            format!("step {} (SHA-256 {})", manifest.step, manifest.checksum().unwrap_or_default())
        },
    );
    let saves = job.checkpoint.is_some();
    let plan = format!("{} (SHA-256 {:.12}..)", job.plan.display(), ready.trained.sha256());
    let facts = cluster::facts([
        ("the plan", plan),
        ("the model", ready.trained.model.sha256.clone()),
        ("the width of tokens", format!("{tokens:?}")),
        ("the number of examples", ready.data.examples.to_string()),
        ("the checkpoint to start from", start),
        ("the learning rate", format!("{shape:?} {lr} to {min_lr}, {warmup} steps of warm-up")),
        ("the seed", seed.unwrap_or(0).to_string()),
        ("the steps", format!("{steps}, checkpoints {saves} every {every}")),
    ]);
    (u64::try_from(ready.programs.len()).ok(), [facts, ready.prints.clone()].concat())
}

/// Refuses outputs that cannot be written, or are read.
fn check_outputs(job: &Job) -> Result<(), Failure> {
    let Job { plan, data, weights, export, log, .. } = job;
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
        written::possible(output)?;
        if outputs[..number].contains(output) {
            let message =
                format!("{}: is the name of two outputs, expected different ones", output.display());
            return Err(Failure::Usage(message));
        }
    }
    Ok(())
}

/// Refuses outputs that are the model or a file of its weights.
fn check_not_read(job: &Job, file: &ModelFile) -> Result<(), Failure> {
    let Job { weights, export, log, .. } = job;
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
