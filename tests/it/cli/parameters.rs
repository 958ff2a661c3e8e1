//! What is trained, and what is not: small models of which PyTorch's losses and weights are there.

use std::collections::BTreeMap;
use std::path::Path;

use files::arrays;
use serde_json::Value;

use super::{Folder, fails, says, shardloom, works};

/// How far numbers may be from PyTorch's.
const NEAR: f64 = 2e-5;

/// A file of a case.
fn file(case: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/faults").join(case).join(name);
    path.to_str().unwrap().to_owned()
}

/// Plans a model's training, and gives what is said of its weights.
fn planned(case: &str, model: &str, more: &[&str], plan: &str) -> Value {
    let model = file(case, model);
    let fixed = ["plan", &model, "--mode", "train", "--machine", "cpu-1x", "-o", plan, "--json"];
    let said: Value = serde_json::from_str(&works(&[&fixed[..], more].concat())).unwrap();
    said["parameters"].clone()
}

/// The names in a list of what is said of weights.
fn names<'a>(said: &'a Value, what: &str) -> Vec<&'a str> {
    let all = said[what].as_array().unwrap().iter();
    all.map(|it| it.as_str().or(it["name"].as_str()).or(it["copy"].as_str()).unwrap()).collect()
}

/// Trains a plan: its losses, norms and weights have to be PyTorch's. The weights that it has.
fn trained(case: &str, plan: &str, folder: &Folder, rate: &str) -> BTreeMap<String, Vec<f64>> {
    let expected = arrays::read(Path::new(&file(case, "expected.npz"))).unwrap();
    let numbers = |name: &str| expected.get(name).map(|it| it.to_floats().unwrap());
    let losses = numbers("losses").unwrap();
    let (steps, weights) = (losses.len().to_string(), folder.path("weights.safetensors"));
    let data = file(case, "data.npz");
    let fixed = ["train", plan, "--data", &data, "--lr", rate, "--steps", &steps, "--weights", &weights];
    let said = works(&[&fixed[..], &["--json"]].concat());
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (name, expected) in [("loss", Some(losses)), ("gradient_norm", numbers("norms"))] {
        let found: Vec<f64> = lines.iter().filter_map(|line| line[name].as_f64()).collect();
        let Some(expected) = expected else { continue };
        assert_eq!(found.len(), expected.len(), "{name}: {said}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= NEAR * expected.abs(), "{name} {found}, expected {expected}");
        }
    }
    let written = arrays::read(Path::new(&weights)).unwrap();
    let written: BTreeMap<String, Vec<f64>> =
        written.into_iter().map(|(name, it)| (name, it.to_floats().unwrap())).collect();
    for (name, found) in &written {
        for (found, expected) in found.iter().zip(numbers(name).unwrap_or_default()) {
            assert!((found - expected).abs() <= NEAR, "`{name}` has {found}, expected {expected}");
        }
    }
    written
}

#[test]
fn parameters_of_one_element_are_trained() {
    let folder = Folder::new("single");
    let case = "one_element_parameters";
    let plan = folder.path("plan.json");
    let loss = ["--loss", "loss", "--optimizer", "sgd"];
    let said = planned(case, "model_ts.onnx", &loss, &plan);
    assert_eq!(names(&said, "trained").len(), 8, "{said}");
    let written = trained(case, &plan, &folder, "0.1");
    for name in ["scale", "gate", "score.bias"] {
        assert!(written.contains_key(name), "{name}");
    }
    // The other exporter has computed exp(scale): a constant. What it has not is trained.
    let said = planned(case, "model_dynamo.onnx", &loss, &plan);
    assert_eq!(names(&said, "trained").len(), 7, "{said}");
    assert_eq!(said["trained"][0]["why"], "declared", "{said}");
    works(&["check", &plan]);
    // Asked for by its name it is trained as it is.
    let said = planned(case, "model_dynamo.onnx", &[&loss[..], &["--train", "exp"]].concat(), &plan);
    assert!(names(&said, "trained").contains(&"exp"), "{said}");
    works(&["check", &plan]);
}

