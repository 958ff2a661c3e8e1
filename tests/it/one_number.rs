//! One number everywhere: what a plan says that a step takes, what `explain` says and what `simulate` finds; and
//! that more to choose from makes it no larger.

use std::path::Path;

use cost_models::quantity;

use crate::tier::first;

/// How far what is simulated may be from the plan, as a part of it.
const NEAR: f64 = 0.02;

/// See [the simulator](../../docs/simulator.md).
const LINKS: &str =
    "likely: weights are fetched while blocks move in time steps over the same links, 19 % more";
const SMALL: &str = "likely: small exchanges are one, and a plan prices each, 2 to 3 % less";

/// A model of `tests/configs`, how it is planned, and why what is simulated is further away, if it is.
type Setup = (&'static str, &'static str, Option<&'static str>);

const TRAIN: &str = "--mode train --loss loss --precision bf16";

/// One of each kind first: answers and training steps, on threads and GPUs, with micro-batches and in stages. The gate
/// tries these.
const SETUPS: [Setup; 33] = [
    ("gpt2", "--machine cpu-4x --mesh 4 --dim batch=4 --dim sequence=128", None),
    ("llama3_8b", "--machine h100-80g-8x --mesh 8 --dim batch=8 --dim sequence=2048", None),
    ("gpt2", "--machine h100-80g-8x --mesh 8 --dim batch=64 --dim sequence=1024 TRAIN --clip 1", None),
    (
        "gpt2",
        "--machine h100-80g-8x --mesh 8 --dim batch=64 --dim sequence=1024 \
         TRAIN --clip 1 --microbatches 4",
        Some(SMALL),
    ),
    ("phi3_mini", "--machine l40s-48g-8x --mesh 8 --dim batch=8 --dim sequence=1024 TRAIN", Some(LINKS)),
    (
        "gpt2",
        "--machine h100-80g-8x --mesh 2 --stages 4 --microbatches 8 --schedule \
         1f1b --dim batch=8 --dim sequence=1024 TRAIN --clip 1",
        Some(SMALL),
    ),
    // Rows go to the experts that they use, while gradients are summed and weights fetched.
    (
        "mixtral_8x7b",
        "--machine h100-80g-16x --stages auto --global-batch 64 --dim sequence=4096 TRAIN --pin pp=1 --pin ep=8 \
         --pin tp=1",
        None,
    ),
    // Meanwhile experts of all tokens compute.
    (
        "deepseek_v2_lite",
        "--machine h200-141g-8x --stages auto --global-batch 64 --dim sequence=4096 TRAIN --pin pp=1 --pin ep=8",
        None,
    ),
    ("qwen2_7b", "--machine a100-80g-8x --mesh 2x4 --dim batch=8 --dim sequence=1024", None),
    ("mixtral_8x7b", "--machine h200-141g-8x --mesh 8 --dim batch=8 --dim sequence=1024", None),
    ("mistral_7b", "--machine h100-80g-16x --mesh 2x8 --dim batch=16 --dim sequence=1024", None),
    ("phi3_mini", "--machine l40s-48g-4x --mesh 4 --dim batch=4 --dim sequence=1024", None),
    // Weights fill the memory, and are fetched ahead in what is left.
    ("llama3.1_70b", "--machine h100-80g-8x --mesh 8 --dim batch=1 --dim sequence=8192", None),
    // Gradients are summed for each micro-batch, beside computing that waits for other exchanges.
    (
        "llama3.1_70b",
        "--machine h100-80g-64x --stages auto --global-batch 128 --dim sequence=8192 TRAIN --clip 1",
        None,
    ),
    (
        "gpt2",
        "--machine cpu-4x --mesh 4 --dim batch=4 --dim sequence=128 --mode \
         train --loss loss",
        Some(SMALL),
    ),
    ("llama3_8b", "--machine h100-80g-8x --mesh 8 --dim batch=8 --dim sequence=2048 TRAIN --clip 1", None),
    (
        "llama3_8b",
        "--machine h100-80g-8x --mesh 8 --dim batch=16 --dim sequence=4096 \
         TRAIN --clip 1 --recompute full",
        None,
    ),
    (
        "llama3_8b",
        "--machine h100-80g-8x --mesh 2x4 --dim batch=8 --dim sequence=2048 \
         TRAIN --microbatches 4",
        None,
    ),
    (
        "llama3_8b",
        "--machine h100-80g-16x --mesh 2x8 --dim batch=16 --dim sequence=2048 \
         TRAIN --clip 1",
        None,
    ),
    (
        "llama3_8b",
        "--machine h100-80g-8x --mesh 8 --dim batch=8 --dim sequence=8192 \
         --mode train --loss loss --precision fp8",
        None,
    ),
    (
        "llama3_8b",
        "--machine b200-180g-8x --mesh 8 --dim batch=8 --dim sequence=8192 \
         --mode train --loss loss --precision mxfp8",
        None,
    ),
    (
        "llama3_8b",
        "--machine b200-180g-8x --mesh 8 --dim batch=8 --dim sequence=8192 \
         --mode train --loss loss --precision nvfp4",
        None,
    ),
    (
        "llama3_8b",
        "--machine h100-80g-8x --mesh 8 --dim batch=8 --dim sequence=8192 \
         --mode train --loss loss --precision fp8-delayed",
        None,
    ),
    ("qwen3_8b", "--machine a100-80g-16x --mesh 16 --dim batch=16 --dim sequence=2048 TRAIN", None),
    (
        "mistral_7b",
        "--machine h200-141g-8x --mesh 8 --dim batch=16 --dim sequence=4096 \
         TRAIN --clip 1",
        None,
    ),
    ("gemma2_9b", "--machine h100-80g-8x --mesh 8 --dim batch=8 --dim sequence=2048 TRAIN --clip 1", None),
    (
        "llama3_8b",
        "--machine h100-80g-16x --mesh 8 --stages 2 --microbatches 8 \
         --schedule 1f1b --dim batch=8 --dim sequence=2048 TRAIN --clip 1",
        None,
    ),
    (
        "llama3_8b",
        "--machine h100-80g-16x --mesh 4 --stages 4 --microbatches 8 \
         --schedule zb-h1 --dim batch=4 --dim sequence=2048 TRAIN",
        None,
    ),
    // What computing waits for has gradients of parameters beside it, and its links to itself.
    (
        "llama3_8b",
        "--machine h100-80g-16x --stages auto --global-batch 64 --dim sequence=8192 TRAIN --pin tp=2 --pin pp=1",
        None,
    ),
    (
        "llama3_8b",
        "--machine h100-80g-16x --stages auto --global-batch 32 --dim sequence=8192 TRAIN --pin tp=8 --pin pp=1",
        None,
    ),
    (
        "llama3_8b",
        "--machine h100-80g-16x --stages auto --global-batch 8 --dim sequence=32768 TRAIN --pin cp=4 --pin pp=1",
        None,
    ),
    (
        "mixtral_8x7b",
        "--machine h100-80g-32x --stages auto --global-batch 128 --dim sequence=4096 TRAIN --for megatron",
        None,
    ),
    (
        "mixtral_8x7b",
        "--machine b200-180g-16x --stages auto --global-batch 64 --dim sequence=4096 TRAIN --pin pp=1 --pin ep=8",
        None,
    ),
];

/// How many of them the gate tries.
const GATE: usize = 8;

/// What a command says.
pub(crate) fn said(arguments: &[&str]) -> String {
    let (mut text, mut error) = (Vec::new(), Vec::new());
    let line = ["shardloom".to_owned()].into_iter().chain(crate::cli::forced(arguments));
    let code = shardloom::main_with(line, &mut text, &mut error);
    assert_eq!(code, 0, "{arguments:?}: {}", String::from_utf8_lossy(&error));
    String::from_utf8(text).unwrap()
}

fn wrong(number: usize, (model, how, further): Setup, folder: &Path) -> Vec<String> {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(format!("{model}.json"));
    let path = folder.join(format!("{number}.json")).display().to_string();
    let (config, how) = (config.display().to_string(), how.replace("TRAIN", TRAIN));
    let mut arguments = vec!["plan", &config, "-o", &path];
    arguments.extend(how.split_whitespace());
    said(&arguments);
    let simulated: serde_json::Value = serde_json::from_str(&said(&["simulate", &path, "--json"])).unwrap();
    let [found, planned] = ["seconds", "estimated_seconds"].map(|it| simulated[it].as_f64().unwrap());
    let mut wrong = Vec::new();
    if !said(&["explain", &path]).contains(&quantity::seconds(planned)) {
        wrong.push(format!("`explain` does not say {}", quantity::seconds(planned)));
    }
    let apart = found / planned - 1.0;
    match further {
        None if apart.abs() > NEAR => wrong.push(format!("{:.2} % more is simulated", 100.0 * apart)),
        Some(why) if apart.abs() <= NEAR => wrong.push(format!("{:.2} % more, though {why}", 100.0 * apart)),
        _ => {}
    }
    wrong.into_iter().map(|it| format!("{model} {how}: {it}")).collect()
}

#[test]
fn plan_explain_and_simulate_say_one_number() {
    let folder = std::env::temp_dir().join(format!("shardloom-one-number-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let all = first(GATE, &SETUPS).iter().copied().enumerate();
    let wrong: Vec<String> = all.flat_map(|(number, setup)| wrong(number, setup, &folder)).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Models, and how they are planned, with time steps offered.
const OFFERED: [(&str, &str); 3] = [
    ("phi3_mini", "--machine a100-80g-4x --mesh 2x2 --dim batch=1 --dim sequence=8192"),
    ("llama3_8b", "--machine h100-80g-8x --mesh 8 --dim batch=1 --dim sequence=8192 TRAIN"),
    ("mistral_7b", "--machine h100-80g-8x --mesh 2x4 --dim batch=2 --dim sequence=4096 TRAIN"),
];

/// How far above its bound a plan is that is not looked for among fewer partitions: `OPEN` in
/// `crates/search/src/planner.rs`.
const OPEN: f64 = 0.001;

#[test]
fn time_steps_make_no_plan_slower() {
    let folder = std::env::temp_dir().join(format!("shardloom-time-steps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("plan.json").display().to_string();
    for (model, how) in first(1, &OFFERED) {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(format!("{model}.json"));
        let (config, how) = (config.display().to_string(), how.replace("TRAIN", TRAIN));
        let seconds = |steps: &str| {
            let mut arguments = vec!["plan", &config, "-o", &path, "--json", "--in-time", steps];
            arguments.extend(how.split_whitespace());
            let plan: serde_json::Value = serde_json::from_str(&said(&arguments)).unwrap();
            plan["seconds"].as_f64().unwrap()
        };
        let [auto, never] = ["auto", "never"].map(seconds);
        assert!(auto <= (1.0 + OPEN) * never, "{model} {how}: {auto} with time steps, {never} without");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
