//! What a command is, where options depend on it.

use std::path::Path;

use launch::arguments::RunDevice;

use super::super::recipe::{OptimizerName, PrecisionName};
use super::super::{Command, Mode, PlanArguments, Stages};

/// How a model is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Inference,
    Generate,
    /// A training step of one program.
    Train,
    /// One in stages that are said.
    Staged,
    /// One in stages that are searched.
    Auto,
}

pub(super) fn planned(command: &Command) -> Option<&PlanArguments> {
    match command {
        Command::Plan(it) => Some(it),
        Command::Sweep(it) => Some(&it.plan),
        _ => None,
    }
}

pub(super) fn trains(command: &Command) -> bool {
    planned(command).is_some_and(|it| it.recipe.mode == Mode::Train)
}

/// Whether another runtime does what is planned; of those that do both it is said elsewhere what they lack.
pub(super) fn suits(command: &Command) -> bool {
    planned(command).and_then(|it| it.runtime).is_none_or(|it| match (it.range(), it.serves()) {
        (Some(_), None) => trains(command),
        (None, Some(_)) => !trains(command),
        _ => true,
    })
}

/// Whether a plan may have parameters in less than f32 and in f32.
pub(super) fn has_masters(command: &Command) -> bool {
    let is_one = |it: &PlanArguments| {
        matches!(it.recipe.precision, PrecisionName::Fp32 | PrecisionName::Bf16Stochastic)
    };
    trains(command) && !planned(command).is_some_and(is_one)
}

pub(super) fn optimizer(command: &Command) -> Option<OptimizerName> {
    planned(command).map(|it| it.recipe.optimizer)
}

pub(super) fn way(command: &Command) -> Way {
    let Some(plan) = planned(command) else { return Way::Inference };
    match (plan.recipe.mode, &plan.pipeline.stages) {
        _ if matches!(command, Command::Sweep(_)) => Way::Auto,
        (Mode::Generate, _) => Way::Generate,
        (_, Some(Stages::Auto)) => Way::Auto,
        (_, Some(_)) => Way::Staged,
        (Mode::Train, None) => Way::Train,
        (Mode::Inference, None) => Way::Inference,
    }
}

/// Whether a sweep changes something else than this.
pub(super) fn is_not_over(command: &Command, what: &str) -> bool {
    !matches!(command, Command::Sweep(it) if it.over.split('=').next() == Some(what))
}

pub(super) fn is_on_gpus(command: &Command) -> bool {
    let device = match command {
        Command::Run(it) => it.on.device,
        Command::Generate(it) => it.on.device,
        Command::Train(it) => it.on.device,
        Command::Calibrate(it) => it.on.device,
        _ => return false,
    };
    device == RunDevice::Cuda
}

/// Whether what is run is a plan.
pub(super) fn runs_plan(command: &Command) -> bool {
    matches!(command, Command::Run(it) if is(&it.file, &["json"]))
}

pub(super) fn is(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|it| endings.iter().any(|ending| it == *ending))
}
