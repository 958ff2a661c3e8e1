//! The checkpoint that a run goes on from, which has to suit it.

use std::collections::BTreeMap;
use std::path::Path;

use files::Failure;
use files::checkpoint::{self, Checkpoint, Manifest, Settings};
use plan::ModelFile;
use planner_ir::{State, Type};

use super::data::Data;
use super::job::Job;
use super::settings::{Change, MASTERS, changes};

/// A checkpoint that a run goes on from.
pub struct Resumed {
    /// Where it is, and what it says.
    pub checkpoint: Checkpoint,
    /// What is changed since.
    pub changes: Vec<Change>,
    /// What is wrong with the newest one, where this is an older one.
    pub instead: Option<Failure>,
}

/// The checkpoint to go on from, if there is one. One that is named has to be whole; else it is the newest
/// that is.
pub(crate) fn resumed(
    job: &Job,
    model: &ModelFile,
    settings: &Settings,
    data: &Data,
    states: &BTreeMap<State, Type>,
) -> Result<Option<Resumed>, Failure> {
    check_folder(job)?;
    let Some(path) = job.resumes() else { return Ok(None) };
    let (checkpoint, instead) = match job.resume {
        Some(_) => (checkpoint::open(path)?, None),
        None => checkpoint::newest_whole(path)?,
    };
    let Manifest { step, seed, examples, model_sha256, .. } = &checkpoint.manifest;
    let wrong = |error: String| Err(Failure::file(&checkpoint.folder, error));
    if *model_sha256 != model.sha256 {
        return wrong(format!(
            "is of another model: SHA-256 {model_sha256:.12}.., the plan's has {:.12}..",
            model.sha256
        ));
    }
    if *examples != data.examples {
        return wrong(format!(
            "is of a run on {examples} examples, {} has {}: give the same data",
            data.path().display(),
            data.examples
        ));
    }
    let changes = changes(&checkpoint.manifest.settings, settings);
    check_changes(job, &checkpoint, &changes)?;
    if let Some(other) = job.seed.filter(|other| other != seed) {
        return Err(Failure::Usage(format!(
            "`--seed {other}`, but the run that is gone on with has seed {seed}: leave it out"
        )));
    }
    if *step > job.last() {
        return Err(Failure::Usage(format!(
            "`--steps {}` is the number of the last step, and {} is of step {step}",
            job.last(),
            checkpoint.folder.display()
        )));
    }
    checkpoint.expect(states)?;
    Ok(Some(Resumed { checkpoint, changes, instead }))
}

/// Refuses to write into the folder of another run.
fn check_folder(job: &Job) -> Result<(), Failure> {
    if let Some(folder) = &job.checkpoint
        && let Some(step) = checkpoint::steps(folder)?.last()
        && !job.resumes().is_some_and(|resume| is_within(resume, folder))
    {
        return Err(Failure::Usage(format!(
            "{0}: has checkpoints already, the last of step {step}: go on from it with `--resume {0}`, or give \
             another folder",
            folder.display()
        )));
    }
    Ok(())
}

/// Refuses changes that are mistakes more often than meant, unless they are asked for. Those of the
/// optimizer, the precision and the masters change what states there are: they cannot be meant.
fn check_changes(job: &Job, checkpoint: &Checkpoint, changes: &[Change]) -> Result<(), Failure> {
    let mut unusual = changes.iter().filter(|it| !it.is_usual());
    let states = ["optimizer", "precision", MASTERS];
    let first = changes.iter().find(|it| states.contains(&it.name.as_str()));
    let hint = match first {
        Some(_) => String::new(),
        None => format!("; if that is meant, go on with `{ACCEPT}`"),
    };
    let Some(Change { name, before, now }) = first.or_else(|| unusual.next()) else { return Ok(()) };
    if first.is_none() && job.accept_changes {
        return Ok(());
    }
    let message = format!("is of a run whose {name} is {before}; here it is {now}{hint}");
    Err(Failure::file(&checkpoint.folder, message))
}

/// The argument that accepts changes.
const ACCEPT: &str = "--accept-changes";

/// Whether a path is a folder, or is in it.
pub(crate) fn is_within(path: &Path, folder: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    let folder = whole(folder);
    folder.is_some()
        && whole(path).is_some_and(|path| {
            folder.as_deref() == Some(path.as_path()) || folder.as_deref() == path.parent()
        })
}
