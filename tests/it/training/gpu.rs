//! Training steps on a GPU that is not there: every kind of plan on one rank and several, and stages,
//! held against what PyTorch computed. Plans in time steps are trained where they are made.

use lower::Program;
use plan::{Plan, Recompute};
use planner_ir::{Optimizer, State, StateKind};
use rayon::prelude::*;
use rewrite::Steps;
use schedule::Kind as Schedule;
use search::MachinePrices;

use super::against::apart;
use super::cases::{self, ADAMW, Case, MOMENTUM, SGD, parted};
use super::manners::{Manner, Preferring};
use super::{expect_none, faults_of, pipelines};
use crate::corpus::gpu::session;
use crate::corpus::{check_bytes, machine};
use crate::emulated::emulated;

/// How a step is planned.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// As the search likes it.
    Chosen,
    /// In another manner.
    In(Manner),
    /// In two stages, each on a mesh of its own.
    Stages(Schedule),
}

/// What is trained: the model, the mesh, how it is planned, in how many micro-batches.
const TRIALS: [(&str, &str, Kind, u64); 6] = [
    ("gpt2/legacy.onnx", "1", Kind::Chosen, 1),
    ("gpt2/legacy.onnx", "2", Kind::Chosen, 2),
    ("gpt2/legacy.onnx", "2", Kind::In(Manner::Tensor), 1),
    ("gpt2/legacy.onnx", "4", Kind::In(Manner::Data(3)), 1),
    ("gpt2/legacy.onnx", "1", Kind::Stages(Schedule::OneForwardOneBackward), 2),
    ("llama/dynamo.onnx", "2", Kind::Stages(Schedule::ZeroBubbleH1), 4),
];

fn check(path: &std::path::Path, mesh: &'static str, kind: Kind, parts: u64) -> Result<(), String> {
    if let Kind::Stages(schedule) = kind {
        return pipelines::check_on_gpu(path, mesh, schedule, parts);
    }
    let (case, plan, optimizer) = planned(path, mesh, kind, parts)?;
    case.check_on_gpu(&plan, optimizer, parts)
}

/// A plan without stages, with what it is of.
fn planned(
    path: &std::path::Path,
    mesh: &str,
    kind: Kind,
    parts: u64,
) -> Result<(Case, Plan, Optimizer), String> {
    let (mesh, machine) = machine(mesh);
    let case = Case::load(path);
    let ranks = mesh.devices();
    let wanted = if matches!(kind, Kind::In(Manner::Data(_))) { ranks * parts } else { parts };
    let examples = case.examples();
    let times = (1..=wanted).find(|times| (examples * times).is_multiple_of(wanted)).unwrap_or(1);
    let case = case.stretched(times, 1);
    let optimizer = if ranks == 2 { MOMENTUM } else { ADAMW };
    let training = case.training(optimizer, Recompute::Nothing);
    let prepared = case.prepared(&training, &parted(&case.batch(0), parts));
    let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
    let plan = match kind {
        Kind::In(manner) => {
            let prices = Preferring::new(manner, prices, &prepared.graph, &prepared.sections);
            case.plan_in(&prepared, &mesh, &machine, &prices, Steps::Auto)?
        }
        _ => case.plan_of(&prepared, &mesh, &machine, &prices)?,
    };
    Ok((case, plan, optimizer))
}

/// What is planned for each trial whose model is there, lowered.
pub(crate) fn programs() -> Vec<(String, Result<Vec<Program>, String>)> {
    let all = cases::all();
    let of = |&(model, mesh, kind, parts): &(&str, &'static str, Kind, u64)| {
        let path = all.iter().find(|path| path.ends_with(model))?;
        let programs = match kind {
            Kind::Stages(schedule) => pipelines::programs(path, mesh, schedule, parts),
            _ => planned(path, mesh, kind, parts).and_then(|(_, plan, _)| {
                lower::lower(&plan).map_err(|error| format!("not lowered: {error}"))
            }),
        };
        Some((format!("{model} on {mesh}, {kind:?}"), programs))
    };
    TRIALS.par_iter().filter_map(of).collect()
}

