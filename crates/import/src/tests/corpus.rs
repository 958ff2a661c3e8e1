//! Real models: every one is imported, and computed for its oracles.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::GzDecoder;
use kernels::Array;
use planner_ir::{Graph, Op};

use super::{evaluate, npz, outside};
use crate::{Bindings, Dim, Model, read};

/// The model files of a kind, sorted.
fn models(kind: &str) -> Vec<PathBuf> {
    let files = outside::models(kind).into_iter().flat_map(|folder| {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    });
    let mut models: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it == "onnx")).collect();
    models.sort();
    models
}

pub(super) fn load(path: &Path) -> Result<Model, String> {
    let mut model = read(std::fs::read(path).unwrap().into()).map_err(|error| error.to_string())?;
    let files: Vec<String> = model.files().into_iter().map(str::to_owned).collect();
    for file in files {
        if let Ok(contents) = std::fs::read(path.with_file_name(&file)) {
            model.attach(&file, contents.into());
        }
    }
    Ok(model)
}

/// The inputs and outputs that an oracle holds.
fn oracle(path: &Path) -> Option<(BTreeMap<String, Array>, BTreeMap<String, Array>)> {
    if !path.exists() {
        return None;
    }
    let (mut inputs, mut outputs) = (BTreeMap::new(), BTreeMap::new());
    for (name, array) in npz::read(path) {
        if let Some(name) = name.strip_prefix("in/") {
            inputs.insert(name.to_owned(), array);
        } else if let Some(name) = name.strip_prefix("out/") {
            outputs.insert(name.to_owned(), array);
        }
    }
    Some((inputs, outputs))
}

/// Bindings to the shapes of these inputs; single truth values are controls.
fn bindings(model: &Model, inputs: &BTreeMap<String, Array>) -> Bindings {
    let mut bindings = Bindings::default();
    for input in model.inputs() {
        let Some(array) = inputs.get(&input.name) else { continue };
        bindings.inputs.insert(input.name.clone(), array.shape().to_vec());
        if array.dtype() == planner_ir::DType::Bool && array.bytes().len() == 1 {
            bindings.controls.insert(input.name.clone(), array.clone());
        }
    }
    bindings
}

/// Bindings to sizes that most models accept: two sequences of that length, with or without past.
fn guessed(model: &Model, sequence: u64, past: u64) -> Bindings {
    let mut bindings = Bindings::default();
    // Sizes that the model says itself are left to it.
    let said: Vec<String> = crate::heads::sizes(model).into_iter().map(|it| it.0.to_owned()).collect();
    for unbound in model.symbols().into_iter().filter(|it| !said.contains(&it.symbol)) {
        let name = unbound.symbol.to_lowercase();
        let is_batch = unbound.places.iter().all(|place| place.ends_with("[0]")) || name.contains("batch");
        let size = if is_batch {
            2
        } else if name.contains("past") {
            past
        } else {
            sequence
        };
        bindings.dims.insert(unbound.symbol, size);
    }
    for input in model.inputs() {
        let shapeless = input.dims.iter().flatten().all(|dim| matches!(dim, Dim::Number(1)));
        if input.dtype == planner_ir::DType::Bool && shapeless {
            let shape: Vec<u64> = input.dims.iter().flatten().map(|_| 1).collect();
            bindings.controls.insert(input.name.clone(), Array::of_truths(shape, &[true]).unwrap());
        }
    }
    bindings
}

fn name(path: &Path) -> String {
    let folder = path.parent().and_then(Path::file_name).unwrap().to_string_lossy();
    format!("{folder}/{}", path.file_name().unwrap().to_string_lossy())
}

/// The graph of a model, which obeys the rules.
fn import(model: &Model, bindings: &Bindings) -> Result<Graph, String> {
    let graph = model.import(bindings).map_err(|error| error.to_string())?;
    evaluate::verified(graph)
}

/// What is in an imported graph, in short.
fn described(graph: &Graph) -> String {
    let regions = graph.nodes.iter().filter(|node| matches!(node.op, Op::Region(_))).count();
    format!("{} nodes, {regions} regions", graph.nodes.len())
}

