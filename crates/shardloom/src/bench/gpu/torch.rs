//! Steps of the same model by PyTorch, in a process of its own.

use std::process::{Command, Stdio};

use super::steps::{Model, Size};
use crate::bench::{gpt2, llama};

/// The program: the model in modules, as people write it, with attention by the library's own kernel, and its
/// optimizer's fused kernel; numbers in bf16 where `autocast` has them so. It prints what each step took.
const PROGRAM: &str = include_str!("torch.py");

/// How it is run.
const MANNERS: [&str; 2] = ["eager", "compiled"];

/// For each manner, what steps took (seconds), or why there are none: so many before, and so many measured.
pub(super) fn steps(
    python: &str,
    model: &Model,
    counts: [usize; 2],
) -> Vec<(&'static str, Result<Vec<f64>, String>)> {
    MANNERS.map(|manner| (manner, run(python, model, counts, manner))).into_iter().collect()
}

fn run(python: &str, model: &Model, counts: [usize; 2], manner: &str) -> Result<Vec<f64>, String> {
    let numbers = counts.map(|it| it.to_string());
    let (kind, sizes) = sizes(&model.size);
    let output = Command::new(python)
        .args(["-c", PROGRAM, kind, manner])
        .args(numbers)
        .args([model.batch, model.sequence].map(|it| it.to_string()))
        .args(sizes.iter().map(|(name, size)| format!("{name}={size}")))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{python}` cannot be started: {error}"))?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(errors.trim().lines().last().unwrap_or("it ended").to_owned());
    }
    let times: Result<Vec<f64>, _> = said.split_whitespace().map(str::parse).collect();
    times.map_err(|_| format!("it prints `{}`, expected times", said.trim()))
}

/// The kind of a model, and its sizes by their names.
fn sizes(size: &Size) -> (&'static str, Vec<(&'static str, u64)>) {
    match *size {
        Size::Gpt2(gpt2::Size { layers, hidden, heads, vocabulary, positions }) => (
            "gpt2",
            vec![
                ("layers", layers),
                ("hidden", hidden),
                ("heads", heads),
                ("vocabulary", vocabulary),
                ("positions", positions),
            ],
        ),
        Size::Llama(llama::Size { layers, hidden, units, heads, groups, vocabulary, .. }) => (
            "llama",
            vec![
                ("layers", layers),
                ("hidden", hidden),
                ("units", units),
                ("heads", heads),
                ("groups", groups),
                ("vocabulary", vocabulary),
            ],
        ),
    }
}
