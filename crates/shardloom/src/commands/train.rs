//! `train`: a plan and data to trained weights.

mod ready; // what is read and refused before a rank starts

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cost_models::quantity;
use files::Failure;
use files::checkpoint::{self, Checkpoint, Manifest, Settings, Writer};
use files::model_file::ModelFile;
use files::weights;
use launch::gpu;

use ::plan::Recipe;
use ::run::{NotFinite, Outcome, Place, RunError, Session};
use ::train::{LOSS, NORM, RATE, ROUNDING, SEED, STEP};
use kernels::Array;
use planner_ir::{Op, State, Type};
use ready::{Ready, facts, ready};
use serde_json::{Value, json};

use super::{Context, Form, Lines, Said, stopped};
use crate::progress::Progress;
use crate::train::arguments::TrainArguments;
use crate::train::data::Data;
use crate::train::order::{Order, Position, dropout_seed, rounding_seed};
use crate::train::ranges::{self, Limit};
use crate::train::report::{Log, StepReport};
use crate::train::resume::{Resumed, is_within};
use crate::train::schedule::Schedule;
use crate::train::settings::Change;
use crate::train::trained::Trained;

/// What is trained, and how far it is.
struct Run<'a> {
    arguments: &'a TrainArguments,
    trained: &'a Trained,
    recipe: &'a Recipe,
    file: &'a ModelFile,
    data: Data,
    limits: Vec<Limit>,
    /// The states that last from step to step.
    states: BTreeMap<State, Type>,
    session: Session,
    seed: u64,
    /// The steps that are done.
    step: u64,
    /// How many of them changed nothing.
    skipped: u64,
    order: Order,
    schedule: Schedule,
    /// The newest checkpoint.
    saved: Option<PathBuf>,
    /// What checkpoints are told.
    settings: Settings,
}

/// The inputs of a step.
struct Fed {
    micro_batches: Vec<BTreeMap<String, Array>>,
    step: BTreeMap<String, Array>,
}

/// Trains as a plan says.
pub(crate) fn train(arguments: &TrainArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let ready = ready(arguments, context);
    let agreed = context.agree(ready, |ready| match ready {
        Ok(ready) => facts(arguments, ready),
        Err(_) => (None, Vec::new()),
    });
    let ready = match agreed? {
        Ok(ready) => ready,
        Err(stage) => return Ok(stopped(stage)),
    };
    // The folder of checkpoints is this job's until its end.
    let Ready { trained, data, states, settings, resumed, programs, prints: _, lock: _lock } = ready;
    let file = &trained.file;
    context.progress.say("reading weights");
    let session = gpu::session(&arguments.on, context.cluster, context.progress, programs, file);
    let session = session.map_err(|error| failed(file, error))?;
    let limits = ranges::limits(&trained.graph);
    let mut run = Run::new(arguments, &trained, data, limits, states, session);
    run.settings = settings;
    if let Some(Resumed { checkpoint, changes, instead }) = &resumed {
        run.start(checkpoint)?;
        instead.iter().for_each(|failure| recovered(failure, checkpoint, context));
        changes.iter().for_each(|change| said(change, context));
    }
    run.steps(context.progress, &mut context.lines)?;
    context.progress.say("writing weights");
    run.finish()
}

/// Says what is another than in the checkpoint.
fn said(change: &Change, context: &mut Context<'_, '_>) {
    let Change { name, before, now } = change;
    let text = format!("{name}: {now}, before the checkpoint {before}");
    line(&text, &json!({ "changed": name, "before": before, "now": now }), context);
}

/// Says that an older checkpoint is gone on from, and why.
fn recovered(failure: &Failure, checkpoint: &Checkpoint, context: &mut Context<'_, '_>) {
    let folder = checkpoint.folder.display().to_string();
    let text = format!("checkpoint: {failure}; the newest that is whole is {folder}, it goes on from there");
    line(&text, &json!({ "damaged": failure.to_string(), "resumed": folder }), context);
}

fn line(text: &str, json: &Value, context: &mut Context<'_, '_>) {
    let line = match context.lines.form {
        Form::Text => format!("{text}\n"),
        Form::Json => format!("{json}\n"),
        Form::Nothing => return,
    };
    // If nobody reads any more, the weights are still wanted.
    let _ = context.progress.without(|| context.lines.to.write_all(line.as_bytes()));
}

