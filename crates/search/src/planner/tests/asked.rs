//! How plans are asked for.

use cost_models::machine::Machine;

use super::*;

/// Prices by which some work cannot be done.
pub(super) struct Only<'a> {
    pub(super) machine: MachinePrices<'a>,
    pub(super) allows: &'a (dyn Fn(&Work<'_>) -> bool + Sync),
}

impl Prices for Only<'_> {
    fn ways(&self) -> Ways {
        self.machine.ways()
    }

    fn work(&self, work: &Work<'_>) -> f64 {
        if (self.allows)(work) { self.machine.work(work) } else { f64::INFINITY }
    }

    fn near(&self, axes: &[planner_ir::AxisId]) -> u64 {
        self.machine.near(axes)
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        self.machine.step(type_, step, before, after)
    }
}

/// The plan of a graph by what some prices allow.
pub(super) fn planned_with(
    graph: &Graph,
    machine: &str,
    mesh: &str,
    capacity: u64,
    allows: &(dyn Fn(&Work<'_>) -> bool + Sync),
) -> Result<Plan, PlanError> {
    let machine = shipped::named(machine).expect("is a machine");
    asked(graph, &machine, mesh, allows, |request| plan(&Request { capacity, ..*request }))
}

/// What comes of asking for a plan of a graph by what some prices allow, with all memory.
pub(super) fn asked<T>(
    graph: &Graph,
    machine: &Machine,
    mesh: &str,
    allows: &(dyn Fn(&Work<'_>) -> bool + Sync),
    answer: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let blocks = rewrite::blocks(graph);
    let sections = sections(&blocks);
    let mesh = Mesh::parse(mesh).expect("is a mesh");
    let prices = Only { machine: MachinePrices::new(machine, &mesh).expect("suits"), allows };
    answer(&Request {
        graph: &blocks.graph,
        sections: &sections,
        mesh: &mesh,
        capacity: u64::MAX,
        prices: &prices,
        model: &ModelFile { path: "model.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &MachineName { name: machine.full_name(), devices: mesh.devices(), sha256: None },
        steps: rewrite::Steps::Offered,
        live: crate::Live::ONE,
        pinned: None,
        fixed: &[],
        trail: None,
        memory: &crate::counted,
        enough: &|_| false,
    })
}