#[test]
fn every_real_model_is_imported_and_computes_what_its_oracle_says() {
    let only = std::env::var("MODEL").unwrap_or_default();
    let mut failures = Vec::new();
    let mut computed = 0;
    for path in models("") {
        let title = name(&path);
        if !title.contains(&only) {
            continue;
        }
        match check(&path) {
            Ok(report) => {
                computed += 1;
                println!("{title}: {report}");
            }
            Err(error) => failures.push(format!("{title}: {error}")),
        }
    }
    println!("{computed} models are right, {} are not:\n{}", failures.len(), failures.join("\n"));
    assert!(failures.is_empty(), "{} models are not right", failures.len());
}

/// Imports a model for each of its oracles and compares what it computes.
fn check(path: &Path) -> Result<String, String> {
    let model = load(path)?;
    let stem = path.file_stem().unwrap().to_string_lossy();
    let prefix = if stem == "model" { String::new() } else { format!("{stem}.") };
    let mut report = String::new();
    for index in 0..2 {
        let Some((inputs, outputs)) = oracle(&path.with_file_name(format!("{prefix}io{index}.npz"))) else {
            continue;
        };
        let graph =
            import(&model, &bindings(&model, &inputs)).map_err(|error| format!("io{index}: {error}"))?;
        let found =
            evaluate::evaluate(&graph, &model, &inputs).map_err(|error| format!("io{index}: {error}"))?;
        let mut worst = 0.0f64;
        for (name, expected) in &outputs {
            let found = found.get(name).ok_or_else(|| format!("no output `{name}`"))?;
            worst = worst.max(evaluate::difference(found, expected));
        }
        report.push_str(&format!("{}, {worst:.1e}; ", described(&graph)));
        if worst > tolerance(&graph) {
            return Err(format!("io{index}: differs by {worst:.1e} ({})", described(&graph)));
        }
    }
    if report.is_empty() {
        let graph = import(&model, &guessed(&model, 16, 16))?;
        report = format!("{}, no oracle", described(&graph));
    }
    Ok(report)
}

/// How far off the results may be: what rounding does.
fn tolerance(graph: &Graph) -> f64 {
    // ONNX Runtime rounds activations to 8 bits before products with quantised weights.
    if graph.nodes.iter().any(|node| matches!(node.op, Op::Dequantize { .. })) {
        return 5e-2;
    }
    let dtypes: BTreeSet<_> = graph.values.iter().map(|value| value.type_.dtype).collect();
    if dtypes.contains(&planner_ir::DType::BF16) {
        2e-2
    } else if dtypes.contains(&planner_ir::DType::F16) {
        5e-3
    } else {
        2e-5
    }
}

#[test]
fn every_real_model_is_imported_at_other_sizes() {
    let mut failures = Vec::new();
    for path in models("") {
        let model = load(&path).unwrap();
        for (sequence, past) in [(24, 0), (24, 24), (1, 0)] {
            if let Err(error) = import(&model, &guessed(&model, sequence, past)) {
                failures.push(format!("{} with {sequence} after {past}: {error}", name(&path)));
            }
        }
    }
    assert!(failures.is_empty(), "not imported:\n{}", failures.join("\n"));
}

#[test]
fn every_full_size_graph_is_imported() {
    let mut failures = Vec::new();
    for path in outside::models("full") {
        let title = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path.join("model.onnx.gz")).unwrap();
        GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        let start = std::time::Instant::now();
        let model = match read(Bytes::from(bytes)) {
            Ok(model) => model,
            Err(error) => {
                failures.push(format!("{title}: {error}"));
                continue;
            }
        };
        for sequence in [16, 512] {
            match import(&model, &guessed(&model, sequence, 16)) {
                Ok(graph) => println!("{title}: {} after {:?}", described(&graph), start.elapsed()),
                Err(error) => failures.push(format!("{title} with {sequence}: {error}")),
            }
        }
    }
    assert!(failures.is_empty(), "not imported:\n{}", failures.join("\n"));
}

#[test]
fn every_training_graph_is_imported() {
    let mut failures = Vec::new();
    for path in models("training") {
        let result = load(&path).and_then(|model| import(&model, &guessed(&model, 16, 16)));
        match result {
            Ok(graph) => println!("{}: {}", name(&path), described(&graph)),
            Err(error) => failures.push(format!("{}: {error}", name(&path))),
        }
    }
    assert!(failures.is_empty(), "not imported:\n{}", failures.join("\n"));
}
