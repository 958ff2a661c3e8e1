//! From a model to a plan, from a plan to programs: the architecture, top to bottom.

mod variants; // what each block may be

use std::fmt;

use cost_models::machine::Machine;
use import::{Bindings, ImportError, WeightData};
use lower::Program;
use plan::{MachineName, Plan, Recipe, Recompute};
use planner_ir::{Graph, Mesh};
use rewrite::{RaiseStatistics, Steps};
use search::problem::SearchError;
use search::{Cut, MachinePrices, PlanError, Prices, Request, Section, fold, sections};
use train::Tie;

use crate::failure::Failure;
use crate::model_file::ModelFile;
use crate::quantity;
pub use variants::{Cutting, Products, Variant, Variants};

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
#[derive(Debug)]
pub struct Prepared {
    /// The program in named operations.
    pub graph: Graph,
    /// Its blocks.
    pub sections: Vec<Section>,
    /// What raising found.
    pub raised: RaiseStatistics,
    /// What each of its blocks may be, if there is a choice or a recipe.
    pub variants: Option<Variants>,
}

/// What a model is made a training step by.
#[derive(Clone, Debug)]
pub struct Training {
    /// The recipe, without its decisions about blocks.
    pub recipe: Recipe,
    /// What may be computed again for the gradients of a block.
    pub decisions: Vec<Recompute>,
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
    let offered = [Products::Apart, Products::Fused]
        .map(|products| Variant { products, recompute: Recompute::Nothing });
    let found = Variants::of(blocks, None, &offered).map_err(|error| Failure::internal("raise", error))?;
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
    let tied = train::tied(imported, &ties(file, imported));
    let raised = rewrite::raise(&tied).map_err(|error| Failure::internal("raise", error))?;
    let refused = |error| Failure::file(&file.path, format!("cannot be trained so: {error}"));
    let forward = train::forward(&raised.graph, &training.recipe).map_err(refused)?;
    let blocks = rewrite::blocks(&forward);
    observe(Stage::Raise, &blocks.graph);
    // The recipe of a plan says how its program comes about, and says nothing of fused products.
    let offered = training.decisions.iter();
    let offered: Vec<Variant> =
        offered.map(|&recompute| Variant { products: Products::Apart, recompute }).collect();
    let found = Variants::of(blocks, Some(training.recipe.clone()), &offered).map_err(refused)?;
    let prepared = prepared(Stage::Train, found, raised.statistics)?;
    observe(Stage::Train, &prepared.graph);
    Ok(prepared)
}

/// A program and its variants, verified.
fn prepared(
    stage: Stage,
    found: Option<(Cutting, Variants)>,
    raised: RaiseStatistics,
) -> Result<Prepared, Failure> {
    let Some(((graph, sections), variants)) = found else {
        return Err(Failure::internal(stage.name(), "no decision about what is computed again"));
    };
    for graph in variants.others().iter().map(|(graph, _)| graph).chain([&graph]) {
        planner_ir::verify(graph).map_err(|error| Failure::internal(stage.name(), error))?;
    }
    Ok(Prepared { graph, sections, raised, variants: Some(variants) })
}

