//! Checkpoints that are whole.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use planner_ir::{State, StateKind, Type};
use run::Stored;

use super::manifest::{FileSum, Manifest};
use super::{LATEST, MANIFEST, folder, step_of, steps};
use crate::arrays::{self, Arrays};
use crate::failure::Failure;
use crate::readable;

/// A checkpoint whose files are what its manifest says.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Where it is.
    pub folder: PathBuf,
    /// What it says.
    pub manifest: Manifest,
}

/// The newest checkpoint of a folder, or the one that the folder is.
///
/// If the newest is damaged it is said which older one is not; that one is taken only if it is
/// asked for.
pub fn open(path: &Path) -> Result<Checkpoint, Failure> {
    newest(path).map_err(|Damaged { failure, other }| match other {
        Some(other) => Failure::Input(format!(
            "{failure}; the newest before it that is whole is {0}: go on from that with `--resume {0}`",
            other.folder.display()
        )),
        None => failure,
    })
}

/// The newest checkpoint of a folder that is whole, and what is wrong with the newest of all where that is
/// another one.
pub fn newest_whole(path: &Path) -> Result<(Checkpoint, Option<Failure>), Failure> {
    match newest(path) {
        Ok(checkpoint) => Ok((checkpoint, None)),
        Err(Damaged { failure, other: Some(other) }) => Ok((*other, Some(failure))),
        Err(Damaged { failure, other: None }) => Err(failure),
    }
}

/// Why the newest checkpoint cannot be gone on from, and the newest before it that can.
struct Damaged {
    failure: Failure,
    other: Option<Box<Checkpoint>>,
}

fn newest(path: &Path) -> Result<Checkpoint, Damaged> {
    if path.join(MANIFEST).exists() || path.file_name().and_then(|it| it.to_str()).is_some_and(is_step) {
        return whole(path).map_err(|failure| damaged(failure, path));
    }
    let latest = path.join(LATEST);
    let nowhere = path.join("none");
    let newest = match readable::text_if_there(&latest) {
        Ok(Some(name)) if is_step(name.trim()) => path.join(name.trim()),
        Ok(Some(name)) => {
            let name = name.trim();
            let error = format!("is damaged: `{name}` is no name of a checkpoint");
            return Err(damaged(Failure::file(&latest, error), &nowhere));
        }
        // A run may have been ended before it named its first checkpoint.
        Ok(None) => {
            let steps = steps(path).map_err(|failure| Damaged { failure, other: None })?;
            let none = "has no checkpoints; to start from the model, leave `--resume` out";
            let none = || Damaged { failure: Failure::file(path, none), other: None };
            folder(path, *steps.last().ok_or_else(none)?)
        }
        Err(failure) => return Err(damaged(failure, &nowhere)),
    };
    whole(&newest).map_err(|failure| damaged(failure, &newest))
}

fn is_step(name: &str) -> bool {
    step_of(name).is_some()
}

/// What is wrong with a checkpoint, and which other one in the same folder is whole.
fn damaged(failure: Failure, which: &Path) -> Damaged {
    let parent = which.parent().unwrap_or_else(|| Path::new(""));
    let limit = which.file_name().and_then(|it| it.to_str()).and_then(step_of).unwrap_or(u64::MAX);
    let mut older = steps(parent).unwrap_or_default().into_iter().rev().filter(|step| *step < limit);
    let other = older.find_map(|step| whole(&folder(parent, step)).ok()).map(Box::new);
    if other.is_none() {
        let failure = Failure::Input(format!("{failure}; there is no older one that is whole"));
        return Damaged { failure, other };
    }
    Damaged { failure, other }
}

/// A checkpoint, every byte of which is checked.
fn whole(folder: &Path) -> Result<Checkpoint, Failure> {
    let path = folder.join(MANIFEST);
    let text = readable::bytes(&path)?;
    let manifest = Manifest::read(&text).map_err(|error| Failure::file(&path, error))?;
    for (number, file) in manifest.files.iter().enumerate() {
        let twice = manifest.files[..number].iter().any(|other| other.name == file.name);
        if twice || kind(&file.name).is_none() {
            let error = format!("is damaged: it lists `{}`, expected each file of states once", file.name);
            return Err(Failure::file(&path, error));
        }
        let path = folder.join(&file.name);
        check(&path, file).map_err(|error| Failure::file(&path, error))?;
    }
    Ok(Checkpoint { folder: folder.to_owned(), manifest })
}

/// The kind of the states in a file of that name.
fn kind(name: &str) -> Option<StateKind> {
    StateKind::ALL.into_iter().find(|it| name.strip_suffix(".safetensors") == Some(it.name()))
}

fn check(path: &Path, expected: &FileSum) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let mut file = readable::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length != expected.bytes {
        return Err(format!("is damaged: it has {length} bytes, its manifest says {}", expected.bytes));
    }
    let found = readable::sha256(&mut file).map_err(failed)?;
    if found == expected.sha256 {
        return Ok(());
    }
    Err(format!("is damaged: its SHA-256 is {found:.12}.., its manifest says {:.12}..", expected.sha256))
}

impl Checkpoint {
    /// Hands over each state, one after the other, and where it is read from, by its name.
    pub fn each(
        &self,
        visit: &mut dyn FnMut(State, &dyn Stored) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.files(&mut |kind, path| {
            arrays::read_each(path, &mut |name, from| visit(State { kind, name: name.to_owned() }, from))
        })
    }

    /// Refuses a checkpoint that has other states than those expected.
    pub fn expect(&self, expected: &BTreeMap<State, Type>) -> Result<(), Failure> {
        let mut found: BTreeMap<State, Type> = BTreeMap::new();
        self.files(&mut |kind, path| {
            let file = Arrays::open(path)?;
            let named = |(name, type_): (&String, &Type)| (State { kind, name: name.clone() }, type_.clone());
            found.extend(file.types().iter().map(named));
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
                kind(name).ok_or_else(|| Failure::file(&path, "is a file of no kind that is known"))?;
            visit(kind, &path)?;
        }
        Ok(())
    }
}
