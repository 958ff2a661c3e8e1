//! A plan or a pipeline as a job of stages.

use plan::{Generation, Pipeline, Plan, Recipe};
use planner_ir::Source;
use schedule::Schedule;

/// What is exported.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    content: Content<'a>,
    device: Option<Device>,
    frequencies: Option<&'a [f64]>,
}

/// What is known of the devices that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The memory of each (bytes).
    pub memory: u64,
    /// How many there are in a node.
    pub of_node: u64,
}

#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Plan(&'a Plan),
    Pipeline(&'a Pipeline),
    Generation(&'a Generation),
}

impl<'a> Job<'a> {
    fn of(content: Content<'a>) -> Self {
        Self { content, device: None, frequencies: None }
    }

    /// That of a plan: one stage.
    pub fn of_plan(plan: &'a Plan) -> Self {
        Self::of(Content::Plan(plan))
    }

    /// That of a pipeline.
    pub fn of_pipeline(pipeline: &'a Pipeline) -> Self {
        Self::of(Content::Pipeline(pipeline))
    }

    /// That of generation: its stage is the step of one token.
    pub fn of_generation(generation: &'a Generation) -> Self {
        Self::of(Content::Generation(generation))
    }

    /// The same on devices of which this is known.
    pub fn on(self, device: Option<Device>) -> Self {
        Self { device, ..self }
    }

    /// The same with the frequencies of its positions, as the model's file has them.
    pub fn rotating(self, frequencies: Option<&'a [f64]>) -> Self {
        Self { frequencies, ..self }
    }

    /// The frequencies of its positions, if they are known.
    pub fn frequencies(&self) -> Option<&'a [f64]> {
        self.frequencies
    }

    /// The weights that are frequencies of positions, by name, each once.
    pub fn frequency_names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for value in self.stages().into_iter().flat_map(|plan| &plan.graph.values) {
            if let Source::Weight(name) = &value.source
                && name.contains("inv_freq")
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    /// What is known of the devices.
    pub fn device(&self) -> Option<Device> {
        self.device
    }

    /// The plans of generation, if it is that.
    pub fn generation(&self) -> Option<&'a Generation> {
        match self.content {
            Content::Generation(generation) => Some(generation),
            Content::Plan(_) | Content::Pipeline(_) => None,
        }
    }

    /// The plans of its stages, in the order of the model.
    pub fn stages(&self) -> Vec<&'a Plan> {
        match self.content {
            Content::Plan(plan) => vec![plan],
            Content::Pipeline(pipeline) => pipeline.stages.iter().map(|stage| &stage.plan).collect(),
            Content::Generation(generation) => vec![&generation.decode],
        }
    }

    /// How a training step was derived, if it is one.
    pub fn recipe(&self) -> Option<&'a Recipe> {
        match self.content {
            Content::Plan(plan) => plan.recipe.as_ref(),
            Content::Pipeline(pipeline) => Some(&pipeline.recipe),
            Content::Generation(_) => None,
        }
    }

    /// The order of work of its pipeline ranks, if it has several.
    pub fn schedule(&self) -> Option<&'a Schedule> {
        match self.content {
            Content::Plan(_) | Content::Generation(_) => None,
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
            Content::Generation(generation) => generation.decode.mesh.devices(),
        }
    }

    /// What each of its programs is called, and how long it takes (seconds).
    pub fn seconds(&self) -> Vec<(&'static str, f64)> {
        match self.content {
            Content::Plan(plan) => vec![("step", plan.seconds())],
            Content::Pipeline(pipeline) => vec![("step", pipeline.seconds())],
            Content::Generation(generation) => {
                generation.plans().map(|(name, plan)| (name, plan.seconds())).collect()
            }
        }
    }
}
