//! Real models: raised, and computed before and after.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use import::{Bindings, Dim, Model, WeightData};
use kernels::Array;
use planner_ir::{Graph, Op, Source};

use super::evaluate::{Dice, difference, evaluate, tolerance};
use super::outside;
use crate::blocks::{blocks, check};
use crate::fuse::fused;
use crate::raise::raise;

/// The model files of a kind, sorted.
fn models(kind: &str) -> Vec<PathBuf> {
    let below = |path: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(path).map(|it| it.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
    };
    let mut files: Vec<PathBuf> = outside::models(kind).iter().flat_map(|folder| below(folder)).collect();
    files.retain(|file| [".onnx", ".onnx.gz"].iter().any(|it| file.to_string_lossy().ends_with(it)));
    files.sort();
    files
}

fn load(path: &Path) -> Result<Model, String> {
    let mut bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|it| it == "gz") {
        let packed = std::mem::take(&mut bytes);
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    }
    let mut model = import::read(bytes.into()).map_err(|error| error.to_string())?;
    let files: Vec<String> = model.files().into_iter().map(str::to_owned).collect();
    for file in files {
        if let Ok(contents) = std::fs::read(path.with_file_name(&file)) {
            model.attach(&file, contents.into());
        }
    }
    Ok(model)
}

/// Bindings to sizes that most models accept: two sequences of that length, after a past.
fn bindings(model: &Model, sequence: u64) -> Bindings {
    let past = 8;
    let mut bindings = Bindings::default();
    for unbound in model.symbols() {
        let name = unbound.symbol.to_lowercase();
        let batch = unbound.places.iter().all(|place| place.ends_with("[0]")) || name.contains("batch");
        let size = match () {
            () if batch => 2,
            () if name.contains('+') || name.contains("total") || name.contains("mask") => past + sequence,
            () if name.contains("past") => past,
            () => sequence,
        };
        bindings.dims.insert(unbound.symbol, size);
    }
    for input in model.inputs() {
        let single = input.dims.iter().flatten().all(|dim| matches!(dim, Dim::Number(1)));
        if input.dtype == planner_ir::DType::Bool && single {
            let shape: Vec<u64> = input.dims.iter().flatten().map(|_| 1).collect();
            bindings.controls.insert(input.name.clone(), Array::of_truths(shape, &[true]).unwrap());
        }
    }
    bindings
}

/// Values for a graph's inputs and weights, whole numbers below that; masks hide the end of the
/// second sequence.
fn outside(graph: &Graph, model: &Model, below: u64) -> Option<Vec<Array>> {
    let mut dice = Dice { state: 1, below };
    let mut arrays = Vec::new();
    for value in &graph.values {
        match &value.source {
            Source::Input(name) if name.contains("mask") => {
                let count = usize::try_from(value.type_.elements()).unwrap();
                let truths: Vec<bool> = (0..count).map(|it| it + 3 < count || count < 8).collect();
                let mask = Array::of_truths(value.type_.shape.clone(), &truths).unwrap();
                let cast = kernels::evaluate(&Op::Cast(value.type_.dtype), &[&mask]).unwrap();
                arrays.extend(cast);
            }
            Source::Input(_) => arrays.push(dice.array(&value.type_)),
            Source::Weight(name) => match model.weight(name) {
                Ok(WeightData::Bytes(bytes)) => {
                    arrays.push(Array::from_bytes(value.type_.clone(), &bytes).unwrap())
                }
                _ => return None,
            },
            Source::State(_) | Source::Result { .. } => {}
        }
    }
    Some(arrays)
}

