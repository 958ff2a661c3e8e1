//! Files that end: what is read whole has to be one.

use std::path::Path;

use crate::failure::Failure;

/// Refuses pipes, devices and sockets, which may never end. What is not there is for its reader to
/// say.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(it) if !it.is_file() && !it.is_dir() => {
            Err(Failure::file(path, "is a pipe, a device or a socket, expected a file"))
        }
        _ => Ok(()),
    }
}
