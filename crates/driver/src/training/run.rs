//! A run: its steps, its checkpoints, and the weights in the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use files::checkpoint::{self, Checkpoint, Manifest, Writer};
use files::model_file::ModelFile;
use files::weights;
use files::{Doing, Failure, Of};
use kernels::Array;
use launch::Listener;
use plan::Recipe;
use planner_ir::{Op, State};
use run::{NotFinite, Outcome, Place, RunError, Session};
use train::{LOSS, NORM, RATE, ROUNDING, SEED, STEP};

use super::job::Job;
use super::order::{Order, Position, dropout_seed, rounding_seed};
use super::ranges::{self, Limit};
use super::ready::Ready;
use super::report::{Log, StepReport};
use super::resume::is_within;

/// What is trained, and how far it is.
pub struct Run<'a> {
    job: &'a Job,
    ready: &'a Ready,
    recipe: &'a Recipe,
    file: &'a ModelFile,
    limits: Vec<Limit>,
    session: Session,
    seed: u64,
    /// The steps that are done.
    step: u64,
    /// How many of them changed nothing.
    skipped: u64,
    order: Order,
    /// The newest checkpoint.
    saved: Option<PathBuf>,
}

/// What has come of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How many steps were done.
    pub steps: u64,
    /// How many parameters were written.
    pub parameters: usize,
    /// How large they are (bytes).
    pub bytes: u64,
    /// The newest checkpoint, where some are written.
    pub checkpoint: Option<PathBuf>,
}

/// The inputs of a step.
struct Fed {
    micro_batches: Vec<BTreeMap<String, Array>>,
    step: BTreeMap<String, Array>,
}

fn failed(file: &ModelFile, error: RunError) -> Failure {
    Failure::of_run("train", &file.path, &error)
}

impl<'a> Run<'a> {
    /// A run at its start, or at the checkpoint that it goes on from. The session has the programs of what is
    /// ready.
    pub fn new(job: &'a Job, ready: &'a Ready, session: Session) -> Result<Self, Failure> {
        let seed = job.seed.unwrap_or(0);
        let (recipe, file) = (&ready.trained.recipe, &ready.trained.file);
        let per_step = ready.data.per_micro_batch * recipe.micro_batches;
        let order = Order::new(seed, ready.data.examples, per_step, Position { epoch: 0, used: 0 });
        let limits = ranges::limits(&ready.trained.graph);
        let (step, skipped, saved) = (0, 0, None);
        let mut run = Self { job, ready, recipe, file, limits, session, seed, step, skipped, order, saved };
        if let Some(resumed) = &ready.resumed {
            run.start(&resumed.checkpoint)?;
        }
        Ok(run)
    }

    /// Goes on from a checkpoint.
    fn start(&mut self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let Checkpoint { folder, manifest } = checkpoint;
        let (session, file) = (&mut self.session, self.file);
        checkpoint.each(&mut |state, from| session.set(&state, from).map_err(|error| failed(file, error)))?;
        let per_step = self.ready.data.per_micro_batch * self.recipe.micro_batches;
        let position = Position { epoch: manifest.epoch, used: manifest.used };
        self.seed = manifest.seed;
        (self.step, self.skipped) = (manifest.step, manifest.skipped);
        self.order = Order::new(self.seed, self.ready.data.examples, per_step, position);
        self.saved = Some(folder.clone());
        // Newer ones of the same folder are given up: steps are done again.
        match &self.job.checkpoint {
            Some(into) if self.session.leads() && is_within(folder, into) => {
                checkpoint::point(into, self.step)
            }
            _ => Ok(()),
        }
    }

