//! Plans on disk, and the models that they name.

use std::path::{Path, PathBuf};

use plan::json::Content;
use plan::{Generation, Pipeline, Plan};

use crate::failure::Failure;
use crate::model_file::{self, ModelFile};
use crate::{impossible, readable, written};

/// What a file says: not checked.
fn content(path: &Path) -> Result<Content, Failure> {
    plan::json::read_any(&readable::bytes(path)?).map_err(|error| Failure::file(path, error))
}

/// The plan of a file, checked.
pub fn read_checked(path: &Path) -> Result<Plan, Failure> {
    of_one(path, read_any_checked(path)?)
}

/// Refuses what is no plan of one program.
fn of_one(path: &Path, content: Content) -> Result<Plan, Failure> {
    match content {
        Content::Plan(plan) => Ok(*plan),
        Content::Pipeline(pipeline) => Err(Failure::file(
            path,
            format!(
                "is a pipeline of {} stages, expected a plan of one: pipelines are for `train`, `check`, `explain`, \
                 `simulate` and `diff`",
                pipeline.stages.len()
            ),
        )),
        Content::Generation(_) => Err(Failure::file(
            path,
            "is a plan of generation, expected one of a single program: such plans are for `generate`, `check`, \
             `explain`, `simulate` and `diff`",
        )),
    }
}

/// The plan or the pipeline of a file, checked.
pub fn read_any_checked(path: &Path) -> Result<Content, Failure> {
    let content = content(path)?;
    let (checked, plans): (_, Vec<&Plan>) = match &content {
        Content::Plan(plan) => (plan::check(plan), vec![plan]),
        Content::Pipeline(it) => (plan::check_pipeline(it), it.stages.iter().map(|it| &it.plan).collect()),
        Content::Generation(it) => (plan::check_generation(it), it.plans().map(|(_, plan)| plan).collect()),
    };
    checked.map_err(|error| Failure::file(path, format!("the plan is rejected:\n{error}")))?;
    let empty = plans.into_iter().find_map(|plan| impossible::refuse_empty(&plan.graph, &plan.model).err());
    empty.map_or(Ok(content), |why| Err(Failure::file(path, format!("the plan is rejected: {why}"))))
}

/// The plans of generation of a file, checked.
pub fn generation(path: &Path) -> Result<Generation, Failure> {
    let what = match read_any_checked(path)? {
        Content::Generation(generation) => return Ok(*generation),
        Content::Plan(_) => "a plan of one program",
        Content::Pipeline(_) => "a pipeline",
    };
    Err(Failure::file(
        path,
        format!(
            "is {what}, expected one of generation: `shardloom plan MODEL --mode generate --context N ..`"
        ),
    ))
}

/// Writes plans of generation.
pub fn write_generation(path: &Path, generation: &Generation) -> Result<(), Failure> {
    written::write(path, plan::json::write_generation(generation).as_bytes())
}

/// Writes a pipeline.
pub fn write_pipeline(path: &Path, pipeline: &Pipeline) -> Result<(), Failure> {
    written::write(path, plan::json::write_pipeline(pipeline).as_bytes())
}

/// Writes a plan.
pub fn write(path: &Path, plan: &Plan) -> Result<(), Failure> {
    written::write(path, plan::json::write(plan).as_bytes())
}

/// The model of a plan: the one that is given, or where the plan says, from the current folder or
/// that of the plan.
pub fn model(plan_path: &Path, plan: &Plan, given: Option<&Path>) -> Result<ModelFile, Failure> {
    named_model(plan_path, &plan.model, given)
}

/// The same of what a plan says of its model.
pub fn named_model(
    plan_path: &Path,
    named: &plan::ModelFile,
    given: Option<&Path>,
) -> Result<ModelFile, Failure> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => found(plan_path, &named.path)?,
    };
    let file = model_file::open_of(&path, &named.sha256)?;
    if file.sha256 != named.sha256 {
        return Err(Failure::file(
            plan_path,
            format!(
                "the plan was made of another model: `{}` has SHA-256 {:.12}.., expected {:.12}..; give the \
                 model with `--model`, or plan again",
                path.display(),
                file.sha256,
                named.sha256
            ),
        ));
    }
    Ok(file)
}

fn found(plan_path: &Path, named: &str) -> Result<PathBuf, Failure> {
    let beside = plan_path.parent().unwrap_or_else(|| Path::new("")).join(named);
    [PathBuf::from(named), beside].into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::file(plan_path, format!("the plan's model `{named}` is not there; give it with `--model`"))
    })
}
