//! What a framework takes for a plan, by its own figures: beside what the plan's own programs take.

use std::path::Path;

use ::export::{Exported, Job, Runs, Strategy, Target};
use ::score::told;
use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use cost_models::model_flops::StepWork;
use cost_models::quantity;
use cost_models::throughput::Throughput;
use files::readable;
use report::throughput;
use serde_json::{Value, json};

use crate::commands::predict::terms;

/// What a framework takes, or why that is not known.
pub(super) struct Expected {
    title: &'static str,
    of: Result<(told::Expected, Option<Throughput>), String>,
}

/// What a plan is of: its model, and what a step of it needs.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Of<'a> {
    /// The model's file, if it is there.
    pub(in crate::commands) model: Option<&'a Path>,
    /// What a step needs.
    pub(in crate::commands) work: &'a StepWork,
}

/// What it takes for what it is told of a plan of a model, by its own figures, if products there are alike or whatever
/// they are; nothing of what has no published runs.
fn known(
    (job, alike): (&Job<'_>, bool),
    exported: &Exported,
    cluster: &Cluster,
    model: Option<&Path>,
) -> Option<Result<told::Expected, String>> {
    let machines = throughput::machines(cluster, job.devices());
    let machines: Vec<(Machine, u64)> = machines.into_iter().map(|(it, count)| (it.clone(), count)).collect();
    let text = model.and_then(|it| readable::text(it).ok());
    let config = text.filter(|it| models::is_config(it.as_bytes()));
    told::expected((job, alike), exported, machines, config)
}

/// The same, with what is processed in that time.
pub(super) fn of(job: &Job<'_>, exported: &Exported, cluster: &Cluster, of: Of<'_>) -> Option<Expected> {
    let with_rate = |it: told::Expected| {
        let rate = throughput::of(of.work, it.time.total().0, job.devices(), Some(cluster));
        (it, rate)
    };
    let expected = known((job, true), exported, cluster, of.model)?;
    Some(Expected { title: exported.target.title(), of: expected.map(with_rate) })
}

/// What a framework takes for a plan that is made for it.
fn expected(job: Job<'_>, target: Target, cluster: &Cluster, plan: Of<'_>) -> Option<Expected> {
    let job = job.on(super::device(cluster));
    match ::export::export(&job, target) {
        Ok(exported) => of(&job, &exported, cluster, plan),
        Err(error) => Some(Expected { title: target.title(), of: Err(error.to_string()) }),
    }
}

/// What a framework takes for what it is told of a plan that is made for it, by its own figures, whatever its products in
/// few bits are; nothing where that is not known.
pub(in crate::commands) fn expected_there(
    job: Job<'_>,
    target: Target,
    cluster: &Cluster,
    model: &Path,
) -> Option<(Strategy, told::Expected)> {
    let job = job.on(super::device(cluster));
    let exported = ::export::export(&job, target).ok()?;
    let expected = known((&job, false), &exported, cluster, Some(model))?.ok()?;
    let Runs::Strategy(strategy) = exported.runs else { return None };
    Some((strategy, expected))
}

/// Adds what a framework takes for a plan that was made for it to what is said of the plan.
pub(in crate::commands) fn say_expected(
    (job, target): (Job<'_>, Option<Target>),
    (cluster, plan): (&Cluster, Of<'_>),
    text: &mut String,
    json: &mut Value,
) {
    let Some(expected) = target.and_then(|target| expected(job, target, cluster, plan)) else { return };
    for line in expected.lines() {
        *text += &line;
        text.push('\n');
    }
    json["expected"] = expected.json();
}

impl Expected {
    /// Lines for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let title = self.title;
        let (expected, rate) = match &self.of {
            Ok(known) => known,
            Err(why) => return vec![format!("expected   of {title} not known: {why}")],
        };
        let seconds = quantity::seconds(expected.time.total().0);
        let bars = expected.error.map_or_else(String::new, |it| format!(", give or take {it:.1} %"));
        let mut lines = vec![format!("expected   {seconds} for a step on {title}, by its figures{bars}")];
        let indented = rate.iter().flat_map(Throughput::lines);
        lines.extend(indented.map(|(about, words)| format!("  {about:<9}{words}")));
        let (held, room) = (predict::memory::words(expected.held), predict::memory::words(expected.room));
        let fits = if expected.fits { "" } else { ": it does not fit by these figures" };
        lines.push(format!("  memory   {held} of {room} there{fits}"));
        lines
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let (expected, rate) = match &self.of {
            Ok(known) => known,
            Err(why) => return json!({ "unknown": why }),
        };
        let mut json = json!({
            "framework": expected.runner.figures(),
            "seconds": expected.time.total().0,
            "error_percent": expected.error,
            "terms": terms(&expected.time),
            "memory_bytes": expected.held,
            "fits": expected.fits,
        });
        throughput::add(rate.as_ref(), &mut json);
        json
    }
}
