//! What each command does: arguments in, text out.

pub(crate) mod run; // `run`
mod generate; // `generate`
mod train; // `train`
mod launch; // `launch`
mod plan; // `plan`
mod pipeline; // `plan` in stages
mod sweep; // `sweep`
mod import; // `import`
mod model; // `model`
mod machines; // `machines`
mod manual; // `completions`, `man`
mod diff; // `diff`
mod check; // `check`
mod explain; // `explain`
mod export; // `export`
mod simulate; // `simulate`
mod partition; // `partition`, and pictures of those in plans
mod schedule; // `schedule`
pub(crate) mod calibrate; // `calibrate`
mod predict; // `predict`
mod score; // `score`
pub(crate) mod validate; // `validate`
pub(crate) mod kernels; // `kernels`
mod bench; // `bench`

use std::io::Write;

use ::launch::Listener as _;
use ::launch::cluster::{Cluster, Facts};
use driver::pipeline::Stage;
use files::Failure;
use files::model_file::ModelFile;
use files::written::Before;

use crate::arguments::Command;
use crate::progress::Progress;
use crate::stages::Stages;

/// What every command has.
pub(crate) struct Context<'a, 'b> {
    /// What stages make.
    pub(crate) stages: &'b mut Stages<'a>,
    /// What is being done.
    pub(crate) progress: &'b Progress,
    /// What is printed before a command is done.
    pub(crate) lines: Lines<'b>,
    /// The processes of all ranks, if each rank is one.
    pub(crate) cluster: Option<&'b Cluster>,
    /// What is done about files that are there already.
    pub(crate) before: Before,
}

impl Context<'_, '_> {
    /// Whether this process prints and writes.
    pub(crate) fn leads(&self) -> bool {
        self.cluster.is_none_or(|it| it.processes.leads())
    }

    /// Says on the standard error what a user should know.
    pub(crate) fn warn(&self, words: &str) {
        if self.leads() && self.lines.form != Form::Nothing {
            self.progress.remark(&format!("warning: {words}"));
        }
    }

    /// Refuses to start where the processes do not agree on what they are about to do.
    pub(crate) fn agree<T>(
        &self,
        ready: Result<T, Failure>,
        facts: impl Fn(&T) -> (Option<u64>, Facts),
    ) -> Result<T, Failure> {
        match self.cluster {
            Some(cluster) => cluster.agree(ready, facts),
            None => ready,
        }
    }

    /// What the files of a model's weights are compared by with those of other ranks: nothing where there is
    /// one process.
    pub(crate) fn prints(&self, model: &ModelFile) -> Result<Facts, Failure> {
        self.cluster.map_or(Ok(Vec::new()), |_| model.prints())
    }
}

/// Lines that are printed while a command runs.
pub(crate) struct Lines<'b> {
    /// Where.
    pub(crate) to: &'b mut dyn Write,
    /// In which form.
    pub(crate) form: Form,
}

impl Lines<'_> {
    /// Prints what a command says that does not end well.
    pub(crate) fn print(&mut self, said: &Said) {
        let text = match self.form {
            Form::Text => said.text.clone(),
            Form::Json => format!("{:#}\n", said.json),
            Form::Nothing => return,
        };
        // Where nobody reads, the exit code still says it.
        let _ = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
    }
}

/// For whom is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// People.
    Text,
    /// Programs.
    Json,
    /// Nobody.
    Nothing,
}

/// What a command says.
#[derive(Clone, Debug)]
pub struct Said {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: serde_json::Value,
}

/// Does what is asked; what is to be printed.
pub(crate) fn execute(command: &Command, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    match command {
        Command::Run(arguments) => run::run(arguments, context),
        Command::Generate(arguments) => generate::generate(arguments, context),
        Command::Train(arguments) => train::train(arguments, context),
        Command::Launch(arguments) => launch::launch(arguments, context),
        Command::Plan(arguments) => plan::plan(arguments, context),
        Command::Sweep(arguments) => sweep::sweep(arguments, context),
        Command::Explain(arguments) => explain::explain(arguments, context),
        Command::Export(arguments) => export::export(arguments, context),
        Command::Simulate(arguments) => simulate::simulate(arguments, context),
        Command::Partition(arguments) => partition::partition(arguments),
        Command::Schedule(arguments) => schedule::schedule(arguments),
        Command::Check(arguments) => check::check(arguments, context),
        Command::Diff(arguments) => diff::diff(arguments),
        Command::Import(arguments) => import::import(arguments, context),
        Command::Model(arguments) => model::model(arguments),
        Command::Machines(arguments) => machines::machines(arguments),
        Command::Completions(arguments) => manual::completions(arguments),
        Command::Man(arguments) => manual::man(arguments, context.before),
        Command::Calibrate(arguments) => calibrate::calibrate(arguments, context),
        Command::Predict(arguments) => predict::predict(arguments),
        Command::Score(arguments) => score::score(arguments, context),
        Command::Validate(arguments) => validate::validate(arguments, context),
        Command::Kernels(arguments) => kernels::kernels(arguments, context),
        Command::Bench(benchmark) => bench::bench(benchmark, context),
    }
}

/// What is said if a command stops early.
pub(crate) fn stopped(stage: Stage) -> Said {
    Said {
        text: format!("stopped after {}\n", stage.name()),
        json: serde_json::json!({ "stopped_after": stage.name() }),
    }
}
