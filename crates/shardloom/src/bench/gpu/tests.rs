//! `bench gpu` of a GPU that is not there: everything that is measured comes out, and what is wrong is found.

use serde_json::Value;

use crate::bench::folder::Folder;
use crate::emulated::emulated;

/// A command: its exit code, what it prints, what it says.
fn shardloom(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let all = std::iter::once("shardloom").chain(arguments.iter().copied());
    let code = crate::main_with(all, &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn every_part_is_measured_and_kept_in_the_ledger() {
    let folder = Folder::new("on-gpu", None).unwrap();
    let ledger = folder.path.join("gpu.jsonl");
    let ledger_name = ledger.display().to_string();
    let gpu = emulated();
    let (libraries, cache) = (gpu.libraries.display().to_string(), gpu.cache.display().to_string());
    let on =
        ["bench", "gpu", "--quick", "--libraries", &libraries, "--cache", &cache, "--python", "no-python"];
    let (code, _, err) = shardloom(&on);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("calls this GPU `emulated GPU`") && err.contains("`--like`"), "{err}");
    let (code, out, err) = shardloom(&[&on[..], &["--like", "h100-80g", "--ledger", &ledger_name]].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines = std::fs::read_to_string(&ledger).unwrap();
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let named = |part: &str| lines.iter().filter(|it| it["what"].as_str().unwrap().contains(part)).count();
    for (part, least) in [
        ("causal attention of bf16", 2),
        ("layer norm of f32", 2),
        ("product of f16", 1),
        ("copy of", 1),
        ("fused, of", 1),
        ("launch", 2),
        ("for long", 1),
        ("a GPT-2 of 2 layers, 8 ranks", 1),
        ("a GPT-2 of 1 layer 2x16 in bf16", 3),
        ("a Llama of 1 layer 2x16 in bf16", 3),
        ("a Llama of 1 layer in bf16, 1 sequence of 40", 1),
        ("a Llama of 1 layer in bf16, 8 sequences of 40", 1),
    ] {
        assert!(named(part) >= least, "{part}: {} in {out}", named(part));
    }
    for line in &lines {
        let left_out = line["figures"]["left_out"].as_str().unwrap_or_default();
        let torch = line["what"].as_str().unwrap().contains("PyTorch");
        assert_eq!(torch, left_out.contains("`no-python` cannot be started"), "{line}");
        assert!(torch || left_out.is_empty(), "{line}");
        assert_ne!(line["equal"], Value::Bool(false), "{line}");
        assert!(!line["beside"].as_str().unwrap().is_empty(), "{line}");
    }
    let equal = lines.iter().filter(|it| it["equal"] == Value::Bool(true)).count();
    assert_eq!(equal, 3 * 15 + 5);
    assert!(lines.iter().any(|it| it["figures"]["by_prices/took"].as_f64().is_some_and(|it| it > 0.0)));
    // What is meant to be is said, and not judged by figures that mean nothing.
    let goals: Vec<&Value> = lines.iter().flat_map(|it| it["goals"].as_array().unwrap()).collect();
    let wanted = |what: &str| goals.iter().filter(|it| it["what"] == what).count();
    assert_eq!(wanted("part of the memory's bandwidth"), 1);
    assert_eq!(wanted("how far the price is from it"), 4);
    assert_eq!(wanted("part of what the largest copy moves"), 5);
    assert!(goals.iter().all(|it| it["reached"].is_null() && it["found"].is_f64()));
    assert!(out.contains("goal: part of the memory's bandwidth at least 0.55\n"), "{out}");
}

#[test]
fn models_are_given_what_lies_beside_them() {
    let folder = Folder::new("models-on-gpu", None).unwrap();
    let (models, ledger) = (folder.path.join("models"), folder.path.join("gpu.jsonl"));
    let all = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models");
    // One has sizes for its dimensions, the other takes them from its inputs.
    for name in ["gpt2-eager-legacy2.9-op17-static", "llama-fwd-dynamo2.15-op23-dyn"] {
        std::fs::create_dir_all(models.join(name)).unwrap();
        for file in ["model.onnx", "io0.npz"] {
            std::fs::copy(all.join(name).join(file), models.join(name).join(file)).unwrap();
        }
    }
    let gpu = emulated();
    let [libraries, cache, models, ledger_name] =
        [&gpu.libraries, &gpu.cache, &models, &ledger].map(|it| it.display().to_string());
    let (code, out, err) = shardloom(&[
        "bench",
        "gpu",
        "--quick",
        "--only",
        "ranks",
        "--libraries",
        &libraries,
        "--cache",
        &cache,
        "--like",
        "h100-80g",
        "--models",
        &models,
        "--ledger",
        &ledger_name,
    ]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines = std::fs::read_to_string(&ledger).unwrap();
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines.len(), 3 * 5, "{out}");
    for line in &lines {
        assert_eq!(line["equal"], Value::Bool(true), "{line}");
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

#[test]
fn what_is_not_as_its_reference_is_apart() {
    let array = |numbers: &[f64]| kernels::Array::of::<f64>([3], numbers).unwrap();
    let expected = array(&[1.0, -4.0, 2.0]);
    let apart = |found: &[f64]| super::equal::apart(&array(found), &expected);
    assert!(apart(&[1.0, -4.0, 2.0]).abs() < 1e-12);
    assert!((apart(&[1.0, -4.0, 2.4]) - 0.1).abs() < 1e-12);
    assert!(apart(&[1.0, f64::NAN, 2.0]).is_infinite());
}
