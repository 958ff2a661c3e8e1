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

/// Of a training step that is split, less is exposed as it is run than as it is built, and what is held is what the
/// plan says.
#[test]
fn exchanges_are_put_beside_computing() {
    let folder = std::env::temp_dir().join(format!("shardloom-it-exposed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let plan = folder.join("plan.json").display().to_string();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/gpt2-bytes.onnx");
    let training = ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--clip", "1"];
    let sizes = ["--dim", "batch=64", "--dim", "sequence=64", "--machine", "h100-80g-8x", "--mesh", "8"];
    let arguments = [&["shardloom", "-q", "plan", model, "-o", &plan][..], &training, &sizes].concat();
    assert_eq!(shardloom::main_with(arguments, &mut Vec::new(), &mut Vec::new()), 0);
    let lines = bench(&["exposed", &plan]);
    let plan = plan::json::read(&std::fs::read(&plan).unwrap()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let [built, run] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&built["order"], &run["order"]), (&"as built".into(), &"as run".into()));
    assert!(number(run, "exposed_seconds") < number(built, "exposed_seconds"), "{lines:#?}");
    assert!(number(run, "step_seconds") < number(built, "step_seconds"), "{lines:#?}");
    let held: u64 = plan.memory.iter().map(|it| it.bytes).sum();
    assert_eq!(run["held_bytes"].as_u64(), Some(held), "{lines:#?}");
    assert!(held <= plan.capacity, "{lines:#?}");
    for line in &lines {
        let kinds = line["kinds"].as_array().unwrap();
        // Two kinds may be waited for at once: that is of each, and of all once.
        let each: Vec<f64> = kinds.iter().map(|it| number(it, "exposed_seconds")).collect();
        let exposed = number(line, "exposed_seconds");
        assert!(each.iter().all(|it| *it <= (1.0 + 1e-6) * exposed), "{line:#?}");
        assert!(each.iter().sum::<f64>() >= (1.0 - 1e-6) * exposed, "{line:#?}");
    }
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

/// A small GPT-2 learns a text on one rank and on four, and the stored one is as it is written.
#[test]
fn a_text_is_learnt_alike_on_one_rank_and_on_four() {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/texts/constitution.txt");
    let folder = std::env::temp_dir().join(format!("shardloom-it-training-{}", std::process::id()));
    let (keep, plot) = (folder.display().to_string(), folder.join("curve.svg").display().to_string());
    let size = ["--layers", "2", "--hidden", "32", "--heads", "2", "--sequence", "48", "--batch", "8"];
    let rest = ["--steps", "40", "--warm-up", "20", "--lr", "3e-3", "--keep", &keep, "--plot", &plot];
    let lines = bench(&[&["training", "--text", text][..], &size, &rest].concat());
    let losses = |line: &Value| -> Vec<f64> {
        line["losses"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect()
    };
    let first = losses(&lines[0]);
    let ranks: Vec<u64> = lines.iter().map(|it| it["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [1, 4, 4, 4]);
    assert_eq!(first.len(), 40);
    // Before anything is learnt, every byte is as likely as any other.
    assert!((first[0] - 256_f64.ln()).abs() < 0.1, "{first:?}");
    assert!(first[39] < first[0] * 2.0 / 3.0, "{first:?}");
    for line in &lines {
        for (step, (loss, expected)) in losses(line).iter().zip(&first).enumerate() {
            let apart = (loss - expected).abs() / expected;
            assert!(apart < 1e-5, "{} at step {}: {loss}, expected {expected}", line["trial"], step + 1);
        }
    }
    let words = |line: &Value| line["strategy"].to_string();
    assert!(words(&lines[2]).contains("ZeRO-1 over a"), "{}", lines[2]);
    for phrase in ["ZeRO-1 over a", "tensor parallel over b", "4 micro-batches", "full recompute"] {
        assert!(words(&lines[3]).contains(phrase), "{phrase}: {}", lines[3]);
    }
    let drawing = std::fs::read_to_string(&plot).unwrap();
    assert_eq!(drawing.matches("<polyline").count(), 4 + 1 + 3);

    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/models/gpt2-bytes.onnx");
    bench(&["training", "--text", text, "--steps", "2", "--batch", "4", "--keep", &keep]);
    let written = std::fs::read(folder.join("model.onnx")).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(stored, &written).unwrap();
    }
    assert!(std::fs::read(stored).unwrap() == written, "{stored} is another model (BLESS=1 rewrites it)");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn plans_are_simulated() {
    let folder = std::env::temp_dir().join(format!("shardloom-it-bench-simulate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [plan, ledger] = ["plan.json", "ledger.jsonl"].map(|name| folder.join(name).display().to_string());
    let model = format!("{}/models/gpt2-loss.onnx", env!("CARGO_MANIFEST_DIR"));
    let dims = ["--dim", "batch=8", "--dim", "seq=16"];
    let planned = ["shardloom", "-q", "plan", &model, "--machine", "h100-80g-8x", "--mesh", "8", "-o", &plan];
    let planned = planned.into_iter().chain(dims);
    assert_eq!(shardloom::main_with(planned, &mut Vec::new(), &mut std::io::stderr()), 0);
    let lines = bench(&["simulate", &plan, "--rounds", "2", "--ledger", &ledger]);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((line["ranks"].as_u64(), line["kinds_of_ranks"].as_u64()), (Some(8), Some(1)));
    assert!(number(line, "instructions") > 10.0 && number(line, "instructions_per_second") > 0.0, "{line}");
    assert_eq!(std::fs::read_to_string(&ledger).unwrap().lines().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn broadcasts_from_mesh_to_mesh_end_near_their_bounds() {
    let lines = bench(&["resharding"]);
    assert_eq!(lines.len(), 17);
    for line in &lines {
        let times = &line["times"];
        let (bound, broadcast) = (number(line, "bound"), number(times, "broadcast"));
        assert!(broadcast >= bound - 1e-9 && broadcast <= 1.05 * bound, "{line}");
        assert_eq!(line["meets_bound"], true, "{line}");
        assert!(times.as_object().unwrap().values().all(|it| it.as_f64().unwrap() >= bound - 1e-9), "{line}");
        assert!(number(line, "cheapest") <= broadcast, "{line}");
        assert!(number(line, "naive") >= number(times, "send/receive") - 1e-9, "{line}");
    }
    // More than ten times as fast as the naive way, where more than ten devices need the same.
    let most = lines.iter().map(|line| number(line, "gain_over_naive")).fold(0.0, f64::max);
    assert!((10.0..=16.0).contains(&most), "{most}");
    // Where links inside of nodes are slow, and messages have a price, less is gained.
    let slower = bench(&["resharding", "--inside", "4", "--latency", "0.001", "--chunks", "16"]);
    let gain = |line: &Value| number(line, "gain_over_send_receive");
    assert!(lines.iter().zip(&slower).all(|(fast, slow)| gain(slow) <= gain(fast) + 1e-9));
}

/// On a small U-Transformer, which goes through ONNX like every model: what the paper does is at least as fast
/// as what others do, and no faster than where bytes take no time.
#[test]
fn broadcasts_beside_work_are_at_least_as_fast_as_what_others_do() {
    let lines = bench(&["overlap", "--only", "small"]);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let seconds = |name: &str| number(&line["seconds"], name);
    let (method, bound) =
        (seconds("broadcast, eager-1f1b, beside work"), seconds("signals, eager-1f1b, beside work"));
    for other in [
        "send/receive, 1f1b, one by one",
        "local all-gather, 1f1b, one by one",
        "broadcast, 1f1b, one by one",
        "broadcast, 1f1b, beside work",
    ] {
        // In a model as small as this one, in which latencies count, a gather is as fast.
        assert!(method <= 1.01 * seconds(other), "{other}: {line}");
    }
    assert!(bound <= method && number(line, "crossing_bytes") > 0.0, "{line}");
}
