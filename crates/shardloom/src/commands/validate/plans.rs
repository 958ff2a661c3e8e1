//! `validate --plans`: stated training steps as pinned plans, beside measurements.

use std::collections::BTreeSet;

use ::plan::json::Content;
use ::plan::{Plan, Term};
use cost_models::cluster::Cluster;
use driver::{pipeline, stated};
use files::{Failure, machine, readable, written};
use predict::rows::Kind as _;
use predict::rows::case::{Case, Told};
use predict::rows::training::{Training, apart};
use predict::setup::Arithmetic;
use predict::stated::Unstated;
use predict::table::{Row, Table};
use serde_json::{Value, json};
use simulate::{Order, SimulateError};
use validate::plans::{self, Line, Times};

use super::{Context, Said, refused};
use crate::arguments::ValidateArguments;

/// The most stages of a pipeline whose products are in 8 bits: a row of 96 takes minutes.
const STAGES: usize = 64;

/// Plans every training step of a folder that can be planned.
pub(super) fn plans(arguments: &ValidateArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let (folder, file) = (&arguments.data, Training.file());
    let text = readable::text(&folder.join(file))?;
    let table = Table::read(file, &text, Training.columns()).map_err(|error| refused(folder, &error))?;
    let is_asked = |row: &Row<'_>| {
        arguments.sources.is_empty() || arguments.sources.iter().any(|it| it == row.text("source"))
    };
    let known: BTreeSet<&str> = table.rows().map(|row| row.text("source")).collect();
    if let Some(unknown) = arguments.sources.iter().find(|it| !known.contains(it.as_str())) {
        let known: Vec<&str> = known.into_iter().collect();
        return Err(Failure::Usage(format!(
            "`--source {unknown}`: no row of {file} is of that source, expected one of {}",
            known.join(", ")
        )));
    }
    let rows: Vec<Row<'_>> = table.rows().filter(is_asked).collect();
    let mut lines = Vec::new();
    for row in &rows {
        context.progress.say(format!("planning {}, {}", row.text("row_id"), row.text("source")));
        lines.push(Line {
            file: file.to_owned(),
            row: row.text("row_id").to_owned(),
            source: row.text("source").to_owned(),
            gpu: row.text("gpu").to_owned(),
            answer: answer(row)?,
        });
    }
    if let Some(report) = &arguments.report {
        written::write(report, plans::page(&lines).as_bytes())?;
    }
    Ok(Said { text: plans::table(&lines), json: Value::Array(lines.iter().map(object).collect()) })
}

/// The times of a row; why there are none. What is wrong with the program ends the command.
fn answer(row: &Row<'_>) -> Result<Result<Times, String>, Failure> {
    match times(row) {
        Ok(times) => Ok(times),
        Err(failure @ Failure::Internal(_)) => Err(failure),
        Err(failure) => Ok(Err(failure.to_string())),
    }
}

fn times(row: &Row<'_>) -> Result<Result<Times, String>, Failure> {
    if let Some(why) = apart(row) {
        return Ok(Err(format!("reported apart: {why}")));
    }
    let measured = row.number("step_time_s").ok().flatten().filter(|it| it.is_finite() && *it > 0.0);
    let Some(measured) = measured else { return Ok(Err("no step time was measured".to_owned())) };
    let case = match Case::of(row) {
        Ok(case) => case,
        Err(why) => return Ok(Err(unstated(why))),
    };
    let Told { time, setup, .. } = match case.told() {
        Ok(told) => told,
        Err(why) => return Ok(Err(unstated(why))),
    };
    let [kind] = &case.kinds[..] else { return Ok(Err("nodes of several kinds".to_owned())) };
    let [groups, chunks, _] = predict::schedule::sizes(&setup);
    if setup.precision == Arithmetic::F8 && groups.saturating_mul(chunks) > STAGES {
        let why =
            format!("pipelines of more than {STAGES} stages with products in 8 bits are not planned here");
        return Ok(Err(why));
    }
    let framework_terms = stated::framework_terms(&setup, kind)?;
    let setup = stated::divisible(&setup, kind.cluster.node());
    let cluster = stated::cluster(&setup, &kind.cluster.machine)?;
    let content = stated::planned(&setup, &cluster)?;
    let (planned, planned_terms) = match &content {
        Content::Plan(plan) => (plan.seconds(), of_plan(plan)),
        Content::Pipeline(pipeline) => (pipeline.seconds(), terms(&pipeline.estimate)),
        Content::Generation(_) => return Err(Failure::internal("plan", "a training step became tokens")),
    };
    let predicted_terms = time.terms().iter().map(|term| (term.name.to_string(), term.time.0)).collect();
    let simulated = match simulated(&content, &cluster) {
        Ok(seconds) => Ok(seconds),
        Err(failure @ Failure::Internal(_)) => return Err(failure),
        Err(failure) => Err(failure.to_string()),
    };
    let (predicted, devices) = (time.total().0, setup.devices());
    Ok(Ok(Times {
        planned,
        simulated,
        predicted,
        measured,
        devices,
        planned_terms,
        framework_terms,
        predicted_terms,
    }))
}

fn unstated(why: Unstated) -> String {
    match why {
        Unstated::Field(error) => error.to_string(),
        Unstated::Why(why) => why,
    }
}

fn terms(estimate: &[Term]) -> Vec<(String, f64)> {
    estimate.iter().map(|term| (term.name.clone(), term.seconds)).collect()
}

fn of_plan(plan: &Plan) -> Vec<(String, f64)> {
    let hidden = ("hidden".to_owned(), -plan.hidden_seconds());
    terms(&plan.estimate).into_iter().chain([hidden]).collect()
}

/// What the programs of a plan take on its machine (seconds).
fn simulated(content: &Content, cluster: &Cluster) -> Result<f64, Failure> {
    let failed = |error: SimulateError| Failure::internal("simulate", error);
    match content {
        Content::Plan(plan) => {
            let alike = pipeline::alike(plan)?;
            Ok(simulate::simulate(&alike, &machine::single(cluster)?, Order::Streams)
                .map_err(failed)?
                .seconds)
        }
        Content::Pipeline(pipeline) => {
            let groups = lower::grouped(pipeline).map_err(|error| Failure::internal("lower", error))?;
            Ok(simulate::simulate_grouped(&groups, cluster, Order::Streams).map_err(failed)?.seconds)
        }
        Content::Generation(_) => Err(Failure::internal("plan", "a training step became tokens")),
    }
}

/// A line as programs read it.
fn object(line: &Line) -> Value {
    let Line { file, row, source, gpu, answer } = line;
    let mut object = json!({ "file": file, "row": row, "source": source, "gpu": gpu });
    let ms = |terms: &[(String, f64)]| {
        terms.iter().map(|(name, time)| json!({ "name": name, "ms": 1e3 * time })).collect::<Vec<_>>()
    };
    match answer {
        Ok(it) => {
            object["planned_ms"] = json!(1e3 * it.planned);
            match &it.simulated {
                Ok(seconds) => object["simulated_ms"] = json!(1e3 * seconds),
                Err(why) => object["not_simulated"] = json!(why),
            }
            object["with_framework_ms"] = json!(1e3 * it.with_framework());
            object["predicted_ms"] = json!(1e3 * it.predicted);
            object["measured_ms"] = json!(1e3 * it.measured);
            object["planned_devices"] = json!(it.devices);
            object["planned_terms"] = json!(ms(&it.planned_terms));
            object["framework_terms"] = json!(ms(&it.framework_terms));
            object["predicted_terms"] = json!(ms(&it.predicted_terms));
        }
        Err(why) => object["skipped"] = json!(why),
    }
    object
}
