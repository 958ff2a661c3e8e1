//! One training: a plan, its ranks, and the loss of every step.

use std::collections::BTreeMap;

use ::train::{LOSS, RATE, STEP};
use driver::pipeline::{self, Target};
use driver::training::Width;
use driver::training::data::Data;
use driver::training::order::{Order, Position};
use driver::training::schedule::{Schedule, Shape};
use files::machine;
use files::model_file::ModelFile;
use files::{Doing, Failure, Of, Say};
use import::Bindings;
use kernels::Array;
use plan::{Loss, NoDecay, Precision, Recipe, Recompute};
use planner_ir::{Mesh, Optimizer, Real, Source, State, StateKind};
use run::{Outcome, Session};

use super::Training;
use super::manner::DataFirst;

/// The decay rates of AdamW's running means, what it adds to the denominator, and the decay of
/// matrices.
///
/// Source: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix B; the norm that
/// gradients are scaled down to is from there, too.
const ADAMW: Optimizer =
    Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.1) };
/// The norm that gradients are scaled down to.
const CLIP: f64 = 1.0;
/// What part of the highest learning rate is the lowest.
const LEAST: f64 = 0.1;

/// By which prices a plan is the cheapest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Those of this machine.
    Machine,
    /// Those that prefer the batch split along the first axis.
    Data,
}

/// A way to train.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// What it is called.
    pub(super) title: &'static str,
    /// The sizes of the mesh.
    pub(super) mesh: &'static [u64],
    /// Into how many micro-batches a step's examples fall.
    pub(super) micro_batches: u64,
    /// Recomputation for the gradients.
    recompute: Recompute,
    /// Why its plan is chosen.
    by: By,
}

impl Trial {
    /// Every trial; the first is on one rank, and the others are compared with it.
    pub(super) const ALL: [Self; 4] = [
        Self {
            title: "1 rank",
            mesh: &[1],
            micro_batches: 1,
            recompute: Recompute::Nothing,
            by: By::Machine,
        },
        Self {
            title: "4 ranks, the cheapest plan",
            mesh: &[4],
            micro_batches: 1,
            recompute: Recompute::Nothing,
            by: By::Machine,
        },
        Self {
            title: "4 ranks, data parallel",
            mesh: &[4],
            micro_batches: 1,
            recompute: Recompute::Nothing,
            by: By::Data,
        },
        Self {
            title: "2x2 ranks, micro-batches, recompute",
            mesh: &[2, 2],
            micro_batches: 4,
            recompute: Recompute::Full,
            by: By::Data,
        },
    ];

    fn training(&self) -> pipeline::Training {
        let recipe = Recipe {
            precision: Precision::F32,
            micro_batches: self.micro_batches,
            clip: Some(CLIP),
            no_decay: NoDecay { names: vec![], vectors: true },
            ..Recipe::new(
                Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
                ADAMW,
            )
        };
        let decisions = pipeline::Decisions::Only(self.recompute.clone());
        pipeline::Training { recipe, decisions, phases: pipeline::Phases::Together }
    }
}

/// What a training was.
#[derive(Debug)]
pub(super) struct Curve {
    /// How it was done.
    pub(super) trial: Trial,
    /// What the plan does, in words.
    pub(super) strategy: Vec<String>,
    /// The numbers that are learnt.
    pub(super) parameters: u64,
    /// The loss of each step (nats per byte).
    pub(super) losses: Vec<f64>,
    /// What each step took (seconds).
    pub(super) seconds: Vec<f64>,
    /// What a step takes by the prices of this machine (seconds), if the plan is made by them.
    pub(super) predicted: Option<f64>,
}

