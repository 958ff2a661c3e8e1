//! From a model to a plan, from a plan to programs: the architecture, top to bottom.

use std::fmt;

use cost_models::machine::Machine;
use import::Bindings;
use lower::Program;
use plan::{MachineName, Plan};
use planner_ir::{Graph, Mesh};
use rewrite::RaiseStatistics;
use search::{MachinePrices, Request, Section, sections};

use crate::failure::Failure;
use crate::model_file::ModelFile;

/// What the pipeline makes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The model as a graph.
    Import,
    /// The graph in named operations.
    Raise,
    /// The plan.
    Plan,
    /// One program per rank.
    Lower,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 4] = [Self::Import, Self::Raise, Self::Plan, Self::Lower];

    /// The name in arguments and file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Raise => "raise",
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

/// A model with its dimensions bound, in named operations, cut into blocks.
pub fn prepare(file: &ModelFile, bindings: &Bindings, observe: Observer<'_>) -> Result<Prepared, Failure> {
    let imported = file.model.import(bindings).map_err(|error| Failure::file(&file.path, error))?;
    observe(Stage::Import, &imported);
    planner_ir::verify(&imported).map_err(|error| Failure::internal("import", error))?;

    let raised = rewrite::raise(&imported).map_err(|error| Failure::internal("raise", error))?;
    planner_ir::verify(&raised.graph).map_err(|error| Failure::internal("raise", error))?;
    let blocks = rewrite::blocks(&raised.graph);
    observe(Stage::Raise, &blocks.graph);
    let sections = sections(&blocks);
    Ok(Prepared { graph: blocks.graph, sections, raised: raised.statistics })
}

/// The cheapest plan for a target, checked.
pub fn plan(
    prepared: &Prepared,
    file: &plan::ModelFile,
    target: &Target<'_>,
    observe: Observer<'_>,
) -> Result<Plan, Failure> {
    let prices = MachinePrices::new(target.machine, target.mesh)
        .map_err(|error| Failure::Usage(format!("mesh {} does not suit the machine: {error:?}", target.mesh)))?;
    let request = Request {
        graph: &prepared.graph,
        sections: &prepared.sections,
        mesh: target.mesh,
        capacity: target.capacity,
        prices: &prices,
        model: file,
        machine: &MachineName { name: target.machine.full_name(), devices: target.machine.devices() },
    };
    let plan = search::plan(&request).map_err(|error| Failure::input("no plan", error))?;
    observe(Stage::Plan, &plan::json::write(&plan));
    plan::check(&plan).map_err(|error| Failure::internal("plan", error))?;
    Ok(plan)
}

/// The programs of a plan, verified.
pub fn lower(plan: &Plan, observe: Observer<'_>) -> Result<Vec<Program>, Failure> {
    let programs = lower::lower(plan).map_err(|error| Failure::internal("lower", error))?;
    for program in &programs {
        observe(Stage::Lower, program);
    }
    lower::verify(&programs).map_err(|error| Failure::internal("lower", error))?;
    Ok(programs)
}
