//! Every node test of ONNX that is at hand: imported, computed, compared with what it expects.
//!
//! Source: the cases of the package onnx 1.23.2 (Apache-2.0), a selection of which is in
//! `tests/models/node/cases.tar.gz`: a folder for each, with the model and its data. What the
//! cases there whose names begin with `ort_` expect is what onnxruntime 1.31.1 computes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use arbtest::arbtest;
use bytes::Bytes;
use flate2::read::GzDecoder;
use kernels::Array;
use planner_ir::{DType, Graph, Source};
use prost::Message;

use crate::error::ImportError;
use crate::proto::TensorProto;
use crate::tests::outside::{outside, root};
use crate::{Bindings, Model, WeightData, tensor};

/// The files of a case, by name.
type Case = BTreeMap<String, Vec<u8>>;

#[test]
fn selected_node_tests_agree() {
    let bytes = fs::read(root().join("tests/models/node/cases.tar.gz")).expect("the selected cases");
    let cases = packed(&bytes);
    assert!(cases.len() > 100, "{} cases", cases.len());
    let unused = check(&cases);
    println!("{} listed cases are not among the selected ones", unused.len());
}

#[test]
fn all_node_tests_agree() {
    let Some(archive) = outside("models/nodetests.tar.gz") else { return };
    let unused = check(&packed(&fs::read(archive).unwrap()));
    assert!(unused.is_empty(), "listed, but no such case fails: {unused:?}");
}

/// Every case agrees, unless it is listed as one that does not; what is listed for no case.
fn check(cases: &BTreeMap<String, Case>) -> Vec<String> {
    let skipped = skipped();
    let (mut agree, mut wrong) = (0, Vec::new());
    let mut used = vec![false; skipped.len()];
    for (name, case) in cases {
        let entry = skipped.iter().position(|(pattern, _)| matches(pattern, name));
        match (run(case), entry) {
            (Ok(()), None) => agree += 1,
            (Ok(()), Some(entry)) => {
                wrong.push(format!("{name}: passes, but is listed as {}", skipped[entry].1))
            }
            (Err(message), None) => wrong.push(format!("{name}: {message}")),
            (Err(_), Some(entry)) => used[entry] = true,
        }
    }
    println!("{agree} of {} cases agree", cases.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let unused = skipped.into_iter().zip(used).filter(|(_, used)| !used);
    unused.map(|((pattern, _), _)| pattern).collect()
}

/// A changed byte in a model of one node is an error or another model, never a panic.
#[test]
fn mutants_of_nodes_do_no_harm() {
    let bytes = fs::read(root().join("tests/models/node/cases.tar.gz")).expect("the selected cases");
    let models: Vec<_> =
        packed(&bytes).into_values().filter_map(|mut case| case.remove("model.onnx")).collect();
    let (mut alive, mut dead) = (0, 0);
    arbtest(|u| {
        let mut mutant = u.choose(&models)?.clone();
        for _ in 0..u.int_in_range(1..=3)? {
            let place = u.choose_index(mutant.len())?;
            mutant[place] = if u.arbitrary()? { u.int_in_range(0..=16)? } else { u.arbitrary()? };
        }
        let imported = crate::read(Bytes::from(mutant)).and_then(|model| model.import(&Bindings::default()));
        match imported {
            Ok(_) => alive += 1,
            Err(_) => dead += 1,
        }
        Ok(())
    })
    .budget_ms(3000);
    println!("{alive} mutants were imported, {dead} were not");
    assert!(alive > 0 && dead > 0);
}

/// Patterns of names, and why such cases do not agree.
fn skipped() -> Vec<(String, String)> {
    let path = root().join("tests/cases/node_tests_skipped.txt");
    let text = fs::read_to_string(&path).expect("the list of skipped cases");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (reason, patterns) = line.split_once(": ").expect("a reason and patterns");
        patterns.split_whitespace().map(|it| (it.to_owned(), reason.to_owned())).collect::<Vec<_>>()
    };
    lines.flat_map(entry).collect()
}

/// Whether a name is the pattern, or begins with it if it ends with a star.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

fn packed(archive: &[u8]) -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a path").into_owned();
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if parts.len() < 3 || !(path.ends_with("model.onnx") || parts.len() > 3) {
            continue;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("contents");
        if !bytes.is_empty() {
            cases.entry(parts[1].clone()).or_default().insert(parts[parts.len() - 1].clone(), bytes);
        }
    }
    cases
}

