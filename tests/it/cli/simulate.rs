//! `simulate`: what it says and writes, and what it refuses.

use std::fs;

use serde_json::Value;

use super::{Folder, fails, planned, shardloom, works};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&works(&[&["--json"], arguments].concat())).unwrap()
}

#[test]
fn a_plan_is_simulated_and_drawn() {
    let folder = Folder::new("simulated");
    let plan = planned(&folder, "plan.json", &["--mesh", "2x2"]);
    let (trace, memory) = (folder.path("trace.json"), folder.path("memory.json"));
    let text = works(&["simulate", &plan, "--trace", &trace, "--memory-trace", &memory]);
    assert!(text.contains("cpu-4x, mesh 2x2") && text.contains("ui.perfetto.dev"), "{text}");
    let said = json(&["simulate", &plan]);
    let number = |name: &str| said[name].as_f64().unwrap();
    let ranks: usize =
        said["classes"].as_array().unwrap().iter().map(|it| it["ranks"].as_array().unwrap().len()).sum();
    assert_eq!(ranks, 4);
    let whole = number("seconds") + number("hidden_seconds");
    assert!((whole / number("estimated_seconds") - 1.0).abs() < 0.05, "{said}");
    for (path, phase) in [(&trace, "X"), (&memory, "C")] {
        let read: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let events = read["traceEvents"].as_array().unwrap();
        let tracks: std::collections::BTreeSet<u64> =
            events.iter().filter(|it| it["ph"] == phase).map(|it| it["pid"].as_u64().unwrap()).collect();
        assert_eq!(tracks, (0..4).collect());
    }
    // One after another nothing is hidden, and the step is no shorter.
    let one_by_one = json(&["simulate", &plan, "--one-by-one"]);
    assert!(one_by_one["seconds"].as_f64().unwrap() >= number("seconds"));
    assert_eq!(json(&["simulate", &plan]), said);
}

#[test]
fn a_plan_is_simulated_on_another_machine_of_as_many_devices() {
    let folder = Folder::new("simulated-elsewhere");
    let plan = planned(&folder, "plan.json", &[]);
    let elsewhere = json(&["simulate", &plan, "--machine", "h100-80g-4x"]);
    assert_eq!(elsewhere["machine"], "h100-80g-4x");
    assert_ne!(elsewhere["seconds"], json(&["simulate", &plan])["seconds"]);
    // A machine file does not say how many devices there are: as many as the plan has.
    let file = folder.path("machine.json");
    fs::write(&file, works(&["--json", "machines", "show", "h100-80g-4x"])).unwrap();
    assert_eq!(json(&["simulate", &plan, "--machine", &file])["seconds"], elsewhere["seconds"]);
}

#[test]
fn what_cannot_be_simulated_is_said() {
    let folder = Folder::new("not-simulated");
    let plan = planned(&folder, "plan.json", &[]);
    let message = fails(2, &["simulate", &plan, "--machine", "h100-80g-8x"]);
    assert!(message.contains("for 4 devices") && message.contains("h100-80g-8x has 8"), "{message}");
    assert!(fails(2, &["simulate", &folder.path("missing.json")]).contains("missing.json"));
    assert!(fails(2, &["simulate", &plan, "--machine", &folder.path("no.json")]).contains("no.json"));

    let broken = folder.path("broken.json");
    let machine = works(&["--json", "machines", "show", "h100-80g-4x"]);
    fs::write(&broken, machine.replacen("\"value\": 8", "\"value\": -8", 1)).unwrap();
    let message = fails(2, &["simulate", &plan, "--machine", &broken]);
    assert!(message.contains("broken.json"), "{message}");

    let changed = folder.path("changed.json");
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(&changed, text.replacen("cpu-4x", "cpu-5x", 1)).unwrap();
    assert!(fails(2, &["simulate", &changed]).contains("changed.json"));
}

#[test]
fn traces_are_there_whole_or_not_at_all() {
    let folder = Folder::new("no-trace");
    let plan = planned(&folder, "plan.json", &[]);
    let nowhere = folder.path("nowhere/trace.json");
    for option in ["--trace", "--memory-trace"] {
        let message = fails(2, &["simulate", &plan, option, &nowhere]);
        assert!(message.contains("nowhere/trace.json: cannot be written"), "{message}");
    }
    assert!(fails(1, &["simulate", &plan, "--trace", &plan]).contains("would be written over"));
    let before = fs::read_to_string(&plan).unwrap();
    let left = shardloom(&["simulate", &plan, "--trace", "/dev/full"]);
    assert_eq!(left.code, 7, "{}", left.err);
    assert_eq!(fs::read_to_string(&plan).unwrap(), before);
    let files = fs::read_dir(folder.path("")).unwrap().count();
    assert_eq!(files, 1, "nothing half written is left");
}

/// A pipeline of the small model in training.
fn staged(folder: &Folder, more: &[&str]) -> String {
    let plan = folder.path("pipeline.json");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/gpt2-bytes.onnx");
    let sizes = ["--dim", "sequence=32", "--microbatches", "4"];
    let training = ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--recompute", "none"];
    works(&[&["plan", model, "-o", &plan], &sizes[..], &training[..], more].concat());
    plan
}

