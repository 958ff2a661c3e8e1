//! Checkpoints: what a run goes on from, on any number of ranks.
//!
//! ```text
//! DIR/latest                              the name of the newest checkpoint
//! DIR/step-000050/manifest.json           what the run was, and the checksums of the files
//! DIR/step-000050/parameter.safetensors   whole states, one file for each kind, by parameter
//! DIR/.lock                               held by the job that writes into the folder
//! ```
//!
//! A checkpoint is written to a temporary folder, synced and renamed, and then `latest` is: at any
//! moment there is a whole one, or none yet.

mod lock; // one job at a time
mod manifest; // what a checkpoint says of itself
mod read; // checkpoints that are whole
mod write; // checkpoints that will be

use std::path::{Path, PathBuf};

use crate::failure::Failure;

pub use lock::{Lock, lock};
pub use manifest::{Manifest, Settings, optimizer_name};
pub use read::{Checkpoint, newest_whole, open};
pub use write::{Writer, point};

/// The file that says what a checkpoint is.
const MANIFEST: &str = "manifest.json";
/// The file that names the newest checkpoint.
const LATEST: &str = "latest";
/// What the name of a checkpoint begins with.
const STEP: &str = "step-";
/// What the name of a checkpoint that is being written, or removed, begins with.
const HIDDEN: &str = ".step-";

/// The folder of the checkpoint after a step.
pub fn folder(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{STEP}{step:06}"))
}

/// The steps of a folder's checkpoints, ascending.
pub fn steps(folder: &Path) -> Result<Vec<u64>, Failure> {
    let mut steps: Vec<u64> = names(folder)?.iter().filter_map(|name| step_of(name)).collect();
    steps.sort_unstable();
    Ok(steps)
}

/// Whether a folder has a checkpoint to go on from.
pub fn has_some(folder: &Path) -> bool {
    // The first one may not have been named yet.
    folder.join(LATEST).exists() || steps(folder).is_ok_and(|it| !it.is_empty())
}

fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(STEP)?;
    let step = digits.parse().ok().filter(|_| digits.bytes().all(|it| it.is_ascii_digit()))?;
    (name == format!("{STEP}{step:06}")).then_some(step)
}

/// The names in a folder; none if there is no such folder.
fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| Failure::file(folder, format!("cannot be read: {error}"));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

#[cfg(test)]
mod tests;
