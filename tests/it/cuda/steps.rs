//! What training steps are on a GPU: which operations are one kernel, how often something is launched, and
//! how many bytes that reads and writes; `tests/cases/gpu-steps.txt` has it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use lower::{BufferId, Program};
use plan::Precision;

use crate::training;

/// The models, and in what they compute.
const STEPS: [(&str, Precision); 4] = [
    ("gpt2/legacy.onnx", Precision::F32),
    ("gpt2/legacy.onnx", Precision::Bf16),
    ("llama/legacy.onnx", Precision::F32),
    ("llama/legacy.onnx", Precision::Bf16),
];

/// What the norm of gradients is bounded by.
const CLIP: f64 = 1.0;

/// A line of numbers, and a line for each kind of task that has a norm or a loss.
fn said(program: &Program) -> String {
    let tasks = device::tasks(program);
    let instructions: usize = tasks.iter().map(|it| it.instructions.len()).sum();
    let launches: usize = tasks.iter().map(|it| it.work.as_ref().map_or(1, |work| work.launches.len())).sum();
    let bytes = |it: &BufferId| program.buffer(*it).type_.bytes();
    let bytes: u64 = tasks.iter().flat_map(|it| it.operands.iter().chain(&it.results)).map(bytes).sum();
    let mut text =
        format!("{instructions} instructions in {} tasks, {launches} launches, {bytes} bytes\n", tasks.len());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for task in
        tasks.iter().filter(|it| ["Norm", "CrossEntropy", "squares"].iter().any(|of| it.what.contains(of)))
    {
        *counts.entry(&task.what).or_default() += 1;
    }
    for (what, count) in counts {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{count:>4} x {what}");
    }
    text
}

#[test]
fn norms_and_losses_of_steps_are_one_kernel_with_what_is_around_them() {
    let mut found = String::new();
    for (model, precision) in STEPS {
        let Some(programs) = training::programs_of_one(model, "1", precision, Some(CLIP)) else { return };
        let _ = writeln!(found, "{model} in {precision:?}: {}", said(&programs.unwrap()[0]));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/gpu-steps.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "{} is not what steps are (BLESS=1 writes it):\n{found}", file.display());
}
