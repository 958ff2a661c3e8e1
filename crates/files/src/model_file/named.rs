//! Files of weights whose names say what is in them: `MODEL.onnx.sha256-0123456789abcdef.data`.
//!
//! A model and such a file cannot be taken for a pair if they are none, whatever was ended while one of them
//! was written, and a file that was damaged later is seen.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::readable;
use crate::written::folder;

/// What the name of such a file has behind that of its model.
const MARK: &str = ".sha256-";
/// What it ends in.
const ENDING: &str = ".data";
/// How many digits of the hash it has.
const DIGITS: usize = 16;

/// The name of a file of weights beside a model. Of a large one samples are looked at, of each of its parts,
/// as where hosts compare theirs.
pub fn name(model: &Path, content: &Path, parts: &[Range<u64>]) -> io::Result<String> {
    Ok(format!("{}{MARK}{}{ENDING}", own(model), digits(content, parts)?))
}

/// The place under whose name it is written before it has one.
pub fn provisional(model: &Path) -> PathBuf {
    model.with_file_name(format!("{}{MARK}{ENDING}", own(model)))
}

/// All such files beside a model.
pub fn of(model: &Path) -> Vec<PathBuf> {
    let own = own(model);
    let entries = std::fs::read_dir(folder(model)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_one = |name: &String| said(name).is_some_and(|_| name.strip_prefix(&own).is_some_and(is_rest));
    names.filter(is_one).map(|name| model.with_file_name(name)).collect()
}

/// Refuses a file that is not what its name says, if it says so.
pub(super) fn check(path: &Path, parts: &[Range<u64>]) -> io::Result<()> {
    let Some(said) = path.file_name().and_then(|it| it.to_str()).and_then(said) else { return Ok(()) };
    let found = digits(path, parts)?;
    if found == said {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it is damaged: its SHA-256 is {found}.., its name says {said}..; copy it again from where it was made, or \
         export the model again"
    )))
}

/// The digits that a name says.
fn said(name: &str) -> Option<&str> {
    let (_, digits) = name.strip_suffix(ENDING)?.rsplit_once(MARK)?;
    let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
    (digits.len() == DIGITS && digits.bytes().all(is_digit)).then_some(digits)
}

/// Whether what follows a model's own name is all of a mark.
fn is_rest(rest: &str) -> bool {
    rest.len() == MARK.len() + DIGITS + ENDING.len()
}

fn digits(path: &Path, parts: &[Range<u64>]) -> io::Result<String> {
    let print = readable::fingerprint(path, parts)?;
    let hash = print.rsplit(' ').next().unwrap_or_default();
    Ok(hash.chars().take(DIGITS).collect())
}

fn own(model: &Path) -> String {
    model.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
