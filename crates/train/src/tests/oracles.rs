//! What PyTorch computed: loss, gradients, parameters after one and three steps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use import::{Bindings, Model, WeightData};
use kernels::Array;
use plan::{Loss, NoDecay, Precision, Recipe, Recompute};
use planner_ir::{DType, Graph, Optimizer, Real, Source, StateKind, Type};
use rewrite::Blocks;
use safetensors::SafeTensors;

use super::device::{Arrays, Device};
use crate::{LOSS, RATE, STEP, Step, forward, step, tied, ties};

/// The folder of training oracles beside the repository.
fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/training");
    folder.is_dir().then_some(folder)
}

/// A model and what PyTorch made of it.
struct Case {
    name: String,
    model: Model,
    arrays: Arrays,
    oracle: serde_json::Value,
    /// For each initializer the parameter, and how its array differs.
    parameters: BTreeMap<String, (String, String)>,
}

impl Case {
    fn load(path: &Path) -> Self {
        let model = import::read(std::fs::read(path).unwrap().into()).unwrap();
        let case = path.parent().unwrap();
        let bytes = std::fs::read(case.join("oracle.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let arrays = tensors.tensors().into_iter().map(|(name, view)| {
            let dtype = match view.dtype() {
                safetensors::Dtype::F32 => DType::F32,
                safetensors::Dtype::I64 => DType::I64,
                other => panic!("{name}: {other:?}"),
            };
            let shape: Vec<u64> = view.shape().iter().map(|&it| u64::try_from(it).unwrap()).collect();
            (name, Array::from_bytes(Type::new(dtype, shape), view.data()).unwrap())
        });
        // Losses that diverged are NaN, which JSON has no word for.
        let text = std::fs::read_to_string(case.join("oracle.json")).unwrap().replace("NaN", "null");
        let oracle: serde_json::Value = serde_json::from_str(&text).unwrap();
        let file = path.file_name().unwrap().to_str().unwrap();
        let map = oracle["graphs"][file]["initializer_to_param"].as_object().unwrap();
        let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
        let parameters = map.iter().map(|(name, it)| (name.clone(), (text(&it[0]), text(&it[1])))).collect();
        let name = format!("{}/{file}", case.file_name().unwrap().to_str().unwrap());
        Self { name, model, arrays: arrays.collect(), oracle, parameters }
    }

    /// The inputs of a batch.
    fn batch(&self, number: usize) -> Arrays {
        let prefix = format!("in{number}/");
        let of = |(name, array): (&String, &Array)| {
            name.strip_prefix(&prefix).map(|name| (name.to_owned(), array.clone()))
        };
        self.arrays.iter().filter_map(of).collect()
    }

    fn raised(&self) -> Graph {
        self.raised_for(&self.batch(0))
    }

    fn raised_for(&self, batch: &Arrays) -> Graph {
        let inputs = batch.iter().map(|(name, it)| (name.clone(), it.shape().to_vec())).collect();
        let bindings = Bindings { inputs, ..Bindings::default() };
        let graph = self.model.import(&bindings).unwrap();
        let arrays: BTreeMap<&str, Array> =
            self.model.weights().into_iter().map(|(name, _)| (name, self.weight(name))).collect();
        let ties = ties(&graph, &|name| arrays.get(name).map(Array::bytes));
        let copies: Vec<&String> = self.parameters.keys().filter(|name| self.is_copied(name)).collect();
        assert_eq!(2 * ties.len(), copies.len(), "{}: {copies:?} {ties:?}", self.name);
        rewrite::raise(&tied(&graph, &ties)).unwrap().graph
    }

    fn weight(&self, name: &str) -> Array {
        let Ok(WeightData::Bytes(bytes)) = self.model.weight(name) else { panic!("no weight {name}") };
        let type_ = self.model.weights().into_iter().find(|it| it.0 == name).unwrap().1;
        Array::from_bytes(type_, &bytes).unwrap()
    }

    /// What a parameter is in an oracle: after all steps, or its gradient.
    fn expected(&self, kind: &str, initializer: &str) -> Option<Vec<f64>> {
        let (parameter, how) = self.parameters.get(initializer)?;
        let array = self.arrays.get(&format!("{kind}/{parameter}"))?;
        let array = match how.as_str() {
            "transpose" => {
                let op = planner_ir::Op::Transpose { permutation: vec![1, 0] };
                kernels::evaluate(&op, &[array]).unwrap().remove(0)
            }
            _ => array.clone(),
        };
        Some(array.to_floats().unwrap())
    }

    /// How far PyTorch's gradient in f32 is from that in f64, relative to its norm.
    fn noise(&self, initializer: &str) -> f64 {
        let parameter = &self.parameters[initializer].0;
        self.oracle["grad_f32_vs_f64_rel_l2_and_norm"][parameter][0].as_f64().unwrap()
    }

    /// Whether an exporter wrote the parameter more than once.
    fn is_copied(&self, initializer: &str) -> bool {
        let parameter = &self.parameters[initializer].0;
        self.parameters.values().filter(|it| it.0 == *parameter).count() > 1
    }
}

