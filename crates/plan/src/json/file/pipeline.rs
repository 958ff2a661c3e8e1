//! What the file of a pipeline says.

use serde::{Deserialize, Serialize};

use super::{Body, Holding, Machine, Proof, Recipe, Term};

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct PipelineFile {
    #[serde(rename = "format")]
    pub(in crate::json) _format: String,
    #[serde(rename = "version")]
    pub(in crate::json) _version: u64,
    pub(in crate::json) checksum: String,
    pub(in crate::json) pipeline: PipelineBody,
}

/// A pipeline.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct PipelineBody {
    pub(in crate::json) machine: Machine,
    pub(in crate::json) devices_per_node: u64,
    pub(in crate::json) schedule: Schedule,
    pub(in crate::json) crossings: Vec<Crossing>,
    pub(in crate::json) recipe: Recipe,
    pub(in crate::json) estimate: Vec<Term>,
    /// For each group of devices.
    pub(in crate::json) memory: Vec<Vec<Holding>>,
    pub(in crate::json) capacity: u64,
    pub(in crate::json) proof: Proof,
    pub(in crate::json) stages: Vec<Stage>,
}

/// The text form of a schedule, a line for each group.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Schedule {
    pub(in crate::json) chunks: usize,
    pub(in crate::json) splits_backward: bool,
    pub(in crate::json) groups: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Crossing {
    pub(in crate::json) name: String,
    pub(in crate::json) from: usize,
    pub(in crate::json) to: Vec<Arrival>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Arrival {
    pub(in crate::json) stage: usize,
    pub(in crate::json) strategy: String,
    pub(in crate::json) chunks: u64,
    pub(in crate::json) bytes: u64,
    pub(in crate::json) seconds: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Stage {
    pub(in crate::json) first_block: usize,
    pub(in crate::json) first_device: u64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(in crate::json) adapters: u64,
    pub(in crate::json) plan: Body,
}

/// How many adapters a node has of which it is not said.
fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_one(adapters: &u64) -> bool {
    *adapters == 1
}
