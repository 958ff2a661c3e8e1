//! The JSON form of a plan: `docs/plan-format.md`.
//!
//! A file says what it is (`format`, `version`), what its content must hash to (`checksum`), and
//! the plan. Layouts and partitions stand once each, in tables, and are named by their place
//! there: the layers of a deep model share them. `read` says whether a text is a plan file;
//! whether the plan is right is for `check` to say.

mod decode; // from what a file says to a plan
mod encode; // from a plan to what a file says
mod error; // why a text is not a plan file
mod file; // what a file says, field by field
mod lines; // how a file is broken into lines

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::plan::Plan;
use file::{Body, File};

pub use error::ReadError;

/// What the first field of every plan file says.
pub const FORMAT: &str = "shardloom-plan";
/// The version of the form that is written and read.
pub const VERSION: u64 = 3;

/// The plan of a file.
pub fn read(text: &[u8]) -> Result<Plan, ReadError> {
    check_header(text)?;
    let file: File = serde_json::from_slice(text).map_err(|error| ReadError::form(&error))?;
    let expected = checksum(&file.plan);
    if file.checksum != expected {
        return Err(ReadError::Checksum { found: file.checksum, expected });
    }
    decode::plan(&file.plan)
}

/// The file of a plan.
pub fn write(plan: &Plan) -> String {
    let body = encode::body(plan);
    lines::text(&checksum(&body), &body)
}

/// The SHA-256, in hexadecimal, of what a file says in its shortest form.
fn checksum(body: &Body) -> String {
    let hash = Sha256::digest(lines::short(body));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What tells whether the rest can be read.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    format: Value,
    #[serde(default)]
    version: Value,
}

fn check_header(text: &[u8]) -> Result<(), ReadError> {
    let header: Header = serde_json::from_slice(text).map_err(|error| ReadError::header(&error, text))?;
    match header.format {
        Value::String(format) if format == FORMAT => {}
        Value::Null => return Err(ReadError::Format(None)),
        other => return Err(ReadError::Format(Some(error::shown(&other.to_string())))),
    }
    match header.version.as_u64() {
        Some(VERSION) => Ok(()),
        _ => Err(ReadError::Version(error::shown(&header.version.to_string()))),
    }
}
