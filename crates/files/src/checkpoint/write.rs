//! Checkpoints that will be whole or not be at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kernels::Array;
use planner_ir::{State, StateKind, Type};
use sha2::{Digest, Sha256};

use super::manifest::{FileSum, Manifest};
use super::{HIDDEN, LATEST, MANIFEST, STEP, folder, names, steps};
use crate::failure::Failure;
use crate::readable::hexadecimal;
use crate::{arrays, written};

/// Where checkpoints are written.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The folder.
    pub folder: PathBuf,
    /// How many are kept; none for all.
    pub keep: Option<u64>,
    /// What is kept of each, in the order in which it is written: of each kind by name.
    pub states: Vec<(State, Type)>,
}

impl Writer {
    /// Writes what a manifest says, and each state, which `gather` makes. A checkpoint of the same
    /// step is replaced. Afterwards the oldest that are not kept are removed.
    pub fn write(
        &self,
        manifest: Manifest,
        gather: &mut dyn FnMut(&State) -> Result<Array, Failure>,
    ) -> Result<PathBuf, Failure> {
        let step = manifest.step;
        fs::create_dir_all(&self.folder).map_err(|error| Failure::unwritten(&self.folder, &error))?;
        self.sweep()?;
        let temporary = self.hidden(step, "new");
        let done = self.placed(manifest, &temporary, gather).inspect_err(|_| {
            // What is half written is of no use, and the room may be needed.
            let _ = fs::remove_dir_all(&temporary);
        })?;
        point(&self.folder, step)?;
        self.remove(step)?;
        self.sweep()?;
        Ok(done)
    }

    /// Writes a checkpoint under a temporary name, and puts it in its place.
    fn placed(
        &self,
        mut manifest: Manifest,
        temporary: &Path,
        gather: &mut dyn FnMut(&State) -> Result<Array, Failure>,
    ) -> Result<PathBuf, Failure> {
        let step = manifest.step;
        let failed = |path: &Path, error: io::Error| Failure::unwritten(path, &error);
        fs::create_dir(temporary).map_err(|error| failed(temporary, error))?;
        manifest.files.clear();
        for kind in StateKind::ALL {
            let states: Vec<&(State, Type)> = self.states.iter().filter(|(it, _)| it.kind == kind).collect();
            if !states.is_empty() {
                manifest.files.push(file(temporary, kind, &states, gather)?);
            }
        }
        let text = manifest.write().map_err(|error| Failure::internal("checkpoint", error))?;
        written::write(&temporary.join(MANIFEST), text.as_bytes())?;
        let done = folder(&self.folder, step);
        let hidden = if done.exists() { fs::rename(&done, self.hidden(step, "old")) } else { Ok(()) };
        hidden.and_then(|()| written::put(temporary, &done)).map_err(|error| failed(&done, error))?;
        Ok(done)
    }

    /// Removes the oldest checkpoints before a step, so that with its own no more are left than are
    /// kept.
    fn remove(&self, step: u64) -> Result<(), Failure> {
        let Some(keep) = self.keep else { return Ok(()) };
        let older: Vec<u64> = steps(&self.folder)?.into_iter().filter(|it| *it < step).collect();
        let kept = usize::try_from(keep - 1).unwrap_or(usize::MAX);
        for &step in &older[..older.len().saturating_sub(kept)] {
            // What is half removed must not look like a checkpoint.
            let path = folder(&self.folder, step);
            let hidden = fs::rename(&path, self.hidden(step, "old"));
            hidden.map_err(|error| Failure::file(&path, format!("cannot be removed: {error}")))?;
        }
        Ok(())
    }

    /// Removes what runs that were ended have left half written or half removed.
    fn sweep(&self) -> Result<(), Failure> {
        let latest = format!("{LATEST}.");
        for name in names(&self.folder)? {
            let path = self.folder.join(&name);
            let removed = match () {
                () if name.starts_with(HIDDEN) => fs::remove_dir_all(&path),
                // The name of the newest, not yet in its place.
                () if name.starts_with(&latest) && name.ends_with(written::ENDING) => fs::remove_file(&path),
                () => continue,
            };
            removed.map_err(|error| Failure::file(&path, format!("cannot be removed: {error}")))?;
        }
        Ok(())
    }

    fn hidden(&self, step: u64, why: &str) -> PathBuf {
        self.folder.join(format!("{HIDDEN}{step:06}.{why}"))
    }
}

/// Makes a checkpoint the newest of its folder.
pub fn point(folder: &Path, step: u64) -> Result<(), Failure> {
    let latest = folder.join(LATEST);
    // What else is there, such as a pipe, would be written to and not be another file.
    if fs::symlink_metadata(&latest).is_ok_and(|it| !it.is_file()) {
        fs::remove_file(&latest).map_err(|error| Failure::unwritten(&latest, &error))?;
    }
    written::write(&latest, format!("{STEP}{step:06}\n").as_bytes())
}

/// Writes the states of one kind.
fn file(
    folder: &Path,
    kind: StateKind,
    states: &[&(State, Type)],
    gather: &mut dyn FnMut(&State) -> Result<Array, Failure>,
) -> Result<FileSum, Failure> {
    let name = format!("{}.safetensors", kind.name());
    let path = folder.join(&name);
    let types: Vec<(String, Type)> =
        states.iter().map(|(state, type_)| (state.name.clone(), type_.clone())).collect();
    let mut sum = FileSum { name, bytes: 0, sha256: String::new() };
    written::stream(&path, &mut |to| {
        let mut hashing = Hashing { to, hash: Sha256::new(), bytes: 0 };
        arrays::write_each(&path, &mut hashing, &types, &mut |name| {
            gather(&State { kind, name: name.to_owned() })
        })?;
        (sum.bytes, sum.sha256) = (hashing.bytes, hexadecimal(hashing.hash.finalize()));
        Ok(())
    })?;
    Ok(sum)
}

/// Counts and hashes what is written.
struct Hashing<'a> {
    to: &'a mut dyn Write,
    hash: Sha256,
    bytes: u64,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += u64::try_from(written).unwrap_or(u64::MAX);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
