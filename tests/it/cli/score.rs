//! Configurations of frameworks, scored: the price of `predict`, the best of all setups, and changes that help.

use std::fs;

use serde_json::Value;

use super::{Folder, fails, works};
use crate::pages::compare;
use crate::tidy::root;

fn at(path: &str) -> String {
    root().join("tests").join(path).to_str().unwrap().to_owned()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The answer for a configuration, whose price is that of `predict` for the setup that it writes.
fn scored(arguments: &[&str]) -> Value {
    let folder = Folder::new(&format!("score-{}", arguments[0].trim_matches('-')));
    let setup = folder.path("setup.toml");
    let text = works(&[&["score", "--json", "-o", &setup], arguments].concat());
    let value: Value = serde_json::from_str(&text).unwrap();
    let predicted: Value = serde_json::from_str(&works(&["predict", "--json", "--config", &setup])).unwrap();
    for key in ["seconds", "memory_bytes", "room_bytes", "fits", "terms", "memory", "mfu"] {
        assert_eq!(value[key], predicted[key], "{key}");
    }
    laws(&value);
    value
}

/// Changes never make a step longer, nor does freedom.
fn laws(value: &Value) {
    let now = number(&value["seconds"]);
    let (best, overall) = (number(&value["best"]["seconds"]), number(&value["overall"]["seconds"]));
    assert!(overall <= best, "{overall} {best}");
    let stages = value["stages"].as_array().unwrap();
    let fullest = stages.iter().map(|it| number(&it["memory_bytes"])).fold(0.0, f64::max);
    assert!((fullest / number(&value["memory_bytes"]) - 1.0).abs() < 1e-9);
    let changes = value["changes"].as_array().unwrap();
    assert!(!changes.is_empty() && changes.len() <= 3, "{changes:?}");
    for change in changes {
        let after = number(&change["seconds"]);
        assert!(best <= after, "{best} {after}");
        assert!(value["fits"] == false || after < now, "{after} {now}");
        assert!((1..=2).contains(&change["changes"].as_array().unwrap().len()), "{change}");
    }
    assert!(value["fits"] == false || best <= now);
    assert_eq!(value["not_understood"].as_array().unwrap().len(), 0);
}

/// Each framework's words, read and answered: what is said of everything that the files state.
#[test]
fn answers_are_told_in_full() {
    let config = at("configs/llama3_8b.json");
    for (option, file, machine, more) in [
        ("--megatron", "mixtral-8x7b.sh", "h100-80g-64x", &[][..]),
        ("--bridge", "deepseek-v3.yaml", "h100-80g-1024x", &[]),
        ("--torchtitan", "llama3-8b.toml", "h100-80g-8x", &[]),
        ("--deepspeed", "llama3-8b-zero3.json", "h100-80g-16x", &["--config", &config, "--sequence", "4096"]),
    ] {
        let path = at(&format!("cases/score/{file}"));
        let said = works(&[&["score", option, &path, "--machine", machine], more].concat());
        let (name, _) = file.rsplit_once('.').unwrap();
        compare(&format!("tests/cases/score/{name}.txt"), &said);
    }
}

#[test]
fn arguments_of_megatron_are_scored() {
    let script = at("cases/score/llama3-70b.sh");
    let value = scored(&["--megatron", &script, "--machine", "h100-80g-64x"]);
    assert_eq!((&value["setup"]["world_size"], &value["fits"]), (&Value::from(64), &Value::from(true)));
    assert_eq!(value["stages"].as_array().unwrap().len(), 8);
}

#[test]
fn a_configuration_of_torchtitan_is_scored() {
    let config = at("cases/score/llama3-8b.toml");
    scored(&["--torchtitan", &config, "--machine", "h100-80g-8x"]);
}

/// The worst load of experts stands beside the even one: it is what `predict` says of a setup with that imbalance,
/// never less than with less, and if it alone does not fit, what makes it fit is told.
#[test]
fn the_worst_load_of_experts_is_told() {
    let folder = Folder::new("score-worst");
    let (script, setup) = (at("cases/score/mixtral-8x7b.sh"), folder.path("setup.toml"));
    let call = ["score", "--megatron", &script, "--machine", "h100-80g-64x", "--json"];
    let loads = [Some("1"), Some("1.3"), None, Some("3"), Some("100")];
    let mut before: Option<Value> = None;
    for load in loads {
        let more = load.map_or(vec!["-o", &setup], |it| vec!["--imbalance", it]);
        let value: Value = serde_json::from_str(&works(&[&call[..], &more].concat())).unwrap();
        let worst = &value["worst_load"];
        let before = before.replace(worst.clone()).unwrap_or_else(|| {
            // At 1 it is the even one.
            for key in ["seconds", "memory_bytes", "fits", "stages"] {
                assert_eq!(worst[key], value[key], "{key}");
            }
            worst.clone()
        });
        for key in ["imbalance", "seconds", "memory_bytes"] {
            assert!(number(&before[key]) <= number(&worst[key]), "{load:?} {key}: {before} {worst}");
        }
        for (one, other) in
            before["stages"].as_array().unwrap().iter().zip(worst["stages"].as_array().unwrap())
        {
            assert!(number(&one["memory_bytes"]) <= number(&other["memory_bytes"]), "{one} {other}");
        }
        let source = worst["source"].as_str().unwrap();
        assert_eq!(source == "--imbalance", load.is_some(), "{source}");
        let changes = worst["changes"].as_array().unwrap();
        assert_eq!(changes.is_empty(), worst["fits"] == true, "{worst}");
        for change in changes {
            assert!(number(&change["memory_bytes"]) < number(&worst["memory_bytes"]), "{change}");
        }
        if load.is_none() {
            let stated = fs::read_to_string(&setup).unwrap() + "moe_load_imbalance = 1.72\n";
            fs::write(&setup, stated).unwrap();
            let call = ["predict", "--json", "--config", &setup];
            let predicted: Value = serde_json::from_str(&works(&call)).unwrap();
            for key in ["seconds", "memory_bytes", "fits"] {
                assert_eq!(worst[key], predicted[key], "{key}");
            }
        }
    }
    // Of two experts of a token, the one on the busiest rank has one of eight: four times its share.
    assert_eq!(number(&before.unwrap()["imbalance"]).to_bits(), 4.0_f64.to_bits());
    let text = works(&[&call[..5], &["--imbalance", "3"]].concat());
    assert!(text.contains(" worst load\n") && text.contains("\n  fits with   "), "{text}");
    let dense = at("cases/score/llama3-70b.sh");
    let call = ["score", "--megatron", &dense, "--machine", "h100-80g-64x", "--json"];
    assert_eq!(serde_json::from_str::<Value>(&works(&call)).unwrap()["worst_load"], Value::Null);
}

/// The version that is priced: of another year a step is shorter by the trend of the figures, as the table of recipes
/// says, and the setup that is written has it; frameworks without a trend have no years.
#[test]
fn the_year_of_a_framework_is_asked_for() {
    let recipe = "llama3_70b_64gpu_gb200_fp8mx";
    let file = at(&format!("cases/score/bridge/{recipe}.yaml"));
    let call = ["--bridge", &file, "--machine", "gb200-186g-64x"];
    let [before, after] = [&[][..], &["--framework-year", "2026"]].map(|more| {
        let value = scored(&[&call, more].concat());
        (number(&value["seconds"]), value["framework_year"].clone())
    });
    let page = fs::read_to_string(root().join("docs/score.md")).unwrap();
    let row = page.lines().find(|line| line.starts_with(&format!("| {recipe} "))).unwrap();
    assert!(row.contains(&format!("| {:.2} s | {:.2} s |", before.0, after.0)), "{before:?} {after:?} {row}");
    assert_eq!((&before.1["year"], number(&before.1["factor"]).to_bits()), (&Value::Null, 1.0_f64.to_bits()));
    assert_eq!(
        (&after.1["year"], number(&after.1["figures_of"]).to_bits()),
        (&Value::from(2026), 2024.0_f64.to_bits())
    );
    let text = works(&[&["score"], &call[..], &["--framework-year", "2026"]].concat());
    let line = "version       that of 2026: 0.907 times the step of 2024, which the figures are of\n";
    assert!(text.contains(line), "{text}");
    let script = at("cases/score/llama3-70b.sh");
    let call = ["score", "--megatron", &script, "--machine", "h100-80g-64x", "--framework-year", "2026"];
    let expected = "error: `--framework-year` goes with `--bridge`: the figures of the other frameworks have no trend by the year\n";
    assert_eq!(fails(1, &call), expected);
    let call = ["score", "--bridge", &file, "--machine", "gb200-186g-64x", "--framework-year", "7"];
    assert!(fails(1, &call).contains("expected a year from 2017 to 2099"));
}

/// A setup that does not fit is told what makes it fit, and what the step takes then.
#[test]
fn what_does_not_fit_is_told_how_to() {
    let folder = Folder::new("score-full");
    let config = folder.path("large.toml");
    let text = fs::read_to_string(at("cases/score/llama3-8b.toml")).unwrap();
    fs::write(&config, text.replace("local_batch_size = 1", "local_batch_size = 8")).unwrap();
    let arguments = ["score", "--torchtitan", &config, "--machine", "h100-80g-8x"];
    let value: Value = serde_json::from_str(&works(&[&arguments[..], &["--json"]].concat())).unwrap();
    assert_eq!(value["fits"], false);
    for change in value["changes"].as_array().unwrap() {
        assert!(number(&change["memory_bytes"]) < number(&value["memory_bytes"]), "{change}");
    }
    laws(&value);
    let text = works(&arguments);
    assert!(text.contains("does not fit") && text.contains(" a device: fits"), "{text}");
}

/// DeepSpeed states neither the model nor the length of examples; what it does not know is said loudly.
#[test]
fn a_configuration_of_deepspeed_needs_a_model() {
    let (config, model) = (at("cases/score/llama3-8b-zero3.json"), at("configs/llama3_8b.json"));
    let machine = ["--machine", "a100-80g-16x"];
    let call = [&["score", "--deepspeed", &config], &machine[..]].concat();
    let expected = "does not state the sizes of the model; give its `config.json` with --config";
    assert_eq!(fails(2, &call), format!("error: {config}: {expected}\n"));
    let call = [&call[..], &["--config", &model]].concat();
    let expected = "does not state how long an example is; say it with --sequence TOKENS";
    assert_eq!(fails(2, &call), format!("error: {config}: {expected}\n"));
    let text = works(&[&call[..], &["--sequence", "4096"]].concat());
    assert!(text.contains("NOT UNDERSTOOD zero_hpz: 3"), "{text}");
}

/// Every argument that an export writes is understood.
#[test]
fn exports_are_understood() {
    for (name, option) in [("megatron", "--megatron"), ("torchtitan", "--torchtitan")] {
        let text = fs::read_to_string(at(&format!("cases/export/pipeline-{name}.txt"))).unwrap();
        let folder = Folder::new(&format!("score-export-{name}"));
        let file = folder.path("exported");
        // What comes after the line that names the file.
        let written = text.split("---- ").nth(if name == "megatron" { 1 } else { 2 }).unwrap();
        fs::write(&file, written.split_once('\n').unwrap().1).unwrap();
        let model = folder.path("config.json");
        fs::write(&model, CONFIG).unwrap();
        let call = ["score", option, &file, "--machine", "h100-80g-4x", "--config", &model, "--json"];
        let value: Value = serde_json::from_str(&works(&call)).unwrap();
        assert_eq!(value["not_understood"].as_array().unwrap().len(), 0, "{name}: {value}");
        assert_eq!(value["setup"]["pipeline_model_parallel_size"], 2, "{name}");
        assert_eq!(value["setup"]["pipeline_layers"], serde_json::json!([3, 2]), "{name}");
    }
}

/// The model that was exported.
const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "tie_word_embeddings": false}"#;
