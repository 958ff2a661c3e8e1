//! `train`, from a plan file to weights: what users do, and what they do wrong.
//!
//! These tests stand here because the last one needs the program itself: it is killed.

mod rounded; // parameters in bf16 alone

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kernels::Array;
use serde_json::Value;

/// How many different tokens the model knows.
const VOCABULARY: u64 = 211;

/// A folder of one test, which goes away with it.
struct Folder(PathBuf);

impl Folder {
    /// With the data and plans for 1 and 2 ranks, and for 2 with two micro-batches in a step.
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-train-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        let tokens: Vec<u8> =
            (0..2000_u64).map(|it| u8::try_from(it * it / 7 % VOCABULARY).unwrap()).collect();
        fs::write(folder.path("text.bin"), tokens).unwrap();
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn plan(&self, name: &str, mesh: &str, more: &[&str]) -> String {
        let (plan, model) = (self.path(name), model());
        let machine = format!("cpu-{}x", mesh.rsplit('=').next().unwrap());
        let common = ["plan", &model, "--mode", "train", "--loss", "loss", "-o", &plan];
        let sizes = ["--machine", &machine, "--mesh", mesh, "--dim", "batch=4", "--dim", "seq=16"];
        works(&[&common[..], &sizes, more].concat());
        plan
    }

