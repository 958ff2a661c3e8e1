//! What the file of generation says.

use serde::{Deserialize, Serialize};

use super::Body;

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct GenerationFile {
    #[serde(rename = "format")]
    pub(in crate::json) _format: String,
    #[serde(rename = "version")]
    pub(in crate::json) _version: u64,
    pub(in crate::json) checksum: String,
    pub(in crate::json) generation: GenerationBody,
}

/// Plans of the steps by which tokens are made.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct GenerationBody {
    pub(in crate::json) cache: Cache,
    /// `null` where prompts are taken token by token; never missing.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(in crate::json) prefill: Option<Body>,
    pub(in crate::json) decode: Body,
    /// Missing where it is the least of what both plans may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::json) capacity: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Cache {
    pub(in crate::json) tokens: String,
    #[serde(deserialize_with = "Option::deserialize")]
    pub(in crate::json) mask: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub(in crate::json) positions: Option<Positions>,
    pub(in crate::json) logits: String,
    pub(in crate::json) kept: Vec<Kept>,
    pub(in crate::json) dim: usize,
    pub(in crate::json) growth: Growth,
    pub(in crate::json) capacity: u64,
    /// Missing where no step writes its entry in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::json) slot: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::json) enum Growth {
    Behind,
    AtLength,
    AtPosition,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Positions {
    pub(in crate::json) name: String,
    pub(in crate::json) nodes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Kept {
    pub(in crate::json) past: String,
    pub(in crate::json) present: String,
    /// Missing where there is a place for each token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::json) form: Option<Form>,
    /// Missing where attention sees all places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::json) window: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::json) enum Form {
    State,
}
