//! The benchmarks with small parameters: that they run, and that their numbers make sense.

use serde_json::Value;

/// What a benchmark measures: one object for each thing.
fn bench(arguments: &[&str]) -> Vec<Value> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = ["shardloom", "--json", "bench"].into_iter().chain(arguments.iter().copied());
    let code = shardloom::main_with(all, &mut stdout, &mut stderr);
    assert_eq!(code, 0, "{}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap()
}

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("no number `{name}` in {line}"))
}

#[test]
fn a_small_gpt2_is_written_and_run() {
    let folder = std::env::temp_dir().join(format!("shardloom-it-bench-{}", std::process::id()));
    let ledger = folder.join("ledger.jsonl");
    let (keep, ledger_) = (folder.display().to_string(), ledger.display().to_string());
    let size = ["--layers", "2", "--hidden", "32", "--heads", "4", "--vocabulary", "50"];
    let rest = ["--steps", "3", "--warm-up", "1", "--keep", &keep, "--ledger", &ledger_];
    let dims = ["--dim", "batch=2", "--dim", "sequence=8"];
    let arguments: Vec<&str> = [&["cpu-run"][..], &size, &rest, &dims].concat();
    let lines = bench(&arguments);
    let again = bench(&arguments);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };

    // For each of 16 tokens and 2 layers 12 hidden², the head, and in attention 8 keys, twice.
    let products = 2 * (2 * 16 * 12 * 32 * 32 + 16 * 50 * 32 + 2 * 2 * 16 * 8 * 32);
    assert_eq!(line["flops"].as_u64(), Some(products));
    assert_eq!(line["flops"], again[0]["flops"]);
    let kinds = line["kinds"].as_array().unwrap();
    let of = |kind: &str| kinds.iter().find(|it| it["kind"] == kind).map(|it| it["count"].as_u64().unwrap());
    assert_eq!(of("attention"), Some(2), "{kinds:?}");
    assert_eq!(of("layer_norm"), Some(5), "{kinds:?}");
    assert_eq!(of("gelu_tanh"), Some(2), "{kinds:?}");
    assert!(number(line, "least_seconds") <= number(line, "median_seconds"), "{line}");
    assert!(kinds.iter().all(|it| number(it, "seconds") >= 0.0), "{kinds:?}");

    let text = std::fs::read_to_string(&ledger).unwrap();
    let written: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(written.iter().map(|it| it["line"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(written[0]["flops"], line["flops"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn models_of_a_folder_are_planned() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/models");
    let lines = bench(&[
        "planning",
        "--dir",
        models,
        "--only",
        "llama",
        "--batch",
        "2",
        "--sequence",
        "16",
        "--target",
        "h100-80g-2x/2",
        "--target",
        "h100-80g-4x/2x2",
    ]);
    assert!(lines.len() >= 2, "{lines:?}");
    for line in lines {
        assert!(line["refused"].is_null(), "{line}");
        assert!(number(&line, "predicted_seconds") > 0.0, "{line}");
        assert!((0.0..1.0).contains(&number(&line, "gap")), "{line}");
        assert!(number(&line, "classes") <= number(&line, "e_nodes"), "{line}");
        assert!(number(&line, "unique_blocks") <= number(&line, "blocks"), "{line}");
    }
}
