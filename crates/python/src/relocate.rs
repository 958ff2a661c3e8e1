//! A plan whose model lies elsewhere than when it was made.

use std::path::Path;

use files::{Failure, plan_file};
use plan::json::Content;

/// Writes the plan of a file to another, as of a model that lies there.
pub(crate) fn write(path: &Path, model: &str, to: &Path) -> Result<(), Failure> {
    let moved = |of: &mut plan::ModelFile| model.clone_into(&mut of.path);
    match plan_file::read_any_checked(path)? {
        Content::Plan(mut plan) => {
            moved(&mut plan.model);
            plan_file::write(to, &plan)
        }
        Content::Pipeline(mut pipeline) => {
            pipeline.stages.iter_mut().for_each(|it| moved(&mut it.plan.model));
            plan_file::write_pipeline(to, &pipeline)
        }
        Content::Generation(mut generation) => {
            let prefill = generation.prefill.iter_mut().map(|it| &mut it.model);
            prefill.chain([&mut generation.decode.model]).for_each(moved);
            plan_file::write_generation(to, &generation)
        }
    }
}
