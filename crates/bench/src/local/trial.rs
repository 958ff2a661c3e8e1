//! One plan, priced and run.

use std::collections::BTreeMap;
use std::path::Path;

use autoparallel::otherwise::{self, Manner};
use cost_models::machine::Machine;
use cost_models::quantity;
use driver::pipeline::{self, Prepared, Target};
use files::Failure;
use files::inputs;
use files::model_file::{self, ModelFile};
use import::Bindings;
use kernels::Array;
use lower::{Action, Program};
use plan::Plan;
use planner_ir::Mesh;

use super::calm::Calm;

/// Steps that are not measured.
const WARM_UP: u32 = 2;

/// How a plan is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// By the search.
    Cheapest,
    /// By hand.
    By(Manner),
}

/// A plan, what its step should take and what it takes (seconds).
pub(super) struct Trial {
    pub(super) plan: String,
    pub(super) ranks: u64,
    pub(super) predicted: f64,
    pub(super) measured: f64,
    /// In how many rounds it was run, and how many of these were calm.
    pub(super) rounds: [usize; 2],
    /// The same by kind of instruction, on the rank that it takes longest.
    pub(super) kinds: Vec<Kind>,
}

/// Instructions of one kind.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) predicted: f64,
    pub(super) measured: f64,
}

/// A plan that is ready to be run.
pub(super) struct Running {
    plan: String,
    ranks: u64,
    predicted: f64,
    program: Program,
    /// What its instructions should take on a rank alone (seconds).
    priced: Vec<Option<f64>>,
    session: run::Session,
    given: BTreeMap<String, Array>,
    rounds: Vec<Round>,
}

/// Some steps at a stretch.
struct Round {
    /// What the reference took at worst, just before and just after (seconds).
    reference: f64,
    /// The shortest step (seconds).
    step: f64,
    /// The shortest time of each instruction (seconds).
    instructions: Vec<f64>,
}

impl Running {
    /// Plans a model and makes it ready; nothing if there is no such plan.
    pub(super) fn new(
        path: &Path,
        dims: &[(&str, u64)],
        machine: &Machine,
        ranks: u64,
        way: Way,
    ) -> Result<Option<Self>, Failure> {
        let file = model_file::open(path)?;
        let dims: Vec<(String, u64)> = dims.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
        let bindings = Bindings { dims: dims.iter().cloned().collect(), ..Bindings::default() };
        let imported =
            pipeline::import(&file, &bindings, &mut |_, _| {}).map_err(|error| Failure::file(path, error))?;
        let prepared = pipeline::prepare(&imported, &mut |_, _| {})?;
        let machine =
            machine.clone().with_devices(ranks).map_err(|error| Failure::Usage(error.to_string()))?;
        let mesh = Mesh::of_sizes(&[ranks]);
        let target = Target::of(&machine, &mesh);
        let header = plan::ModelFile {
            path: path.display().to_string(),
            sha256: file.sha256.clone(),
            dims: dims.clone(),
        };
        let Some(plan) = planned(way, &prepared, &header, &target)? else { return Ok(None) };
        let how = match way {
            Way::Cheapest => "the cheapest",
            Way::By(manner) => manner.name(),
        };
        Self::ready(&plan, format!("{}, {how}", quantity::counted(ranks, "rank")), &machine, &file).map(Some)
    }

    fn ready(plan: &Plan, name: String, machine: &Machine, file: &ModelFile) -> Result<Self, Failure> {
        let programs = pipeline::lower(plan, &mut |_, _| {})?;
        let first = programs.first().cloned();
        let program = first.ok_or_else(|| Failure::internal("lower", "no program"))?;
        let mut running = Self {
            plan: name,
            ranks: machine.devices(),
            predicted: plan.seconds(),
            priced: simulate::alone(&program, machine),
            program,
            session: run::Session::new(programs, file).map_err(failed)?,
            given: inputs::made(&plan.graph, 0),
            rounds: Vec::new(),
        };
        for _ in 0..WARM_UP {
            running.session.step(&running.given).map_err(failed)?;
        }
        Ok(running)
    }

    /// Runs so many steps between two looks at how calm the machine is.
    pub(super) fn round(&mut self, steps: u32, calm: &mut Calm) -> Result<(), Failure> {
        let before = calm.last()?;
        let (mut step, mut instructions) =
            (f64::INFINITY, vec![f64::INFINITY; self.program.instructions.len()]);
        for _ in 0..steps {
            let outcome = self.session.step(&self.given).map_err(failed)?;
            step = step.min(outcome.seconds);
            shorten(&mut instructions, &outcome.instructions);
        }
        let reference = before.max(calm.look()?);
        self.rounds.push(Round { reference, step, instructions });
        Ok(())
    }

    /// In how many rounds the machine was calm.
    pub(super) fn calm(&self, calm: &Calm) -> usize {
        self.rounds.iter().filter(|round| calm.is(round.reference)).count()
    }

    /// What the plan takes: the shortest in rounds in which the machine was calm, or, if it never was, in
    /// all.
    pub(super) fn done(self, calm: &Calm) -> Trial {
        let count = self.calm(calm);
        let counts = |round: &&Round| count == 0 || calm.is(round.reference);
        let (mut measured, mut instructions) = (f64::INFINITY, vec![f64::INFINITY; self.priced.len()]);
        for round in self.rounds.iter().filter(counts) {
            measured = measured.min(round.step);
            shorten(&mut instructions, &round.instructions);
        }
        let kinds = kinds(&self.program, &self.priced, self.predicted, &instructions);
        let rounds = [self.rounds.len(), count];
        Trial { plan: self.plan, ranks: self.ranks, predicted: self.predicted, measured, rounds, kinds }
    }
}

/// The shorter of two times of each instruction (seconds).
fn shorten(shortest: &mut [f64], others: &[f64]) {
    shortest.iter_mut().zip(others).for_each(|(shortest, &other)| *shortest = shortest.min(other));
}

fn failed(error: run::RunError) -> Failure {
    Failure::internal("run", error)
}

fn planned(
    way: Way,
    prepared: &Prepared,
    header: &plan::ModelFile,
    target: &Target<'_>,
) -> Result<Option<Plan>, Failure> {
    match way {
        Way::Cheapest => Ok(Some(pipeline::plan(prepared, header, target, &mut |_, _| {})?)),
        Way::By(manner) => Ok(otherwise::plan_of(manner, prepared, header, target)?.ok()),
    }
}

/// What instructions should take and take, by kind. What ranks do together should take what is left of the
/// whole price.
fn kinds(program: &Program, priced: &[Option<f64>], whole: f64, measured: &[f64]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    let mut count = |name: &str, predicted, measured| match kinds.iter_mut().find(|it| it.name == name) {
        Some(kind) => {
            kind.predicted += predicted;
            kind.measured += measured;
        }
        None => kinds.push(Kind { name: name.to_owned(), predicted, measured }),
    };
    for ((instruction, predicted), &measured) in program.instructions.iter().zip(priced).zip(measured) {
        let name = match (&instruction.action, predicted) {
            (Action::Compute(compute), _) => compute.op.name(),
            (_, Some(_)) => "copies",
            (_, None) => TOGETHER,
        };
        count(name, predicted.unwrap_or(0.0), measured);
    }
    let alone: f64 = priced.iter().flatten().sum();
    count(TOGETHER, whole - alone, 0.0);
    kinds
}

/// What ranks do together.
const TOGETHER: &str = "exchanges, and waiting for them";
