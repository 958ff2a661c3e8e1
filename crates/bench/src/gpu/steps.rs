//! Steps of training on the GPU: what they take, by the prices of the machine, and by PyTorch.

use std::collections::BTreeMap;
use std::time::Instant;

use ::train::{LOSS, RATE, STEP};
use device::Device;
use driver::pipeline::{self, Target};
use files::folder::Folder;
use files::model_file::ModelFile;
use files::{Doing, Failure, Of};
use files::{inputs, model_file};
use import::Bindings;
use kernels::Array;
use launch::gpu;
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Start};
use model_zoo::llama::{self, Use};
use plan::{Loss, NoDecay, Precision, Recipe, Recompute};
use planner_ir::{Mesh, Optimizer, Real, Source, State, StateKind};
use run::Session;

use super::goal::Bound;
use super::model::{Model, Size};
use super::torch::{self, MANNERS, Python};
use super::{Given, Row, Section};
use crate::median;

/// GPT-2-medium.
///
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2.
const MEDIUM: Model = Model {
    name: "GPT-2-medium",
    size: Size::Gpt2(gpt2::Size { layers: 24, hidden: 1024, heads: 16, vocabulary: 50_257, positions: 1024 }),
    batch: 16,
    sequence: 1024,
};

/// A Llama of 1.24e9 parameters.
const BILLION: Model = Model {
    name: "a Llama of 1.24e9 parameters",
    size: Size::Llama(llama::Size::BILLION),
    batch: 4,
    sequence: 2048,
};

/// Models that are soon trained.
pub(super) const LITTLE: [Model; 2] = [
    Model {
        name: "a GPT-2 of 1 layer",
        size: Size::Gpt2(gpt2::Size { layers: 1, hidden: 32, heads: 2, vocabulary: 64, positions: 16 }),
        batch: 2,
        sequence: 16,
    },
    Model { name: "a Llama of 1 layer", size: Size::Llama(llama::Size::LITTLE), batch: 2, sequence: 16 },
];

const SECTION: Section = Section {
    name: "steps of training",
    beside: "the price of the plan by the machine, and the same steps by PyTorch in a process of its own: at least as \
             fast as eager, and 0.95 of compiled or better",
};

/// How much of the speed of PyTorch is wanted: of its steps as they are, and compiled.
const WANTED: [f64; 2] = [1.0, 0.95];

/// AdamW as GPT-3 was trained with it.
///
/// Source: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix B.
const ADAMW: Optimizer =
    Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.1) };

/// The learning rate: small, so that the loss of random examples stays a number.
const LEARNING: f32 = 1e-4;

/// Steps before those that are measured, and how many are measured.
const STEPS: [usize; 2] = [3, 10];

/// Of each model ours, then PyTorch's.
pub(super) fn rows(given: &Given<'_>) -> Vec<Row> {
    let models = if given.options.quick { LITTLE } else { [MEDIUM, BILLION] };
    models.iter().flat_map(|model| rows_of(given, model)).collect()
}

fn rows_of(given: &Given<'_>, model: &Model) -> Vec<Row> {
    let title = format!("{} {}x{} in bf16", model.name, model.batch, model.sequence);
    let python = Python { program: &given.options.python, device: "cuda" };
    let theirs = MANNERS.map(|manner| {
        (given.say)(format!("{} by PyTorch, {manner}", model.name).into());
        torch::steps(&python, model, STEPS, manner)
    });
    let row = Row::new(&SECTION, title.clone());
    let ours = match planned(given, model) {
        // What does not fit is no fault.
        Err(error) => row.left_out(error),
        Ok(planned) => match trained(given, &planned) {
            Err(error) => row.failed(error),
            Ok(step) => {
                let row = row.taking("took", step.seconds).priced(planned.plan.seconds(), step.seconds);
                let row = row.with("loss", format!("{:.3}", step.loss), step.loss);
                let pairs = theirs.iter().zip(FASTER).zip(WANTED);
                pairs.fold(row, |row, ((steps, what), wanted)| match steps {
                    Ok(it) => row.wanting(what, median(&it.seconds) / step.seconds, Bound::Least(wanted)),
                    Err(_) => row,
                })
            }
        },
    };
    let rows = theirs.into_iter().zip(MANNERS).map(|(steps, manner)| {
        let row = Row::new(&SECTION, format!("{title}, PyTorch {manner}"));
        match steps {
            Err(why) => row.left_out(why),
            Ok(it) => row
                .taking("took", median(&it.seconds))
                .with("loss", format!("{:.3}", it.losses[1]), it.losses[1])
                .with("by", it.versions.clone(), it.versions),
        }
    });
    std::iter::once(ours).chain(rows).collect()
}

/// What is held against the steps of PyTorch, in the order of its manners.
const FASTER: [&str; 2] = ["PyTorch eager's time in ours", "PyTorch compiled's time in ours"];