/// The parameters that the model file has twice; none where its weights are not there.
pub fn ties(file: &ModelFile, graph: &Graph) -> Vec<Tie> {
    let bytes = |name: &str| match file.model.weight(name) {
        Ok(WeightData::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    train::ties(graph, &bytes)
}

/// A graph that is in named operations already, such as a plan's, cut into blocks.
pub fn cut(graph: &Graph) -> Prepared {
    let blocks = rewrite::blocks(graph);
    let sections = sections(&blocks);
    Prepared { graph: blocks.graph, sections, raised: RaiseStatistics::default(), variants: None }
}

/// The training step of a recipe that has its decisions about blocks, cut into blocks: how a plan's
/// program came about.
pub fn derived(file: &ModelFile, imported: &Graph, recipe: &Recipe) -> Result<Prepared, Failure> {
    let tied = train::tied(imported, &ties(file, imported));
    let raised = rewrite::raise(&tied).map_err(|error| Failure::internal("raise", error))?;
    let refused = |error| Failure::file(&file.path, format!("cannot be trained so: {error}"));
    let blocks = rewrite::blocks(&train::forward(&raised.graph, recipe).map_err(refused)?);
    let step = train::step(&blocks, recipe).map_err(refused)?;
    let sections = fold(&step.graph, &step.homes, &step.forward);
    Ok(Prepared { graph: step.graph, sections, raised: raised.statistics, variants: None })
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

/// How often less memory is given to a plan whose programs need more than the plan counts.
const ROUNDS: usize = 8;

/// The cheapest plan whose programs fit, with all that they place in memory: alignment, and values
/// on their way, come on top of what a plan counts.
fn placed(
    prepared: &Prepared,
    file: &plan::ModelFile,
    target: &Target<'_>,
    prices: &dyn Prices,
) -> Result<Plan, Failure> {
    let mut allowed = target.capacity;
    let mut bound = None;
    for _ in 0..ROUNDS {
        let given = Target { capacity: allowed, ..*target };
        let mut plan = planned(prepared, file, &given, prices).map_err(|error| refusal(target, &error))?;
        let memory = lower::memory(&plan).map_err(|error| Failure::internal("lower", error))?;
        let held = memory.iter().map(|it| it.bytes).sum::<u64>();
        if held <= target.capacity {
            plan.capacity = target.capacity;
            plan.memory = memory;
            // What was given less memory is no better than the bound with all of it.
            plan.proof = bound.map_or(plan.proof, |lower_bound| plan::Proof::Gap { lower_bound });
            return Ok(plan);
        }
        bound = bound.or(Some(match plan.proof {
            plan::Proof::Optimal => plan.seconds(),
            plan::Proof::Gap { lower_bound } => lower_bound,
        }));
        allowed = allowed.saturating_sub(held - target.capacity);
    }
    let place = search::problem::Place { segment: 0, window: 0 };
    let found = target.capacity + (target.capacity - allowed);
    let error = SearchError::NothingFound { place, found, capacity: target.capacity };
    Err(refusal(target, &PlanError::Search(error)))
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

/// The cheapest plan by some prices, not checked.
pub fn planned(
    prepared: &Prepared,
    file: &plan::ModelFile,
    target: &Target<'_>,
    prices: &dyn Prices,
) -> Result<Plan, PlanError> {
    let machine = MachineName { name: target.machine.full_name(), devices: target.machine.devices() };
    let request = Request {
        graph: &prepared.graph,
        sections: &prepared.sections,
        mesh: target.mesh,
        capacity: target.capacity,
        prices,
        model: file,
        machine: &machine,
        steps: target.steps,
    };
    let Some(variants) = &prepared.variants else { return search::plan(&request) };
    let among = |numbers: &[usize]| {
        let number = |chosen: &[usize]| chosen.iter().map(|&it| numbers[it]).collect::<Vec<_>>();
        let others: Vec<Cut<'_>> = numbers[1..].iter().map(|&it| variants.cut(it)).collect();
        let (plan, chosen) = match others[..] {
            [] => (search::plan(&request)?, vec![0]),
            _ => search::plan_among(&request, &others, &|chosen| variants.derived(&number(chosen)))?,
        };
        Ok(Plan { recipe: variants.recipe(&number(&chosen)), ..plan })
    };
    let apart = variants.apart();
    let wide = target.mesh.axes.iter().filter(|axis| axis.size > 1).count();
    let offered = if wide > FUSED_AXES { apart.clone() } else { variants.all() };
    match among(&offered) {
        // Blocks may hand on other values when products are fused.
        Err(PlanError::Unlike | PlanError::Search(SearchError::TooWide { .. })) if offered != apart => {
            among(&apart)
        }
        // More to choose from may leave room for fewer partitions, or for less of a proof.
        Ok(plan) if offered != apart && is_weak(&plan) => Ok(match among(&apart) {
            Ok(other) if !is_weak(&other) || other.seconds() <= plan.seconds() => other,
            _ => plan,
        }),
        outcome => outcome,
    }
}

/// Fused products are offered on meshes of up to this many axes of more than one device. On three
/// the search among them takes several times as long, or is too wide for all partitions.
const FUSED_AXES: usize = 2;

/// How far above its bound a plan may be for its proof not to be weak (parts of the bound).
const WEAK: f64 = 0.01;

/// Whether the search looked at a part of the space only, or left much unproven.
fn is_weak(plan: &Plan) -> bool {
    let close = match plan.proof {
        plan::Proof::Optimal => true,
        plan::Proof::Gap { lower_bound } => plan.seconds() <= (1.0 + WEAK) * lower_bound,
    };
    !plan.space.saturated || !close
}

/// Why there is no plan, and what would help.
pub fn refusal(target: &Target<'_>, error: &PlanError) -> Failure {
    let help = "more devices, devices with more memory, a smaller batch or a shorter sequence would help";
    let short = |least: u64, how: &str| {
        format!(
            "the program does not fit: {how} {} on a device, which may hold {}: {} bytes are missing; {help}",
            quantity::bytes(least),
            quantity::bytes(target.capacity),
            least.saturating_sub(target.capacity)
        )
    };
    let why = match error {
        PlanError::Search(
            SearchError::DoesNotFit { least, .. } | SearchError::DoesNotFitTogether { least, .. },
        ) => short(*least, "every plan needs at least"),
        PlanError::Search(SearchError::NothingFound { found, .. }) => short(
            *found,
            "no plan that fits was found, though it is not proven that there is none; the nearest needs",
        ),
        other => other.to_string(),
    };
    Failure::input(format!("no plan on mesh {}", crate::mesh::sizes(target.mesh)), why)
}

/// The programs of a plan, verified.
pub fn lower(plan: &Plan, observe: Observer<'_>) -> Result<Vec<Program>, Failure> {
    let programs = lower::lower(plan).map_err(|error| Failure::internal("lower", error))?;
    for program in &programs {
        observe(Stage::Lower, program);
    }
    lower::verify(&programs).map_err(|error| Failure::internal("lower", error))?;
    let held = programs.iter().map(|program| program.resident + program.arena).max().unwrap_or(0);
    if held > plan.capacity {
        return Err(Failure::Input(format!(
            "the programs need {held} bytes on a device, alignment and values on their way included, and the \
             plan allows {}: {} too few; plan with as much less memory (`--memory`)",
            plan.capacity,
            held - plan.capacity
        )));
    }
    Ok(programs)
}
