//! What is trained: a plan or a pipeline, checked against the model that it names.

use std::path::Path;

use ::plan::json::{Content, write, write_pipeline};
use ::plan::{ModelFile as Named, Pipeline, Plan, Recipe, Tie};
use files::model_file::ModelFile;
use files::plan_file;
use files::readable::hexadecimal;
use files::{Failure, Say};
use lower::Program;
use planner_ir::Graph;
use sha2::{Digest, Sha256};

use crate::derived;
use crate::pipeline::{self, Observer, Stage, staged};

/// How a step is planned.
enum Planned {
    Whole(Box<Plan>),
    Staged(Box<Pipeline>),
}

/// What is trained.
pub struct Trained {
    planned: Planned,
    /// The whole training step.
    pub graph: Graph,
    /// The model file that the plan names.
    pub model: Named,
    /// How the step was derived.
    pub recipe: Recipe,
    /// The parameters that the model file has twice.
    pub ties: Vec<Tie>,
    /// The model.
    pub file: ModelFile,
}

impl Trained {
    /// Of a plan file: its program has to be the training step that its recipe makes of the model.
    pub fn read(
        path: &Path,
        model: Option<&Path>,
        observe: Observer<'_>,
        say: &Say<'_>,
    ) -> Result<Self, Failure> {
        let planned = match plan_file::read_any_checked(path)? {
            Content::Plan(plan) => Planned::Whole(plan),
            Content::Pipeline(pipeline) => Planned::Staged(pipeline),
            Content::Generation(_) => {
                let message = "is a plan of generation, not to train: plan with `--mode train`";
                return Err(Failure::file(path, message));
            }
        };
        let (named, recipe) = match &planned {
            Planned::Whole(plan) => {
                observe(Stage::Plan, &write(plan));
                let recipe = plan.recipe.clone().filter(|_| plan.graph.training.is_some());
                let recipe = recipe.ok_or_else(|| {
                    let message = "is a plan to run, not to train: plan with `--mode train`";
                    Failure::file(path, message)
                })?;
                (plan.model.clone(), recipe)
            }
            Planned::Staged(pipeline) => {
                observe(Stage::Plan, &write_pipeline(pipeline));
                let first = pipeline.stages.first();
                let first = first.ok_or_else(|| Failure::file(path, "is a pipeline without stages"))?;
                (first.plan.model.clone(), pipeline.recipe.clone())
            }
        };
        let file = plan_file::named_model(path, &named, model)?;
        file.expect_weights()?;
        say("deriving the step again".into());
        let graph = match &planned {
            Planned::Whole(plan) => {
                derived::trains(path, plan, &recipe, &file)?;
                plan.graph.clone()
            }
            Planned::Staged(pipeline) => derived_pipeline(path, pipeline, &file)?,
        };
        let ties = recipe.roles.ties.clone();
        Ok(Self { planned, graph, model: named, recipe, ties, file })
    }

    /// The checksum of what the plan file says.
    pub fn sha256(&self) -> String {
        let text = match &self.planned {
            Planned::Whole(plan) => write(plan),
            Planned::Staged(pipeline) => write_pipeline(pipeline),
        };
        hexadecimal(Sha256::digest(text))
    }

    /// The programs of all ranks, verified.
    pub fn programs(&self, observe: Observer<'_>) -> Result<Vec<Program>, Failure> {
        match &self.planned {
            Planned::Whole(plan) => pipeline::lower(plan, observe),
            Planned::Staged(pipeline) => pipeline::lower_pipeline(pipeline, observe),
        }
    }
}

/// The whole step of a pipeline, whose stages have to be those that its recipe makes of the model.
pub fn derived_pipeline(path: &Path, pipeline: &Pipeline, file: &ModelFile) -> Result<Graph, Failure> {
    let refused = |error: String| Failure::file(path, format!("the pipeline is rejected: {error}"));
    let imported = derived::imported_pipeline(file, pipeline);
    let imported = imported.map_err(|error| refused(format!("the model is not of these sizes: {error}")))?;
    let (graph, stages) = staged::derived_stages(file, &imported, pipeline)?;
    let crossing = |it: &::plan::Crossing| ::train::Crossing {
        name: it.name.clone(),
        from: it.from,
        to: it.to.iter().map(|arrival| arrival.stage).collect(),
    };
    let same = stages.stages.len() == pipeline.stages.len()
        && stages.stages.iter().zip(&pipeline.stages).all(|(step, stage)| {
            rewrite::joined_as(&step.graph, &stage.plan.graph).graph == stage.plan.graph
        })
        && stages.crossings == pipeline.crossings.iter().map(crossing).collect::<Vec<_>>();
    if !same {
        let error = "its stages are not those of the training step that its recipe makes of the model";
        return Err(refused(error.to_owned()));
    }
    Ok(graph)
}
