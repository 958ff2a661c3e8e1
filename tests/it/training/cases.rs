//! Models, and what PyTorch made of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use driver::pipeline::{self, Decisions, Phases, Prepared, Training, parameters};
use files::arrays;
use files::model_file::{self, ModelFile};
use import::Bindings;
use kernels::Array;
use lower::Program;
use plan::{Loss, Plan, Precision, Recipe, Recompute, Roles};
use planner_ir::{DType, Graph, Op, Optimizer, Real, Source};
use run::Session;

use crate::outside;

/// Values by name.
pub(super) type Arrays = BTreeMap<String, Array>;

pub(super) const SGD: Optimizer = Optimizer::Sgd { decay: Real(0.0) };
/// The optimizers of the oracles.
pub(super) const MOMENTUM: Optimizer = Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.0) };
pub(super) const ADAMW: Optimizer =
    Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.999), epsilon: Real(1e-6), decay: Real(0.01) };

/// A model and what PyTorch made of it.
pub(super) struct Case {
    /// What it is called.
    pub(super) title: String,
    /// The model.
    pub(super) file: ModelFile,
    /// Losses, and what the arrays are of.
    pub(super) oracle: serde_json::Value,
    /// For each initializer the parameter, and how its array differs.
    pub(super) parameters: BTreeMap<String, (String, String)>,
    arrays: Arrays,
    /// How often a batch is there.
    times: u64,
    /// What the length of its sequences is padded to a multiple of.
    multiple: u64,
}

/// The graphs that there are oracles of, sorted.
pub(super) fn all() -> Vec<PathBuf> {
    let below = |path: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut files: Vec<PathBuf> = outside::models("training").iter().flat_map(|case| below(case)).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "onnx"));
    files.sort();
    files
}

/// The model that single tests take.
pub(super) fn gpt2() -> Case {
    Case::load(&outside::root().join("tests/models/training/gpt2/legacy.onnx"))
}

impl Case {
    pub(super) fn load(path: &Path) -> Self {
        let folder = path.parent().unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        // Losses that diverged are NaN, which JSON has no word for.
        let text = std::fs::read_to_string(folder.join("oracle.json")).unwrap().replace("NaN", "null");
        let oracle: serde_json::Value = serde_json::from_str(&text).unwrap();
        let map = oracle["graphs"][name(path)]["initializer_to_param"].as_object().unwrap();
        let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
        let parameters = map.iter().map(|(name, it)| (name.clone(), (text(&it[0]), text(&it[1])))).collect();
        Self {
            title: title(path),
            file: model_file::open(path).unwrap(),
            arrays: arrays::read(&folder.join("oracle.safetensors")).unwrap(),
            parameters,
            oracle,
            times: 1,
            multiple: 1,
        }
    }

    /// The same with each batch so many times, and its sequences padded to a multiple of this.
    pub(super) fn stretched(self, times: u64, multiple: u64) -> Self {
        Self { times, multiple, ..self }
    }

    /// Whether the file leaves this dimension of the inputs that have it open.
    pub(super) fn is_open(&self, dim: usize) -> bool {
        let place = format!("[{dim}]");
        self.file.model.symbols().iter().any(|it| it.places.iter().any(|name| name.ends_with(&place)))
    }

    /// The inputs of a batch.
    pub(super) fn batch(&self, number: usize) -> Arrays {
        let prefix = format!("in{number}/");
        let of = |(name, array): (&String, &Array)| {
            let name = name.strip_prefix(&prefix)?;
            Some((name.to_owned(), repeated(&padded(name, array, self.multiple), self.times)))
        };
        self.arrays.iter().filter_map(of).collect()
    }

    /// How many examples a batch has.
    pub(super) fn examples(&self) -> u64 {
        self.batch(0).values().next().map_or(1, |array| array.shape()[0])
    }

    /// Whether the model says how many examples there are.
    pub(super) fn is_static(&self) -> bool {
        self.file.model.symbols().is_empty()
    }

    pub(super) fn imported(&self, batch: &Arrays) -> Graph {
        let inputs = batch.iter().map(|(name, it)| (name.clone(), it.shape().to_vec())).collect();
        let parameters = parameters::single(&self.file, &Roles::default());
        let bindings = Bindings { inputs, parameters, ..Bindings::default() };
        pipeline::import(&self.file, &bindings, &mut |_, _| {}).unwrap()
    }

    /// What to make of the model, each block recomputed so.
    pub(super) fn training(&self, optimizer: Optimizer, decision: Recompute) -> Training {
        // What PyTorch did not train.
        let untrained = |name: &&String| self.expected("grad", name).is_none() && !self.is_copied(name);
        let there = |name: &&String| self.file.model.weights().iter().any(|it| it.0 == name.as_str());
        let frozen = self.parameters.keys().filter(untrained).filter(there).cloned().collect();
        let recipe = Recipe {
            precision: Precision::F32,
            roles: Roles { frozen, ..Roles::default() },
            ..Recipe::new(Loss::Output("loss".to_owned()), optimizer)
        };
        Training { recipe, decisions: Decisions::Only(decision), phases: Phases::Together }
    }

