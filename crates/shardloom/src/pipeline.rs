//! From a model to a plan, from a plan to programs: the architecture, top to bottom.

pub mod parameters; // which weights are parameters
mod variants; // what each block may be
mod pins; // how operations are computed that a user has fixed
mod keeping; // what keeping less is weighed by
mod choice; // the cheapest plan among variants
mod rows; // whether splitting the rows of norms may gain anything
pub mod staged; // a training step in stages
pub mod cluster; // which stages, on which meshes, by which schedule

use std::fmt;

use cost_models::machine::Machine;
use cost_models::quantity;
use files::Failure;
use files::model_file::ModelFile;
use import::{Bindings, ImportError};
use lower::{Alike, LowerError, Program};
use plan::{Pipeline, Plan, Recipe};
use planner_ir::{Graph, Mesh};
use rewrite::{RaiseStatistics, Steps};
use search::problem::SearchError;
use search::{Fixed, MachinePrices, Pinned, PlanError, Section, fold, sections};

use choice::placed;
pub use choice::{held, planned};
pub use variants::{Cutting, Decisions, Norms, Phases, Products, Variants};

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

/// A model as the search takes it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The program in named operations.
    pub graph: Graph,
    /// Its blocks.
    pub sections: Vec<Section>,
    /// What raising found.
    pub raised: RaiseStatistics,
    /// What each of its blocks may be, if there is a choice or a recipe.
    pub variants: Option<Variants>,
    /// The inputs and outputs that have their layout already.
    pub pinned: Option<Pinned>,
    /// How operations are computed that a user has fixed.
    pub fixed: Vec<Fixed>,
}

impl Prepared {
    /// The same, where this is fixed.
    pub fn fixing(self, fixed: Vec<Fixed>) -> Result<Self, Failure> {
        let variants = self.variants.iter().flat_map(|it| it.others().iter().map(|(graph, _)| graph));
        pins::known(&fixed, &std::iter::once(&self.graph).chain(variants).collect::<Vec<_>>())?;
        Ok(Self { fixed, ..self })
    }
}

/// What a model is made a training step by.
#[derive(Clone, Debug)]
pub struct Training {
    /// The recipe, without its decisions about blocks.
    pub recipe: Recipe,
    /// What may be computed again for the gradients of a block.
    pub decisions: Decisions,
    /// Whether gradients are partitioned as what they are of.
    pub phases: Phases,
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The devices' coordinates.
    pub mesh: &'a Mesh,
    /// What a device can hold (bytes).
    pub capacity: u64,
    /// Whether operations may be done in time steps.
    pub steps: Steps,
    /// How many micro-batches are under way at once: more than one in a stage of a pipeline.
    pub live: search::Live,
}

impl<'a> Target<'a> {
    /// A machine whose devices have all their memory, for a whole model, in time steps where they help.
    pub fn of(machine: &'a Machine, mesh: &'a Mesh) -> Self {
        let capacity = machine.usable_memory().0;
        Self { machine, mesh, capacity, steps: Steps::Auto, live: search::Live::ONE }
    }
}

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

/// A graph that is in named operations already, such as a plan's, cut into blocks.
pub fn cut(graph: &Graph) -> Prepared {
    let blocks = rewrite::blocks(graph);
    let sections = sections(&blocks);
    Prepared {
        graph: blocks.graph,
        sections,
        raised: RaiseStatistics::default(),
        variants: None,
        pinned: None,
        fixed: Vec::new(),
    }
}

/// The training step of a recipe that has its decisions about blocks, cut into blocks: how a plan's
/// program came about.
pub fn derived(file: &ModelFile, imported: &Graph, recipe: &Recipe) -> Result<Prepared, Failure> {
    let refused = |error| Failure::file(&file.path, format!("cannot be trained so: {error}"));
    let tied = train::tied(imported, &recipe.roles.ties).map_err(refused)?;
    let raised = rewrite::raise(&tied).map_err(|error| Failure::internal("raise", error))?;
    let blocks = rewrite::blocks(&train::forward(&raised.graph, recipe).map_err(refused)?);
    let step = train::step(&blocks, recipe).map_err(refused)?;
    let sections = fold(&step.graph, &step.homes, &step.forward);
    Ok(Prepared {
        graph: step.graph,
        sections,
        raised: raised.statistics,
        variants: None,
        pinned: None,
        fixed: Vec::new(),
    })
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

/// The prices of a target.
pub fn prices<'a>(target: &Target<'a>) -> Result<MachinePrices<'a>, Failure> {
    let (mesh, machine) = (target.mesh, target.machine);
    if mesh.devices() != machine.devices() {
        return Err(Failure::Usage(format!(
            "mesh {} has {} devices, the machine {} has {}: give a mesh whose sizes multiply to {3}",
            crate::mesh::sizes(mesh),
            mesh.devices(),
            machine.full_name(),
            machine.devices()
        )));
    }
    MachinePrices::new(machine, mesh)
        .map_err(|error| Failure::Usage(format!("mesh {mesh} does not suit the machine: {error}")))
}

/// Why there is no plan, and what would help.
pub fn refusal(target: &Target<'_>, error: &PlanError) -> Failure {
    let why = why(target, error);
    Failure::input(format!("no plan on mesh {}", crate::mesh::sizes(target.mesh)), why)
}

fn why(target: &Target<'_>, error: &PlanError) -> String {
    let help = "more devices, devices with more memory, a smaller batch or a shorter sequence would help";
    let short = |least: u64, how: &str| {
        format!(
            "the program does not fit: {how} {} on a device, which may hold {}: {} bytes are missing; {help}",
            quantity::bytes(least),
            quantity::bytes(target.capacity),
            least.saturating_sub(target.capacity)
        )
    };
    match error {
        PlanError::Search(
            SearchError::DoesNotFit { least, .. } | SearchError::DoesNotFitTogether { least, .. },
        ) => short(*least, "every plan needs at least"),
        PlanError::Search(SearchError::NothingFound { found, .. }) => short(
            *found,
            "no plan that fits was found, though it is not proven that there is none; the nearest needs",
        ),
        PlanError::Fewer { offer, large, error } => {
            let (what, other) = match offer.steps {
                Steps::One => ("all partitions", ""),
                _ => ("partitions in time steps", ", or leave those out (`--in-time never`)"),
            };
            format!(
                "the space of {what} is too large on this mesh ({large}), and among fewer partitions {}; to \
                 search them all, give a mesh of fewer axes, `--recompute` one decision or `--phases \
                 together`{other}",
                why(target, error)
            )
        }
        other => other.to_string(),
    }
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
        error => Failure::internal("lower", error),
    });
    verified(programs?, pipeline.capacity, observe)
}

/// The programs of a plan, verified.
pub fn lower(plan: &Plan, observe: Observer<'_>) -> Result<Vec<Program>, Failure> {
    let programs = lower::lower(plan).map_err(|error| Failure::internal("lower", error))?;
    verified(programs, plan.capacity, observe)
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