impl Case {
    /// Trains by a plan, as [`Case::check_training`] does on threads.
    pub(super) fn check_on_gpu(&self, plan: &Plan, optimizer: Optimizer, parts: u64) -> Result<(), String> {
        let programs = lower::lower(plan).map_err(|error| format!("not lowered: {error}"))?;
        let gpu = emulated();
        let session = session(&gpu, programs, &self.file)?;
        let bytes = |outcome: &run::Outcome| check_bytes(plan, &outcome.received);
        self.check_session(session, &plan.graph, optimizer, parts, &bytes)
    }
}

#[test]
fn steps_on_a_gpu_train_as_pytorch() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let all = cases::all();
    let mut failures = Vec::new();
    for (model, mesh, kind, parts) in TRIALS.into_iter().filter(|it| it.0.contains(&wanted)) {
        let Some(path) = all.iter().find(|path| path.ends_with(model)) else { continue };
        let start = std::time::Instant::now();
        let what = format!("{model} on {mesh}, {kind:?}, {parts} micro-batches");
        println!("{what}");
        failures.extend(faults_of(&what, || {
            let wrong = check(path, mesh, kind, parts).err();
            wrong.map(|error| format!("{what}: {error}")).into_iter().collect()
        }));
        println!("  done after {:?}", start.elapsed());
    }
    expect_none(&failures);
}

/// A step of gradient descent that bounds the norm of gradients, on that mesh of a GPU; whether the squares of all
/// gradients of a device are one task there.
fn clipped(mesh: &str, share: f64) -> bool {
    let all = cases::all();
    let case = Case::load(all.iter().find(|path| path.ends_with("gpt2/legacy.onnx")).unwrap());
    let gradients: Vec<(&String, Vec<f64>)> =
        case.parameters.keys().filter_map(|name| Some((name, case.expected("grad", name)?))).collect();
    let norm = gradients.iter().flat_map(|it| &it.1).map(|it| it * it).sum::<f64>().sqrt();
    let mut training = case.training(SGD, Recompute::Nothing);
    training.recipe.clip = Some(norm * share);
    let (mesh, machine) = machine(mesh);
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let batch = parted(&case.batch(0), 1);
    let plan = case.plan_by(&training, &batch, &mesh, &machine, &prices).unwrap();
    let programs = lower::lower(&plan).unwrap();
    let squares = |it: &device::Task| it.what.starts_with("the squares of");
    let tasks: Vec<device::Task> = device::tasks(&programs[0]).into_iter().filter(squares).collect();
    let summed: usize = tasks.iter().map(|it| it.operands.len()).sum();
    println!("{summed} values are squared by {} tasks", tasks.len());
    let gpu = emulated();
    let mut session = session(&gpu, programs, &case.file).unwrap();
    let outcome = session.train(&batch, &cases::step_inputs(&plan.graph, 1.0, 1)).unwrap();
    let stated = cases::floats(&outcome.outputs[train::NORM])[0];
    assert!((stated - norm).abs() < 1e-4 * norm, "norm {stated}, expected {norm}");
    let (scale, mut compared) = (share.min(1.0), 0);
    for (name, gradient) in gradients {
        let state = State { kind: StateKind::Parameter, name: name.clone() };
        let Ok(after) = session.gather(&state) else { continue };
        let before = cases::floats(&run::whole(&case.file, name).unwrap());
        let expected: Vec<f64> = before.iter().zip(&gradient).map(|(p, g)| p - scale * g).collect();
        assert!(apart(&cases::floats(&after), &expected, 0.0) < 1e-4, "{name}");
        compared += 1;
    }
    assert!(compared > 20, "{compared} parameters are compared");
    tasks.len() == 1 && summed > 20
}

#[test]
fn gradients_are_scaled_down_on_a_gpu_by_squares_that_are_one_task() {
    assert!(clipped("1", 0.3), "the squares of gradients are not one task");
    assert!(clipped("1", 3.0));
    // What ranks have is summed between them.
    clipped("2", 0.3);
}
