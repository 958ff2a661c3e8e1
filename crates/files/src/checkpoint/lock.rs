//! One job at a time writes checkpoints into a folder.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use crate::failure::Failure;
use crate::readable;

/// The file that whoever writes into a folder holds.
const LOCK: &str = ".lock";

/// A folder into which no other job writes, as long as this is there; not longer than this process, however
/// it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is locked while it is open")] File);

/// Makes a folder of checkpoints, and refuses one into which another job writes.
///
/// Where files cannot be locked, as on some network file systems, there is nothing to hold.
pub fn lock(folder: &Path) -> Result<Option<Lock>, Failure> {
    let unwritten = |error: io::Error| Failure::unwritten(folder, &error);
    std::fs::create_dir_all(folder).map_err(unwritten)?;
    let path = folder.join(LOCK);
    // What a link leads to may be anywhere, and what is no file cannot be held.
    if std::fs::symlink_metadata(&path).is_ok_and(|it| !it.is_file()) {
        return Err(Failure::file(
            &path,
            "cannot be held: it is no file; remove it, and no other job may be running",
        ));
    }
    let file = File::options()
        .create(true)
        .read(true)
        .append(true)
        .open(&path)
        .map_err(|error| Failure::unwritten(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(TryLockError::WouldBlock) => Err(Failure::file(
            folder,
            "another job writes checkpoints into this folder: wait until it has ended, or give another folder",
        )),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(TryLockError::Error(error)) => Err(readable::failed(&path, &error)),
    }
}