/// Plans a training and runs it.
pub(super) fn train(
    options: &Training,
    file: &ModelFile,
    trial: &Trial,
    say: &Say<'_>,
) -> Result<Curve, Failure> {
    say(format!("{}: planning", trial.title).into());
    let plan = planned(options, file, trial)?;
    let recipe = plan.recipe.as_ref().ok_or_else(|| internal("the plan has no recipe"))?;
    let data = Data::open(&options.text, Width::U8, &plan.graph, recipe)?;
    let mut order = Order::new(options.seed, data.examples, options.batch, Position { epoch: 0, used: 0 });
    let schedule = Schedule {
        shape: Shape::Cosine,
        peak: options.lr,
        least: options.lr * LEAST,
        warmup: options.warm_up.into(),
        last: options.steps.into(),
    };
    let programs = pipeline::lower(&plan, &mut |_, _| {})?;
    let mut session = Session::new(programs, file).map_err(internal)?;
    let (mut losses, mut seconds) = (Vec::new(), Vec::new());
    for step in 1..=options.steps {
        let steps = usize::try_from(options.steps).unwrap_or(usize::MAX);
        let number = usize::try_from(step).unwrap_or(usize::MAX);
        say(Doing::one("step", number, Of::All(steps)).within(trial.title));
        let examples = order.step();
        let size = usize::try_from(data.per_micro_batch).unwrap_or(usize::MAX);
        let fed = examples.chunks(size).map(|it| data.micro_batch(it)).collect::<Result<Vec<_>, _>>()?;
        let numbers = [(RATE, schedule.rate(step.into())), (STEP, step.into())];
        let inputs = numbers.into_iter().map(|(name, it)| Ok((name.to_owned(), single(it)?)));
        let inputs = inputs.collect::<Result<BTreeMap<_, _>, Failure>>()?;
        let outcome = session.train(&fed, &inputs).map_err(internal)?;
        losses.push(loss(&outcome, step)?);
        seconds.push(outcome.seconds);
    }
    session.check_replicas().map_err(internal)?;
    let parameters = plan.graph.values.iter().filter_map(|value| match &value.source {
        Source::State(State { kind: StateKind::Parameter, .. }) => Some(value.type_.elements()),
        _ => None,
    });
    Ok(Curve {
        trial: trial.clone(),
        strategy: plan::strategy(&plan),
        parameters: parameters.sum(),
        losses,
        seconds,
        predicted: (trial.by == By::Machine).then(|| plan.seconds()),
    })
}

/// The cheapest plan by a trial's prices, checked.
fn planned(options: &Training, file: &ModelFile, trial: &Trial) -> Result<plan::Plan, Failure> {
    let batch = options.batch / trial.micro_batches;
    let dims = [("batch", batch), ("sequence", options.sequence)];
    let dims: Vec<(String, u64)> = dims.map(|(name, size)| (name.to_owned(), size)).to_vec();
    let bindings = Bindings { dims: dims.iter().cloned().collect(), ..Bindings::default() };
    let imported = pipeline::import(file, &bindings, &mut |_, _| {})
        .map_err(|error| Failure::file(&file.path, error))?;
    let prepared = pipeline::prepare_training(file, &imported, &trial.training(), &mut |_, _| {})?;
    let mesh = Mesh::of_sizes(trial.mesh);
    let machine = machine::named(&format!("cpu-{}x", mesh.devices()), None)?;
    let target = Target::of(&machine, &mesh);
    let header = plan::ModelFile { path: file.path.display().to_string(), sha256: file.sha256.clone(), dims };
    if trial.by == By::Machine {
        return pipeline::plan(&prepared, &header, &target, &mut |_, _| {});
    }
    let machine = pipeline::prices(&target)?;
    let prices = DataFirst { machine: &machine, batch, tokens: batch * options.sequence };
    let plan = pipeline::planned(&prepared, &header, &target, &prices);
    let plan = plan.map_err(|error| pipeline::refusal(&target, &error))?;
    plan::check(&plan).map_err(|error| Failure::internal("plan", error))?;
    Ok(plan)
}

/// The loss of a step, with the digits that tell it from its neighbours.
fn loss(outcome: &Outcome, step: u32) -> Result<f64, Failure> {
    let loss = outcome.outputs.get(LOSS).ok_or_else(|| internal("there is no loss"))?;
    let loss = loss.elements::<f32>().map_err(internal)?.first().copied().unwrap_or(f32::NAN);
    if !loss.is_finite() || !outcome.updated {
        return Err(Failure::Input(format!("step {step}: the loss is {loss}; a lower `--lr` would help")));
    }
    loss.to_string().parse().map_err(internal)
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn single(number: f64) -> Result<Array, Failure> {
    Array::of::<f32>([], &[number as f32]).map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::internal("train", error)
}
