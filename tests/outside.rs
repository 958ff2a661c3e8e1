//! Models and measurements of the repository, and larger collections of them outside it. What is outside
//! is used only where `SHARDLOOM_DATA` names the folder that has it, as the long tier of `.ci/run` does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The repository.
pub(crate) fn root() -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|it| it.join("Cargo.lock").is_file()).expect("a workspace").to_owned()
}

/// This file or folder of the data outside; nothing where the variable names none.
///
/// # Panics
///
/// If the variable names a folder that has no such file: what is asked for is not left out.
pub(crate) fn outside(path: &str) -> Option<PathBuf> {
    let found = PathBuf::from(std::env::var_os("SHARDLOOM_DATA")?).join(path);
    let is_there = found.is_absolute() && found.exists();
    assert!(is_there, "SHARDLOOM_DATA: no {}, expected an absolute path to all data", found.display());
    Some(found)
}

/// The folders of models by name, those of the repository and more that are outside: small ones with what
/// is expected of them (`""`), graphs of full size (`full`), steps of training (`training`).
pub(crate) fn models(kind: &str) -> Vec<PathBuf> {
    let there = outside("models").map(|it| it.join(if kind.is_empty() { "models" } else { kind }));
    let here = root().join("tests/models").join(kind);
    let mut found = BTreeMap::new();
    // A model that is in both is taken from the repository.
    for folder in there.into_iter().chain([here]) {
        for entry in std::fs::read_dir(folder).expect("a folder of models") {
            let path = entry.expect("an entry").path();
            found.insert(path.file_name().map(ToOwned::to_owned), path);
        }
    }
    found.into_values().filter(|it| it.is_dir()).collect()
}