fn recipe(optimizer: Optimizer, blocks: usize, recompute: Recompute, micro_batches: u64) -> Recipe {
    Recipe {
        loss: Loss::Output("loss".to_owned()),
        optimizer,
        precision: Precision::F32,
        micro_batches,
        clip: None,
        no_decay: NoDecay::default(),
        recompute: vec![recompute; blocks],
        frozen: vec![],
    }
}

const MOMENTUM: Optimizer = Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.0) };
const ADAMW: Optimizer =
    Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.999), epsilon: Real(1e-6), decay: Real(0.01) };

fn derived(case: &Case, optimizer: Optimizer, recompute: Recompute) -> (Blocks, Step) {
    let mut recipe = recipe(optimizer, 0, recompute, 1);
    if case.name.starts_with("bloom") {
        // The slopes of ALiBi are no parameters.
        recipe.frozen = vec!["unsqueeze_*".to_owned()];
    }
    let raised = case.raised();
    let untrained = |name: &&String| {
        let is_weight = raised.values.iter().any(|it| it.source == Source::Weight((*name).clone()));
        is_weight && case.expected("grad", name).is_none()
    };
    recipe.frozen.extend(case.parameters.keys().filter(untrained).cloned());
    let blocks = rewrite::blocks(&forward(&raised, &recipe).unwrap());
    recipe.recompute = vec![recompute; blocks.segments.len()];
    let step = step(&blocks, &recipe).unwrap();
    planner_ir::verify(&step.graph).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    (blocks, step)
}

fn scalar(value: f32) -> Array {
    Array::of::<f32>(vec![], &[value]).unwrap()
}

/// How far a list of numbers is from what it should be, relative to its norm; numbers that are
/// only rounding noise do not count.
fn apart(found: &[f64], expected: &[f64]) -> f64 {
    let norm = |it: &mut dyn Iterator<Item = f64>| it.map(|x| x * x).sum::<f64>().sqrt();
    let size = norm(&mut expected.iter().copied());
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    if difference < 1e-6 { 0.0 } else { difference / size }
}

/// Every gradient and every parameter after the steps, compared with the oracle.
fn check(case: &Case, recompute: Recompute) {
    let weights = |name: &str| case.weight(name);
    for (optimizer, kind, rate, marks) in [(MOMENTUM, "sgd", 0.05, &[3][..]), (ADAMW, "adamw", 1e-3, &[1, 3])]
    {
        let (_, step) = derived(case, optimizer, recompute);
        let mut device = Device::new(&step.graph, &weights);
        for number in 0..3u8 {
            let mut numbers = Arrays::from([(RATE.to_owned(), scalar(rate))]);
            numbers.insert(STEP.to_owned(), scalar(f32::from(number) + 1.0));
            let outputs = device.step(&[case.batch(usize::from(number))], &numbers);
            let loss = outputs[LOSS].to_floats().unwrap()[0];
            let expected = case.oracle[format!("{kind}_losses")][usize::from(number)].as_f64();
            let Some(expected) = expected else { return };
            assert!(
                (loss - expected).abs() <= 2e-4 * expected.abs(),
                "{} {kind} step {number}: loss {loss}, expected {expected}",
                case.name
            );
            let count = device.state(StateKind::Total, "count").unwrap().to_floats().unwrap()[0];
            let after = usize::from(number) + 1;
            for name in case.parameters.keys() {
                let Some(gradient) = device.state(StateKind::Gradient, name) else {
                    let alone = case.expected("grad", name).is_some() && !case.is_copied(name);
                    assert!(!alone, "{}: {name} is not trained", case.name);
                    continue;
                };
                if number == 0
                    && let Some(expected) = case.expected("grad", name)
                {
                    let found: Vec<f64> = gradient.to_floats().unwrap().iter().map(|it| it / count).collect();
                    let off = apart(&found, &expected);
                    let allowed = 2e-4 + 10.0 * case.noise(name);
                    assert!(off < allowed, "{}: gradient of {name} is off by {off:e}", case.name);
                }
                if marks.contains(&after)
                    && let Some(expected) = case.expected(&format!("{kind}{after}"), name)
                {
                    let found = device.state(StateKind::Parameter, name).unwrap().to_floats().unwrap();
                    let off = apart(&found, &expected);
                    assert!(off < 5e-4, "{}: {name} after {after} {kind} steps is off by {off:e}", case.name);
                }
            }
        }
    }
}

#[test]
fn steps_are_those_of_pytorch() {
    let Some(folder) = folder() else {
        eprintln!("left out: the training oracles are not beside the repository");
        return;
    };
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let mut paths: Vec<PathBuf> = Vec::new();
    for case in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(case.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|it| it == "onnx") && path.to_string_lossy().contains(&wanted) {
                paths.push(path);
            }
        }
    }
    paths.sort();
    for path in paths {
        let case = Case::load(&path);
        for recompute in [Recompute::Nothing, Recompute::Selective, Recompute::Full] {
            check(&case, recompute);
        }
        eprintln!("{}: as PyTorch", case.name);
    }
}