/// Raises a model and says what came of it.
fn report(path: &Path, sequence: u64) -> Result<String, String> {
    let model = load(path)?;
    let graph =
        model.import(&bindings(&model, sequence)).map_err(|error| format!("not imported: {error}"))?;
    let begin = Instant::now();
    let cut = blocks(&graph);
    let cutting = begin.elapsed();
    let begin = Instant::now();
    let raised = raise(&graph).map_err(|error| error.to_string())?;
    let raising = begin.elapsed();
    planner_ir::verify(&raised.graph).map_err(|error| error.to_string())?;
    let it = &raised.statistics;
    let counts: Vec<String> = cut.unique.iter().map(|block| block.count.to_string()).collect();
    eprintln!("{}: blocks {cutting:?}, raised {raising:?}, {} terms", path.display(), it.terms);
    if std::env::var("SHOW").is_ok() {
        eprintln!("{}", raised.graph);
        eprintln!("{:?}", it.rules);
    }
    let mut text = format!("blocks {}; {} nodes", counts.join(" "), raised.graph.nodes.len());
    if !it.saturated {
        text += ", not saturated";
    }
    for (idiom, count) in &it.idioms {
        text += &format!(", {idiom} {count}");
    }
    let regions = raised.graph.nodes.iter().filter(|node| matches!(node.op, Op::Region(_))).count();
    if regions > 0 {
        text += &format!(", region {regions}");
    }
    let apart = blocks(&raised.graph);
    let fused = fused(&apart, &|_| true);
    planner_ir::verify(&fused.graph).map_err(|error| format!("fused: {error}"))?;
    check(&fused).map_err(|error| format!("fused: {error}"))?;
    let products = |graph: &Graph| graph.nodes.iter().filter(|it| matches!(it.op, Op::Contract(_))).count();
    let [before, after] = [&apart.graph, &fused.graph].map(products);
    if after < before {
        text += &format!(", {before} products fused to {after}");
    }
    // Few different tokens index everything, many choose every expert.
    let given: Option<Vec<Vec<Array>>> =
        [2, 128].map(|below| outside(&graph, &model, below)).into_iter().collect();
    if let Some(given) = given {
        let computed = given.iter().find_map(|values| Some((values, evaluate(&graph, values).ok()?)));
        let Some((values, expected)) = computed else {
            return Ok(text + ", refuses these inputs");
        };
        for (what, graph) in [("raised", &raised.graph), ("fused", &fused.graph)] {
            let found = evaluate(graph, values).map_err(|error| format!("{what}: {error}"))?;
            for ((found, expected), output) in found.iter().zip(&expected).zip(&graph.outputs) {
                let apart = difference(found, expected);
                if apart > tolerance(expected.dtype()) {
                    return Err(format!("{what}: output `{}` is off by {apart:e}: {text}", output.name));
                }
            }
        }
    }
    Ok(text)
}

/// Raises the models of a kind whose names contain what `MODEL` says.
fn check_models(kind: &str, sequence: u64) {
    let list = if kind.is_empty() { "models" } else { kind };
    let only = std::env::var("MODEL").unwrap_or_default();
    let mut failures = Vec::new();
    let mut found = BTreeMap::new();
    for path in models(kind) {
        let name: PathBuf = path.components().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect();
        let title = format!("{list}/{}", name.display());
        if !title.contains(&only) {
            continue;
        }
        match report(&path, sequence) {
            Ok(report) => drop(found.insert(title, report)),
            Err(error) => failures.push(format!("{title}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{} models:\n{}", failures.len(), failures.join("\n"));
    if only.is_empty() {
        golden(&format!("raise-{list}.txt"), found);
    } else {
        eprintln!("{found:#?}");
    }
}

/// Compares with what was found before; `BLESS=1` writes it anew. Where only the models of the repository
/// are there, lines of others stay as they are.
fn golden(name: &str, found: BTreeMap<String, String>) {
    let path = outside::root().join("tests/cases").join(name);
    let before = std::fs::read_to_string(&path).unwrap();
    let entry = |line: &str| {
        let (title, report) = line.split_once(": ").expect("a title and a report");
        (title.to_owned(), report.to_owned())
    };
    let expected: BTreeMap<String, String> = before.lines().map(entry).collect();
    if std::env::var("BLESS").is_ok() {
        let all = expected.into_iter().chain(found).collect::<BTreeMap<_, _>>();
        let text: String = all.iter().map(|(title, report)| format!("{title}: {report}\n")).collect();
        return std::fs::write(&path, text).unwrap();
    }
    for (title, report) in &found {
        assert_eq!(Some(report), expected.get(title), "{title} in {name} (BLESS=1 writes it anew)");
    }
    let all = outside::outside("models").is_some();
    assert!(!all || found.len() == expected.len(), "{name} lists models that are not there");
}

#[test]
fn small_models_compute_the_same_after_raising() {
    check_models("", 16);
}

#[test]
fn losses_of_small_models_are_the_same_after_raising() {
    check_models("training", 16);
}

#[test]
fn large_models_are_raised() {
    check_models("full", 128);
}
