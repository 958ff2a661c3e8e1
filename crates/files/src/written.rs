//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Writes a file under a temporary name beside it, and renames it when it is on its disk: after a crash of
/// whatever kind the old one or the new one is there.
///
/// Where the path is a link it is the file linked to that is written, with the rights it had.
/// What is there and is not a file (a device, a pipe) is written to.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    stream(path, &mut |to| to.write_all(contents).map_err(failed))
}

/// The same for a file that is written piece by piece.
pub fn stream(path: &Path, fill: Fill<'_>) -> Result<(), Failure> {
    prepare(path, fill)?.put()
}

/// What writes the content of a file.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn Write) -> Result<(), Failure>;

/// A file that is written and not yet in its place. Of several that belong together none is put there before
/// all are written.
#[must_use = "it is in its place only when it is put there"]
pub struct Prepared<'a> {
    path: &'a Path,
    /// Where it is, and where it is to be; none if it was written to what is no file.
    moved: Option<(Temporary, PathBuf)>,
}

/// A name under which something is written, which goes with what has not been renamed: half of a file is of no
/// use to anybody.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a file under a temporary name. Messages name the path that was given.
pub fn prepare<'a>(path: &'a Path, fill: Fill<'_>) -> Result<Prepared<'a>, Failure> {
    let failed = |error: io::Error| Failure::unwritten(path, &error);
    let there = fs::canonicalize(path).ok();
    let found = there.as_ref().map(fs::metadata).transpose().map_err(failed)?;
    let place = there.unwrap_or_else(|| path.to_owned());
    if found.as_ref().is_some_and(|it| !it.is_file()) {
        filled(path, &File::create(&place).map_err(failed)?, fill)?;
        return Ok(Prepared { path, moved: None });
    }
    let temporary = temporary(&place);
    let file = File::create(&temporary).map_err(failed)?;
    let temporary = Temporary(temporary);
    filled(path, &file, fill)?;
    found.map_or(Ok(()), |it| file.set_permissions(it.permissions())).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(Prepared { path, moved: Some((temporary, place)) })
}

impl Prepared<'_> {
    /// Puts it in its place.
    pub fn put(self) -> Result<(), Failure> {
        let Some((Temporary(temporary), place)) = &self.moved else { return Ok(()) };
        put(temporary, place).map_err(|error| Failure::unwritten(self.path, &error))
    }

    /// Puts it beside its place, under a name that may depend on what is in it: that name.
    pub fn put_as(self, name: &mut dyn FnMut(&Path) -> io::Result<String>) -> Result<String, Failure> {
        let failed = |error: io::Error| Failure::unwritten(self.path, &error);
        let Some((Temporary(temporary), place)) = &self.moved else {
            return Err(failed(io::Error::other("it is a pipe, a device or a socket, expected a file")));
        };
        let name = name(temporary).map_err(failed)?;
        put(temporary, &place.with_file_name(&name)).map_err(failed)?;
        Ok(name)
    }
}

/// Gives what is on its disk, a file or a folder, another name in the same folder, and makes that last.
pub fn put(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync(folder(to))
}

/// The folder that a path has a file in.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Makes the names in a folder last, where its file system can be told to.
pub fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {
            Ok(())
        }
        synced => synced,
    }
}

fn filled(path: &Path, file: &File, fill: Fill<'_>) -> Result<(), Failure> {
    let mut to = BufWriter::new(file);
    fill(&mut to)?;
    to.flush().map_err(|error| Failure::unwritten(path, &error))
}

/// Refuses a path at which nothing can be written, before what is to be written there is made.
pub fn possible(path: &Path) -> Result<(), Failure> {
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

/// What is done about files that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// They are refused.
    Kept,
    /// They are written over.
    Replaced,
}

/// Refuses files that are there and are to be kept. What is there and is no file (a device, a pipe) is written to.
pub fn kept(paths: &[PathBuf], before: Before) -> Result<(), Failure> {
    match paths.iter().find(|it| before == Before::Kept && it.is_file()) {
        Some(path) => Err(Failure::Usage(format!(
            "{}: is there already, expected a name that is free: give another, or `--force` to overwrite it",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Writes files, by their names, into a folder, which is made if it is not there; none before it is known that
/// none is there that is to be kept, and none is put there before all are written. Where they are.
pub fn into(folder: &Path, files: &[(&str, &[u8])], before: Before) -> Result<Vec<PathBuf>, Failure> {
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
    kept(&paths, before)?;
    fs::create_dir_all(folder).map_err(|error| Failure::unwritten(folder, &error))?;
    let prepared = paths.iter().zip(files).map(|(path, (_, contents))| {
        let failed = |error: io::Error| Failure::unwritten(path, &error);
        prepare(path, &mut |to| to.write_all(contents).map_err(failed))
    });
    for file in prepared.collect::<Result<Vec<_>, Failure>>()? {
        file.put()?;
    }
    Ok(paths)
}

/// What a temporary name ends in.
pub const ENDING: &str = ".tmp";

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}{ENDING}", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests;