/// The model of the oracles that most tests take.
fn gpt2() -> Option<Case> {
    Some(Case::load(&folder()?.join("gpt2/legacy.onnx")))
}

/// The examples of a batch from the first to before the last.
fn examples(batch: &Arrays, first: u64, count: u64) -> Arrays {
    let cut = |(name, array): (&String, &Array)| {
        let mut starts = vec![0; array.shape().len()];
        starts[0] = first;
        let mut sizes = array.shape().to_vec();
        sizes[0] = count;
        let op = planner_ir::Op::Slice { steps: vec![1; starts.len()], starts, sizes };
        (name.clone(), kernels::evaluate(&op, &[array]).unwrap().remove(0))
    };
    batch.iter().map(cut).collect()
}

/// A step of plain gradient descent by a recipe: outputs, and the parameters after it.
fn one_step(case: &Case, recipe: &Recipe, micro_batches: &[Arrays], rate: f32) -> (Arrays, Arrays) {
    let mut recipe = recipe.clone();
    recipe.micro_batches = u64::try_from(micro_batches.len()).unwrap();
    let blocks = rewrite::blocks(&forward(&case.raised_for(&micro_batches[0]), &recipe).unwrap());
    recipe.recompute = vec![Recompute::Nothing; blocks.segments.len()];
    let step = step(&blocks, &recipe).unwrap();
    planner_ir::verify(&step.graph).unwrap();
    let weights = |name: &str| case.weight(name);
    let mut device = Device::new(&step.graph, &weights);
    let outputs = device.step(micro_batches, &Arrays::from([(RATE.to_owned(), scalar(rate))]));
    let kind = if recipe.precision == Precision::Bf16 { StateKind::Master } else { StateKind::Parameter };
    let after = |name: &String| Some((name.clone(), device.state(kind, name)?.clone()));
    (outputs, case.parameters.keys().filter_map(after).collect())
}

const SGD: Optimizer = Optimizer::Sgd { decay: Real(0.0) };

fn floats(array: &Array) -> Vec<f64> {
    array.to_floats().unwrap()
}

#[test]
fn micro_batches_make_the_step_of_the_whole_batch() {
    let Some(case) = gpt2() else { return };
    let (batch, recipe) = (case.batch(0), recipe(SGD, 0, Recompute::Nothing, 1));
    let (whole, expected) = one_step(&case, &recipe, std::slice::from_ref(&batch), 0.1);
    // The examples have different numbers of labels that count.
    let parts = [examples(&batch, 0, 1), examples(&batch, 1, 1)];
    let (outputs, found) = one_step(&case, &recipe, &parts, 0.1);
    let [loss, mean] = [&outputs, &whole].map(|it| floats(&it[LOSS])[0]);
    assert!((loss - mean).abs() < 1e-5, "{loss} and {mean}");
    for (name, expected) in &expected {
        assert!(apart(&floats(&found[name]), &floats(expected)) < 1e-5, "{name}");
    }
}

#[test]
fn gradients_are_scaled_down_to_the_largest_norm() {
    let Some(case) = gpt2() else { return };
    let gradients = case.parameters.keys().filter_map(|name| case.expected("grad", name));
    let norm = gradients.flatten().map(|it| it * it).sum::<f64>().sqrt();
    for most in [norm / 3.0, norm * 3.0] {
        let recipe = Recipe { clip: Some(most), ..recipe(SGD, 0, Recompute::Nothing, 1) };
        let (outputs, found) = one_step(&case, &recipe, &[case.batch(0)], 1.0);
        let stated = floats(&outputs[crate::NORM])[0];
        assert!((stated - norm).abs() < 1e-4 * norm, "norm {stated}, expected {norm}");
        for (name, after) in &found {
            let (before, gradient) = (floats(&case.weight(name)), case.expected("grad", name).unwrap());
            let scale = (most / norm).min(1.0);
            let expected: Vec<f64> = before.iter().zip(&gradient).map(|(p, g)| p - scale * g).collect();
            assert!(apart(&floats(after), &expected) < 1e-4, "{name}");
        }
    }
}

#[test]
fn a_model_in_bf16_is_near_one_in_f32_and_keeps_masters() {
    let Some(case) = gpt2() else { return };
    let recipe = Recipe { precision: Precision::Bf16, ..recipe(SGD, 0, Recompute::Nothing, 1) };
    let (outputs, found) = one_step(&case, &recipe, &[case.batch(0)], 0.1);
    let expected = case.oracle["loss0"].as_f64().unwrap();
    let loss = floats(&outputs[LOSS])[0];
    assert!((loss - expected).abs() < 2e-2 * expected, "{loss}, expected {expected}");
    assert_ne!(loss.to_bits(), expected.to_bits());
    for (name, after) in &found {
        assert_eq!(after.dtype(), DType::F32);
        let Some(gradient) = case.expected("grad", name) else { continue };
        let before = floats(&case.weight(name));
        let moved: Vec<f64> = before.iter().zip(floats(after)).map(|(p, after)| (p - after) / 0.1).collect();
        assert!(apart(&moved, &gradient) < 0.06 + 10.0 * case.noise(name) || gradient.len() < 20, "{name}");
    }
}