/// What operations wait for is what is exposed, but for what is exchanged after the last of them.
#[test]
fn what_computing_waits_for_is_said() {
    let folder = Folder::new("simulated-waits");
    let plan = staged(&folder, &["--machine", "cpu-4x", "--mesh", "2x2", "--dim", "batch=24"]);
    for class in json(&["simulate", &plan])["classes"].as_array().unwrap() {
        let waited = class["waited"].as_array().unwrap();
        let seconds: f64 = waited.iter().map(|it| it["seconds"].as_f64().unwrap()).sum();
        let [all, computing] = ["seconds", "computing_seconds"].map(|it| class[it].as_f64().unwrap());
        assert!(seconds > 0.0 && seconds <= (all - computing) * (1.0 + 1e-6), "{class}");
        for it in waited {
            assert!(it["count"].as_u64().unwrap() > 0 && it["seconds"].as_f64().unwrap() > 0.0, "{it}");
            assert!(["result", "place", "turn"].contains(&it["why"].as_str().unwrap()), "{it}");
        }
    }
}

#[test]
fn a_pipeline_is_simulated_explained_checked_and_compared() {
    let folder = Folder::new("simulated-pipeline");
    let options = ["--machine", "cpu-4x", "--stages", "2", "--mesh", "2", "--schedule", "eager-1f1b"];
    let plan = staged(&folder, &[&options[..], &["--dim", "batch=2"]].concat());
    let trace = folder.path("trace.json");
    assert!(works(&["simulate", &plan, "--trace", &trace]).contains("2 stages on 2 groups"));
    let said = json(&["simulate", &plan]);
    let classes = said["classes"].as_array().unwrap();
    let ranks: usize = classes.iter().map(|it| it["ranks"].as_array().unwrap().len()).sum();
    assert_eq!(ranks, 4);
    assert_eq!(json(&["simulate", &plan]), said);
    let read: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    let events = read["traceEvents"].as_array().unwrap();
    let names: Vec<&str> = events.iter().filter_map(|it| it["args"]["name"].as_str()).collect();
    assert!(names.contains(&"rank 3, stage 1") && names.contains(&"sending"), "{names:?}");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/gpt2-bytes.onnx");
    assert!(works(&["check", &plan, "--model", model]).contains("cut as it says"));
    let picture = folder.path("schedule.svg");
    let told = works(&["explain", &plan, "--svg", &picture]);
    assert!(told.contains("eager-1f1b: 2 stages") && told.contains("from stage 0 to stage 1"), "{told}");
    assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    assert!(works(&["diff", &plan, &plan]).contains("schedule    the same"));
    assert!(fails(2, &["run", &plan]).contains("is a pipeline of 2 stages"));
}

/// How far what is predicted of a step may be from what its programs take by the clock.
const NEAR: f64 = 0.05;

/// How much more is predicted where devices exchange much that is small: programs do it at once.
const SMALL: f64 = 0.30;

#[test]
fn estimates_of_pipelines_are_near_what_programs_take() {
    let folder = Folder::new("near-pipelines");
    let mut wrong = Vec::new();
    let mut near = |more: &[&str]| {
        let said = json(&["simulate", &staged(&folder, more)]);
        let number = |name: &str| said[name].as_f64().unwrap();
        let ratio = number("estimated_seconds") / (number("seconds") + number("hidden_seconds"));
        let alone = more.windows(2).any(|it| it == ["--mesh", "1"]);
        let more_than = if alone { NEAR } else { SMALL };
        if ratio < 1.0 - NEAR || ratio > 1.0 + more_than {
            wrong.push(format!("{more:?}: {ratio:.3}"));
        }
    };
    let one = ["--mesh", "1", "--dim", "batch=2"];
    let two = ["--mesh", "2", "--dim", "batch=16"];
    let kinds = ["gpipe", "1f1b", "1f1b-delayed", "eager-1f1b", "eager-1f1b-delayed", "zb-h1", "zb-h2"];
    for kind in kinds {
        let with = ["--schedule", kind, "--stages"];
        near(&[&with[..], &["2", "--machine", "cpu-2x"], &one].concat());
        near(&[&with[..], &["4", "--machine", "cpu-4x"], &one].concat());
        near(&[&with[..], &["2", "--machine", "cpu-4x"], &two].concat());
    }
    for kind in ["interleaved", "interleaved-delayed"] {
        let with = ["--schedule", kind, "--chunks", "2", "--stages", "2"];
        near(&[&with[..], &["--machine", "cpu-2x"], &one].concat());
        near(&[&with[..], &["--machine", "cpu-4x"], &two].concat());
    }
    near(&[&["--schedule", "zb-h1", "--stages", "4", "--machine", "cpu-8x"], &two[..]].concat());
    near(&["--stages", "1,2,1", "--machine", "cpu-4x", "--dim", "batch=16"]);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
