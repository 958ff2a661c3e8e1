//! A plan checked, run and held against what it has to compute.

use std::collections::BTreeMap;

use cost_models::machine::{Machine, json, shipped};
use driver::pipeline::{self, Target};
use lower::{Moving, Origin};
use plan::{Assignment, Copy, Holding, Plan};
use planner_ir::{Mesh, NodeId, Route};
use search::{Prices, Request};

use super::cases::{Subject, difference};

/// By which prices a plan is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priced {
    /// Those of processors, as they are shipped: what is small is computed whole.
    Shipped,
    /// Fast links and slow arithmetic: whatever can be split is.
    FastNet,
}

/// The mesh of a text, and a machine of so many processors.
pub(crate) fn machine(mesh: &str) -> (Mesh, Machine) {
    machine_by(Priced::Shipped, mesh)
}

/// The mesh of a text, and a machine of so many devices by some prices.
pub(crate) fn machine_by(prices: Priced, mesh: &str) -> (Mesh, Machine) {
    let mesh = Mesh::parse(mesh).unwrap();
    let machine = match prices {
        Priced::Shipped => shipped::named(&format!("cpu-{}x", mesh.devices())).unwrap(),
        Priced::FastNet => {
            let machine = json::read("fastnet", include_str!("../../cases/machines/fastnet.json")).unwrap();
            machine.with_devices(mesh.devices()).unwrap()
        }
    };
    (mesh, machine)
}

impl Subject {
    /// The plan of least time by these prices, of all that the pipeline offers.
    pub(super) fn chosen(&self, mesh: &Mesh, machine: &Machine, prices: &dyn Prices) -> Result<Plan, String> {
        let target = Target { steps: rewrite::Steps::Offered, ..Target::of(machine, mesh) };
        let plan = pipeline::planned(&self.prepared, &self.header(), &target, prices);
        plan.map_err(|error| format!("not planned: {error}"))
    }

    /// The plan of least time by these prices, of the program as it is.
    pub(super) fn plan(&self, mesh: &Mesh, machine: &Machine, prices: &dyn Prices) -> Result<Plan, String> {
        let request = Request {
            graph: &self.prepared.graph,
            sections: &self.prepared.sections,
            mesh,
            capacity: machine.usable_memory().0,
            prices,
            model: &self.header(),
            machine: &plan::MachineName {
                name: machine.full_name(),
                devices: machine.devices(),
                sha256: None,
            },
            live: search::Live::ONE,
            steps: rewrite::Steps::Offered,
            pinned: None,
            fixed: &[],
            trail: None,
            memory: &pipeline::least,
            enough: &|_| false,
        };
        let mut plan = search::plan(&request).map_err(|error| format!("not planned: {error}"))?;
        plan.memory = lower::memory(&plan).map_err(|error| format!("not lowered: {error}"))?;
        Ok(plan)
    }

    fn header(&self) -> plan::ModelFile {
        plan::ModelFile { path: self.title.clone(), sha256: self.file.sha256.clone(), dims: vec![] }
    }

