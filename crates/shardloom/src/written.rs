//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Writes a file under a temporary name beside it, and renames it.
///
/// Where the path is a link it is the file linked to that is written, with the rights it had.
/// What is there and is not a file (a device, a pipe) is written to.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    stream(path, &mut |to| to.write_all(contents).map_err(failed))
}

/// The same for a file that is written piece by piece.
pub(crate) fn stream(
    path: &Path,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    let Ok(there) = fs::canonicalize(path) else { return renamed(path, path, fill, None) };
    let metadata = fs::metadata(&there).map_err(failed)?;
    if metadata.is_file() {
        return renamed(path, &there, fill, Some(metadata.permissions()));
    }
    fill_file(path, File::create(&there).map_err(failed)?, fill)
}

/// Fills a file beside the place, and puts it there. Messages name the path that was given.
fn renamed(
    path: &Path,
    place: &Path,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<(), Failure>,
    rights: Option<fs::Permissions>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    let temporary = temporary(place);
    let filled = File::create(&temporary).map_err(failed).and_then(|file| fill_file(path, file, fill));
    let written = filled.and_then(|()| {
        rights
            .map_or(Ok(()), |rights| fs::set_permissions(&temporary, rights))
            .and_then(|()| fs::rename(&temporary, place))
            .map_err(failed)
    });
    if written.is_err() {
        // What was half written is of no use to anybody.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn fill_file(
    path: &Path,
    file: File,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut to = BufWriter::new(file);
    fill(&mut to)?;
    to.flush().map_err(|error| Failure::unwritten(path, &error))
}

/// Refuses a path at which nothing can be written, before what is to be written there is made.
pub(crate) fn possible(path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    match fs::metadata(&place) {
        Ok(it) if it.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
        // What is not a file is written to when it is time.
        Ok(it) if !it.is_file() => return Ok(()),
        _ => {}
    }
    let temporary = temporary(&place);
    File::create(&temporary).and_then(|_| fs::remove_file(&temporary)).map_err(failed)
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
