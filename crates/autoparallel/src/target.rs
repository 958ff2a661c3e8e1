//! What a plan is made for, its prices, and why there is none.

use cost_models::machine::Machine;
use cost_models::quantity;
use files::{Failure, interrupt};
use plan::Exchanged;
use planner_ir::{AxisId, Layout, Mesh, Move, State, Type, Ways};
use rewrite::Steps;
use search::problem::SearchError;
use search::{MachinePrices, PlanError, Prices, Rules, Work};

use crate::mesh::sizes;

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
    /// What the axes of the mesh are for, where only plans of a kind are looked at.
    pub rules: Option<&'a Rules>,
}

/// The prices of a machine, for all plans or those of a kind.
#[derive(Clone, Debug)]
pub struct TargetPrices<'a> {
    machine: MachinePrices<'a>,
    rules: Option<&'a Rules>,
}

impl Prices for TargetPrices<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        interrupt::point();
        self.machine.work(work)
    }

    fn exchanged(&self, work: &Work<'_>) -> Exchanged {
        self.machine.exchanged(work)
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        interrupt::point();
        self.machine.step(type_, step, before, after)
    }

    fn ways(&self) -> Ways {
        self.machine.ways()
    }

    fn near(&self, axes: &[AxisId]) -> u64 {
        self.machine.near(axes)
    }

    fn beside(&self) -> Option<plan::Overlap> {
        self.machine.beside()
    }

    fn rules(&self) -> Option<&Rules> {
        self.rules
    }

    fn rest(&self, state: &State, layout: &Layout) -> f64 {
        let keeps = |rules: &Rules| rules.keeps(state, layout);
        if self.rules.is_none_or(keeps) { 0.0 } else { f64::INFINITY }
    }
}

impl<'a> Target<'a> {
    /// A machine whose devices have all their memory, for a whole model, in time steps where they help.
    pub fn of(machine: &'a Machine, mesh: &'a Mesh) -> Self {
        let capacity = machine.usable_memory().0;
        Self { machine, mesh, capacity, steps: Steps::Auto, live: search::Live::ONE, rules: None }
    }
}

/// The prices of a target.
pub fn prices<'a>(target: &Target<'a>) -> Result<TargetPrices<'a>, Failure> {
    let (mesh, machine) = (target.mesh, target.machine);
    if mesh.devices() != machine.devices() {
        return Err(Failure::Usage(format!(
            "mesh {} has {} devices, the machine {} has {}: give a mesh whose sizes multiply to {3}",
            sizes(mesh),
            mesh.devices(),
            machine.full_name(),
            machine.devices()
        )));
    }
    let machine = MachinePrices::new(machine, mesh)
        .map_err(|error| Failure::Usage(format!("mesh {mesh} does not suit the machine: {error}")))?;
    Ok(TargetPrices { machine, rules: target.rules })
}

/// Why there is no plan, and what would help.
pub fn refusal(target: &Target<'_>, error: &PlanError) -> Failure {
    if let PlanError::Memory(error) = error.last() {
        return Failure::internal("lower", error);
    }
    let (place, why) = (format!("no plan on mesh {}", sizes(target.mesh)), why(target, error));
    match error.needs() {
        None => Failure::input(place, why),
        needs => Failure::no_room(place, why, needs),
    }
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
