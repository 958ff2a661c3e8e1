//! Training steps of real models, planned for several meshes, run on ranks, and held against what
//! PyTorch computed: losses, gradients, parameters after one and three steps.
//!
//! The model in `tests/models` is always there. More models and all oracles are used where they lie
//! beside the repository; without them the tests say what they left out.

mod cases; // models, and what PyTorch made of them
mod against; // plans on ranks, held against that
mod chosen; // the plans that the search chooses
mod roles; // what the dimensions of a step are
pub(crate) mod manners; // prices that prefer the plans that people make by hand
pub(crate) mod forms; // how blocks go around in time steps
mod activations; // what is kept for the backward pass
mod keeping; // what is kept value by value
mod forced; // plans made to use what is offered
mod bytes; // what plans move, and what the textbook says
mod textbook; // every oracle under every kind of plan that people make by hand
mod phases; // gradients partitioned otherwise than what they are of
mod added; // gradients that products add to those of other micro-batches
mod megatron; // what tensor and sequence parallel plans move of activations
mod context; // attention whose keys and values go around
mod ulysses; // attention by heads of sequences that are split
pub(crate) mod in_time; // products whose blocks go around
mod tesseract; // layers on rows, columns and depth, whose rows stay split
mod blind; // rows all of whose keys are hidden
mod masked; // losses of labels whose scores are masked
mod written; // what training writes
mod pipelines; // steps in stages, each on devices of its own
mod one; // steps on one device: what recipes mean
mod rounded; // parameters in bf16 alone
mod masters; // parameters in f32 alone
mod narrow; // products of linear layers in 8 and 4 bits
mod fours; // those of 4 bits, held against numpy
mod halves; // models whose file is in f16
pub(crate) mod gpu; // steps on a GPU that is not there

use rayon::prelude::*;

use super::corpus::{expect_none, faults_of};

/// The programs of a training step of every model in that precision, as the search plans it for a mesh.
pub(crate) fn programs(
    mesh: &str,
    precision: plan::Precision,
) -> Vec<(String, Result<Vec<lower::Program>, String>)> {
    // What narrow numbers are summed to is bounded.
    let clip = (precision != plan::Precision::F32).then_some(1.0);
    cases::all().par_iter().map(|path| programs_of(path, mesh, precision, clip)).collect()
}

/// The same of one model, if it is there.
pub(crate) fn programs_of_one(
    model: &str,
    mesh: &str,
    precision: plan::Precision,
    clip: Option<f64>,
) -> Option<Result<Vec<lower::Program>, String>> {
    let path = cases::all().into_iter().find(|path| path.ends_with(model))?;
    Some(programs_of(&path, mesh, precision, clip).1)
}

fn programs_of(
    path: &std::path::Path,
    mesh: &str,
    precision: plan::Precision,
    clip: Option<f64>,
) -> (String, Result<Vec<lower::Program>, String>) {
    let (mesh, machine) = super::corpus::machine(mesh);
    let case = cases::Case::load(path);
    let mut training = case.training(cases::ADAMW, plan::Recompute::Nothing);
    training.recipe.precision = precision;
    training.recipe.clip = clip;
    let prices = search::MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"));
    let plan = prices.and_then(|prices| {
        case.plan_by(&training, &cases::parted(&case.batch(0), 1), &mesh, &machine, &prices)
    });
    let programs = plan.and_then(|plan| lower::lower(&plan).map_err(|error| format!("not lowered: {error}")));
    (case.title, programs)
}
