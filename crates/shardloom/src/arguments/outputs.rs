//! Which files a command writes, by names that its arguments say.

use std::path::PathBuf;

use driver::pipeline::Stage;

use super::Command;

/// The commands that write files, which `--force` means something to.
pub(super) const WRITING: [&str; 15] = [
    "run",
    "train",
    "plan",
    "sweep",
    "explain",
    "export",
    "simulate",
    "partition",
    "schedule",
    "model",
    "calibrate",
    "score",
    "validate",
    "kernels",
    "man",
];

/// Whether what a command writes is made before it stops after a stage: of those that stop, `plan` writes its plan.
pub(crate) fn is_reached(command: &Command, last: Option<Stage>) -> bool {
    last.is_none_or(|last| last == Stage::Plan && matches!(command, Command::Plan(_)))
}

/// Those that are written over where they are there already. Folders whose files have names of their own, files that
/// lines are added to, and what goes on with what is there (`train --resume`) are not among them.
pub(crate) fn outputs(command: &Command) -> Vec<PathBuf> {
    let all = match command {
        Command::Run(it) => vec![it.output.as_ref()],
        Command::Plan(it) => vec![Some(&it.output), it.html.as_ref()],
        Command::Sweep(it) => vec![it.csv.as_ref(), it.svg.as_ref()],
        Command::Explain(it) => vec![it.svg.as_ref(), it.html.as_ref()],
        Command::Simulate(it) => vec![it.trace.as_ref(), it.memory_trace.as_ref()],
        Command::Partition(it) => vec![it.svg.as_ref()],
        Command::Schedule(it) => vec![it.svg.as_ref()],
        Command::Model(it) => vec![Some(&it.output)],
        Command::Calibrate(it) => vec![Some(&it.output)],
        Command::Score(it) => vec![it.output.as_ref()],
        Command::Validate(it) => vec![it.report.as_ref()],
        Command::Train(it) if it.resume.is_none() && !it.go_on => {
            vec![Some(&it.weights), it.export.as_ref(), it.log.as_ref()]
        }
        Command::Kernels(it) => return it.out.iter().map(|it| it.join("kernels.cu")).collect(),
        Command::Train(_)
        | Command::Generate(_)
        | Command::Launch(_)
        | Command::Export(_)
        | Command::Check(_)
        | Command::Diff(_)
        | Command::Import(_)
        | Command::Machines(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Predict(_)
        | Command::Bench(_) => vec![],
    };
    all.into_iter().flatten().cloned().collect()
}
