//! One plan, priced and run.

use std::path::Path;

use cost_models::machine::Machine;
use import::Bindings;
use lower::{Action, Program};
use plan::Plan;
use planner_ir::Mesh;

use crate::failure::Failure;
use crate::inputs;
use crate::model_file::{self, ModelFile};
use crate::otherwise::{self, Manner};
use crate::pipeline::{self, Prepared, Target};

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
    /// The same by kind of instruction, where ranks do not wait for one another.
    pub(super) kinds: Vec<Kind>,
}

/// Instructions of one kind.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) predicted: f64,
    pub(super) measured: f64,
}

/// Plans and runs a model; nothing if there is no such plan.
pub(super) fn trial(
    path: &Path,
    dims: &[(&str, u64)],
    machine: &Machine,
    ranks: u64,
    way: Way,
    steps: u32,
) -> Result<Option<Trial>, Failure> {
    let file = model_file::open(path)?;
    let dims: Vec<(String, u64)> = dims.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
    let bindings = Bindings { dims: dims.iter().cloned().collect(), ..Bindings::default() };
    let imported =
        pipeline::import(&file, &bindings, &mut |_, _| {}).map_err(|error| Failure::file(path, error))?;
    let prepared = pipeline::prepare(&imported, &mut |_, _| {})?;
    let machine = machine.clone().with_devices(ranks).map_err(|error| Failure::Usage(error.to_string()))?;
    let mesh = Mesh::of_sizes(&[ranks]);
    let target = Target::of(&machine, &mesh);
    let header =
        plan::ModelFile { path: path.display().to_string(), sha256: file.sha256.clone(), dims: dims.clone() };
    let Some(plan) = planned(way, &prepared, &header, &target)? else { return Ok(None) };
    let (measured, instructions, program) = run(&plan, &file, steps)?;
    let kinds = if ranks == 1 { kinds(&program, &machine, &instructions) } else { Vec::new() };
    let how = match way {
        Way::Cheapest => "the cheapest",
        Way::By(manner) => manner.name(),
    };
    let plural = if ranks == 1 { "" } else { "s" };
    Ok(Some(Trial {
        plan: format!("{ranks} rank{plural}, {how}"),
        ranks,
        predicted: plan.seconds(),
        measured,
        kinds,
    }))
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

/// The shortest step, the shortest time of each instruction (seconds), and the first rank's program.
fn run(plan: &Plan, file: &ModelFile, steps: u32) -> Result<(f64, Vec<f64>, Program), Failure> {
    let programs = pipeline::lower(plan, &mut |_, _| {})?;
    let first = programs.first().cloned();
    let program = first.ok_or_else(|| Failure::internal("lower", "no program"))?;
    let failed = |error: run::RunError| Failure::internal("run", error);
    let mut session = run::Session::new(programs, file).map_err(failed)?;
    let given = inputs::made(&plan.graph, 0);
    let (mut best, mut instructions) = (f64::INFINITY, vec![f64::INFINITY; program.instructions.len()]);
    for step in 0..WARM_UP + steps {
        let outcome = session.step(&given).map_err(failed)?;
        if step >= WARM_UP {
            best = best.min(outcome.seconds);
            for (shortest, seconds) in instructions.iter_mut().zip(outcome.instructions) {
                *shortest = shortest.min(seconds);
            }
        }
    }
    Ok((best, instructions, program))
}

/// What instructions should take and take, by kind.
fn kinds(program: &Program, machine: &Machine, measured: &[f64]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    let priced = simulate::alone(program, machine);
    for ((instruction, predicted), &measured) in program.instructions.iter().zip(priced).zip(measured) {
        let name = match &instruction.action {
            Action::Compute(compute) => compute.op.name(),
            _ => "copies and messages",
        };
        let predicted = predicted.unwrap_or(0.0);
        match kinds.iter_mut().find(|it| it.name == name) {
            Some(kind) => {
                kind.predicted += predicted;
                kind.measured += measured;
            }
            None => kinds.push(Kind { name: name.to_owned(), predicted, measured }),
        }
    }
    kinds
}
