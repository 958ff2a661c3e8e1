//! From a model to a plan, from a plan to programs: the architecture, top to bottom.

use std::fmt;

use cost_models::machine::Machine;
use import::{Bindings, ImportError, WeightData};
use lower::Program;
use plan::{MachineName, Plan, Recipe, Recompute};
use planner_ir::{Graph, Mesh};
use rewrite::{Blocks, RaiseStatistics};
use search::problem::SearchError;
use search::{Cut, Derived, MachinePrices, PlanError, Prices, Request, Section, fold, sections};
use train::{Step, Tie};

use crate::failure::Failure;
use crate::model_file::ModelFile;
use crate::quantity;

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
    /// How the program was made a training step, if it is one.
    pub steps: Option<Steps>,
}

/// The training steps that a model is made: one for each decision about what is computed again.
#[derive(Debug)]
pub struct Steps {
    /// The model up to its loss, cut into blocks.
    pub forward: Blocks,
    /// The recipe; what it says of blocks is the first decision.
    pub recipe: Recipe,
    /// The decisions: the first is that of the program.
    pub decisions: Vec<Recompute>,
    /// The programs and sections of the other decisions.
    pub others: Vec<(Graph, Vec<Section>)>,
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
    let sections = sections(&blocks);
    Ok(Prepared { graph: blocks.graph, sections, raised: raised.statistics, steps: None })
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
    let mut programs: Vec<(Graph, Vec<Section>)> = Vec::new();
    let mut decisions = Vec::new();
    for &decision in &training.decisions {
        let step = train::step(&blocks, &decided(&training.recipe, &blocks, decision)).map_err(refused)?;
        planner_ir::verify(&step.graph).map_err(|error| Failure::internal("train", error))?;
        // A decision that changes nothing is none.
        if programs.iter().all(|(graph, _)| *graph != step.graph) {
            let sections = fold(&step.graph, &step.homes, &step.forward);
            programs.push((step.graph, sections));
            decisions.push(decision);
        }
    }
    let mut programs = programs.into_iter();
    let Some((graph, sections)) = programs.next() else {
        return Err(Failure::internal("train", "no decision about what is computed again"));
    };
    observe(Stage::Train, &graph);
    let recipe = decided(&training.recipe, &blocks, decisions[0]);
    let steps = Steps { forward: blocks, recipe, decisions, others: programs.collect() };
    Ok(Prepared { graph, sections, raised: raised.statistics, steps: Some(steps) })
}

/// The recipe with one decision for all blocks.
fn decided(recipe: &Recipe, blocks: &Blocks, decision: Recompute) -> Recipe {
    Recipe { recompute: vec![decision; blocks.segments.len()], ..recipe.clone() }
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
    Prepared { graph: blocks.graph, sections, raised: RaiseStatistics::default(), steps: None }
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
    Ok(Prepared { graph: step.graph, sections, raised: raised.statistics, steps: None })
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
    };
    let Some(steps) = &prepared.steps else { return search::plan(&request) };
    if steps.others.is_empty() {
        let plan = search::plan(&request)?;
        return Ok(Plan { recipe: Some(steps.recipe.clone()), ..plan });
    }
    let others: Vec<Cut<'_>> = steps.others.iter().map(|(graph, sections)| Cut { graph, sections }).collect();
    let (plan, chosen) = search::plan_among(&request, &others, &|chosen| steps.derived(chosen))?;
    Ok(Plan { recipe: Some(steps.chosen(&chosen)), ..plan })
}

impl Steps {
    /// The recipe for the decisions of these numbers, one for each block; or one for all.
    fn chosen(&self, chosen: &[usize]) -> Recipe {
        let block = |number: usize| self.decisions[*chosen.get(number).unwrap_or(&chosen[0])];
        let recompute = (0..self.forward.segments.len()).map(block).collect();
        Recipe { recompute, ..self.recipe.clone() }
    }

    /// The step by these decisions.
    fn derived(&self, chosen: &[usize]) -> Derived {
        let step = train::step(&self.forward, &self.chosen(chosen));
        let Step { graph, homes, .. } =
            step.unwrap_or_else(|error| unreachable!("steps were derived for each decision: {error}"));
        // A step that could not be cut is one block.
        let homes = if chosen.len() == 1 { vec![0; homes.len()] } else { homes };
        Derived { graph, homes }
    }
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