fn failed(file: &ModelFile, error: RunError) -> Failure {
    Failure::of_run("train", &file.path, &error)
}

impl<'a> Run<'a> {
    fn new(
        arguments: &'a TrainArguments,
        trained: &'a Trained,
        data: Data,
        limits: Vec<Limit>,
        states: BTreeMap<State, Type>,
        session: Session,
    ) -> Self {
        let schedule = Schedule {
            shape: arguments.schedule,
            peak: arguments.lr,
            least: arguments.min_lr,
            warmup: arguments.warmup,
            last: arguments.steps,
        };
        let seed = arguments.seed.unwrap_or(0);
        let (recipe, file) = (&trained.recipe, &trained.file);
        let per_step = data.per_micro_batch * recipe.micro_batches;
        let order = Order::new(seed, data.examples, per_step, Position { epoch: 0, used: 0 });
        let (step, skipped, saved, settings) = (0, 0, None, Settings::new());
        Self {
            arguments,
            trained,
            recipe,
            file,
            data,
            limits,
            states,
            session,
            seed,
            step,
            skipped,
            order,
            schedule,
            saved,
            settings,
        }
    }

    /// Goes on from a checkpoint.
    fn start(&mut self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let Checkpoint { folder, manifest } = checkpoint;
        let (session, file) = (&mut self.session, self.file);
        checkpoint.each(&mut |state, from| session.set(&state, from).map_err(|error| failed(file, error)))?;
        let per_step = self.data.per_micro_batch * self.recipe.micro_batches;
        let position = Position { epoch: manifest.epoch, used: manifest.used };
        self.seed = manifest.seed;
        (self.step, self.skipped) = (manifest.step, manifest.skipped);
        self.order = Order::new(self.seed, self.data.examples, per_step, position);
        self.saved = Some(folder.clone());
        // Newer ones of the same folder are given up: steps are done again.
        match &self.arguments.checkpoint {
            Some(into) if self.session.leads() && is_within(folder, into) => {
                checkpoint::point(into, self.step)
            }
            _ => Ok(()),
        }
    }

    fn steps(&mut self, progress: &Progress, lines: &mut Lines<'_>) -> Result<(), Failure> {
        let log = self.arguments.log.as_deref().filter(|_| self.session.leads());
        let mut log = log.map(|path| Log::open(path, self.step)).transpose()?;
        while self.step < self.arguments.steps {
            progress.say(format!("step {} of {}", self.step + 1, self.arguments.steps));
            let report = self.step()?;
            if let Some(log) = &mut log {
                log.add(&report)?;
            }
            let line = match lines.form {
                Form::Text => format!("{report}\n"),
                Form::Json => format!("{}\n", report.json()),
                Form::Nothing => String::new(),
            };
            // If nobody reads any more, the weights are still wanted.
            let _ = progress.without(|| lines.to.write_all(line.as_bytes()).and_then(|()| lines.to.flush()));
            if let Some(folder) = &self.arguments.checkpoint
                && (self.step.is_multiple_of(self.arguments.every) || self.step == self.arguments.steps)
            {
                progress.say(format!("writing {}", checkpoint::folder(folder, self.step).display()));
                self.save(folder)?;
            }
        }
        Ok(())
    }

    /// Does the next step.
    fn step(&mut self) -> Result<StepReport, Failure> {
        let step = self.step + 1;
        let rate = self.schedule.rate(step);
        let fed = self.fed(step, rate)?;
        let outcome = self.session.train(&fed.micro_batches, &fed.step);
        let outcome = outcome.map_err(|error| failed(self.file, error))?;
        let norm = number(&outcome, NORM)?;
        let loss = match number(&outcome, LOSS)? {
            Some(loss) => loss,
            None if self.session.leads() => return Err(Failure::internal("train", "there is no loss")),
            // The first process has the loss, and says whether the step was one.
            None => 0.0,
        };
        let finite = outcome.updated && loss.is_finite() && norm.is_none_or(f32::is_finite);
        let skipped = if self.session.leads() {
            if !finite {
                let found = self.first_not_finite(&fed);
                if !self.is_empty(&found) {
                    return Err(self.not_finite(step, found, loss, norm));
                }
            }
            let skipped = u64::from(!finite);
            self.session.go_on(skipped);
            skipped
        } else {
            self.session.follow().map_err(|error| failed(self.file, error))?
        };
        self.skipped += skipped;
        self.step = step;
        Ok(StepReport {
            step,
            loss: finite.then_some(loss),
            learning_rate: rate,
            gradient_norm: norm.filter(|_| finite),
            examples: self.data.per_micro_batch * self.recipe.micro_batches,
            tokens: self.data.tokens.map(|tokens| tokens * self.recipe.micro_batches),
            seconds: outcome.seconds,
        })
    }

