//! Training with parameters in bf16 alone, and with narrow products, from the command line.

use super::{Folder, fails, model, read};

/// What is rounded by chance depends on the seed and the step, and on nothing that a stop changes.
#[test]
fn parameters_in_bf16_alone_go_on_as_if_the_run_had_not_been_stopped() {
    let folder = Folder::new("rounded");
    let plan = |precision: &str| {
        folder.plan(&format!("{precision}.json"), "data=2", &["--precision", precision, "--optimizer", "sgd"])
    };
    let [alone, beside] = ["bf16-stochastic", "bf16"].map(plan);
    let checkpoints = folder.path("checkpoints");
    let common = ["--lr", "1e-2"];
    let run = |weights: &str, more: &[&str]| {
        folder.train(&alone, weights, &[&common[..], more].concat());
        folder.bytes(weights)
    };
    let whole = run("whole.safetensors", &["--seed", "3", "--steps", "6"]);
    run("half.safetensors", &["--seed", "3", "--steps", "3", "--checkpoint", &checkpoints]);
    let rest = run("rest.safetensors", &["--steps", "6", "--resume", &checkpoints]);
    assert!(rest == whole, "other weights");
    let weights = read(&folder, "whole.safetensors");
    assert!(weights.values().all(|it| it.dtype() == planner_ir::DType::BF16), "more than bf16");
    let other = run("other.safetensors", &["--seed", "4", "--steps", "6"]);
    assert!(other != whole, "the seed changes nothing");
    let refused = folder.training(
        &beside,
        "none.safetensors",
        &["--resume", &checkpoints, "--steps", "6", "--lr", "1e-2"],
    );
    fails(2, &refused, &["of a run whose precision is bf16-stochastic; here it is bf16"]);
}

/// Magnitudes of steps before are saved with the optimizer's state, and chances start from the seed and the step.
#[test]
fn narrow_products_go_on_as_if_the_run_had_not_been_stopped() {
    for precision in ["fp8-delayed", "nvfp4"] {
        let folder = Folder::new(precision);
        let plan = folder.plan("plan.json", "data=2", &["--precision", precision]);
        let checkpoints = folder.path("checkpoints");
        let run = |weights: &str, more: &[&str]| {
            folder.train(&plan, weights, &[&["--lr", "1e-2"], more].concat());
            folder.bytes(weights)
        };
        let whole = run("whole.safetensors", &["--seed", "3", "--steps", "4"]);
        run("half.safetensors", &["--seed", "3", "--steps", "2", "--checkpoint", &checkpoints]);
        let rest = run("rest.safetensors", &["--steps", "4", "--resume", &checkpoints]);
        assert!(rest == whole, "{precision}: other weights");
        let history = std::path::Path::new(&checkpoints).join("step-000002/history.safetensors");
        assert_eq!(history.exists(), precision == "fp8-delayed", "{}", history.display());
    }
}

#[test]
fn an_unknown_precision_is_told_which_there_are() {
    let arguments = ["plan", &model(), "--mode", "train", "--loss", "loss", "--precision", "nonsense"];
    let arguments = arguments.map(str::to_owned);
    fails(1, &arguments, &["nonsense", "file, fp32, bf16, bf16-stochastic, fp8, fp8-delayed, mxfp8, nvfp4"]);
}

#[test]
fn a_precision_is_of_training() {
    for precision in ["bf16", "bf16-stochastic"] {
        for mode in ["inference", "generate"] {
            let of = ["plan", &model(), "--machine", "cpu-1x", "--dim", "batch=2", "--dim", "seq=8"];
            let arguments = [&of[..], &["--mode", mode, "--precision", precision]].concat();
            let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
            fails(1, &arguments, &["`--precision` goes with `--mode train`"]);
        }
    }
}
