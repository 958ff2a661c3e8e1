//! `export`: a plan in the words of another runtime.

use std::fmt::Write as _;
use std::path::PathBuf;

use ::export::{Exported, Job, Strategy};
use ::plan::json::Content;
use cost_models::quantity;
use files::Failure;
use files::plan_file;
use files::written::{self, Before};
use serde_json::json;

use super::Said;
use crate::arguments::ExportArguments;

/// Writes a plan for another runtime.
pub(crate) fn export(arguments: &ExportArguments) -> Result<Said, Failure> {
    let ExportArguments { plan, target, output, force } = arguments;
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
    let mut said = exported.json();
    said["seconds"] = json!(job.seconds());
    said["paths"] = json!(paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>());
    Ok(Said { text: text(&exported, job.seconds(), &paths), json: said })
}

fn text(exported: &Exported, seconds: f64, paths: &[PathBuf]) -> String {
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
    for path in paths {
        let _ = writeln!(text, "written    {}", path.display());
    }
    text
}
