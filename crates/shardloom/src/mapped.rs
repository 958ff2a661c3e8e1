//! Files that are mapped: pages of them are in memory while they are looked at.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, UncheckedAdvice};

/// A file that is mapped.
#[derive(Clone, Debug)]
pub(crate) struct Mapped(Arc<Mmap>);

impl Mapped {
    /// Maps a file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::other("is a folder"));
        }
        #[expect(unsafe_code, reason = "a file is mapped")]
        // SAFETY: the map is only read. If another process shortens the file meanwhile the system ends
        // this one, as it would any other reader of the map.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(Arc::new(map)))
    }

    /// All of the file.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }

    /// Takes the pages that have been looked at out of this process's memory, as whose they are counted
    /// otherwise. They come back when they are looked at again.
    pub(crate) fn release(&self) {
        #[expect(unsafe_code, reason = "pages of a map are given back")]
        // SAFETY: the map is of a file and never written, so that what its pages say is in the file.
        let released = unsafe { self.0.unchecked_advise(UncheckedAdvice::DontNeed) };
        // A system that does not give them back has them in memory, which is no fault.
        drop(released);
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
pub(crate) mod tests;
