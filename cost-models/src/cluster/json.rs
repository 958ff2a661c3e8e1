//! Files that say several kinds of nodes.
//!
//! ```json
//! { "format": 2, "kinds": [ { "devices": 8, "machine": "a100-80g" }, { "devices": 8, "machine": { … } } ] }
//! ```
//!
//! A kind is the name of a device type that comes with the program, or a machine file.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::{Cluster, ClusterError};
use crate::machine::{Machine, SizeError, json, shipped};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    format: u32,
    kinds: Vec<KindFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindFile {
    devices: u64,
    machine: Value,
}

/// Why a text is not a cluster.
#[derive(Debug)]
pub enum ReadError {
    /// Not JSON, or fields that do not exist, or fields that are missing.
    Json(serde_json::Error),
    /// Another version of the format.
    Format(u32),
    /// A kind, counted from 1, of a device type that no file is shipped for.
    Device(usize, String),
    /// A kind, counted from 1, that is no machine file.
    Machine(usize, json::ReadError),
    /// A kind, counted from 1, that cannot have so many devices.
    Size(usize, SizeError),
    /// Kinds that do not go together.
    Together(ClusterError),
}

/// Whether a text has the form of a file of several kinds, whatever is wrong with it.
#[must_use]
pub fn is_cluster(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|it| it.get("kinds").is_some())
}

/// The cluster in a text, which errors call `file`.
pub fn read(file: &str, text: &str) -> Result<Cluster, ReadError> {
    let parsed: ClusterFile = serde_json::from_str(text).map_err(ReadError::Json)?;
    if parsed.format != json::FORMAT {
        return Err(ReadError::Format(parsed.format));
    }
    let mut kinds = Vec::new();
    for (number, kind) in (1..).zip(parsed.kinds) {
        let machine = machine(file, number, &kind.machine)?;
        let sized = machine.with_devices(kind.devices);
        kinds.push(sized.map_err(|error| ReadError::Size(number, error))?);
    }
    Cluster::joined(kinds).map_err(ReadError::Together)
}

fn machine(file: &str, number: usize, said: &Value) -> Result<Machine, ReadError> {
    let text = match said {
        Value::String(name) => {
            let text = shipped::text(name).ok_or_else(|| ReadError::Device(number, name.clone()))?;
            text.to_owned()
        }
        other => other.to_string(),
    };
    json::read(file, &text).map_err(|error| ReadError::Machine(number, error))
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(
                f,
                "{error}, expected `format` and `kinds`, a list of `devices` and `machine` for each kind of nodes"
            ),
            Self::Format(format) => write!(f, "has format {format}, this program reads {}", json::FORMAT),
            Self::Device(number, name) => write!(
                f,
                "kind {number} is `{name}`, expected a machine file or one of {}",
                shipped::device_names().join(", ")
            ),
            Self::Machine(number, error) => write!(f, "kind {number}: {error}"),
            Self::Size(number, error) => write!(f, "kind {number}: {error}"),
            Self::Together(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ReadError {}