    /// The inputs of a step, checked.
    fn fed(&mut self, step: u64, rate: f64) -> Result<Fed, Failure> {
        let examples = self.order.step();
        let per_micro_batch = usize::try_from(self.data.per_micro_batch).unwrap_or(usize::MAX);
        let mut micro_batches = Vec::new();
        for (number, examples) in (0_u64..).zip(examples.chunks(per_micro_batch)) {
            let mut inputs = self.data.micro_batch(examples)?;
            ranges::check(&self.limits, &inputs).map_err(|(place, error)| {
                let example = examples.get(place).or(examples.first()).copied().unwrap_or(0);
                let (path, hint) = (self.data.path().display(), self.data.hint());
                Failure::Input(format!(
                    "step {step}, micro-batch {number}, example {example} of {path}: {error}{hint}"
                ))
            })?;
            let seed = Array::of::<i64>([], &[dropout_seed(self.seed, step, number)]);
            inputs.insert(SEED.to_owned(), made(seed)?);
            micro_batches.push(inputs);
        }
        // Optimizers count the steps that they have made.
        let counted = counted(step - self.skipped);
        let inputs = [
            (RATE, Array::of([], &[single(rate)])),
            (STEP, Array::of([], &[counted])),
            (ROUNDING, Array::of([], &[rounding_seed(self.seed, step)])),
        ];
        let step = inputs.into_iter().map(|(name, it)| Ok((name.to_owned(), made(it)?)));
        Ok(Fed { micro_batches, step: step.collect::<Result<_, Failure>>()? })
    }

    /// The first value of a step that is not finite.
    fn first_not_finite(&self, fed: &Fed) -> Result<Option<NotFinite>, RunError> {
        let states = self.states.keys().map(|state| Ok((state.clone(), self.session.gather(state)?)));
        let states = states.collect::<Result<BTreeMap<_, _>, RunError>>()?;
        ::run::not_finite(&self.trained.graph, self.file, &states, &fed.micro_batches, &fed.step)
    }

    /// Whether the loss is what is not finite first: a quotient of finite numbers, of which the
    /// second, how many labels count, is zero.
    fn is_empty(&self, found: &Result<Option<NotFinite>, RunError>) -> bool {
        let Ok(Some(NotFinite { place: Place::Operation { node, .. }, .. })) = found else { return false };
        let loss = self.trained.graph.outputs.iter().find(|it| it.name == LOSS);
        loss.is_some_and(|it| self.trained.graph.node(*node).results.contains(&it.value))
    }

    /// Why the run ends at a step that makes no sense.
    fn not_finite(
        &self,
        step: u64,
        found: Result<Option<NotFinite>, RunError>,
        loss: f32,
        norm: Option<f32>,
    ) -> Failure {
        let what = match norm {
            Some(norm) if loss.is_finite() && !norm.is_finite() => {
                format!("the norm of the gradients is {norm}")
            }
            _ if !loss.is_finite() => format!("the loss is {loss}"),
            _ => "a result is not finite".to_owned(),
        };
        let found = match found {
            Ok(Some(found)) => format!("what is not finite first is {found}"),
            Ok(None) => "computed on one rank all of it is finite".to_owned(),
            Err(error) => format!("where it came from is not known: {error}"),
        };
        let kept = match &self.saved {
            Some(path) => format!("the last checkpoint is {}", path.display()),
            None => "there is no checkpoint".to_owned(),
        };
        Failure::Input(format!("step {step}: {what}; {found}; no weights are written, {kept}"))
    }

    /// Refuses to write states that are not finite: the loss before the update that made them was.
    fn check_states(&self) -> Result<(), Failure> {
        for state in self.states.keys() {
            let numbers = self.gather(state)?.to_floats();
            let numbers = numbers.map_err(|error| Failure::internal("train", error))?;
            let Some(number) = numbers.iter().find(|it| !it.is_finite()) else { continue };
            let (kind, name, step) = (state.kind.name(), &state.name, self.step);
            let kept = self.saved.as_ref().map_or_else(
                || "there is no checkpoint".to_owned(),
                |path| format!("the last checkpoint is {}", path.display()),
            );
            return Err(Failure::Input(format!(
                "step {step}: the {kind} of `{name}` has become {number}; nothing of this step is written, {kept}"
            )));
        }
        Ok(())
    }

