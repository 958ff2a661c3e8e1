//! Folders for what a benchmark writes.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A folder that goes away unless it is to be kept.
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    keep: Keep,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

impl Folder {
    /// The folder that is to be kept, or one among the temporary ones.
    pub fn new(benchmark: &str, keep: Option<&Path>) -> Result<Self, Failure> {
        let (path, keep) = match keep {
            Some(path) => (path.to_owned(), Keep::Yes),
            None => {
                let name = format!("shardloom-bench-{benchmark}-{}", std::process::id());
                (std::env::temp_dir().join(name), Keep::No)
            }
        };
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::file(&path, format!("cannot be made: {error}")))?;
        Ok(Self { path, keep })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep == Keep::No {
            // A folder for temporary files is cleared by the system too.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
