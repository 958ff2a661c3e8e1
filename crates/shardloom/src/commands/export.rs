//! `export`: a plan in the words of another runtime.

use std::fmt::Write as _;
use std::path::PathBuf;

use ::export::{Exported, Job, Strategy};
use ::plan::json::Content;
use autoparallel::otherwise::Price;
use cost_models::quantity;
use driver::projected;
use files::written::{self, Before};
use files::{Failure, machine, plan_file};
use serde_json::{Value, json};

use super::{Context, Said};
use crate::arguments::ExportArguments;

/// Writes a plan for another runtime.
pub(crate) fn export(arguments: &ExportArguments, context: &Context<'_, '_>) -> Result<Said, Failure> {
    let ExportArguments { plan, target, output, force, .. } = arguments;
    let content = plan_file::read_any_checked(plan)?;
    let job = match &content {
        Content::Plan(plan) => Job::of_plan(plan),
        Content::Pipeline(pipeline) => Job::of_pipeline(pipeline),
        Content::Generation(_) => {
            return Err(Failure::file(
                plan,
                "is a plan of generation, expected one of a single program or a pipeline: such plans are not exported",
            ));
        }
    };
    let exported = ::export::export(&job, *target).map_err(|error| Failure::file(plan, error))?;
    let named: Vec<(&str, &[u8])> = exported.files.iter().map(|it| (it.name, it.text.as_bytes())).collect();
    let before = if *force { Before::Replaced } else { Before::Kept };
    let paths = written::into(output, &named, before)?;
    let price = match &exported.strategy {
        Some(strategy) => Some(priced(arguments, &content, strategy, context)?),
        None => None,
    };
    let mut said = exported.json();
    said["seconds"] = json!(job.seconds());
    said["there"] = match &price {
        Some(Price::Seconds(seconds)) => json!({ "seconds": seconds }),
        Some(Price::Missing(bytes)) => json!({ "missing_bytes": bytes }),
        Some(Price::Impossible(why)) => json!({ "impossible": why }),
        None => Value::Null,
    };
    said["paths"] = json!(paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>());
    Ok(Said { text: text(&exported, job.seconds(), price.as_ref(), &paths), json: said })
}

/// What a step takes as the target runs it.
fn priced(
    arguments: &ExportArguments,
    content: &Content,
    strategy: &Strategy,
    context: &Context<'_, '_>,
) -> Result<Price, Failure> {
    let made_for = match content {
        Content::Plan(plan) => &plan.machine,
        Content::Pipeline(pipeline) => &pipeline.machine,
        Content::Generation(generation) => &generation.decode.machine,
    };
    context.progress.say("pricing what the target runs");
    match (machine::priced_as(made_for, arguments.machine.as_deref()), &arguments.machine) {
        (Ok(cluster), _) => projected::price(&arguments.plan, content, strategy, &cluster),
        (Err(failure), Some(_)) => Err(failure),
        (Err(failure), None) => Ok(Price::Impossible(failure.to_string())),
    }
}

fn text(exported: &Exported, seconds: f64, price: Option<&Price>, paths: &[PathBuf]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "plan       {} predicted for a step", quantity::seconds(seconds));
    let said = exported.strategy.as_ref().map(Strategy::in_words);
    let said = said.unwrap_or_else(|| "each parameter as the plan has it".to_owned());
    let _ = writeln!(text, "{:<10} {said}", exported.target.name());
    for words in &exported.lost {
        let _ = writeln!(text, "lost       {words}");
    }
    if exported.lost.is_empty() {
        let _ = writeln!(text, "lost       nothing");
    }
    match price {
        Some(Price::Seconds(there)) => {
            let more = (there - seconds) / seconds * 100.0;
            let _ = writeln!(text, "there      {} predicted ({more:+.1} %)", quantity::seconds(*there));
        }
        Some(other) => {
            let _ = writeln!(text, "there      not priced: {other}");
        }
        None => {}
    }
    for path in paths {
        let _ = writeln!(text, "written    {}", path.display());
    }
    text
}
