//! What is written for frameworks that train, read back as `score` reads it.

use std::fs;

use serde_json::{Value, json};

use super::serving::experts;
use super::{SHARED, TENSOR, TRAINED, config, exported};
use crate::cli::{Folder, works};

/// What a plan is exported as, and the setup that is read of what is written; whether all of it is understood.
fn there_and_back(folder: &Folder, plan: &str, target: &str) -> (Value, Value) {
    let to = folder.path(target);
    let exported = works(&["export", plan, "--to", target, "-o", &to, "--json"]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let (option, file) = match target {
        "megatron" => ("--megatron", "megatron.sh"),
        "bridge" => ("--bridge", "bridge.yaml"),
        "torchtitan" => ("--torchtitan", "shardloom_torchtitan.py"),
        _ => ("--deepspeed", "deepspeed.json"),
    };
    let (file, model) = (format!("{to}/{file}"), folder.path("config.json"));
    let fixed = ["score", option, &file, "--machine", "h100-80g-4x", "--json"];
    // What Megatron-LM and Megatron-Bridge are told says the model.
    let beside: &[&str] =
        if matches!(target, "megatron" | "bridge") { &[] } else { &["--config", &model, "--sequence", "16"] };
    let scored: Value = serde_json::from_str(&works(&[&fixed[..], beside].concat())).unwrap();
    assert_eq!(scored["not_understood"], json!([]), "{target}");
    // What the framework takes is said as it is exported.
    let seconds = |it: &Value| it["seconds"].as_f64().unwrap();
    let (expected, score) = (seconds(&exported["expected"]), seconds(&scored));
    assert!(score > 0.0 && (expected / score - 1.0).abs() < 1e-9, "{target}: {expected} and {score}");
    assert_eq!(exported["expected"]["memory_bytes"], scored["memory_bytes"], "{target}");
    (exported["strategy"].clone(), scored["setup"].clone())
}

/// Degrees, batches, stages of ZeRO and recomputation, of a strategy and of a setup.
fn compared(strategy: &Value, setup: &Value, target: &str) -> [Vec<(&'static str, Value)>; 2] {
    let count = |name: &str| strategy[name].as_u64().unwrap();
    let examples = count("data") * count("micro_batch") * count("micro_batches");
    let mut said = vec![
        ("world_size", strategy["devices"].clone()),
        ("tensor_model_parallel_size", strategy["tensor"].clone()),
        ("context_parallel_size", strategy["context"].clone()),
        ("pipeline_model_parallel_size", strategy["pipeline"].clone()),
        ("expert_model_parallel_size", strategy["experts"].clone()),
        ("micro_batch_size", strategy["micro_batch"].clone()),
        ("global_batch_size", json!(examples)),
        ("zero_stage", strategy["zero"].clone()),
        ("sequence_parallel", strategy["sequence"].clone()),
    ];
    if target != "deepspeed" {
        // DeepSpeed computes again where code says so.
        said.push(("recompute_granularity", strategy["recompute"].clone()));
    }
    // DeepSpeed's pipelines sum gradients beside nothing.
    let overlaps = match target {
        "megatron" | "bridge" => Some(count("data") * count("context") > 1),
        "deepspeed" => Some(count("pipeline") == 1),
        _ => None,
    };
    said.extend(overlaps.map(|it| ("overlap_grad_reduce", json!(it))));
    // Megatron has products of tensor parallelism beside its traffic where sequences are split.
    if matches!(target, "megatron" | "bridge") {
        let split = strategy["sequence"] == json!(true) && count("tensor") > 1;
        said.push(("tp_comm_overlap", json!(split)));
    }
    let found = said.iter().map(|(key, _)| (*key, setup[*key].clone())).collect();
    [said, found]
}

/// A plan, as each framework runs it, is the setup that is read of the framework's configuration.
#[test]
fn configurations_say_what_plans_do() {
    let staged = ["--stages", "2", "--mesh", "2", "--schedule", "1f1b"];
    let full = ["--mesh", "4", "--recompute", "full"];
    let examples = ["--mesh", "4", "--for", "megatron", "--pin", "*.self_attn.q_proj=[a,-,-,-,-]"];
    let shared = [&examples[..], &SHARED].concat();
    for (name, config, more) in [
        ("tensor", config(2), &TENSOR[..]),
        ("staged", config(4), &staged),
        ("full", config(2), &full),
        ("experts", experts(8), &shared),
    ] {
        let folder = Folder::new(&format!("scored-{name}"));
        let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
        fs::write(&model, config).unwrap();
        let fixed =
            ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-4x", "--in-time", "never"];
        let sizes = ["--dim", "batch=4", "--dim", "sequence=16"];
        works(&[&fixed[..], &sizes, &TRAINED, more].concat());
        for target in ["megatron", "bridge", "torchtitan", "deepspeed"] {
            let (strategy, setup) = there_and_back(&folder, &plan, target);
            let [said, found] = compared(&strategy, &setup, target);
            assert_eq!(said, found, "{name} for {target}");
        }
    }
}

/// What is said of a plan for Megatron-LM on four devices, of sequences so long, in numbers of this precision.
fn chosen(folder: &Folder, config: &str, (sequence, precision): (u64, &str), more: &[&str]) -> String {
    let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config).unwrap();
    let sequence = format!("sequence={sequence}");
    let fixed = ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-4x", "--dim", &sequence];
    let asked = ["--stages", "auto", "--global-batch", "8", "--for", "megatron"];
    let trained = TRAINED.map(|it| if it == "bf16" { precision } else { it });
    let said = works(&[&fixed[..], &asked, &trained[..6], more].concat());
    let words = "setups that Megatron-LM runs and a plan can be, by its figures";
    assert!(said.contains(words), "{words}: {said}");
    said
}

/// Products of tensor parallelism are beside its traffic where a setup is chosen since they are.
#[test]
fn sequences_that_are_split_travel_beside_products() {
    let folder = Folder::new("scored-sequences");
    // Large enough for sequences that are split to be worth their messages.
    let sizes = [("\"hidden_size\": 64", "\"hidden_size\": 4096"), (": 128", ": 8192")];
    let wide = sizes.iter().fold(config(2), |text, (from, to)| text.replace(from, to));
    chosen(&folder, &wide, (4096, "bf16"), &["--pin", "tp=2"]);
    for target in ["megatron", "bridge"] {
        let (strategy, setup) = there_and_back(&folder, &folder.path("plan.json"), target);
        assert_eq!(setup["tp_comm_overlap"], json!(true), "{target}: {strategy}");
        let [said, found] = compared(&strategy, &setup, target);
        assert_eq!(said, found, "{target}");
    }
}

/// Frequencies that no key says are a recipe's, and so is the type that it has them by: YaRN is one of its own.
#[test]
fn positions_that_are_not_told_are_of_the_type_of_the_recipe() {
    let folder = Folder::new("scored-positions");
    let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
    let scaling = r#""rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "torch_dtype""#;
    for (text, told) in [(config(2), true), (config(2).replace("\"torch_dtype\"", scaling), false)] {
        fs::write(&model, text).unwrap();
        let fixed = ["plan", "--config", &model, "-o", &plan, "--force", "--machine", "h100-80g-4x"];
        let sizes = ["--dim", "batch=4", "--dim", "sequence=16", "--mesh", "4"];
        works(&[&fixed[..], &sizes, &TRAINED].concat());
        let bridge = exported(&folder, &plan, "bridge");
        assert_eq!(bridge.contains("position_embedding_type: rope"), told, "{bridge}");
        assert!(exported(&folder, &plan, "megatron").contains("--position-embedding-type rope"));
    }
}

/// A setup for a framework is chosen by what that does, also where the time of a plan there is not known since the
/// framework's narrow products are others.
#[test]
fn plans_of_narrow_products_are_setups_of_frameworks() {
    let folder = Folder::new("scored-narrow");
    let said = chosen(&folder, &experts(8), (16, "fp8"), &[]);
    assert!(said.contains("not known: experts are in bf16"), "{said}");
}

/// What is no setup of a framework has no time there, and the reason is said.
#[test]
fn what_no_setup_says_is_not_expected_to_take_a_time() {
    let folder = Folder::new("scored-unlike");
    let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config(2)).unwrap();
    let fixed =
        ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-4x", "--mesh", "4", "--json"];
    let sizes = ["--dim", "batch=4", "--dim", "sequence=16", "--for", "megatron"];
    for (more, why) in [
        (&["--freeze", "*.mlp.*"][..], "frozen"),
        (&["--optimizer", "sgd"], "AdamW"),
        (&["--precision", "fp32"], "16 bits"),
    ] {
        let trained: Vec<&str> = match more {
            ["--precision", _] => ["--mode", "train", "--loss", "loss"].to_vec(),
            _ => TRAINED.to_vec(),
        };
        let said: Value =
            serde_json::from_str(&works(&[&fixed[..], &sizes, &trained, more].concat())).unwrap();
        let unknown = said["expected"]["unknown"].as_str().unwrap_or_default();
        assert!(unknown.contains(why), "{more:?}: {}", said["expected"]);
    }
}
