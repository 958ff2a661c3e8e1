//! The models, and what they are given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use driver::pipeline::{self, Prepared};
use files::arrays;
use files::model_file::{self, ModelFile};
use import::{Bindings, Dim};
use kernels::Array;
use planner_ir::{DType, Graph, Op, Source};

use crate::outside;

/// Models that no oracle tells the results of, and why. They are held against a run of the whole
/// program on one device instead.
const WITHOUT_ORACLE: [(&str, &str); 2] = [
    ("bert-trainmode-dynamo2.9-op18-dyn", "dropout in training draws random numbers"),
    ("gpt2-trainmode-legacy2.9-op17-dyn", "dropout in training draws random numbers"),
];

/// A model and one set of inputs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    /// What it is called.
    pub(super) title: String,
    /// The model.
    pub(super) model: PathBuf,
    /// The inputs and what comes of them, if that is known.
    pub(super) oracle: Option<PathBuf>,
}

/// A model ready to be planned, with its inputs and what has to come of them.
pub(super) struct Subject {
    /// What it is called.
    pub(super) title: String,
    /// The model.
    pub(super) file: ModelFile,
    /// Its program.
    pub(super) prepared: Prepared,
    /// What is given.
    pub(super) inputs: BTreeMap<String, Array>,
    /// What others say comes of it.
    pub(super) oracle: BTreeMap<String, Array>,
    /// What one device makes of it, operation by operation.
    pub(super) whole: BTreeMap<String, Array>,
    /// How far results may be from the oracle, relative to the largest.
    pub(super) tolerance: f64,
    /// How far they may be from those of one device.
    pub(super) rounding: f64,
}

/// A model ready to be planned, and what is known of it.
pub(super) struct Opened {
    /// The model.
    file: ModelFile,
    /// Its program.
    pub(super) prepared: Prepared,
    /// What is given.
    inputs: BTreeMap<String, Array>,
    /// What others say comes of it.
    oracle: BTreeMap<String, Array>,
}

/// Every case, by title; what is wrong with the collection.
pub(super) fn all() -> (Vec<Case>, Vec<String>) {
    // Of inputs that once went wrong those that are models, and say what comes of them.
    let faults = folders(&outside::root().join("tests/cases/faults"));
    let faults = faults.into_iter().filter(|it| it.join("io0.npz").is_file());
    let folders: Vec<PathBuf> = outside::models("").into_iter().chain(faults).collect();
    let (mut cases, mut faults) = (Vec::new(), Vec::new());
    for model in folders.iter().flat_map(|folder| files(folder)).filter(|it| is_model(it)) {
        let (name, prefix) = names(&model);
        let oracles: Vec<PathBuf> = (0..2)
            .map(|index| model.with_file_name(format!("{prefix}io{index}.npz")))
            .filter(|it| it.exists())
            .collect();
        let reason = WITHOUT_ORACLE.iter().find(|(it, _)| *it == name);
        match (oracles.is_empty(), reason) {
            (true, None) => faults.push(format!("{name}: no oracle, and not known to have none")),
            (false, Some(_)) => faults.push(format!("{name}: an oracle, though it is known to have none")),
            (true, Some((_, reason))) => {
                println!("{name}: no oracle ({reason}), held against one device");
                cases.push(Case { title: name, model, oracle: None });
            }
            (false, None) => cases.extend(oracles.into_iter().enumerate().map(|(index, oracle)| Case {
                title: format!("{name} io{index}"),
                model: model.clone(),
                oracle: Some(oracle),
            })),
        }
    }
    cases.sort();
    (cases, faults)
}

fn is_model(file: &Path) -> bool {
    file.extension().is_some_and(|it| it == "onnx")
}

/// What a model is called, and what the names of its oracles begin with.
fn names(model: &Path) -> (String, String) {
    let part =
        |it: Option<&std::ffi::OsStr>| it.map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = part(model.parent().and_then(Path::file_name));
    match part(model.file_stem()).as_str() {
        "model" => (folder, String::new()),
        stem => (format!("{folder}/{stem}"), format!("{stem}.")),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|it| it.is_dir()).collect()
}

impl Case {
    /// Imports the model and runs it on one device.
    pub(super) fn open(&self) -> Result<Subject, String> {
        let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", self.title);
        let Opened { file, prepared, inputs, oracle } = self.prepare()?;
        let sources = run::Sources { inputs: &inputs, weights: &file };
        let whole = run::reference(&prepared.graph, sources).map_err(|error| fail(&error))?;
        let [tolerance, rounding] = tolerances(&prepared.graph);
        Ok(Subject { title: self.title.clone(), file, prepared, inputs, oracle, whole, tolerance, rounding })
    }