    /// Says what is wrong with a plan, if anything is.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        plan::check(plan).map_err(|error| format!("the plan is rejected: {error}"))?;
        let read = plan::json::read(plan::json::write(plan).as_bytes());
        if read.map_err(|error| format!("the plan's file is not read: {error}"))? != *plan {
            return Err("the plan's file is another plan".to_owned());
        }
        let programs = lower::lower(plan).map_err(|error| format!("not lowered: {error}"))?;
        check_memory(plan, &programs)?;
        lower::verify(&programs).map_err(|error| format!("the programs are rejected: {error}"))?;
        let outcome = run::run(programs, run::Sources { inputs: &self.inputs, weights: &self.file })
            .map_err(|error| format!("not run: {error}"))?;
        check_bytes(plan, &outcome.received)?;
        for (expected, tolerance, whose) in
            [(&self.whole, self.rounding, "one device"), (&self.oracle, self.tolerance, "the oracle")]
        {
            for (name, expected) in expected {
                let found = outcome.outputs.get(name).ok_or_else(|| format!("no output `{name}`"))?;
                let apart = difference(found, expected);
                if apart > tolerance {
                    return Err(format!(
                        "`{name}` is {apart:.1e} from that of {whose}, {tolerance:.0e} at most"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What a plan says that a device holds is what the programs of all ranks place, byte for byte.
fn check_memory(plan: &Plan, programs: &[lower::Program]) -> Result<(), String> {
    let said: u64 = plan.memory.iter().map(|it: &Holding| it.bytes).sum();
    let placed = programs.iter().map(|program| program.resident + program.arena);
    match placed.clone().find(|&placed| placed != said) {
        None => Ok(()),
        Some(placed) => Err(format!("holds {placed} bytes, the plan says {said}")),
    }
}

/// What is received over a step in each collective is what the plan says of its move, each time
/// that it is made, and every move of a copy that is used is there, once in the programs.
pub(crate) fn check_bytes(plan: &Plan, received: &[(Origin, u64)]) -> Result<(), String> {
    let mut found: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let mut between_steps: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for &(origin, bytes) in received {
        match origin {
            Origin::Move { transfer, step } => {
                if found.insert((transfer, step), bytes).is_some() {
                    return Err(format!("move {step} of transfer {transfer} is made twice"));
                }
            }
            Origin::Motion { node, moving, .. } => {
                let thing = match moving {
                    Moving::Operand(it) => it,
                    Moving::Result(it) => plan.graph.node(node).operands.len() + it,
                };
                *between_steps.entry((node.0, thing)).or_default() += bytes;
            }
            _ => return Err(format!("a collective of {origin:?}")),
        }
    }
    let mut moving = BTreeMap::new();
    for (node, assignment) in plan.graph.node_ids().zip(&plan.assignments) {
        let Assignment::Computed { bytes, .. } = assignment else { continue };
        let things = bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        moving.extend(things.map(|(thing, bytes)| ((node.0, thing), bytes * plan.graph.runs(node))));
        // Which rows go where is not known to a plan.
        for (thing, most) in rows(plan, node) {
            if between_steps.remove(&(node.0, thing)).is_some_and(|it| it > most * plan.graph.runs(node)) {
                return Err(format!("more than {most} bytes of all rows of thing {thing} of {}", node.0));
            }
            moving.remove(&(node.0, thing));
        }
    }
    if between_steps != moving {
        return Err(format!("received {between_steps:?} between steps, expected {moving:?}"));
    }
    let mut expected = BTreeMap::new();
    for (transfer, (it, runs)) in plan.transfers.iter().zip(plan.runs()).enumerate() {
        let mut layout = plan.layout(it.value, it.from).clone();
        for (step, (move_, &bytes)) in it.moves.iter().zip(&it.bytes).enumerate() {
            if !move_.axes(&layout).is_empty() {
                expected.insert((transfer, step), bytes * runs);
            }
            let type_ = plan.graph.type_of(it.value);
            layout = move_.apply(&plan.mesh, type_, &layout).map_err(|error| error.to_string())?;
        }
        if matches!(it.from, Copy::Transferred(from) if from >= transfer) {
            return Err(format!("transfer {transfer} is made from a later one"));
        }
    }
    if found == expected { Ok(()) } else { Err(format!("received {found:?}, expected {expected:?}")) }
}

/// The operands and then results of an operation whose rows are routed, and what all devices together receive at
/// most (bytes).
fn rows(plan: &Plan, node: NodeId) -> Vec<(usize, u64)> {
    let Assignment::Computed { partition, .. } = &plan.assignments[node.0] else { return vec![] };
    let it = plan.graph.node(node);
    let (operands, results) = (plan.graph.types_of(&it.operands), plan.graph.types_of(&it.results));
    let loops = it.op.loops(&operands, &results);
    let group = partition.routed_group();
    let all = partition.routes(&loops, &operands, &results).into_iter().enumerate();
    let rows = all.filter(|(_, (route, _))| *route == Route::Rows);
    rows.map(|(at, (_, it))| (at, plan.mesh.devices() * (it.bytes() / group * (group - 1)))).collect()
}
