//! A plan or a pipeline as a job of stages.

use plan::{Pipeline, Plan, Recipe};
use schedule::Schedule;

/// What is exported.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    content: Content<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Plan(&'a Plan),
    Pipeline(&'a Pipeline),
}

impl<'a> Job<'a> {
    /// That of a plan: one stage.
    pub fn of_plan(plan: &'a Plan) -> Self {
        Self { content: Content::Plan(plan) }
    }

    /// That of a pipeline.
    pub fn of_pipeline(pipeline: &'a Pipeline) -> Self {
        Self { content: Content::Pipeline(pipeline) }
    }

    /// The plans of its stages, in the order of the model.
    pub fn stages(&self) -> Vec<&'a Plan> {
        match self.content {
            Content::Plan(plan) => vec![plan],
            Content::Pipeline(pipeline) => pipeline.stages.iter().map(|stage| &stage.plan).collect(),
        }
    }

    /// How a training step was derived, if it is one.
    pub fn recipe(&self) -> Option<&'a Recipe> {
        match self.content {
            Content::Plan(plan) => plan.recipe.as_ref(),
            Content::Pipeline(pipeline) => Some(&pipeline.recipe),
        }
    }

    /// The order of work of its stage groups, if it has several.
    pub fn schedule(&self) -> Option<&'a Schedule> {
        match self.content {
            Content::Plan(_) => None,
            Content::Pipeline(pipeline) => Some(&pipeline.schedule),
        }
    }

    /// How many groups of devices there are.
    pub fn groups(&self) -> usize {
        self.schedule().map_or(1, |schedule| schedule.groups.len())
    }

    /// How many stages each group has.
    pub fn chunks(&self) -> usize {
        self.schedule().map_or(1, |schedule| schedule.chunks)
    }

    /// How many devices there are.
    pub fn devices(&self) -> u64 {
        match self.content {
            Content::Plan(plan) => plan.mesh.devices(),
            Content::Pipeline(pipeline) => pipeline.devices(),
        }
    }

    /// How long a step takes (seconds).
    pub fn seconds(&self) -> f64 {
        match self.content {
            Content::Plan(plan) => plan.seconds(),
            Content::Pipeline(pipeline) => pipeline.seconds(),
        }
    }
}