    /// Does all steps, and writes checkpoints; each step is told of.
    pub fn steps(
        &mut self,
        listener: &dyn Listener,
        told: &mut dyn FnMut(&StepReport),
    ) -> Result<(), Failure> {
        let (log, last) = (self.job.log.as_deref().filter(|_| self.session.leads()), self.job.last());
        let mut log = log.map(|path| Log::open(path, self.step)).transpose()?;
        while self.step < last {
            let count = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
            listener.say(Doing::one("step", count(self.step + 1), Of::All(count(last))));
            let report = self.step()?;
            if let Some(log) = &mut log {
                log.add(&report)?;
            }
            told(&report);
            if let Some(folder) = &self.job.checkpoint
                && (self.step.is_multiple_of(self.job.every) || self.step == last)
            {
                listener.say(format!("writing {}", checkpoint::folder(folder, self.step).display()).into());
                self.save(folder)?;
            }
        }
        Ok(())
    }

    /// Does the next step.
    fn step(&mut self) -> Result<StepReport, Failure> {
        let step = self.step + 1;
        let rate = self.job.schedule.rate(step);
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
            examples: self.ready.data.per_micro_batch * self.recipe.micro_batches,
            tokens: self.ready.data.tokens.map(|tokens| tokens * self.recipe.micro_batches),
            seconds: outcome.seconds,
        })
    }

    /// The inputs of a step, checked.
    fn fed(&mut self, step: u64, rate: f64) -> Result<Fed, Failure> {
        let examples = self.order.step();
        let per_micro_batch = usize::try_from(self.ready.data.per_micro_batch).unwrap_or(usize::MAX);
        let mut micro_batches = Vec::new();
        for (number, examples) in (0_u64..).zip(examples.chunks(per_micro_batch)) {
            let mut inputs = self.ready.data.micro_batch(examples)?;
            ranges::check(&self.limits, &inputs).map_err(|(place, error)| {
                let example = examples.get(place).or(examples.first()).copied().unwrap_or(0);
                let (path, hint) = (self.ready.data.path().display(), self.ready.data.hint());
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
        let states = self.ready.states.keys().map(|state| Ok((state.clone(), self.session.gather(state)?)));
        let states = states.collect::<Result<BTreeMap<_, _>, RunError>>()?;
        run::not_finite(&self.ready.trained.graph, self.file, &states, &fed.micro_batches, &fed.step)
    }

    /// Whether the loss is what is not finite first: a quotient of finite numbers, of which the
    /// second, how many labels count, is zero.
    fn is_empty(&self, found: &Result<Option<NotFinite>, RunError>) -> bool {
        let Ok(Some(NotFinite { place: Place::Operation { node, .. }, .. })) = found else { return false };
        let loss = self.ready.trained.graph.outputs.iter().find(|it| it.name == LOSS);
        loss.is_some_and(|it| self.ready.trained.graph.node(*node).results.contains(&it.value))
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
        for state in self.ready.states.keys() {
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
            examples: self.ready.data.examples,
            model_sha256: self.ready.trained.model.sha256.clone(),
            skipped: self.skipped,
            settings: self.ready.settings.clone(),
            files: Vec::new(),
        };
        let states = self.ready.states.iter().map(|(state, type_)| (state.clone(), type_.clone())).collect();
        let writer = Writer { folder: folder.to_owned(), keep: self.job.keep, states };
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
        let Some(tie) = self.ready.trained.ties.iter().find(|tie| tie.copy == state.name) else {
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

    /// Writes what was trained; what has come of the run, for the first of several processes.
    pub fn finish(&self) -> Result<Option<Finished>, Failure> {
        if self.skipped == self.step {
            let error = format!("none of the labels of {} steps counts: nothing is trained", self.step);
            return Err(Failure::file(self.ready.data.path(), error));
        }
        if !self.session.leads() {
            self.follow()?;
            return Ok(None);
        }
        self.check_states()?;
        let trained = weights::trained(&self.ready.states, &self.ready.trained.ties);
        weights::write(&self.job.weights, &trained, &mut |state| self.gather(state))?;
        if let Some(export) = &self.job.export {
            weights::export(export, self.file, &trained, &mut |state| self.gather(state))?;
        }
        self.session.go_on(0);
        Ok(Some(Finished {
            steps: self.step,
            parameters: trained.len(),
            bytes: trained.values().map(|(_, type_)| type_.bytes()).sum(),
            checkpoint: self.saved.clone().filter(|_| self.job.checkpoint.is_some()),
        }))
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
