//! What a checkpoint says of itself.

use std::collections::BTreeMap;

use planner_ir::Optimizer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::readable::hexadecimal;

/// What the first field of every manifest says.
const FORMAT: &str = "shardloom-checkpoint";
/// The version of the form that is written and read.
const VERSION: u64 = 2;

/// What a run is made with: a value in words for each name.
pub type Settings = BTreeMap<String, String>;

/// A run after a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The step, from 1.
    pub step: u64,
    /// What the order of examples and dropout started from.
    pub seed: u64,
    /// How often all examples have been gone through.
    pub epoch: u64,
    /// How many examples of this epoch have been used.
    pub used: u64,
    /// How many examples there are.
    pub examples: u64,
    /// The SHA-256 of the model's ONNX file, in hexadecimal.
    pub model_sha256: String,
    /// How many of the steps had no label that counts, and changed nothing.
    pub skipped: u64,
    /// What the run is made with.
    pub settings: Settings,
    /// The files beside it.
    pub files: Vec<FileSum>,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// Its name.
    pub name: String,
    /// How long it is (bytes).
    pub bytes: u64,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

/// What the file says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u64,
    /// The SHA-256 of `checkpoint` in its shortest form, in hexadecimal.
    checksum: String,
    checkpoint: Manifest,
}

impl Manifest {
    /// The text of the file.
    pub fn write(&self) -> Result<String, String> {
        let file = File {
            format: FORMAT.to_owned(),
            version: VERSION,
            checksum: self.checksum()?,
            checkpoint: self.clone(),
        };
        let text = serde_json::to_string_pretty(&file).map_err(|error| error.to_string())?;
        Ok(format!("{text}\n"))
    }

    /// What a text says, if it is what was written.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let damaged = |error: serde_json::Error| format!("is damaged: {error}");
        let value: Value = serde_json::from_slice(text).map_err(damaged)?;
        if value["format"] != FORMAT {
            return Err(format!("is damaged, or is no manifest: its format is {}", value["format"]));
        }
        if value["version"] != VERSION {
            return Err(format!("has version {}, this program reads {VERSION}", value["version"]));
        }
        let file: File = serde_json::from_value(value).map_err(damaged)?;
        let found = file.checkpoint.checksum()?;
        if found != file.checksum {
            return Err(format!("is damaged: it hashes to {found:.12}.., and says {:.12}..", file.checksum));
        }
        Ok(file.checkpoint)
    }

    /// The SHA-256 of what it says, in its shortest form.
    pub fn checksum(&self) -> Result<String, String> {
        let text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        Ok(hexadecimal(Sha256::digest(text)))
    }
}

/// An optimizer, as arguments name it.
pub fn optimizer_name(optimizer: Optimizer) -> &'static str {
    match optimizer {
        Optimizer::Sgd { .. } => "sgd",
        Optimizer::Momentum { .. } => "sgd-momentum",
        Optimizer::AdamW { .. } => "adamw",
    }
}
