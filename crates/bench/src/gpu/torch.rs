//! Steps of the same model by PyTorch, in a process of its own.

use std::process::Command;
use std::time::Duration;

use model_zoo::{gpt2, llama};
use serde_json::Value;

use super::model::{Model, Size};
use crate::child;

/// The program: the model in modules, as people write it, with attention by the library's own kernel, and its
/// optimizer's fused kernel; numbers in bf16 where `autocast` has them so, parameters in f32.
const PROGRAM: &str = include_str!("pytorch.py");

/// How it is run.
pub(super) const MANNERS: [&str; 2] = ["eager", "compiled"];

/// How long it may take: compiling a model takes minutes.
const LIMIT: Duration = Duration::from_secs(1800);

/// What PyTorch is run by, and on what.
pub(super) struct Python<'a> {
    pub(super) program: &'a str,
    /// A device as PyTorch calls it.
    pub(super) device: &'static str,
}

/// What PyTorch did.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// What each step took (seconds).
    pub(super) seconds: Vec<f64>,
    /// The losses of the first of them and of the last.
    pub(super) losses: [f64; 2],
    /// The numbers that are trained.
    pub(super) parameters: u64,
    /// Its version, that of CUDA, and the device.
    pub(super) versions: String,
}

/// What steps took in a manner, or why there are none: so many before, and so many measured.
pub(super) fn steps(
    python: &Python<'_>,
    model: &Model,
    counts: [usize; 2],
    manner: &str,
) -> Result<Steps, String> {
    let (kind, sizes) = sizes(&model.size);
    let mut command = Command::new(python.program);
    command
        .args(["-c", PROGRAM, python.device, kind, manner])
        .args(counts.map(|it| it.to_string()))
        .args([model.batch, model.sequence].map(|it| it.to_string()))
        .args(sizes.iter().map(|(name, size)| format!("{name}={size}")));
    let ended = child::run(&mut command, LIMIT)?;
    if !ended.status.success() {
        return Err(ended.why());
    }
    let found =
        read(&ended.out).ok_or_else(|| format!("it prints `{}`, expected times", ended.out.trim()))?;
    let expected = model.parameters();
    if found.parameters != expected {
        return Err(format!("its model has {} parameters, ours {expected}", found.parameters));
    }
    if found.losses.iter().any(|it| !it.is_finite()) {
        return Err(format!("its losses are {:?}", found.losses));
    }
    Ok(found)
}

/// What the program prints: a line of what it ran on, and one for each step.
fn read(text: &str) -> Option<Steps> {
    let lines: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).ok()).collect::<Option<_>>()?;
    let (first, steps) = lines.split_first()?;
    let number = |name: &str| steps.iter().map(|it| it[name].as_f64()).collect::<Option<Vec<f64>>>();
    let (seconds, losses) = (number("seconds")?, number("loss")?);
    let said = |name: &str| first[name].as_str().unwrap_or("none").to_owned();
    Some(Steps {
        seconds,
        losses: [*losses.first()?, *losses.last()?],
        parameters: first["parameters"].as_u64()?,
        versions: format!("PyTorch {}, CUDA {}, on {}", said("torch"), said("cuda"), said("on")),
    })
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

#[cfg(test)]
mod tests;
