//! From a model to a plan, from a plan to programs: the architecture, top to bottom.

use std::fmt;

use autoparallel::choice::placed;
pub use autoparallel::choice::{least, planned};
pub use autoparallel::prepared::{Prepared, cut};
pub use autoparallel::target::{Target, prices, refusal};
pub use autoparallel::variants::{Cutting, Decisions, Norms, Phases, Products, Training, Variants};
pub use autoparallel::{cluster, parameters, staged};
use files::Failure;
use files::model_file::ModelFile;
use import::{Bindings, ImportError};
use lower::{Alike, LowerError, Program};
use plan::{Pipeline, Plan, Recipe};
use planner_ir::Graph;
use rewrite::RaiseStatistics;
use train::Step;

/// What the pipeline makes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The model as a graph.
    Import,
    /// The graph in named operations.
    Raise,
    /// The training step.
    Train,
    /// The plan.
    Plan,
    /// One program per rank.
    Lower,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 5] = [Self::Import, Self::Raise, Self::Train, Self::Plan, Self::Lower];

    /// The name in arguments and file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Raise => "raise",
            Self::Train => "train",
            Self::Plan => "plan",
            Self::Lower => "lower",
        }
    }
}

/// Is shown what each stage made.
pub type Observer<'a> = &'a mut dyn FnMut(Stage, &dyn fmt::Display);

/// A model with its dimensions bound, as a graph.
pub fn import(file: &ModelFile, bindings: &Bindings, observe: Observer<'_>) -> Result<Graph, ImportError> {
    let imported = file.model.import(bindings)?;
    observe(Stage::Import, &imported);
    Ok(imported)
}

/// A graph in named operations, cut into blocks.
pub fn prepare(imported: &Graph, observe: Observer<'_>) -> Result<Prepared, Failure> {
    planner_ir::verify(imported).map_err(|error| Failure::internal("import", error))?;
    let raised = rewrite::raise(imported).map_err(|error| Failure::internal("raise", error))?;
    planner_ir::verify(&raised.graph).map_err(|error| Failure::internal("raise", error))?;
    let blocks = rewrite::blocks(&raised.graph);
    observe(Stage::Raise, &blocks.graph);
    let offered =
        [(Products::Apart, Norms::Whole), (Products::Fused, Norms::Whole), (Products::Apart, Norms::Spelled)];
    let found = Variants::of(blocks, offered).map_err(|error| Failure::internal("raise", error))?;
    prepared(Stage::Raise, found, raised.statistics)
}

/// A graph in named operations, made a training step, cut into blocks.
pub fn prepare_training(
    file: &ModelFile,
    imported: &Graph,
    training: &Training,
    observe: Observer<'_>,
) -> Result<Prepared, Failure> {
    planner_ir::verify(imported).map_err(|error| Failure::internal("import", error))?;
    let refused = |error| Failure::file(&file.path, format!("cannot be trained so: {error}"));
    let roles = parameters::roles(file, imported, &training.recipe.roles)?.roles;
    let recipe = Recipe { roles, ..training.recipe.clone() };
    let tied = train::tied(imported, &recipe.roles.ties).map_err(refused)?;
    let raised = rewrite::raise(&tied).map_err(|error| Failure::internal("raise", error))?;
    let forward = train::forward(&raised.graph, &recipe).map_err(refused)?;
    let blocks = rewrite::blocks(&forward);
    observe(Stage::Raise, &blocks.graph);
    let training = Training { recipe, ..training.clone() };
    let found = Variants::of_training(blocks, training).map_err(refused)?;
    let prepared = prepared(Stage::Train, found, raised.statistics)?;
    observe(Stage::Train, &prepared.graph);
    Ok(prepared)
}

/// A program and its variants, verified.
fn prepared(
    stage: Stage,
    ((graph, sections), variants): (Cutting, Variants),
    raised: RaiseStatistics,
) -> Result<Prepared, Failure> {
    for graph in variants.others().iter().map(|(graph, _)| graph).chain([&graph]) {
        planner_ir::verify(graph).map_err(|error| Failure::internal(stage.name(), error))?;
    }
    Ok(Prepared { graph, sections, raised, variants: Some(variants), pinned: None, fixed: vec![] })
}

/// The training step of a recipe that has its decisions about blocks: how a plan's program came about.
pub fn derived(
    file: &ModelFile,
    imported: &Graph,
    recipe: &Recipe,
) -> Result<(Step, RaiseStatistics), Failure> {
    let refused = |error| Failure::file(&file.path, format!("cannot be trained so: {error}"));
    let tied = train::tied(imported, &recipe.roles.ties).map_err(refused)?;
    let raised = rewrite::raise(&tied).map_err(|error| Failure::internal("raise", error))?;
    let blocks = rewrite::blocks(&train::forward(&raised.graph, recipe).map_err(refused)?);
    Ok((train::step(&blocks, recipe).map_err(refused)?, raised.statistics))
}

/// The cheapest plan for a target, checked.
pub fn plan(
    prepared: &Prepared,
    file: &plan::ModelFile,
    target: &Target<'_>,
    observe: Observer<'_>,
) -> Result<Plan, Failure> {
    let prices = prices(target)?;
    let plan = placed(prepared, file, target, &prices)?;
    observe(Stage::Plan, &plan::json::write(&plan));
    plan::check(&plan).map_err(|error| Failure::internal("plan", error))?;
    Ok(plan)
}

/// One program for all ranks of a plan.
pub fn alike(plan: &Plan) -> Result<Alike, Failure> {
    lower::alike(plan).map_err(|error| Failure::internal("lower", error))
}

/// The programs of a pipeline, verified.
pub fn lower_pipeline(pipeline: &Pipeline, observe: Observer<'_>) -> Result<Vec<Program>, Failure> {
    let programs = lower::pipeline(pipeline).map_err(|error| match error {
        // How a value travels is said in the file alone.
        LowerError::Crossing(..) => Failure::input("the pipeline is rejected", error),
        error => unlowered(error),
    });
    verified(programs?, pipeline.capacity, observe)
}

/// The programs of a plan, verified.
pub fn lower(plan: &Plan, observe: Observer<'_>) -> Result<Vec<Program>, Failure> {
    let programs = lower::lower(plan).map_err(unlowered)?;
    verified(programs, plan.capacity, observe)
}

/// Why there are no programs: there are too many ranks, or what was accepted cannot be lowered.
fn unlowered(error: LowerError) -> Failure {
    match error {
        LowerError::TooMany { .. } => Failure::Input(format!("{error}: plan for fewer devices")),
        error => Failure::internal("lower", error),
    }
}

fn verified(programs: Vec<Program>, capacity: u64, observe: Observer<'_>) -> Result<Vec<Program>, Failure> {
    for program in &programs {
        observe(Stage::Lower, program);
    }
    lower::verify(&programs).map_err(|error| Failure::internal("lower", error))?;
    let held = programs.iter().map(|program| program.resident + program.arena).max().unwrap_or(0);
    if held > capacity {
        return Err(Failure::Input(format!(
            "the programs need {held} bytes on a device, alignment and values on their way included, and the \
             plan allows {}: {} too few; plan with as much less memory (`--memory`)",
            capacity,
            held - capacity
        )));
    }
    Ok(programs)
}
