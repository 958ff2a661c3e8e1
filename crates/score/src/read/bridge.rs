//! Configurations of Megatron-Bridge: YAML with sections, whose keys are those of Megatron-Core.
//!
//! Source: Megatron-Bridge, `src/megatron/bridge/training/config.py`, version 0.2.

use serde_json::Value;

use super::given::Given;
use super::{ReadError, given};

/// Sections that say nothing of time or memory.
const APART: [&str; 20] = [
    "logger",
    "checkpoint",
    "tokenizer",
    "rng",
    "profiling",
    "scheduler",
    "rerun_state_machine",
    "ft",
    "straggler",
    "nvrx_straggler",
    "inprocess_restart",
    "validation",
    "optimizer",
    "dist",
    "dataset",
    "data",
    "tensor_inspect",
    "inference",
    "profile",
    "env",
];

/// What it states, by the names of Megatron-LM.
pub(super) fn given(text: &str) -> Result<Given, ReadError> {
    let value: Value = serde_yaml_ng::from_str(text)
        .map_err(|error| ReadError::Language(format!("is not YAML: {error}")))?;
    let sections = value.as_object().ok_or_else(|| {
        ReadError::Language(
            "is not a configuration of Megatron-Bridge: expected sections such as `model:`".to_owned(),
        )
    })?;
    let mut found = Given::default();
    for (section, inside) in sections {
        match inside {
            Value::Object(keys) => {
                keys.iter().for_each(|(key, value)| state(&mut found, section, key, value))
            }
            Value::Null => {}
            other => state(&mut found, "", section, other),
        }
    }
    if found.has("sequence_length") && !found.has("seq_length") {
        let tokens = found.words("sequence_length");
        found.state("seq_length", tokens, String::new());
    }
    Ok(found)
}

fn state(found: &mut given::Given, section: &str, key: &str, value: &Value) {
    let dot = if section.is_empty() { "" } else { "." };
    let shown = format!("{section}{dot}{key}: {value}");
    let name = match (section, key) {
        ("optimizer", "use_distributed_optimizer")
        | ("dataset" | "data", "sequence_length" | "seq_length") => key,
        ("ddp", "data_parallel_sharding_strategy") => key,
        // Where a section says nothing of time or memory, its keys are known not to.
        (apart, _) if APART.contains(&apart) => {
            return found.state(&format!("log_{apart}_{key}"), Vec::new(), shown);
        }
        _ if key == "_target_" => return found.state("log_target", Vec::new(), shown),
        _ => key,
    };
    let values = match value {
        Value::Null => return,
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => {
            items.iter().map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned)).collect()
        }
        other => vec![other.to_string()],
    };
    found.state(name, values, shown);
}