    /// The step for micro-batches like these.
    pub(super) fn prepared(&self, training: &Training, micro_batches: &[Arrays]) -> Prepared {
        let mut training = training.clone();
        training.recipe.micro_batches = u64::try_from(micro_batches.len()).unwrap();
        let imported = self.imported(&micro_batches[0]);
        pipeline::prepare_training(&self.file, &imported, &training, &mut |_, _| {}).unwrap()
    }

    /// What a parameter is in an oracle: after so many steps, or its gradient.
    pub(super) fn expected(&self, kind: &str, initializer: &str) -> Option<Vec<f64>> {
        let (parameter, how) = self.parameters.get(initializer)?;
        let array = self.arrays.get(&format!("{kind}/{parameter}"))?;
        let array = match how.as_str() {
            "transpose" => {
                let op = Op::Transpose { permutation: vec![1, 0] };
                kernels::evaluate(&op, &[array]).unwrap().remove(0)
            }
            _ => array.clone(),
        };
        Some(array.to_floats().unwrap())
    }

    /// How far PyTorch's gradient in f32 is from that in f64, relative to its norm.
    pub(super) fn noise(&self, initializer: &str) -> f64 {
        let parameter = &self.parameters[initializer].0;
        self.oracle["grad_f32_vs_f64_rel_l2_and_norm"][parameter][0].as_f64().unwrap_or(0.0)
    }

    /// Whether an exporter wrote the parameter more than once.
    fn is_copied(&self, initializer: &str) -> bool {
        let parameter = &self.parameters[initializer].0;
        self.parameters.values().filter(|it| it.0 == *parameter).count() > 1
    }

    /// The plan's programs with the model's weights.
    pub(super) fn session(&self, plan: &Plan) -> Result<Session, String> {
        self.started(lower::lower(plan).map_err(|error| format!("not lowered: {error}"))?)
    }

    /// Programs with the model's weights.
    pub(super) fn started(&self, programs: Vec<Program>) -> Result<Session, String> {
        lower::verify(&programs).map_err(|error| format!("the programs are rejected: {error}"))?;
        Session::new(programs, &self.file).map_err(|error| format!("not started: {error}"))
    }
}

/// The inputs of a step, of those that it has.
pub(super) fn step_inputs(graph: &Graph, rate: f32, number: usize) -> Arrays {
    // Any other number for each step is as good.
    let rounding = Array::of::<i64>(vec![], &[1000 * i64::try_from(number).unwrap()]).unwrap();
    let number = f32::from(u16::try_from(number).unwrap());
    let one = |number: f32| Array::of::<f32>(vec![], &[number]).unwrap();
    let has = |name: &str| graph.values.iter().any(|it| it.source == Source::Input(name.to_owned()));
    [(train::RATE, one(rate)), (train::STEP, one(number)), (train::ROUNDING, rounding)]
        .into_iter()
        .filter(|(name, _)| has(name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// An array of tokens with more of them, which are masked and do not count.
fn padded(name: &str, array: &Array, multiple: u64) -> Array {
    let more = match array.shape() {
        [_, length] if array.dtype() == DType::I64 => length.next_multiple_of(multiple) - length,
        _ => 0,
    };
    if more == 0 {
        return array.clone();
    }
    let value = if name == "labels" { -100 } else { 0 };
    let count = usize::try_from(array.shape()[0] * more).unwrap();
    let filling = Array::of::<i64>(vec![array.shape()[0], more], &vec![value; count]).unwrap();
    kernels::evaluate(&Op::Concat { dim: 1 }, &[array, &filling]).unwrap().remove(0)
}

/// An array so many times in a row.
fn repeated(array: &Array, times: u64) -> Array {
    let all = vec![array; usize::try_from(times).unwrap()];
    kernels::evaluate(&Op::Concat { dim: 0 }, &all).unwrap().remove(0)
}

/// What a case is called: its folder and file.
pub(super) fn title(path: &Path) -> String {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    format!("{}/{}", name(path.parent().unwrap()), name(path))
}

/// A batch cut into equal micro-batches.
pub(super) fn parted(batch: &Arrays, parts: u64) -> Vec<Arrays> {
    let cut = |part: u64, array: &Array| {
        let mut sizes = array.shape().to_vec();
        sizes[0] /= parts;
        let mut starts = vec![0; sizes.len()];
        starts[0] = part * sizes[0];
        let op = Op::Slice { steps: vec![1; starts.len()], starts, sizes };
        kernels::evaluate(&op, &[array]).unwrap().remove(0)
    };
    let micro_batch = |part| batch.iter().map(|(name, array)| (name.clone(), cut(part, array))).collect();
    (0..parts).map(micro_batch).collect()
}

pub(super) fn floats(array: &Array) -> Vec<f64> {
    array.to_floats().unwrap()
}
