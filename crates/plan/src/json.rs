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
mod generation; // plans over one cache to what a file says, and back
mod pipeline; // pipelines to what a file says, and back

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::generation::Generation;
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use file::{File, GenerationFile, PipelineFile};

pub use error::ReadError;

/// What the first field of every plan file says.
pub const FORMAT: &str = "shardloom-plan";
/// The version of the form that is written and read.
pub const VERSION: u64 = 3;

/// What the first field of every file of a pipeline says.
pub const PIPELINE_FORMAT: &str = "shardloom-pipeline";
/// The version of that form that is written and read.
pub const PIPELINE_VERSION: u64 = 1;

/// What the first field of every file of generation says.
pub const GENERATION_FORMAT: &str = "shardloom-generation";
/// The version of that form that is written and read.
pub const GENERATION_VERSION: u64 = 1;

/// What a file is.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A plan.
    Plan(Box<Plan>),
    /// A pipeline.
    Pipeline(Box<Pipeline>),
    /// Plans of the steps by which a decoder makes tokens.
    Generation(Box<Generation>),
}

/// What a file has.
pub fn read_any(text: &[u8]) -> Result<Content, ReadError> {
    let header: Header = serde_json::from_slice(text).map_err(|error| ReadError::header(&error, text))?;
    match header.format.as_str() {
        Some(PIPELINE_FORMAT) => read_pipeline(text, &header).map(|it| Content::Pipeline(Box::new(it))),
        Some(GENERATION_FORMAT) => read_generation(text, &header).map(|it| Content::Generation(Box::new(it))),
        _ => read(text).map(|plan| Content::Plan(Box::new(plan))),
    }
}

fn read_generation(text: &[u8], header: &Header) -> Result<Generation, ReadError> {
    if header.version.as_u64() != Some(GENERATION_VERSION) {
        return Err(version(&header.version, GENERATION_VERSION));
    }
    let file: GenerationFile = serde_json::from_slice(text).map_err(|error| ReadError::form(&error))?;
    let expected = checksum(&file.generation);
    if file.checksum != expected {
        return Err(ReadError::Checksum { found: file.checksum, expected });
    }
    generation::generation(&file.generation)
}

fn read_pipeline(text: &[u8], header: &Header) -> Result<Pipeline, ReadError> {
    if header.version.as_u64() != Some(PIPELINE_VERSION) {
        return Err(version(&header.version, PIPELINE_VERSION));
    }
    let file: PipelineFile = serde_json::from_slice(text).map_err(|error| ReadError::form(&error))?;
    let expected = checksum(&file.pipeline);
    if file.checksum != expected {
        return Err(ReadError::Checksum { found: file.checksum, expected });
    }
    pipeline::pipeline(&file.pipeline)
}

/// The file of a pipeline.
pub fn write_pipeline(pipeline: &Pipeline) -> String {
    let body = pipeline::body(pipeline);
    lines::pipeline(&checksum(&body), &body)
}

/// The file of plans of generation.
pub fn write_generation(generation: &Generation) -> String {
    let body = generation::body(generation);
    lines::generation(&checksum(&body), &body)
}

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
fn checksum<T: Serialize>(body: &T) -> String {
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
        _ => Err(version(&header.version, VERSION)),
    }
}

/// That a file is of another version than is read.
fn version(found: &Value, expected: u64) -> ReadError {
    ReadError::Version { found: error::shown(&found.to_string()), expected }
}
