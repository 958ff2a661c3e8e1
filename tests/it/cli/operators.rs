//! Operators that files of quantised, unrolled and several-sense models have, on ranks.

use std::path::Path;

use serde_json::Value;

use super::{Folder, works};

fn case(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/faults/operators");
    folder.join(name).to_str().unwrap().to_owned()
}

/// What ONNX Runtime 1.32.0 computes, and what ranks do.
#[test]
fn loops_and_narrow_weights_run_on_ranks() {
    let folder = Folder::new("operators");
    for name in ["loop", "scan", "dequantize", "float8", "packed"] {
        let (model, inputs) = (case(&format!("{name}.onnx")), case(&format!("{name}.npz")));
        let output = folder.path("outputs.npz");
        for ranks in ["1", "2", "4"] {
            let said =
                works(&["run", &model, "--ranks", ranks, "--inputs", &inputs, "-o", &output, "--json"]);
            let said: Value = serde_json::from_str(&said).unwrap();
            for (output, it) in said["expected"].as_object().unwrap() {
                let difference = it["largest_difference"].as_f64().unwrap();
                assert!(difference < 1e-5, "{name} on {ranks}, `{output}`: {difference}");
            }
        }
    }
}

/// Weights of 4 and 8 bits are in a plan as they are in the file.
#[test]
fn packed_weights_take_what_they_take_in_the_file() {
    let folder = Folder::new("packed");
    let plan = folder.path("plan.json");
    works(&["plan", &case("packed.onnx"), "--machine", "cpu-2x", "--mesh", "2", "-o", &plan]);
    works(&["check", &plan, "--model", &case("packed.onnx")]);
    let text = std::fs::read_to_string(&plan).unwrap();
    assert!(text.contains("u8[1280]") && text.contains("f8e4m3fn[40,64]"), "{text}");
}

/// Features that are written into embeddings where tokens say so: what they are made from is trained.
///
/// The losses are those of three steps of plain descent, written out with numpy in f64.
#[test]
fn features_at_the_places_of_tokens_are_trained() {
    let folder = Folder::new("features");
    let (model, data, plan) = (case("features.onnx"), case("steps.npz"), folder.path("plan.json"));
    let sizes = ["--dim", "b=1", "--dim", "s=6", "--dim", "n=3"];
    for mesh in ["1", "2"] {
        let machine = format!("cpu-{mesh}x");
        let fixed = ["plan", &model, "--machine", &machine, "--mesh", mesh, "--mode", "train", "-o", &plan];
        let recipe = ["--loss", "cross-entropy:logits,labels", "--optimizer", "sgd"];
        works(&[&fixed[..], &recipe, &sizes].concat());
        works(&["check", &plan, "--model", &model]);
        let weights = folder.path("w.safetensors");
        let fixed = ["train", &plan, "--data", &data, "--steps", "4", "--lr", "0.5", "--weights", &weights];
        let said = works(&fixed);
        let lines = said.lines().filter(|line| line.starts_with("step"));
        let loss = |line: &str| line.split("loss").nth(1).unwrap().split_whitespace().next().unwrap().parse();
        let losses: Vec<f64> = lines.map(|line| loss(line).unwrap()).collect();
        let expected = [3.361_799_720, 2.442_810_485, 1.863_730_971, 1.487_651_134];
        assert_eq!(losses.len(), 4, "{said}");
        for (found, expected) in losses.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-4, "{mesh}: {losses:?}");
        }
    }
    let inputs = case("features.npz");
    let run = ["run", &model, "--ranks", "2", "--inputs", &inputs, "-o", &folder.path("o.npz"), "--json"];
    let said: Value = serde_json::from_str(&works(&run)).unwrap();
    assert!(said["expected"]["logits"]["largest_difference"].as_f64().unwrap() < 1e-5, "{said}");
}
