//! A configuration of Megatron-Bridge: YAML that goes over a recipe of the model.
//!
//! Source: Megatron-Bridge 0.2, `src/megatron/bridge/training/config.py` for sections and keys.

use crate::file::File;
use crate::megatron::{Key, is_told, told};
use crate::model::Model;
use crate::strategy::Strategy;

/// The sections, in the order of a recipe; what is in none stands first.
const SECTIONS: [&str; 8] = ["", "model", "train", "optimizer", "ddp", "dist", "dataset", "checkpoint"];

/// The configuration.
pub(crate) fn files(strategy: &Strategy, model: &Model, lost: &mut Vec<String>) -> Vec<File> {
    let told = told(strategy, model);
    told.not_found(lost, |(_, key)| key);
    if told.bounded {
        lost.push("experts are gated by x sigmoid(1.702 x): `activation_func` is the recipe's".to_owned());
    }
    let keys: Vec<&Key> = told.parts.iter().flat_map(|it| &it.1).flat_map(|it| &it.keys).collect();
    let mut text = format!(
        "# Megatron-Bridge for a plan of Shardloom, on {} devices: what goes over a recipe of the model, in a script\n\
         # that has one and takes `--config-file`. The recipe's are the tokenizer, data, {}learning\n\
         # rates and how long to train.\n",
        strategy.devices,
        if is_told(model) { "" } else { "the rotary base, " },
    );
    for section in SECTIONS {
        let mut inside = keys.iter().filter(|it| it.0 == section).peekable();
        if inside.peek().is_some() && !section.is_empty() {
            text += &format!("{section}:\n");
        }
        let space = if section.is_empty() { "" } else { "  " };
        inside.for_each(|(_, key, value)| text += &format!("{space}{key}: {value}\n"));
    }
    vec![File { name: "bridge.yaml", text }]
}

#[cfg(test)]
mod tests {
    use super::SECTIONS;

    #[test]
    fn sections_stand_once() {
        let mut sorted = SECTIONS.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), SECTIONS.len());
    }
}
