//! Tests of models with other weights.

use std::collections::BTreeMap;

use bytes::Bytes;
use planner_ir::Type;
use prost::Message;

use super::make::{
    BOOL, FLOAT, bytes, floats, function, graph, graph_attribute, model, node, tensor_attribute, value,
};
use super::outside;
use crate::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};
use crate::replace::replace;
use crate::{Beside, Model, WeightData, read};

/// The small models that have their weights within.
fn models() -> Vec<Bytes> {
    let folders = outside::models("").into_iter();
    let models = folders.filter_map(|it| std::fs::read(it.join("model.onnx")).ok()).map(Bytes::from);
    models.filter(|bytes| read(bytes.clone()).unwrap().files().is_empty()).collect()
}

fn here(model: &Model, name: &str) -> Option<Bytes> {
    match model.weight(name).unwrap() {
        WeightData::Bytes(bytes) => Some(bytes),
        WeightData::External(_) => None,
    }
}

/// A model without the data of its initializers.
fn without_data(bytes: &[u8]) -> ModelProto {
    let mut model = ModelProto::decode(bytes).unwrap();
    let graph: &mut GraphProto = model.graph.as_mut().unwrap();
    for tensor in &mut graph.initializer {
        let TensorProto { dims, data_type, name, .. } = std::mem::take(tensor);
        *tensor = TensorProto { dims, data_type, name, ..TensorProto::default() };
    }
    model
}

#[test]
fn without_new_data_a_model_stays_as_it_is() {
    let models = models();
    assert!(models.len() > 5);
    for bytes in models {
        let replaced = replace(&bytes, "data", &mut |_, _| Ok(None)).unwrap();
        assert!(replaced.beside.is_empty() && replaced.model == bytes);
    }
}

#[test]
fn new_data_are_read_back_and_everything_else_is_equal() {
    for bytes in models() {
        let before = read(bytes.clone()).unwrap();
        let mut expected = BTreeMap::new();
        for (name, _) in before.weights() {
            let mut data = here(&before, name).unwrap().to_vec();
            data.iter_mut().for_each(|byte| *byte ^= 0x55);
            // Every third weight stays.
            if expected.len() % 3 == 0 {
                data = here(&before, name).unwrap().to_vec();
            }
            expected.insert(name.to_owned(), data);
        }
        let mut asked = Vec::new();
        let replaced = replace(&bytes, "data", &mut |name, type_| {
            asked.push((name.to_owned(), type_.clone()));
            Ok(Some(expected[name].clone()))
        });
        let replaced = replaced.unwrap();
        asked.sort_by(|a, b| a.0.cmp(&b.0));
        let weights: Vec<_> = before.weights().into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        assert_eq!(asked, weights);
        let after = read(replaced.model.clone().into()).unwrap();
        for (name, data) in &expected {
            assert_eq!(here(&after, name).unwrap(), data, "{name}");
        }
        if before.weights().iter().all(|(name, _)| !before.is_nested(name)) {
            assert_eq!(without_data(&replaced.model), without_data(&bytes));
        }
    }
}

#[test]
fn constants_branches_and_functions_have_weights_too() {
    let large = floats("", &[2000], &vec![1.5; 2000]);
    let branch = || graph(vec![], vec![floats("b", &[2], &[1., 2.])], vec![node("Identity b -> r")], &["r"]);
    let nodes = vec![
        node("Constant -> c").with(tensor_attribute("value", large.clone())),
        node("If t -> i")
            .with(graph_attribute("then_branch", branch()))
            .with(graph_attribute("else_branch", branch())),
        node("F x -> f").of_domain("local"),
    ];
    let inside = vec![node("Constant -> k").with(tensor_attribute("value", large)), node("Add a k -> y")];
    let inputs = vec![value("x", FLOAT, &["2000"]), value("t", BOOL, &[])];
    let whole =
        model(graph(inputs, vec![], nodes, &["c", "i", "f"]), vec![function("F", &["a"], &["y"], inside)]);
    let whole = bytes(&whole);
    let before = read(whole.clone()).unwrap();
    let names: Vec<String> = before.weights().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["c", "i/else_branch/b", "i/then_branch/b", "local.F/k"]);
    let new = |name: &str, type_: &Type| {
        let byte = u8::try_from(name.len()).unwrap();
        vec![byte; usize::try_from(type_.bytes()).unwrap()]
    };
    let replaced = replace(&whole, "data", &mut |name, type_| Ok(Some(new(name, type_)))).unwrap();
    let after = read(replaced.model.into()).unwrap();
    for (name, type_) in before.weights() {
        assert_eq!(here(&after, name).unwrap(), new(name, &type_), "{name}");
    }
}

#[test]
fn weights_in_other_files_come_into_one() {
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
    let external = |name: &str, file: &str, offset: &str| TensorProto {
        raw_data: None,
        data_location: 1,
        external_data: vec![entry("location", file), entry("offset", offset), entry("checksum", "x")],
        ..floats(name, &[3], &[])
    };
    let weights =
        vec![external("a", "one", "0"), floats("b", &[3], &[1., 2., 3.]), external("c", "two", "8")];
    let nodes = vec![node("Sum x a b c -> y")];
    let whole = bytes(&model(graph(vec![value("x", FLOAT, &["3"])], weights, nodes, &["y"]), vec![]));
    let replaced = replace(&whole, "new.data", &mut |name, _| {
        assert_eq!(name, "b");
        Ok(Some(vec![7; 12]))
    });
    let replaced = replaced.unwrap();
    let piece = |name: &str, offset| Beside { name: name.to_owned(), offset, length: 12 };
    assert_eq!(replaced.beside, [piece("a", 0), piece("c", 4096)]);
    let mut after = read(replaced.model.into()).unwrap();
    assert_eq!(after.files(), ["new.data"]);
    after.attach("new.data", (0..4108).map(|it| (it % 251) as u8).collect());
    assert_eq!(here(&after, "a").unwrap()[..], (0..12).collect::<Vec<u8>>());
    assert_eq!(here(&after, "b").unwrap()[..], [7; 12]);
    assert_eq!(here(&after, "c").unwrap()[0], (4096 % 251) as u8);
}

#[test]
fn data_of_another_length_and_broken_files_are_refused() {
    let bytes = models().remove(0);
    let error = replace(&bytes, "data", &mut |_, _| Ok(Some(vec![0; 3]))).unwrap_err();
    assert!(error.to_string().contains("3 bytes of new data, expected"), "{error}");
    for length in [1, bytes.len() / 2, bytes.len() - 1] {
        assert!(replace(&bytes.slice(..length), "data", &mut |_, _| Ok(None)).is_err());
    }
}