/// A step that is planned, with what it is of.
struct Planned {
    plan: plan::Plan,
    file: ModelFile,
    /// Where the file is.
    _folder: Folder,
}

/// What was measured of our steps.
struct Step {
    /// The median (seconds).
    seconds: f64,
    /// That of the last step.
    loss: f64,
}

/// Writes the model and plans its step for the GPU.
fn planned(given: &Given<'_>, model: &Model) -> Result<Planned, Failure> {
    let folder = Folder::new("gpu-steps", None)?;
    (given.say)(format!("writing {}", model.name).into());
    let path = Writer::large(&folder.path)
        .and_then(|writer| match model.size {
            Size::Gpt2(size) => gpt2::write(writer, size, Start::Untrained, 0),
            Size::Llama(size) => llama::write(writer, size, Use::Training, 0),
        })
        .map_err(|error| Failure::unwritten(&folder.path, &error))?;
    let file = model_file::open(&path)?;
    let dims = [("batch", model.batch), ("sequence", model.sequence)];
    let dims: Vec<(String, u64)> = dims.map(|(name, size)| (name.to_owned(), size)).to_vec();
    let bindings = Bindings { dims: dims.iter().cloned().collect(), ..Bindings::default() };
    let imported =
        pipeline::import(&file, &bindings, &mut |_, _| {}).map_err(|error| Failure::file(&path, error))?;
    let training = pipeline::Training {
        recipe: recipe(),
        decisions: pipeline::Decisions::Only(Recompute::Nothing),
        phases: pipeline::Phases::Together,
    };
    (given.say)(format!("planning {}", model.name).into());
    let prepared = pipeline::prepare_training(&file, &imported, &training, &mut |_, _| {})?;
    let machine =
        given.machine.clone().with_devices(1).map_err(|error| Failure::internal("bench gpu", error))?;
    let mesh = Mesh::of_sizes(&[1]);
    let target = Target::of(&machine, &mesh);
    let header = plan::ModelFile { path: path.display().to_string(), sha256: file.sha256.clone(), dims };
    let plan = pipeline::plan(&prepared, &header, &target, &mut |_, _| {})?;
    let (found, expected) = (parameters(&plan), model.parameters());
    if found != expected {
        let message = format!("the step trains {found} parameters, the model has {expected}");
        return Err(Failure::internal("bench gpu", message));
    }
    Ok(Planned { plan, file, _folder: folder })
}

/// The numbers that a plan trains.
fn parameters(plan: &plan::Plan) -> u64 {
    let parameters = plan.graph.values.iter().filter_map(|value| match &value.source {
        Source::State(State { kind: StateKind::Parameter, .. }) => Some(value.type_.elements()),
        _ => None,
    });
    parameters.sum()
}

/// Trains by a plan.
fn trained(given: &Given<'_>, planned: &Planned) -> Result<Step, Failure> {
    let programs = pipeline::lower(&planned.plan, &mut |_, _| {})?;
    (given.say)("making kernels ready".into());
    let device = Device::together(&gpu::settings(&given.options.cuda), &programs)
        .map_err(|error| Failure::Input(error.to_string()))?;
    let mut session = Session::on(Box::new(device), None, programs, &planned.file).map_err(failed)?;
    let mut fed = inputs::made(&planned.plan.graph, 0);
    let numbers = [(RATE, LEARNING), (STEP, 1.0)];
    let mut own = BTreeMap::new();
    for (name, number) in numbers {
        fed.remove(name);
        let array = Array::of::<f32>([], &[number]).map_err(|error| Failure::internal("bench gpu", error))?;
        own.insert(name.to_owned(), array);
    }
    let fed = [fed];
    let (mut seconds, mut loss) = (Vec::new(), f64::NAN);
    for step in 0..STEPS[0] + STEPS[1] {
        (given.say)(Doing::one("step", step + 1, Of::All(STEPS[0] + STEPS[1])));
        let start = Instant::now();
        let outcome = session.train(&fed, &own).map_err(failed)?;
        if step >= STEPS[0] {
            seconds.push(start.elapsed().as_secs_f64());
        }
        let found = outcome.outputs.get(LOSS).and_then(|it| it.to_floats().ok());
        loss = found.and_then(|it| it.first().copied()).unwrap_or(f64::NAN);
    }
    if !loss.is_finite() {
        return Err(Failure::Input(format!("the loss is {loss}")));
    }
    Ok(Step { seconds: median(&seconds), loss })
}

fn recipe() -> Recipe {
    Recipe {
        precision: Precision::Bf16,
        clip: Some(1.0),
        no_decay: NoDecay { names: vec![], vectors: true },
        ..Recipe::new(Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() }, ADAMW)
    }
}

fn failed(error: run::RunError) -> Failure {
    Failure::input("run", error)
}
