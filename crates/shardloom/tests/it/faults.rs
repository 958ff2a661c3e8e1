//! Inputs that did harm once, each with what is said of it now.

use std::path::Path;
use std::process::Command;

use super::fuzz::child::run;

/// A model that is run on two ranks: its exit code, and a part of the message.
const MODELS: [(&str, i32, &str); 22] = [
    ("broad_numbers/gated_delta.onnx", 0, ""),
    ("broad_numbers/slice_step.onnx", 0, ""),
    ("empty_results/slice_of_nothing.onnx", 0, ""),
    ("empty_results/update_of_nothing.onnx", 0, ""),
    ("empty_results/window_of_nothing.onnx", 0, ""),
    ("exit3_bad_input/argmax0.onnx", 2, "node `y` (ArgMax): operand 0 is f32[2,0], expected some elements"),
    (
        "exit3_bad_input/concat_const30.onnx",
        2,
        "constants computed before the first step take 8589934592 bytes",
    ),
    ("exit3_bad_input/cos_e33.onnx", 2, "constants computed before the first step take 34359738368 bytes"),
    ("exit3_bad_input/div0.onnx", 2, "`i`: an integer is divided by 0"),
    ("exit3_bad_input/ln0.onnx", 2, "node `y` (LayerNormalization): operand 0 is f32[2,0], expected some"),
    ("exit3_bad_input/mod0.onnx", 2, "`i`: an integer is divided by 0"),
    ("exit3_bad_input/range_r1e9.onnx", 2, "constants computed before the first step take 8000000000 bytes"),
    ("exit3_bad_input/shape_given.onnx", 2, "what shapes are of the numbers that are given does not fit"),
    ("exit3_bad_input/softmax0.onnx", 0, ""),
    ("panic_no_operations/cos_ezero.onnx", 0, ""),
    ("panic_no_operations/noout.onnx", 2, "the model has no outputs"),
    ("panic_no_operations/outinput.onnx", 0, ""),
    ("quadratic-memory/fn_bomb_16.onnx", 0, ""),
    ("stack_overflow_dim/dim_mul.onnx", 1, "dimensions without a size: `a` in a[0]; `a*a*a"),
    (
        "whole_numbers/attended.onnx",
        2,
        "(Attention): operand 0 is i32[1,2,3,4], expected floating-point numbers",
    ),
    ("whole_numbers/normalised.onnx", 2, "operand 0 is i32[1,2,3], expected floating-point numbers"),
    ("whole_numbers/rotated.onnx", 2, "expected floating-point numbers"),
];

#[test]
fn models_that_did_harm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/faults");
    let output = std::env::temp_dir().join(format!("shardloom-faults-{}.npz", std::process::id()));
    for (name, code, part) in MODELS {
        let model = folder.join(name);
        let ended =
            run(&["-q", "run", model.to_str().unwrap(), "--ranks", "2", "-o", output.to_str().unwrap()]);
        assert_eq!(ended.code, Ok(code), "{name}: {}", ended.said);
        assert!(ended.said.contains(part) && ended.said.len() < 5000, "{name}: {}", ended.said);
        // A file is there where it is done only.
        assert_eq!(std::fs::remove_file(&output).is_ok(), code == 0, "{name}");
        // Where exchanges run beside computing there are two clocks, which both stand where nothing is computed.
        let plan = ["-q", "plan", model.to_str().unwrap(), "--machine", "h100-80g-4x", "--mesh", "2x2"];
        let ended = run(&[&plan[..], &["-o", output.to_str().unwrap()]].concat());
        let is_said = matches!(ended.code, Ok(0..=2)) && (code != 0 || ended.code == Ok(0));
        assert!(is_said && ended.said.len() < 5000, "{name}: {:?}: {}", ended.code, ended.said);
        assert_eq!(std::fs::remove_file(&output).is_ok(), ended.code == Ok(0), "{name}");
    }
}

#[test]
fn partitions_that_are_wide() {
    let text = format!("1 steps [({}a:2),-,-]", "a-".repeat(60_000));
    let ended = run(&["partition", &text, "--mesh", "2x2"]);
    assert!(ended.verdict().is_ok(), "{:?} {}", ended.code, ended.said);
}

/// A gated delta rule unrolled: no order of elimination is narrow enough on a mesh of two axes.
#[test]
fn a_block_that_is_too_wide_to_be_eliminated_is_planned_and_computes_what_it_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/too_wide");
    let (model, inputs) = (folder.join("model.onnx"), folder.join("io.npz"));
    let [model, inputs] = [&model, &inputs].map(|it| it.to_str().unwrap());
    let made = std::env::temp_dir().join(format!("shardloom-wide-{}", std::process::id()));
    let [plan, outputs] = ["json", "npz"].map(|it| made.with_extension(it));
    let [plan, outputs] = [&plan, &outputs].map(|it| it.to_str().unwrap());
    let said = |arguments: &[&str]| {
        let done =
            Command::new(env!("CARGO_BIN_EXE_shardloom")).args(crate::forced(arguments)).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let of_machine = ["--machine", "h100-80g-8x", "--mesh", "2x4"];
    let planned = said(&[&["plan", model, "--inputs", inputs, "-o", plan], &of_machine[..]].concat());
    assert!(planned.contains("in the space"), "a part of it was searched: {planned}");
    let run = said(&["run", plan, "--model", model, "--inputs", inputs, "-o", outputs]);
    let by = run.split_once("differs by ").and_then(|(_, rest)| rest.split(' ').next());
    let by: f64 = by.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{run}"));
    assert!(by < 1e-4, "{run}");
    [plan, outputs].iter().for_each(|it| std::fs::remove_file(it).unwrap());
}
