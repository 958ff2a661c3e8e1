//! Real models: planned for several meshes, run, and held against their oracles.
//!
//! The models in `tests/models` are always there. A larger collection is used as well where it
//! lies beside the repository; without it the tests say what they left out.

mod cases; // the models, and what they are given
mod chosen; // the plans that the search chooses
mod fused; // products fused where that is cheaper
pub(crate) mod forced; // plans made to use every partition that is offered
pub(crate) mod context; // attention whose keys and values go around
mod full; // graphs of full size, without weights
mod trial; // a plan checked, run and held against what it has to compute

use std::path::{Path, PathBuf};

pub(crate) use trial::{check_bytes, machine};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The larger collection, if it is there.
pub(crate) fn collection() -> Option<PathBuf> {
    let folder = root().join("../shared/models");
    folder.is_dir().then_some(folder)
}

/// What a trial says is wrong, or that it panicked.
pub(crate) fn faults_of(title: &str, trial: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(trial));
    caught.unwrap_or_else(|_| vec![format!("{title}: panicked")])
}

/// Fails with all of these, one to a line.
pub(crate) fn expect_none(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
