//! Whether the ranks of a plan, or of a pipeline, have no more instructions than are made at once.

use plan::{Pipeline, Plan};

use crate::build::placed;
use crate::error::LowerError;
use crate::facts::Facts;
use crate::pipeline::pipelined;

/// Refuses a plan whose ranks have too many instructions to be lowered together.
pub fn within_budget(plan: &Plan) -> Result<(), LowerError> {
    let program = placed(plan, &Facts::of(plan)?, 0)?.program;
    LowerError::unless_few(program.ranks, program.instructions.len())
}

/// Refuses a pipeline whose ranks have too many.
pub fn pipeline_within_budget(pipeline: &Pipeline) -> Result<(), LowerError> {
    LowerError::unless_few(pipeline.devices(), pipelined(pipeline)?.program(0)?.instructions.len())
}