#[test]
fn what_an_exporter_made_is_not_trained() {
    let folder = Folder::new("constants");
    let case = "constants_trained";
    let plan = folder.path("plan.json");
    let fixed = ["--loss", "loss", "--optimizer", "sgd", "--clip", "1e30"];
    let said = planned(case, "model.onnx", &fixed, &plan);
    let why: BTreeMap<&str, &str> = said["constant"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), it["why"].as_str().unwrap()))
        .collect();
    let expected = [
        ("unsqueeze_14", "waves"),
        ("unsqueeze_15", "waves"),
        ("val_521", "progression"),
        ("zeros", "uniform"),
    ];
    assert_eq!(why, BTreeMap::from(expected));
    trained(case, &plan, &folder, "0.05");
    // In stages the same is said.
    let model = file(case, "model.onnx");
    let staged = ["plan", &model, "--mode", "train", "--machine", "cpu-2x", "--stages", "2", "--mesh", "1"];
    let staged = [&staged[..], &["-o", &plan], &fixed].concat();
    let text = works(&staged);
    for part in [
        "constant   val_521: evenly spaced",
        "constant   zeros: one number",
        "4 used as tables that are looked up",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let in_stages: Value = serde_json::from_str(&works(&[&staged[..], &["--json"]].concat())).unwrap();
    assert_eq!(in_stages["parameters"], said);
    trained(case, &plan, &folder, "0.05");
    // What is asked for wins, and what matches nothing is an error.
    let asked = ["--train", "zeros", "--freeze", "*experts*"];
    says(
        &fails(
            1,
            &[&["plan", &model, "--mode", "train", "--machine", "cpu-1x", "-o", &plan], &fixed[..], &asked]
                .concat(),
        ),
        &["no parameter matches `*experts*` (`--freeze`)"],
    );
    let asked = ["--train", "zeros", "--train", "*.norm.weight", "--freeze", "*"];
    let said = planned(case, "model.onnx", &[&fixed[..], &asked].concat(), &plan);
    assert_eq!(names(&said, "trained"), ["m.model.norm.weight", "zeros"]);
    works(&["check", &plan]);
}

#[test]
fn weights_that_start_equal_are_not_one() {
    let folder = Folder::new("equal");
    let case = "equal_start_weights_tied";
    let plan = folder.path("plan.json");
    let fixed = ["--loss", "cross-entropy:logits,labels", "--optimizer", "sgd", "--clip", "1e30"];
    let said = planned(case, "model.onnx", &fixed, &plan);
    assert_eq!(names(&said, "trained").len(), 8);
    assert_eq!(names(&said, "tied"), [] as [&str; 0]);
    trained(case, &plan, &folder, "0.1");
    let model = file(case, "model.onnx");
    let plain =
        ["plan", &model, "--mode", "train", "--machine", "cpu-1x", "-o", &plan, "--untie", "l2.weight"];
    says(&fails(1, &[&plain[..], &fixed].concat()), &["no parameter matches `l2.weight` (`--untie`"]);
}

/// The scores of a language model share their matrix with its embedding, which exporters write again.
#[test]
fn copies_of_an_embedding_are_tied_and_can_be_parted() {
    let folder = Folder::new("tied");
    let plan = folder.path("plan.json");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/gpt2-eager-legacy2.9-op17-static/model.onnx");
    let fixed = ["plan", model, "--mode", "train", "--machine", "cpu-1x", "-o", &plan];
    let fixed = [&fixed[..], &["--loss", "cross-entropy:logits,labels"]].concat();
    let text = works(&fixed);
    let tie = "tied       onnx::MatMul_572: trained as `model.transformer.wte.weight`, transposed";
    assert!(text.contains(tie), "{text}");
    works(&["check", &plan]);
    let text = works(&[&fixed[..], &["--untie", "onnx::MatMul_572"]].concat());
    assert!(!text.contains("tied  "), "{text}");
    works(&["check", &plan]);
    // A parameter is meant by the name of its copy, too.
    let said = works(&[&fixed[..], &["--freeze", "onnx::MatMul_572", "--json"]].concat());
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(names(&said["parameters"], "frozen"), ["model.transformer.wte.weight"]);
}

