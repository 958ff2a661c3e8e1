//! Steps of training on the GPU: what they take, by the prices of the machine, and by PyTorch.

use std::collections::BTreeMap;
use std::time::Instant;

use ::train::{LOSS, RATE, STEP};
use device::Device;
use import::Bindings;
use kernels::Array;
use plan::{Loss, NoDecay, Precision, Recipe, Recompute};
use planner_ir::{Mesh, Optimizer, Real};
use run::Session;

use super::torch;
use super::{Given, Row};
use crate::bench::folder::Folder;
use crate::bench::gpt2::{self, Size, Start};
use crate::bench::median;
use crate::bench::onnx::Writer;
use crate::failure::Failure;
use crate::pipeline::{self, Target};
use crate::{gpu, inputs, model_file};

/// What is trained.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) size: Size,
    pub(super) batch: u64,
    pub(super) sequence: u64,
}

/// GPT-2-medium.
///
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2.
const MEDIUM: Model = Model {
    name: "GPT-2-medium",
    size: Size { layers: 24, hidden: 1024, heads: 16, vocabulary: 50_257, positions: 1024 },
    batch: 16,
    sequence: 1024,
};

/// A model that is soon trained.
const LITTLE: Model = Model {
    name: "a GPT-2 of 1 layer",
    size: Size { layers: 1, hidden: 32, heads: 2, vocabulary: 64, positions: 16 },
    batch: 2,
    sequence: 16,
};

/// AdamW as GPT-3 was trained with it.
///
/// Source: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix B.
const ADAMW: Optimizer =
    Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.1) };

/// The learning rate: small, so that the loss of random examples stays a number.
const LEARNING: f32 = 1e-4;

/// Steps before those that are measured, and how many are measured.
const STEPS: [usize; 2] = [3, 10];

/// Ours, then PyTorch's.
pub(super) fn rows(given: &Given<'_>) -> Result<Vec<Row>, Failure> {
    let model = if given.options.quick { LITTLE } else { MEDIUM };
    let title = format!("{} {}x{} in bf16", model.name, model.batch, model.sequence);
    let mut rows = Vec::new();
    let ours = Row::new("steps of training", title.clone());
    rows.push(match trained(given, &model) {
        Ok(step) => ours
            .taking("took", step.seconds)
            .taking("by prices", step.predicted)
            .with(
                "by prices/took",
                format!("{:.2}", step.predicted / step.seconds),
                step.predicted / step.seconds,
            )
            .with("loss", format!("{:.3}", step.loss), step.loss),
        Err(error) => ours.left_out(error),
    });
    (given.say)("the same by PyTorch".to_owned());
    for (manner, steps) in torch::steps(&given.options.python, &model, STEPS) {
        let row = Row::new("steps of training", format!("{title}, PyTorch {manner}"));
        rows.push(match steps {
            Ok(seconds) => row.taking("took", median(&seconds)),
            Err(why) => row.left_out(why),
        });
    }
    Ok(rows)
}

/// What was measured of our steps.
struct Step {
    /// The median (seconds).
    seconds: f64,
    /// By the prices of the machine (seconds).
    predicted: f64,
    /// That of the last step.
    loss: f64,
}

/// Plans the model for the GPU and trains it.
fn trained(given: &Given<'_>, model: &Model) -> Result<Step, Failure> {
    let folder = Folder::new("gpu-steps", None)?;
    (given.say)(format!("writing {}", model.name));
    let path = Writer::large(&folder.path)
        .and_then(|writer| gpt2::write(writer, model.size, Start::Untrained, 0))
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
    (given.say)(format!("planning {}", model.name));
    let prepared = pipeline::prepare_training(&file, &imported, &training, &mut |_, _| {})?;
    let machine =
        given.machine.clone().with_devices(1).map_err(|error| Failure::internal("bench gpu", error))?;
    let mesh = Mesh::of_sizes(&[1]);
    let target = Target::of(&machine, &mesh);
    let header = plan::ModelFile { path: path.display().to_string(), sha256: file.sha256.clone(), dims };
    let plan = pipeline::plan(&prepared, &header, &target, &mut |_, _| {})?;
    let programs = pipeline::lower(&plan, &mut |_, _| {})?;
    (given.say)("making kernels ready".to_owned());
    let device = Device::together(&gpu::settings(&given.on), &programs)
        .map_err(|error| Failure::Input(error.to_string()))?;
    let weight = |name: &str| file.weight(name);
    let mut session = Session::on(Box::new(device), None, programs, &weight).map_err(failed)?;
    let mut fed = inputs::made(&plan.graph, 0);
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
        (given.say)(format!("step {} of {}", step + 1, STEPS[0] + STEPS[1]));
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
    Ok(Step { seconds: median(&seconds), predicted: plan.seconds(), loss })
}

fn recipe() -> Recipe {
    Recipe {
        loss: Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
        optimizer: ADAMW,
        precision: Precision::Bf16,
        micro_batches: 1,
        clip: Some(1.0),
        no_decay: NoDecay { names: vec![], vectors: true },
        recompute: vec![],
        frozen: vec![],
    }
}

fn failed(error: run::RunError) -> Failure {
    Failure::input("run", error)
}