    /// Trains with a plan on the text; what is printed.
    fn train(&self, plan: &str, weights: &str, more: &[&str]) -> String {
        works(&self.training(plan, weights, more).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn training(&self, plan: &str, weights: &str, more: &[&str]) -> Vec<String> {
        let (data, weights) = (self.path("text.bin"), self.path(weights));
        let common = ["train", plan, "--data", &data, "--tokens", "u8", "--weights", &weights];
        [&common[..], more].concat().into_iter().map(str::to_owned).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn model() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/gpt2-loss.onnx");
    path.to_str().unwrap().to_owned()
}

fn shardloom(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = ["shardloom".to_owned()].into_iter().chain(crate::forced(arguments));
    let code = shardloom::main_with(all, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

/// What is printed by a command that has to work.
#[track_caller]
fn works(arguments: &[&str]) -> String {
    let (code, out, err) = shardloom(arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    out
}

/// The message of a command that has to fail with this exit code, and say these things.
#[track_caller]
fn fails(code: u8, arguments: &[String], parts: &[&str]) {
    let (found, out, err) = shardloom(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(found, code, "{arguments:?}: {out}{err}");
    for part in parts {
        assert!(err.contains(part), "no `{part}` in: {err}");
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is the same when a step is done again.
fn lasting(text: &str) -> Vec<[Value; 4]> {
    let fields = ["step", "loss", "learning_rate", "tokens"];
    lines(text).iter().map(|line| fields.map(|field| line[field].clone())).collect()
}

fn read(folder: &Folder, name: &str) -> BTreeMap<String, Array> {
    files::arrays::read(&folder.0.join(name)).unwrap()
}

/// The largest difference of two files of weights.
fn distance(a: &BTreeMap<String, Array>, b: &BTreeMap<String, Array>) -> f64 {
    assert!(!a.is_empty() && a.keys().eq(b.keys()));
    let apart = |(a, b): (&Array, &Array)| {
        let (a, b) = (a.to_floats().unwrap(), b.to_floats().unwrap());
        a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    a.values().zip(b.values()).map(apart).fold(0.0, f64::max)
}

#[test]
fn a_run_that_goes_on_is_the_run_that_was_not_stopped() {
    let folder = Folder::new("resume");
    let two = folder.plan("two.json", "data=2", &["--clip", "1"]);
    let one = folder.plan("one.json", "data=1", &["--clip", "1"]);
    let (log, checkpoints) = (folder.path("log.jsonl"), folder.path("checkpoints"));
    let common = ["--lr", "1e-2", "--seed", "3", "--log", &log];
    let whole = folder.train(&two, "whole.safetensors", &[&common[..], &["--steps", "10"]].concat());
    let first: Vec<&str> = whole.lines().next().unwrap().split("  ").collect();
    assert_eq!((first[0], first[2]), ("step 1", "lr 1.0e-2"), "{whole}");
    assert!(first[1].starts_with("loss 7.") && first[3].starts_with("norm "), "{whole}");
    let expected = lasting(&String::from_utf8(folder.bytes("log.jsonl")).unwrap());
    assert_eq!(expected.len(), 10);
    assert!(expected[9][1].as_f64().unwrap() < expected[0][1].as_f64().unwrap() - 0.1, "{expected:?}");
    // Half, and the other half.
    let into = ["--checkpoint", &checkpoints, "--every", "5"];
    let half = [&common[..], &into, &["--steps", "5"]].concat();
    folder.train(&two, "half.safetensors", &half);
    let rest = ["--lr", "1e-2", "--steps", "10", "--resume", &checkpoints, "--log", &log];
    folder.train(&two, "rest.safetensors", &[&rest[..], &into].concat());
    assert!(folder.bytes("rest.safetensors") == folder.bytes("whole.safetensors"), "other weights");
    assert_eq!(lasting(&String::from_utf8(folder.bytes("log.jsonl")).unwrap()), expected);
    // The other half on another number of ranks, from the checkpoint that is asked for.
    let from = folder.path("checkpoints/step-000005");
    let said = folder.train(
        &one,
        "one.safetensors",
        &["--lr", "1e-2", "--steps", "10", "--resume", &from, "--json"],
    );
    let whole = read(&folder, "whole.safetensors");
    assert!(distance(&read(&folder, "one.safetensors"), &whole) < 1e-4);
    assert!(distance(&read(&folder, "half.safetensors"), &whole) > 1e-3);
    let said = lines(&said);
    assert_eq!((said.len(), &said[5]["steps"]), (6, &Value::from(10)));
    let apart = (said[4]["loss"].as_f64().unwrap() - expected[9][1].as_f64().unwrap()).abs();
    assert!(apart < 1e-4, "{apart}");
}

#[test]
fn an_exported_model_has_the_trained_weights_and_trains_on() {
    let folder = Folder::new("export");
    let plan = folder.plan("plan.json", "data=2", &["--microbatches", "2", "--optimizer", "sgd-momentum"]);
    let export = folder.path("trained.onnx");
    let more = ["--lr", "5e-2", "--steps", "6", "--schedule", "cosine", "--warmup", "2", "--export", &export];
    let said = folder.train(&plan, "w.safetensors", &[&more[..], &["--json"]].concat());
    let said = lines(&said);
    let rates: Vec<f64> = said[..6].iter().map(|line| line["learning_rate"].as_f64().unwrap()).collect();
    assert!((rates[0] - 0.025).abs() < 1e-12 && (rates[1] - 0.05).abs() < 1e-12 && rates[5].abs() < 1e-12);
    let after = files::model_file::open(Path::new(&export)).unwrap();
    let before = files::model_file::open(Path::new(&model())).unwrap();
    let trained = read(&folder, "w.safetensors");
    assert_eq!(after.model.weights(), before.model.weights());
    for (name, _) in before.model.weights() {
        let expected = trained.get(name).cloned().unwrap_or_else(|| run::whole(&before, name).unwrap());
        assert_eq!(run::whole(&after, name).unwrap(), expected, "{name}");
    }
    assert!(
        distance(
            &trained,
            &trained.keys().map(|it| (it.clone(), run::whole(&before, it).unwrap())).collect()
        ) > 1e-3
    );
    let again = folder.path("again.json");
    let sizes = ["--dim", "batch=4", "--dim", "seq=16", "-o", &again];
    let common = ["plan", &export, "--mode", "train", "--loss", "loss", "--machine", "cpu-1x"];
    works(&[&common[..], &sizes].concat());
    let next = lines(&folder.train(&again, "n.safetensors", &["--lr", "0", "--steps", "1", "--json"]));
    let (first, next) = (said[0]["loss"].as_f64().unwrap(), next[0]["loss"].as_f64().unwrap());
    assert!(next < first - 0.1, "{first} {next}");
}

#[test]
fn arrays_are_examples_and_each_number_is_in_its_range() {
    let folder = Folder::new("arrays");
    let plan = folder.plan("plan.json", "data=2", &[]);
    let data = folder.path("data.npz");
    let ids: Vec<i64> = (0..7 * 16).map(|it| it * 31 % 211).collect();
    let train = |change: &dyn Fn(&mut BTreeMap<String, Array>)| {
        let shape = sequence(&plan, 7);
        let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
        let ids: Vec<i64> = ids.iter().cycle().take(count).copied().collect();
        let array = |numbers: &[i64]| Array::of::<i64>(shape.clone(), numbers).unwrap();
        let mut arrays: BTreeMap<String, Array> = BTreeMap::from([
            ("input_ids".to_owned(), array(&ids)),
            ("attention_mask".to_owned(), array(&vec![1; count])),
            ("labels".to_owned(), array(&ids)),
        ]);
        change(&mut arrays);
        files::arrays::write(Path::new(&data), &arrays).unwrap();
        let weights = folder.path("w.safetensors");
        let arguments =
            ["train", &plan, "--data", &data, "--weights", &weights, "--steps", "4", "--lr", "1e-3"];
        arguments.map(str::to_owned).to_vec()
    };
    let arguments = train(&|_| {});
    works(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let changed = |name: &'static str, number: i64| {
        move |arrays: &mut BTreeMap<String, Array>| {
            let shape = arrays[name].shape().to_vec();
            let mut numbers = arrays[name].to_integers().unwrap();
            let length = usize::try_from(shape[1]).unwrap();
            numbers[5 * length + 3] = number;
            arrays.insert(name.to_owned(), Array::of::<i64>(shape, &numbers).unwrap());
        }
    };
    fs::remove_file(folder.path("w.safetensors")).unwrap();
    let place =
        ["example 5 of ", "data.npz: `labels` is 211 at [", ", 3]: there are 211 classes, and -100 for none"];
    fails(2, &train(&changed("labels", 211)), &place);
    fails(2, &train(&changed("labels", -1)), &["`labels` is -1"]);
    fails(2, &train(&changed("input_ids", 4000)), &["example 5 of ", "`input_ids` is 4000", "has 211 rows"]);
    let none = |arrays: &mut BTreeMap<String, Array>| drop(arrays.remove("labels"));
    fails(2, &train(&none), &["data.npz: has no array for input `labels` i64["]);
    assert!(!folder.0.join("w.safetensors").exists());
    works(&train(&changed("labels", -100)).iter().map(String::as_str).collect::<Vec<_>>());
}

/// The shape of tokens in a plan, with another number of examples.
fn sequence(plan: &str, examples: u64) -> Vec<u64> {
    let plan = plan::json::read(&fs::read(plan).unwrap()).unwrap();
    let tokens = plan.graph.values.iter().find_map(|value| match &value.source {
        planner_ir::Source::Input(name) if name == "input_ids" => Some(value.type_.shape[1]),
        _ => None,
    });
    vec![examples, tokens.unwrap()]
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_and_nothing_is_written_over() {
    let folder = Folder::new("nan");
    let plan = folder.plan("plan.json", "data=2", &["--optimizer", "sgd"]);
    let checkpoints = folder.path("checkpoints");
    fs::write(folder.path("w.safetensors"), "before").unwrap();
    let more = ["--lr", "1e30", "--steps", "9", "--checkpoint", &checkpoints, "--every", "1"];
    let parts = ["the loss is ", "what is not finite first is ", "no weights are written", "step-00000"];
    fails(2, &folder.training(&plan, "w.safetensors", &more), &parts);
    assert_eq!(folder.bytes("w.safetensors"), b"before");
    let latest = String::from_utf8(folder.bytes("checkpoints/latest")).unwrap();
    assert!(folder.0.join("checkpoints").join(latest.trim()).join("manifest.json").exists());
}

#[test]
fn what_makes_no_sense_is_said_before_a_step() {
    let folder = Folder::new("wrong");
    let plan = folder.plan("plan.json", "data=1", &[]);
    let checkpoints = folder.path("checkpoints");
    let steps = ["--lr", "1e-3", "--steps"];
    let training = |more: &[&str]| folder.training(&plan, "w.safetensors", more);
    let into = ["--checkpoint", &checkpoints, "--every", "2"];
    folder.train(&plan, "w.safetensors", &[&steps[..], &["4"], &into].concat());
    fails(
        1,
        &training(&[&steps[..], &["9"], &into].concat()),
        &["has checkpoints already, the last of step 4"],
    );
    let resume = [&steps[..], &["9"], &["--resume", &checkpoints]].concat();
    fails(1, &training(&[&resume[..], &["--seed", "9"]].concat()), &["`--seed 9`", "has seed 0"]);
    fails(1, &training(&[&steps[..], &["3", "--resume", &checkpoints]].concat()), &["`--steps 3`", "step 4"]);
    fails(1, &training(&[&steps[..], &["3", "--keep", "2"]].concat()), &["--checkpoint"]);
    let weights = folder.path("w.safetensors");
    fails(1, &training(&[&steps[..], &["3", "--log", &weights]].concat()), &["the name of two outputs"]);
    fails(1, &training(&[&steps[..], &["3", "--export", &model()]].concat()), &["would be written over"]);
    let nowhere = folder.path("nowhere");
    fails(
        2,
        &training(&[&steps[..], &["3", "--resume", &nowhere]].concat()),
        &["nowhere: has no checkpoints"],
    );
    fails(1, &training(&["--lr=-1", "--steps", "3"]), &["3e-4"]);
    let momentum = folder.plan("momentum.json", "data=1", &["--optimizer", "sgd-momentum"]);
    let wrong = [
        "plan",
        &model(),
        "--mode",
        "train",
        "--loss",
        "loss",
        "--machine",
        "cpu-1x",
        "--dim",
        "batch=4",
        "--dim",
        "seq=16",
        "--betas",
        "0.9,0.9",
    ];
    let wrong = [&wrong[..], &["--optimizer", "sgd"]].concat().into_iter().map(str::to_owned);
    fails(1, &wrong.collect::<Vec<_>>(), &["`--betas` goes with `--optimizer adamw`"]);
    let other = folder.training(&momentum, "w.safetensors", &resume);
    fails(2, &other, &["step-000004: is of a run whose optimizer is adamw; here it is sgd-momentum"]);
    let damaged = folder.path("checkpoints/step-000004/first_moment.safetensors");
    let mut bytes = fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 4;
    fs::write(&damaged, bytes).unwrap();
    let older = folder.path("checkpoints/step-000002");
    let parts = ["step-000004/first_moment.safetensors: is damaged", &format!("--resume {older}")];
    fails(2, &training(&resume), &parts);
    // From the older one the damaged one is replaced.
    folder.train(&plan, "w.safetensors", &[&steps[..], &["4", "--resume", &older], &into].concat());
    folder.train(&plan, "w.safetensors", &[&steps[..], &["5", "--resume", &checkpoints]].concat());
    fs::write(folder.path("text.bin"), [0; 20]).unwrap();
    fails(2, &training(&[&steps[..], &["3"]].concat()), &["text.bin: has"]);
    fs::write(folder.path("text.bin"), [200; 400]).unwrap();
    let wide = training(&[&steps[..], &["3"]].concat());
    let wide: Vec<String> =
        wide.into_iter().map(|it| if it == "u8" { "u16".to_owned() } else { it }).collect();
    fails(
        2,
        &wide,
        &["`input_ids` is 51400", "has 211 rows; tokens are read as u16: `--tokens` says how wide"],
    );
    let (model, inference) = (model(), folder.path("inference.json"));
    let sizes = ["--dim", "batch=4", "--dim", "seq=16", "-o", &inference];
    works(&[&["plan", &model, "--machine", "cpu-1x"][..], &sizes].concat());
    let arguments = folder.training(&inference, "w.safetensors", &[&steps[..], &["3"]].concat());
    fails(2, &arguments, &["inference.json: is a plan to run, not to train"]);
}

#[test]
fn a_run_goes_on_as_it_was_unless_changes_are_asked_for() {
    let folder = Folder::new("changes");
    let plan = folder.plan("plan.json", "data=1", &["--clip", "1"]);
    let checkpoints = folder.path("checkpoints");
    let steps = ["--lr", "1e-3", "--steps"];
    let into = ["--checkpoint", &checkpoints];
    folder.train(&plan, "w.safetensors", &[&steps[..], &["2"], &into].concat());
    let resume = [&steps[..], &["3", "--resume", &checkpoints]].concat();
    let hint = "; if that is meant, go on with `--accept-changes`";
    for (options, before, now) in [
        (&["--clip", "2"][..], "clipping is 1", "2"),
        (&[], "clipping is 1", "none"),
        (&["--clip", "1", "--weight-decay", "0.5"], "weight decay is 0", "0.5"),
        (&["--clip", "1", "--no-decay", "vectors"], "parameters without decay is none", "vectors"),
        (&["--clip", "1", "--betas", "0.9,0.95"], "betas is 0.9,0.999", "0.9,0.95"),
        (&["--clip", "1", "--microbatches", "2"], "number of examples in a step is 4", "8"),
    ] {
        let other = folder.plan("other.json", "data=1", options);
        let said = format!("step-000002: is of a run whose {before}; here it is {now}{hint}");
        fails(2, &folder.training(&other, "n.safetensors", &resume), &[&said]);
    }
    assert!(!folder.0.join("n.safetensors").exists());
    // A learning rate is changed by whoever changes it; the rest has to be meant.
    let faster = ["--lr", "2e-3", "--steps", "3", "--resume", &checkpoints];
    let said = folder.train(&plan, "n.safetensors", &faster);
    assert!(said.starts_with("learning rate: 2e-3, before the checkpoint 1e-3\n"), "{said}");
    let other = folder.plan("other.json", "data=1", &["--clip", "2"]);
    let said =
        folder.train(&other, "n.safetensors", &[&resume[..], &["--accept-changes", "--json"]].concat());
    assert_eq!(lines(&said)[0], serde_json::json!({ "changed": "clipping", "before": "1", "now": "2" }));
    let mut tokens = folder.bytes("text.bin");
    tokens.rotate_left(1);
    fs::write(folder.path("text.bin"), tokens).unwrap();
    fails(2, &folder.training(&plan, "n.safetensors", &resume), &["whose data is SHA-256 ", hint]);
}

#[test]
fn steps_without_a_label_that_counts_change_nothing() {
    let folder = Folder::new("labels");
    let plan = folder.plan("plan.json", "data=2", &[]);
    let length = *sequence(&plan, 1).last().unwrap();
    let ids: Vec<i64> = (0..i64::try_from(length).unwrap()).map(|it| it * 31 % 211).collect();
    // Equal examples, of which so many have labels.
    let data = |name: &str, examples: usize, labelled: usize| {
        let ignored = vec![-100; ids.len()];
        let rows = |of: &dyn Fn(usize) -> Vec<i64>| {
            let numbers: Vec<i64> = (0..examples).flat_map(of).collect();
            Array::of::<i64>(sequence(&plan, u64::try_from(examples).unwrap()), &numbers).unwrap()
        };
        let labels = rows(&|it| if it < labelled { ids.clone() } else { ignored.clone() });
        let (tokens, mask) = (rows(&|_| ids.clone()), rows(&|_| vec![1; ids.len()]));
        let arrays = [("input_ids", tokens), ("attention_mask", mask), ("labels", labels)];
        let arrays: BTreeMap<String, Array> =
            arrays.into_iter().map(|(name, array)| (name.to_owned(), array)).collect();
        let path = folder.path(name);
        files::arrays::write(Path::new(&path), &arrays).unwrap();
        path
    };
    let train = |data: &str, weights: &str, more: &[&str]| {
        let weights = folder.path(weights);
        let common = ["train", &plan, "--data", data, "--weights", &weights, "--lr", "1e-2"];
        [&common[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let said = |arguments: Vec<String>| works(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    // Of an epoch's two steps one has no label; by some seed it is the first.
    let some = data("some.npz", 8, 1);
    let first_is_empty = |seed: &u64| {
        let seed = seed.to_string();
        let out = said(train(&some, "w.safetensors", &["--steps", "2", "--seed", &seed, "--json"]));
        let out = lines(&out);
        assert_eq!(out[..2].iter().filter(|line| line["loss"].is_null()).count(), 1, "{out:?}");
        out[0]["loss"].is_null()
    };
    let seed = (0..20).find(first_is_empty).unwrap().to_string();
    let text = said(train(&some, "w.safetensors", &["--steps", "2", "--seed", &seed]));
    assert!(text.starts_with("step 1  skipped: none of its labels counts\nstep 2  loss "), "{text}");
    // It has changed nothing, and is no step of the optimizer.
    said(train(&data("one.npz", 4, 1), "one.safetensors", &["--steps", "1"]));
    let apart = distance(&read(&folder, "w.safetensors"), &read(&folder, "one.safetensors"));
    assert!(apart < 1e-6, "{apart}");
    let none = train(&data("none.npz", 4, 0), "n.safetensors", &["--steps", "3"]);
    fails(2, &none, &["none.npz: none of the labels of 3 steps counts: nothing is trained"]);
    assert!(!folder.0.join("n.safetensors").exists());
}

#[test]
fn a_run_that_is_killed_at_any_moment_loses_no_more_than_since_the_last_checkpoint() {
    const STEPS: u64 = 20;
    const EVERY: u64 = 3;
    const KILLS: usize = 8;
    let folder = Folder::new("kill");
    let plan = folder.plan("plan.json", "data=2", &[]);
    let (steps, every) = (STEPS.to_string(), EVERY.to_string());
    let (checkpoints, log) = (folder.path("checkpoints"), folder.path("log.jsonl"));
    let common = ["--lr", "1e-2", "--steps", &steps];
    let whole = folder.train(&plan, "whole.safetensors", &[&common[..], &["--json"]].concat());
    let whole = whole.lines().take(20).collect::<Vec<_>>().join("\n");
    let into = ["--checkpoint", &checkpoints, "--every", &every, "--keep", "2", "--log", &log];
    let newest = || {
        let name = fs::read_to_string(folder.path("checkpoints/latest")).ok()?;
        name.trim().strip_prefix("step-")?.parse::<u64>().ok()
    };
    let (mut kills, mut random, mut done) = (0, 1_u64, 0);
    loop {
        let resume = ["--resume", &checkpoints];
        let is_checkpoint = |it: fs::DirEntry| it.file_name().to_string_lossy().starts_with("step-");
        let there = fs::read_dir(&checkpoints).is_ok_and(|mut all| all.any(|it| is_checkpoint(it.unwrap())));
        let more = if there { &resume[..] } else { &[] };
        let arguments = folder.training(&plan, "killed.safetensors", &[&common[..], &into, more].concat());
        let mut child = Command::new(env!("CARGO_BIN_EXE_shardloom"))
            .args(crate::forced(&arguments.iter().map(String::as_str).collect::<Vec<_>>()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if kills == KILLS {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            break;
        }
        // After some steps, somewhere in the next or in what is written.
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        let (steps, spins) = (next() % 5, next() % 1_000_000);
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        (0..steps).for_each(|_| drop(said.next()));
        (0..spins).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        // What was there stays, whatever moment it was.
        let now = newest().unwrap_or(0);
        assert!(now >= done, "{now} after {done}");
        done = now;
        let said = fs::read_to_string(&log).unwrap_or_default();
        let last = u64::try_from(said.lines().filter(|line| line.ends_with('}')).count()).unwrap();
        assert!(last <= now + EVERY, "{last} steps, the checkpoint is of {now}");
    }
    assert_eq!(newest(), Some(STEPS));
    assert!(folder.bytes("killed.safetensors") == folder.bytes("whole.safetensors"), "other weights");
    assert_eq!(lasting(&String::from_utf8(folder.bytes("log.jsonl")).unwrap()), lasting(&whole));
}
