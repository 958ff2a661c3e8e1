//! Checkpoints that are whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use planner_ir::{State, StateKind, Type};
use run::Stored;
use sha2::{Digest, Sha256};

use super::manifest::{FileSum, Manifest};
use super::{LATEST, MANIFEST, folder, hexadecimal, step_of, steps};
use crate::arrays;
use crate::failure::Failure;

/// How much of a file is hashed at once (bytes).
const CHUNK: usize = 1 << 20;

/// A checkpoint whose files are what its manifest says.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    /// Where it is.
    pub(crate) folder: PathBuf,
    /// What it says.
    pub(crate) manifest: Manifest,
}

/// The newest checkpoint of a folder, or the one that the folder is.
///
/// If the newest is damaged it is said which older one is not; that one is taken only if it is
/// asked for.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, Failure> {
    if path.join(MANIFEST).exists() || path.file_name().and_then(|it| it.to_str()).is_some_and(is_step) {
        return whole(path).map_err(|failure| with_other(failure, path));
    }
    let latest = path.join(LATEST);
    let name = match fs::read_to_string(&latest) {
        Ok(name) => name.trim().to_owned(),
        // A run may have been ended before it named its first checkpoint.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let newest = steps(path)?.last().map(|&step| folder(path, step));
            let newest = newest.ok_or_else(|| {
                Failure::file(path, "has no checkpoints; to start from the model, leave `--resume` out")
            })?;
            return whole(&newest).map_err(|failure| with_other(failure, &newest));
        }
        Err(error) => {
            let damaged = Failure::file(&latest, format!("cannot be read: {error}"));
            return Err(with_other(damaged, &path.join("none")));
        }
    };
    let newest = path.join(&name);
    if !is_step(&name) {
        let damaged = Failure::file(&latest, format!("is damaged: `{name}` is no name of a checkpoint"));
        return Err(with_other(damaged, &newest));
    }
    whole(&newest).map_err(|failure| with_other(failure, &newest))
}

fn is_step(name: &str) -> bool {
    step_of(name).is_some()
}

/// A failure, and which other checkpoint in the same folder is whole.
fn with_other(failure: Failure, damaged: &Path) -> Failure {
    let parent = damaged.parent().unwrap_or_else(|| Path::new(""));
    let limit = damaged.file_name().and_then(|it| it.to_str()).and_then(step_of).unwrap_or(u64::MAX);
    let older = steps(parent).unwrap_or_default().into_iter().rev().filter(|step| *step < limit);
    let other = older.map(|step| folder(parent, step)).find(|folder| whole(folder).is_ok());
    match other {
        Some(other) => Failure::Input(format!(
            "{failure}; the newest before it that is whole is {0}: go on from that with `--resume {0}`",
            other.display()
        )),
        None => Failure::Input(format!("{failure}; there is no older one that is whole")),
    }
}

/// A checkpoint, every byte of which is checked.
fn whole(folder: &Path) -> Result<Checkpoint, Failure> {
    let path = folder.join(MANIFEST);
    let text = fs::read(&path).map_err(|error| Failure::file(&path, format!("cannot be read: {error}")))?;
    let manifest = Manifest::read(&text).map_err(|error| Failure::file(&path, error))?;
    for file in &manifest.files {
        let path = folder.join(&file.name);
        check(&path, file).map_err(|error| Failure::file(&path, error))?;
    }
    Ok(Checkpoint { folder: folder.to_owned(), manifest })
}

fn check(path: &Path, expected: &FileSum) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length != expected.bytes {
        return Err(format!("is damaged: it has {length} bytes, its manifest says {}", expected.bytes));
    }
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        let count = file.read(&mut chunk).map_err(failed)?;
        if count == 0 {
            break;
        }
        hash.update(&chunk[..count]);
    }
    let found = hexadecimal(hash.finalize());
    if found == expected.sha256 {
        return Ok(());
    }
    Err(format!("is damaged: its SHA-256 is {found:.12}.., its manifest says {:.12}..", expected.sha256))
}

impl Checkpoint {
    /// Hands over each state, one after the other, and where it is read from, by its name.
    pub(crate) fn each(
        &self,
        visit: &mut dyn FnMut(State, &dyn Stored) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.files(&mut |kind, path| {
            arrays::read_each(path, &mut |name, from| visit(State { kind, name: name.to_owned() }, from))
        })
    }

    /// Refuses a checkpoint that has other states than those expected.
    pub(crate) fn expect(&self, expected: &BTreeMap<State, Type>) -> Result<(), Failure> {
        let mut found: BTreeMap<State, Type> = BTreeMap::new();
        self.files(&mut |kind, path| {
            let types = arrays::types(path)?;
            found.extend(types.into_iter().map(|(name, type_)| (State { kind, name }, type_)));
            Ok(())
        })?;
        let words = |state: &State| format!("the {} of `{}`", state.kind.name(), state.name);
        let wrong = |error| Err(Failure::file(&self.folder, error));
        for (state, type_) in expected {
            match found.get(state) {
                Some(it) if it == type_ => {}
                Some(it) => return wrong(format!("{} is {it}, the plan has {type_}", words(state))),
                None => return wrong(format!("{} is not there, and the plan has it", words(state))),
            }
        }
        match found.keys().find(|state| !expected.contains_key(state)) {
            Some(state) => wrong(format!("has {}, which the plan has not", words(state))),
            None => Ok(()),
        }
    }

    fn files(&self, visit: &mut dyn FnMut(StateKind, &Path) -> Result<(), Failure>) -> Result<(), Failure> {
        for FileSum { name, .. } in &self.manifest.files {
            let path = self.folder.join(name);
            let kind =
                StateKind::ALL.into_iter().find(|it| name.strip_suffix(".safetensors") == Some(it.name()));
            let kind = kind.ok_or_else(|| Failure::file(&path, "is a file of no kind that is known"))?;
            visit(kind, &path)?;
        }
        Ok(())
    }
}
