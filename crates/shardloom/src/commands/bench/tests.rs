//! `bench gpu` of a GPU that is not there: everything that is measured comes out, and what is wrong is found.

mod sanitizer; // what compute-sanitizer says

use std::path::Path;

use bench::Benchmark;
use clap::{CommandFactory as _, Parser as _};
use files::folder::Folder;
use serde_json::Value;

use crate::arguments::{Arguments, Command};
use crate::commands::calibrate::tests::planted;
use crate::emulated::emulated;

/// A command: its exit code, what it prints, what it says.
pub(super) fn shardloom(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = std::iter::once("shardloom").chain(arguments.iter().copied());
    let code = crate::main_with(all, &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// The lines of a ledger.
pub(super) fn ledger_of(path: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(path).unwrap();
    lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// Programs that are nowhere.
const WITHOUT: [&str; 4] = ["--python", "no-python", "--sanitizer", "no-sanitizer"];

/// What two tests measure, each on a GPU of its own: together all parts.
const PARTS: [&str; 2] = ["equal", "rates,ranks,steps,decode,sanitizer"];

/// The lines of a ledger that keeps what is measured of some parts, which say what all lines say, and what is
/// printed.
fn measured(parts: &str) -> (Vec<Value>, String) {
    let folder = Folder::new(&format!("on-gpu-{}", parts.len()), None).unwrap();
    let (ledger, models) = (folder.path.join("gpu.jsonl"), folder.path.join("models"));
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models");
    // One has sizes for its dimensions, the other takes them from its inputs.
    for name in ["gpt2-eager-legacy2.9-op17-static", "llama-fwd-dynamo2.15-op23-dyn"] {
        std::fs::create_dir_all(models.join(name)).unwrap();
        for file in ["model.onnx", "io0.npz"] {
            std::fs::copy(all.join(name).join(file), models.join(name).join(file)).unwrap();
        }
    }
    let gpu = emulated();
    let [libraries, cache, ledger_name, models] =
        [&gpu.libraries, &gpu.cache, &ledger, &models].map(|it| it.display().to_string());
    let on = ["bench", "gpu", "--quick", "--only", parts, "--libraries", &libraries, "--cache", &cache];
    let on = [&on[..], &WITHOUT].concat();
    let (code, _, err) = shardloom(&on);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("calls this GPU `emulated GPU`") && err.contains("`--like`"), "{err}");
    let files = ["--like", "h100-80g", "--ledger", &ledger_name, "--models", &models];
    let (code, out, err) = shardloom(&[&on[..], &files].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines = ledger_of(&ledger);
    for line in &lines {
        let left_out = line["figures"]["left_out"].as_str().unwrap_or_default();
        let missing =
            ["PyTorch", "compute-sanitizer"].iter().any(|it| line["what"].as_str().unwrap().contains(it));
        assert_eq!(missing, left_out.contains("be started"), "{line}");
        assert!(missing || left_out.is_empty(), "{line}");
        assert!(line["verdict"].is_null() || line["verdict"] == "right", "{line}");
        assert!(!line["beside"].as_str().unwrap().is_empty(), "{line}");
        let command = line["command"].as_str().unwrap();
        let expected = format!("shardloom bench gpu --quick --only {parts} --like h100-80g");
        assert!(command.starts_with(&expected), "{command}");
        assert_eq!((&line["driver"], &line["gpu"]), (&Value::from("unknown"), &Value::from("emulated GPU")));
        assert!(line["nvrtc"].as_str().unwrap().contains('.') && line["commit"].is_string(), "{line}");
        assert_eq!(line["prices"], "h100-80g");
    }
    (lines, out)
}

/// How many lines of a part are right.
fn right(lines: &[Value], part: &str) -> usize {
    let of = lines.iter().filter(|it| it["part"].as_str().unwrap().contains(part));
    of.filter(|it| it["verdict"] == "right").count()
}

/// At least so many lines are of what has these names.
fn expect_named(lines: &[Value], names: &[(&str, usize)], out: &str) {
    for &(part, least) in names {
        let named = lines.iter().filter(|it| it["what"].as_str().unwrap().contains(part)).count();
        assert!(named >= least, "{part}: {named} in {out}");
    }
}

/// Every part that there is, is measured by one of two tests.
#[test]
fn two_tests_measure_every_part() {
    let program = Arguments::command();
    let gpu = program.find_subcommand("bench").and_then(|it| it.find_subcommand("gpu")).unwrap();
    let only = gpu.get_arguments().find(|it| it.get_id() == "only").unwrap().get_possible_values();
    let all: Vec<&str> = only.iter().map(|it| it.get_name()).collect();
    assert_eq!(PARTS.join(",").split(',').collect::<Vec<_>>(), all);
}

#[test]
fn every_kernel_is_compared_and_kept_in_the_ledger() {
    let (lines, out) = measured(PARTS[0]);
    let all = [
        ("causal attention of bf16", 2),
        ("layer norm of 48 x 320, of f32", 2),
        ("product of f16", 1),
        ("fused, of", 3),
    ];
    expect_named(&lines, &all, &out);
    assert!(right(&lines, "kernels") > 300, "{}: {out}", right(&lines, "kernels"));
}

#[test]
fn every_part_is_measured_and_kept_in_the_ledger() {
    let (lines, out) = measured(PARTS[1]);
    let all = [
        ("product of f16", 1),
        ("copy of", 1),
        ("fused, of", 2),
        ("launch", 2),
        ("for long", 1),
        ("a GPT-2 of 2 layers, 8 ranks", 1),
        ("a GPT-2 of 2 layers, products over a square", 1),
        ("gpt2-eager-legacy2.9-op17-static, 8 ranks", 1),
        ("a GPT-2 of 2 layers, trained on 4 ranks", 2),
        ("a GPT-2 of 2 layers, trained in 2 stages", 2),
        ("a GPT-2 of 1 layer 2x16 in bf16", 3),
        ("a Llama of 1 layer 2x16 in bf16", 3),
        ("a Llama of 1 layer in bf16, 1 sequence of 40", 1),
        ("a Llama of 1 layer in bf16, 8 sequences of 40", 1),
        ("compute-sanitizer", 1),
    ];
    expect_named(&lines, &all, &out);
    assert_eq!(right(&lines, "ranks"), 3 * 5 + 2 + 8);
    assert!(lines.iter().any(|it| it["figures"]["by_prices/took"].as_f64().is_some_and(|it| it > 0.0)));
    // What is meant to be is said, and not judged by figures that mean nothing.
    let goals: Vec<&Value> = lines.iter().flat_map(|it| it["goals"].as_array().unwrap()).collect();
    let wanted = |what: &str| goals.iter().filter(|it| it["what"] == what).count();
    assert_eq!(wanted("part of the memory's bandwidth"), 1);
    assert_eq!(wanted("how far the price is from it"), 4);
    assert_eq!(wanted("part of what the largest copy moves"), 6);
    assert!(goals.iter().all(|it| it["reached"].is_null() && it["found"].is_f64()));
    assert!(out.contains("goal: part of the memory's bandwidth at least 0.55\n"), "{out}");
}

/// What a ledger says was asked, and what runs under compute-sanitizer.
#[test]
fn what_was_asked_can_be_asked_again() {
    let places = ["--libraries", "l", "--cache", "c", "--ledger", "g"];
    let [fitted, taken] = [["--like", "x", "--calibrated", "f"], ["--quick", "--machine", "x", "--models"]];
    for asked in [
        [&["bench", "gpu", "--only", "equal,steps"], &fitted[..], &["--python", "p"], &places].concat(),
        [&["bench", "gpu"], &taken[..], &["m", "--python", "p", "--sanitizer", "s"], &places].concat(),
    ] {
        let all = std::iter::once("shardloom").chain(asked.iter().copied());
        let parsed = Arguments::try_parse_from(all).unwrap();
        let Command::Bench(Benchmark::Gpu(options)) = parsed.command else { panic!("{asked:?}") };
        let mut again = options.arguments();
        // The order of arguments is of no matter.
        let mut asked: Vec<String> = asked.into_iter().map(str::to_owned).collect();
        asked.sort();
        again.sort();
        assert_eq!(again, asked);
    }
}

#[test]
fn a_part_that_fails_leaves_the_others() {
    let folder = Folder::new("parts-on-gpu", None).unwrap();
    let (ledger, nowhere) = (folder.path.join("gpu.jsonl"), folder.path.join("nowhere"));
    let gpu = emulated();
    let [libraries, cache, ledger_name, nowhere] =
        [&gpu.libraries, &gpu.cache, &ledger, &nowhere].map(|it| it.display().to_string());
    // A machine that is given is not fitted to anything.
    let on = ["bench", "gpu", "--quick", "--only", "ranks,decode", "--machine", "h100-80g"];
    let places = ["--libraries", &libraries, "--cache", &cache, "--ledger", &ledger_name];
    let (code, out, err) = shardloom(&[&on[..], &places, &["--models", &nowhere]].concat());
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.starts_with("error: not right: the part `ranks`\n"), "{err}");
    let lines = ledger_of(&ledger);
    assert_eq!(lines.len(), 3, "{err}");
    assert_eq!(lines[0]["verdict"], "failed");
    assert!(
        lines[0]["figures"]["failed"].as_str().unwrap().contains("nowhere: cannot be read"),
        "{}",
        lines[0]
    );
    for line in &lines[1..] {
        assert!(line["figures"]["took"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["prices"], "h100-80g");
    }
}

#[test]
fn where_there_is_no_gpu_what_is_missing_is_said() {
    if device::count(&[]).is_ok() {
        println!("left out: there is a driver here");
        return;
    }
    let (code, out, err) = shardloom(&["bench", "gpu"]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("`bench gpu` cannot run on this machine") && err.contains("libcuda.so.1"), "{err}");
}

/// Of a GPU whose speed is planted: it computes nothing, and what it takes is what was planted.
#[test]
fn a_machine_is_fitted_to_what_is_measured() {
    let folder = Folder::new("fitted-on-gpu", None).unwrap();
    let [ledger, machine, cache] = ["gpu.jsonl", "found.json", "cache"].map(|it| folder.path.join(it));
    let gpu = planted(emulated(), 0.01, 0.04);
    let [libraries, cache, ledger_name, machine_name] =
        [&gpu.libraries, &cache, &ledger, &machine].map(|it| it.display().to_string());
    let on = ["bench", "gpu", "--only", "rates", "--libraries", &libraries, "--cache", &cache];
    let files = ["--ledger", &ledger_name, "--calibrated", &machine_name];
    let (code, out, err) = shardloom(&[&on[..], &files].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines = ledger_of(&ledger);
    let (numbers, rates): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|it| it["part"] == "prices of this GPU");
    assert!(numbers.iter().any(|it| it["what"] == "device.memory_efficiency"), "{out}");
    assert!(numbers.iter().all(|it| it["prices"] == "h100-80g" && it["figures"]["found"].is_f64()), "{out}");
    assert!(rates.len() > 50 && rates.iter().all(|it| it["prices"] == "this-gpu"), "{out}");
    // Products are priced as they take by the machine that was found, and not by its data sheet.
    let products = rates.iter().filter(|it| it["what"].as_str().unwrap().starts_with("product of bf16 8192"));
    for line in products {
        let of = |name: &str| line["figures"][name].as_f64().unwrap();
        assert!((of("by_prices") / of("took") - 1.0).abs() < 0.08, "{line}");
    }
    let goals: Vec<&Value> = lines.iter().flat_map(|it| it["goals"].as_array().unwrap()).collect();
    assert!(!goals.is_empty() && goals.iter().all(|it| it["reached"].is_boolean()), "{goals:?}");
    let text = std::fs::read_to_string(&machine).unwrap();
    assert_eq!(cost_models::machine::json::read("found", &text).unwrap().name, "this-gpu");
    assert!(text.contains("measured by `shardloom bench gpu --only rates"), "{text}");
    // What was written is taken as it is.
    let taken = ["--machine", &machine_name, "--ledger", &ledger_name];
    let (code, out, err) = shardloom(&[&on[..], &taken].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(!out.contains("prices of this GPU"), "{out}");
}