#[test]
fn plans_of_mixtures_of_experts_can_be_trained() {
    let folder = Folder::new("experts");
    let case = "moe_top2_train_rejected";
    let plan = folder.path("plan.json");
    let fixed =
        ["--loss", "cross-entropy:logits,labels", "--clip", "1", "--dim", "batch=2", "--dim", "seq=4"];
    planned(case, "model.onnx", &fixed, &plan);
    works(&["check", &plan]);
    works(&["check", &plan, "--model", &file(case, "model.onnx")]);
    trained(case, &plan, &folder, "0.01");
}

/// Without the model that a plan names, nobody can know whether it can be trained.
#[test]
fn what_a_check_cannot_know_it_says() {
    let folder = Folder::new("unknown");
    let case = "equal_start_weights_tied";
    let (plan, model) = (folder.path("plan.json"), folder.path("model.onnx"));
    std::fs::copy(file(case, "model.onnx"), &model).unwrap();
    let fixed = ["plan", &model, "--mode", "train", "--machine", "cpu-1x", "-o", &plan];
    works(&[&fixed[..], &["--loss", "cross-entropy:logits,labels"]].concat());
    assert!(works(&["check", &plan]).contains("ok  its program is the training step of its recipe"));
    let mut other = plan::json::read(&std::fs::read(&plan).unwrap()).unwrap();
    other.recipe.as_mut().unwrap().loss = plan::Loss::Output("logits".to_owned());
    std::fs::write(&plan, plan::json::write(&other)).unwrap();
    let left = shardloom(&["check", &plan]);
    assert_eq!((left.code, left.out.as_str()), (2, ""), "{}", left.err);
    std::fs::remove_file(&model).unwrap();
    let said = works(&["check", &plan]);
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("--  not known: whether its program is the training step"), "{said}");
    let said: Value = serde_json::from_str(&works(&["check", &plan, "--json"])).unwrap();
    assert_eq!(said["unknown"].as_array().unwrap().len(), 1);
}

/// Exporters give one name to two sizes, which runtimes do not mind: a warning, and the right answer.
#[test]
fn dimensions_that_share_a_name_are_taken_apart() {
    let folder = Folder::new("apart");
    let case = "one_symbol_two_sizes";
    let (model, data) = (file(case, "model.onnx"), file(case, "data.npz"));
    let (out, plan) = (folder.path("out.npz"), folder.path("plan.json"));
    let expected =
        arrays::read(Path::new(&file(case, "expected.npz"))).unwrap()["logits"].to_floats().unwrap();
    let right = |arguments: &[&str]| {
        works(arguments);
        let found = arrays::read(Path::new(&out)).unwrap()["logits"].to_floats().unwrap();
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{arguments:?}");
    };
    right(&["run", &model, "--ranks", "2", "--inputs", &data, "-o", &out]);
    let sizes = ["--dim", "S=11", "--dim", "labels[1]=6", "--dim", "B=2"];
    let fixed = ["plan", &model, "--machine", "cpu-2x", "-o", &plan];
    for how in [&["--inputs", &data][..], &sizes] {
        let said = works(&[&fixed[..], how].concat());
        assert!(said.contains("with B=2, S=11, labels[1]=6"), "{said}");
        works(&["check", &plan, "--model", &model]);
        right(&["run", &plan, "--inputs", &data, "-o", &out]);
    }
    let train = ["--mode", "train", "--loss", "cross-entropy:logits,targets", "--inputs", &data];
    works(&[&fixed[..], &train].concat());
    works(&["check", &plan]);
    // Sizes that the graph itself needs to be one are.
    let wrong = ["--dim", "S=11", "--dim", "B=2", "--dim", "labels[0]=3"];
    says(&fails(2, &[&fixed[..], &wrong].concat()), &["node", "(Add)", "expected extent"]);
    let wrong = ["--dim", "S=7", "--inputs", &data];
    says(
        &fails(1, &[&fixed[..], &wrong].concat()),
        &["contradictory sizes: input_ids[1] is 11, but `S` is 7"],
    );
}
