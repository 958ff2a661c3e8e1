//! `train`: a plan and data to trained weights.

use std::fmt::Write as _;

use cost_models::quantity;
use driver::training::{Change, Finished, Ready, Resumed, Run, StepReport, facts, ready};
use files::Failure;
use files::checkpoint::Checkpoint;
use launch::gpu;
use serde_json::{Value, json};

use super::{Context, Form, Said, stopped};
use crate::arguments::TrainArguments;

/// Trains as a plan says.
pub(crate) fn train(arguments: &TrainArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let job = arguments.job();
    let read = gpu::expect(&arguments.on, context.cluster).and_then(|()| {
        let (last, stages) = (context.stages.last(), &mut *context.stages);
        let mut observe = |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
        ready(&job, context.cluster, last, &mut observe, context.progress)
    });
    let agreed = context.agree(read, |ready| match ready {
        Ok(ready) => facts(&job, ready),
        Err(_) => (None, Vec::new()),
    });
    // The folder of checkpoints is this job's as long as this is there.
    let mut ready: Ready = match agreed? {
        Ok(ready) => ready,
        Err(stage) => return Ok(stopped(stage)),
    };
    context.progress.say("reading weights");
    let (programs, file) = (std::mem::take(&mut ready.programs), &ready.trained.file);
    let session = gpu::session(&arguments.on, context.cluster, context.progress, programs, file);
    let session = session.map_err(|error| Failure::of_run("train", &file.path, &error))?;
    let mut run = Run::new(&job, &ready, session)?;
    if let Some(Resumed { checkpoint, changes, instead }) = &ready.resumed {
        instead.iter().for_each(|failure| recovered(failure, checkpoint, context));
        changes.iter().for_each(|change| changed(change, context));
    }
    let progress = context.progress;
    run.steps(progress, &mut |report: &StepReport| line(&report.to_string(), &report.json(), context))?;
    progress.say("writing weights");
    Ok(run.finish()?.map_or(Said { text: String::new(), json: Value::Null }, |it| said(arguments, &it)))
}

/// Says what is another than in the checkpoint.
fn changed(change: &Change, context: &mut Context<'_, '_>) {
    let Change { name, before, now } = change;
    let text = format!("{name}: {now}, before the checkpoint {before}");
    line(&text, &json!({ "changed": name, "before": before, "now": now }).to_string(), context);
}

/// Says that an older checkpoint is gone on from, and why.
fn recovered(failure: &Failure, checkpoint: &Checkpoint, context: &mut Context<'_, '_>) {
    let folder = checkpoint.folder.display().to_string();
    let text = format!("checkpoint: {failure}; the newest that is whole is {folder}, it goes on from there");
    line(&text, &json!({ "damaged": failure.to_string(), "resumed": folder }).to_string(), context);
}

fn line(text: &str, json: &str, context: &mut Context<'_, '_>) {
    let line = match context.lines.form {
        Form::Text => format!("{text}\n"),
        Form::Json => format!("{json}\n"),
        Form::Nothing => return,
    };
    let to = &mut *context.lines.to;
    // If nobody reads any more, the weights are still wanted.
    let _ = context.progress.without(|| to.write_all(line.as_bytes()).and_then(|()| to.flush()));
}

/// What is said of a run in the end.
fn said(arguments: &TrainArguments, finished: &Finished) -> Said {
    let Finished { steps, parameters, bytes, checkpoint } = finished;
    let (path, export) = (arguments.weights.display(), arguments.export.as_ref().map(|it| it.display()));
    let mut text = format!("weights    {path}, {parameters} parameters, {}\n", quantity::bytes(*bytes));
    // Writing to a string does not fail.
    if let Some(export) = &export {
        let _ = writeln!(text, "model      {export}");
    }
    if let Some(checkpoint) = checkpoint {
        let _ = writeln!(text, "checkpoint {}", checkpoint.display());
    }
    let json = json!({
        "steps": steps,
        "weights": path.to_string(),
        "parameters": parameters,
        "model": export.map(|it| it.to_string()),
        "checkpoint": checkpoint.as_ref().map(|it| it.display().to_string()),
    });
    Said { text, json }
}
