//! Files that are there are kept, unless it is said that they may go.

use std::fs;

use super::{Folder, as_it_is, example, planned, says};

#[test]
fn files_that_are_there_are_kept_without_force() {
    let folder = Folder::new("kept");
    let (model, plan) = (example("model.onnx"), planned(&folder, "plan.json", &[]));
    let config = crate::tidy::root().join("tests/cases/models/llama/config.json");
    let (config, out) = (config.to_str().unwrap(), folder.path("out.npz"));
    let commands: [&[&str]; 8] = [
        &["plan", &model, "--machine", "cpu-4x", "-o", &out],
        &["plan", &model, "--machine", "cpu-4x", "-o", &folder.path("other.json"), "--html", &out],
        &["run", &plan, "-o", &out],
        &["model", "--config", config, "-o", &out],
        &["explain", &plan, "--html", &out],
        &["simulate", &plan, "--trace", &out],
        &["schedule", "1f1b", "--stages", "2", "--micro-batches", "2", "--svg", &out],
        &["partition", "[a,-,-]", "--mesh", "4", "--svg", &out],
    ];
    for command in commands {
        fs::write(&out, "mine").unwrap();
        let left = as_it_is(command);
        assert_eq!(left.code, 1, "{command:?}: {}", left.err);
        says(&left.err, &["out.npz: is there already, expected a name that is free", "`--force`"]);
        assert_eq!(fs::read_to_string(&out).unwrap(), "mine", "{command:?}");
        let left = as_it_is(&[command, &["--force"]].concat());
        assert_eq!((left.code, left.err.as_str()), (0, ""), "{command:?}");
        assert_ne!(fs::read(&out).unwrap(), b"mine", "{command:?}");
    }
    // Nothing is written where nothing is to be.
    fs::write(&out, "mine").unwrap();
    let left = as_it_is(&["plan", &model, "--machine", "cpu-4x", "-o", &out, "--stop-after", "raise"]);
    assert_eq!((left.code, fs::read_to_string(&out).unwrap().as_str()), (0, "mine"), "{}", left.err);
    // What only reads has nothing to overwrite.
    says(&as_it_is(&["check", &plan, "--force"]).err, &["`--force`"]);
}