    /// Writes a checkpoint.
    fn save(&mut self, folder: &Path) -> Result<(), Failure> {
        if !self.session.leads() {
            return self.follow();
        }
        self.check_states()?;
        let position = self.order.position();
        let manifest = Manifest {
            step: self.step,
            seed: self.seed,
            epoch: position.epoch,
            used: position.used,
            examples: self.data.examples,
            model_sha256: self.trained.model.sha256.clone(),
            skipped: self.skipped,
            settings: self.settings.clone(),
            files: Vec::new(),
        };
        let states = self.states.iter().map(|(state, type_)| (state.clone(), type_.clone())).collect();
        let writer = Writer { folder: folder.to_owned(), keep: self.arguments.keep, states };
        self.saved = Some(writer.write(manifest, &mut |state| self.gather(state))?);
        self.session.go_on(0);
        Ok(())
    }

    /// Hands states to the process that writes.
    fn follow(&self) -> Result<(), Failure> {
        self.session.follow().map(|_| ()).map_err(|error| failed(self.file, error))
    }

    /// A state; of a parameter's copy in the model file, what it is a copy of.
    fn gather(&self, state: &State) -> Result<Array, Failure> {
        let Some(tie) = self.trained.ties.iter().find(|tie| tie.copy == state.name) else {
            return self.session.gather(state).map_err(|error| failed(self.file, error));
        };
        let original = self.gather(&State { kind: state.kind, name: tie.original.clone() })?;
        if !tie.transposed {
            return Ok(original);
        }
        let exchanged = kernels::evaluate(&Op::Transpose { permutation: vec![1, 0] }, &[&original]);
        let mut exchanged = exchanged.map_err(|error| Failure::internal("train", error))?;
        exchanged.pop().ok_or_else(|| Failure::internal("train", "a transpose makes nothing"))
    }

    /// Writes what was trained, and says so.
    fn finish(&self) -> Result<Said, Failure> {
        if self.skipped == self.step {
            let error = format!("none of the labels of {} steps counts: nothing is trained", self.step);
            return Err(Failure::file(self.data.path(), error));
        }
        if !self.session.leads() {
            self.follow()?;
            return Ok(Said { text: String::new(), json: Value::Null });
        }
        self.check_states()?;
        let trained = weights::trained(&self.states, &self.trained.ties);
        let TrainArguments { weights: path, export, .. } = self.arguments;
        weights::write(path, &trained, &mut |state| self.gather(state))?;
        if let Some(export) = export {
            weights::export(export, self.file, &trained, &mut |state| self.gather(state))?;
        }
        self.session.go_on(0);
        let bytes: u64 = trained.values().map(|(_, type_)| type_.bytes()).sum();
        let mut text = String::new();
        // Writing to a string does not fail.
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        let count = trained.len();
        line(format!("weights    {}, {count} parameters, {}", path.display(), quantity::bytes(bytes)));
        if let Some(export) = export {
            line(format!("model      {}", export.display()));
        }
        let written = self.saved.as_ref().filter(|_| self.arguments.checkpoint.is_some());
        if let Some(saved) = written {
            line(format!("checkpoint {}", saved.display()));
        }
        let shown = |path: &PathBuf| path.display().to_string();
        let json = json!({
            "steps": self.step,
            "weights": shown(path),
            "parameters": trained.len(),
            "model": export.as_ref().map(shown),
            "checkpoint": written.map(shown),
        });
        Ok(Said { text, json })
    }
}

/// An output that is one number.
fn number(outcome: &Outcome, name: &str) -> Result<Option<f32>, Failure> {
    let Some(array) = outcome.outputs.get(name) else { return Ok(None) };
    let elements = array.elements::<f32>().map_err(|error| Failure::internal("train", error))?;
    Ok(elements.first().copied())
}

fn made(array: Result<Array, kernels::KernelError>) -> Result<Array, Failure> {
    array.map_err(|error| Failure::internal("train", error))
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn single(number: f64) -> f32 {
    number as f32
}

#[expect(clippy::cast_precision_loss, reason = "optimizers count in f32")]
fn counted(number: u64) -> f32 {
    number as f32
}
