//! Files that are there whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Writes a file under a temporary name beside it, and renames it.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    let temporary = temporary(path);
    let written = fs::write(&temporary, contents).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // What was half written is of no use to anybody.
        let _ = fs::remove_file(&temporary);
        Failure::file(path, format!("cannot be written: {error}"))
    })
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
