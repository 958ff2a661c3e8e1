//! What is said of each step.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use cost_models::quantity;
use files::Failure;
use files::{readable, written};
use serde::Serialize;
use serde_json::Value;

/// A step that was done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Which, from 1.
    pub step: u64,
    /// The mean loss; none if no label counts, so that the step changes nothing.
    pub loss: Option<f32>,
    /// The learning rate.
    pub learning_rate: f64,
    /// The norm of all gradients together before clipping, if it is bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f32>,
    /// How many examples it took.
    pub examples: u64,
    /// How many tokens they have, if the model takes tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How long it took (seconds).
    pub seconds: f64,
}

impl StepReport {
    /// A line of JSON, without its end.
    pub fn json(&self) -> String {
        // A struct of numbers has a text.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(loss) = self.loss else {
            return write!(f, "step {}  skipped: none of its labels counts", self.step);
        };
        write!(f, "step {}  loss {loss:.4}  lr {:.1e}", self.step, self.learning_rate)?;
        if let Some(norm) = self.gradient_norm {
            write!(f, "  norm {norm:.3}")?;
        }
        write!(f, "  {}", quantity::seconds(self.seconds))
    }
}

/// A file of lines of JSON that grows.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// A file with the lines that it has up to a step (0: none): steps that are done again are said
    /// again.
    pub(crate) fn open(path: &Path, last: u64) -> Result<Self, Failure> {
        let before = if last == 0 { String::new() } else { kept(path, last)? };
        written::write(path, before.as_bytes())?;
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(|error| Failure::unwritten(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, report: &StepReport) -> Result<(), Failure> {
        let line = format!("{}\n", report.json());
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| Failure::unwritten(&self.path, &error))
    }
}

fn kept(path: &Path, last: u64) -> Result<String, Failure> {
    // What was said to a device or into a pipe is not there any more.
    if path.exists() && !path.is_file() {
        return Ok(String::new());
    }
    let text = readable::text_if_there(path)?.unwrap_or_default();
    let is_before = |line: &&str| {
        // The last line may have been cut off with the run that wrote it.
        let step = serde_json::from_str::<Value>(line).ok().and_then(|it| it["step"].as_u64());
        step.is_some_and(|step| step <= last)
    };
    Ok(text.lines().filter(is_before).map(|line| format!("{line}\n")).collect())
}