    /// Imports the model.
    pub(super) fn prepare(&self) -> Result<Opened, String> {
        let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", self.title);
        let file = model_file::open(&self.model).map_err(|error| fail(&error))?;
        let (mut given, mut oracle) = (BTreeMap::new(), BTreeMap::new());
        let mut bindings = Bindings::default();
        match &self.oracle {
            Some(path) => {
                for (name, array) in arrays::read(path).map_err(|error| fail(&error))? {
                    match name.split_once('/') {
                        Some(("in", name)) => given.insert(name.to_owned(), array),
                        Some(("out", name)) => oracle.insert(name.to_owned(), array),
                        _ => return Err(fail(&format!("array `{name}` in the oracle"))),
                    };
                }
                bind(&file, &given, &mut bindings);
            }
            None => bind_symbols(&file, &mut bindings),
        }
        let imported = pipeline::import(&file, &bindings, &mut |_, _| {}).map_err(|error| fail(&error))?;
        if self.oracle.is_none() {
            given = made(&imported);
        }
        let prepared = pipeline::prepare(&imported, &mut |_, _| {}).map_err(|error| fail(&error))?;
        Ok(Opened { file, prepared, inputs: given, oracle })
    }
}

/// Binds dimensions to the shapes of inputs; single truth values decide branches.
fn bind(file: &ModelFile, given: &BTreeMap<String, Array>, bindings: &mut Bindings) {
    for input in file.model.inputs() {
        let Some(array) = given.get(&input.name) else { continue };
        bindings.inputs.insert(input.name.clone(), array.shape().to_vec());
        if array.dtype() == DType::Bool && array.bytes().len() == 1 {
            bindings.controls.insert(input.name.clone(), array.clone());
        }
    }
}

/// Binds dimensions to sizes that most models accept.
fn bind_symbols(file: &ModelFile, bindings: &mut Bindings) {
    for input in file.model.inputs() {
        for (index, dim) in input.dims.iter().flatten().enumerate() {
            if let Dim::Symbol(symbol) = dim {
                bindings.dims.insert(symbol.clone(), if index == 0 { 2 } else { 16 });
            }
        }
    }
}

/// Small numbers for every input, which index any vocabulary and hide nothing.
fn made(graph: &Graph) -> BTreeMap<String, Array> {
    let inputs = graph.values.iter().filter_map(|value| match &value.source {
        Source::Input(name) => Some((name, &value.type_)),
        _ => None,
    });
    let number = |index: u64| i64::try_from(index * 7 % 13 + 1).unwrap();
    inputs
        .map(|(name, type_)| {
            let numbers: Vec<i64> = (0..type_.elements()).map(number).collect();
            let array = Array::of(type_.shape.clone(), &numbers).unwrap();
            let cast = kernels::evaluate(&Op::Cast(type_.dtype), &[&array]).unwrap();
            (name.clone(), cast.into_iter().next().unwrap())
        })
        .collect()
}

/// How far results may be from the oracle's, and from those of one device: what rounding does in
/// a few layers of the narrowest type.
fn tolerances(graph: &Graph) -> [f64; 2] {
    // The oracle rounds activations to 8 bits before products with quantised weights.
    if graph.nodes.iter().any(|node| matches!(node.op, Op::Dequantize { .. })) {
        return [5e-2, 1e-5];
    }
    let dtypes: BTreeSet<DType> = graph.values.iter().map(|value| value.type_.dtype).collect();
    match () {
        () if dtypes.contains(&DType::BF16) => [2e-2, 2e-2],
        () if dtypes.contains(&DType::F16) => [5e-3, 5e-3],
        () => [3e-5, 1e-5],
    }
}

/// The largest difference relative to the largest expected element; infinite if one is not a
/// number, or of another count, where the other is.
pub(super) fn difference(found: &Array, expected: &Array) -> f64 {
    let floats = |array: &Array| array.to_floats().unwrap_or_default();
    let (found, expected) = (floats(found), floats(expected));
    if found.len() != expected.len() || found.is_empty() {
        return f64::INFINITY;
    }
    let finite = expected.iter().filter(|it| it.is_finite());
    let largest = finite.fold(1e-30_f64, |largest, it| largest.max(it.abs()));
    found.iter().zip(&expected).fold(0.0_f64, |worst, (a, b)| {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        let apart = if same { 0.0 } else { (a - b).abs() / largest };
        if apart.is_nan() { f64::INFINITY } else { worst.max(apart) }
    })
}