/// Whether the results of a case are what it expects.
fn run(case: &Case) -> Result<(), String> {
    let model = case.get("model.onnx").ok_or("no model")?;
    let model = crate::read(Bytes::from(model.clone())).map_err(|error| error.to_string())?;
    let mut inputs = BTreeMap::new();
    for (index, input) in model.inputs().iter().enumerate() {
        let bytes = case.get(&format!("input_{index}.pb")).ok_or("an input is missing")?;
        inputs.insert(input.name.clone(), array(bytes)?);
    }
    let graph = imported(&model, &inputs)?;
    let results = computed(&model, &graph, &inputs)?;
    for (index, (result, output)) in results.iter().zip(&graph.outputs).enumerate() {
        let bytes = case.get(&format!("output_{index}.pb")).ok_or("an output is missing")?;
        close(result, &array(bytes)?).map_err(|message| format!("output `{}`: {message}", output.name))?;
    }
    Ok(())
}

fn array(bytes: &[u8]) -> Result<Array, String> {
    let proto = TensorProto::decode(bytes).map_err(|error| error.to_string())?;
    tensor::array(&proto)
}

/// The graph for these inputs' shapes; if shapes depend on data, for the values of lists of
/// integers and of single numbers, or else of all inputs.
fn imported(model: &Model, inputs: &BTreeMap<String, Array>) -> Result<Graph, String> {
    let small = |array: &&Array| {
        array.shape().len() <= 1 && !array.dtype().is_float() || array.type_().elements() == 1
    };
    let all = |controls: Vec<(&String, &Array)>| Bindings {
        inputs: inputs.iter().map(|(name, array)| (name.clone(), array.shape().to_vec())).collect(),
        controls: controls.into_iter().map(|(name, array)| (name.clone(), array.clone())).collect(),
        ..Bindings::default()
    };
    let attempts =
        [Vec::new(), inputs.iter().filter(|(_, array)| small(array)).collect(), inputs.iter().collect()];
    let mut last = String::new();
    for controls in attempts {
        match model.import(&all(controls)) {
            Ok(graph) => return Ok(graph),
            Err(error @ ImportError::DependsOnData { .. }) => last = error.to_string(),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(last)
}

/// The outputs of a graph, computed operation by operation.
fn computed(model: &Model, graph: &Graph, inputs: &BTreeMap<String, Array>) -> Result<Vec<Array>, String> {
    let mut values: Vec<Option<Array>> = vec![None; graph.values.len()];
    for (value, place) in graph.values.iter().zip(&mut values) {
        *place = match &value.source {
            Source::Input(name) => Some(inputs.get(name).ok_or("an unknown input")?.clone()),
            Source::Weight(name) => match model.weight(name).map_err(|error| error.to_string())? {
                WeightData::Bytes(bytes) => {
                    Some(Array::from_bytes(value.type_.clone(), &bytes).map_err(|error| error.to_string())?)
                }
                WeightData::External(_) => return Err("a weight in a file".to_owned()),
            },
            Source::State(_) | Source::Result { .. } => None,
        };
    }
    for node in &graph.nodes {
        let operands: Option<Vec<&Array>> = node.operands.iter().map(|id| values[id.0].as_ref()).collect();
        let operands = operands.ok_or("a value is used before it is computed")?;
        let results =
            kernels::evaluate(&node.op, &operands).map_err(|error| format!("{:?}: {error}", node.op))?;
        for (id, result) in node.results.iter().zip(results) {
            if result.type_() != graph.type_of(*id) {
                return Err(format!("{:?} makes {}, not {}", node.op, result.type_(), graph.type_of(*id)));
            }
            values[id.0] = Some(result);
        }
    }
    let outputs = graph.outputs.iter().map(|output| values[output.value.0].clone());
    outputs.collect::<Option<_>>().ok_or_else(|| "an output is not computed".to_owned())
}

/// Whether elements agree within what their type can hold.
fn close(found: &Array, expected: &Array) -> Result<(), String> {
    if found.type_() != expected.type_() {
        return Err(format!("{}, expected {}", found.type_(), expected.type_()));
    }
    let (relative, absolute) = match found.dtype() {
        DType::F64 | DType::F32 => (1e-4, 1e-6),
        DType::F16 => (2e-3, 2e-3),
        DType::BF16 => (1e-2, 1e-2),
        _ if found.bytes() == expected.bytes() => return Ok(()),
        _ => (0.0, 0.0),
    };
    let numbers = |array: &Array| array.to_floats().map_err(|error| error.to_string());
    for (place, (x, y)) in numbers(found)?.into_iter().zip(numbers(expected)?).enumerate() {
        let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
        let near = (x - y).abs() <= absolute + relative * y.abs();
        if !same && !near {
            return Err(format!("element {place} is {x}, expected {y}"));
        }
    }
    Ok(())
}
