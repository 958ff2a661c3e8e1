//! Files that are mapped: pages of them are in memory while they are looked at.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, UncheckedAdvice};

use crate::readable;

/// A file that is mapped.
#[derive(Clone, Debug)]
pub struct Mapped(Arc<Map>);

#[derive(Debug)]
struct Map {
    bytes: Mmap,
    file: File,
    path: PathBuf,
}

impl Mapped {
    /// Maps a file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = readable::open(path)?;
        #[expect(unsafe_code, reason = "a file is mapped")]
        // SAFETY: the map is only read. Whether the file is still as long is asked before a block is
        // read; if another process shortens it in between, the system ends this one, as it would any
        // other reader of the map.
        let bytes = unsafe { Mmap::map(&file)? };
        Ok(Self(Arc::new(Map { bytes, file, path: path.to_owned() })))
    }

    /// All of the file.
    pub fn bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }

    /// Refuses a file that has become shorter than it was when it was mapped: what is mapped beyond its
    /// end cannot be looked at.
    pub fn check(&self) -> Result<(), String> {
        let Map { bytes, file, path } = &*self.0;
        let error = |error: io::Error| format!("`{}` cannot be read: {error}", path.display());
        let (found, expected) = (file.metadata().map_err(error)?.len(), bytes.len());
        if usize::try_from(found).is_ok_and(|found| found < expected) {
            let path = path.display();
            return Err(format!("`{path}` is {found} bytes long, expected {expected} as when it was opened"));
        }
        Ok(())
    }

    /// Takes the pages that have been looked at out of this process's memory, as whose they are counted
    /// otherwise. They come back when they are looked at again.
    pub fn release(&self) {
        #[expect(unsafe_code, reason = "pages of a map are given back")]
        // SAFETY: the map is of a file and never written, so that what its pages say is in the file.
        let released = unsafe { self.0.bytes.unchecked_advise(UncheckedAdvice::DontNeed) };
        // A system that does not give them back has them in memory, which is no fault.
        drop(released);
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

#[cfg(test)]
pub mod tests;
