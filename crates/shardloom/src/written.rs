//! Files that are there whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Writes a file under a temporary name beside it, and renames it.
///
/// Where the path is a link it is the file linked to that is written, with the rights it had.
/// What is there and is not a file (a device, a pipe) is written to.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    replaced(path, contents).map_err(|error| Failure::file(path, format!("cannot be written: {error}")))
}

fn replaced(path: &Path, contents: &[u8]) -> io::Result<()> {
    let Ok(there) = fs::canonicalize(path) else { return renamed(path, contents, None) };
    let metadata = fs::metadata(&there)?;
    if metadata.is_file() {
        return renamed(&there, contents, Some(metadata.permissions()));
    }
    fs::write(&there, contents)
}

fn renamed(path: &Path, contents: &[u8], rights: Option<fs::Permissions>) -> io::Result<()> {
    let temporary = temporary(path);
    let written = fs::write(&temporary, contents)
        .and_then(|()| rights.map_or(Ok(()), |rights| fs::set_permissions(&temporary, rights)))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What was half written is of no use to anybody.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Refuses an output that is one of the inputs.
pub fn differs(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    let Ok(there) = fs::canonicalize(output) else { return Ok(()) };
    let same = |input: &&&Path| fs::canonicalize(input).is_ok_and(|it| it == there);
    match inputs.iter().find(same) {
        Some(_) => Err(Failure::Usage(format!(
            "{}: is read and would be written over, expected another name for the output",
            output.display()
        ))),
        None => Ok(()),
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests;
