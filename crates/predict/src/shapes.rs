//! Shapes of published models, for measurements that name them only.

use std::sync::LazyLock;

use cost_models::frameworks::SHAPES as SHAPES_FILE;
use serde_json::Value;

use crate::model::{Dense, Embedding, Experts, Latent, Mlp, Model};

static SHAPES: LazyLock<Vec<(Vec<String>, Model)>> =
    LazyLock::new(|| read(SHAPES_FILE).expect("a test reads the shipped shapes"));

/// The model called so, with examples of `seq` tokens.
#[must_use]
pub fn named(name: &str, seq: u64) -> Option<Model> {
    let name = plain(name);
    let shape = SHAPES.iter().find(|(names, _)| names.contains(&name));
    shape.map(|(_, model)| Model { seq, ..model.clone() })
}

/// A name without case, blanks and signs.
fn plain(name: &str) -> String {
    name.chars().filter(|it| it.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn read(text: &str) -> Option<Vec<(Vec<String>, Model)>> {
    let value: Value = serde_json::from_str(text).ok()?;
    value.get("shapes")?.as_array()?.iter().map(shape).collect()
}

fn shape(value: &Value) -> Option<(Vec<String>, Model)> {
    let count = |name: &str| value.get(name)?.as_u64();
    let names = value.get("names")?.as_array()?.iter().map(|it| it.as_str().map(plain));
    let gated = value.get("gated")?.as_bool()?;
    value.get("source")?.as_str().filter(|source| !source.is_empty())?;
    let model = Model {
        layers: count("layers")?,
        further: 0,
        hidden: count("hidden")?,
        heads: count("heads")?,
        kv_heads: count("kv_heads")?,
        head_size: count("head_size")?,
        dense: count("dense_layers")
            .zip(count("dense"))
            .map(|(first, width)| Dense { layers: (0..first).collect(), width }),
        latent: count("rank")
            .zip(count("rotary").zip(count("value")))
            .map(|(rank, (rotary, value))| Latent { query_rank: count("query_rank"), rank, rotary, value }),
        ffn_hidden: count("ffn_hidden")?,
        mlp: if gated { Mlp::Gated } else { Mlp::Plain },
        vocab: count("vocab")?,
        seq: 1,
        experts: count("experts").zip(count("top_k")).map(|(number, top_k)| {
            let shared = count("shared").unwrap_or(0);
            Experts { count: number, top_k, shared }
        }),
        embedding: if gated { Embedding::Untied } else { Embedding::Tied },
    };
    Some((names.collect::<Option<_>>()?, model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_parameters_that_are_published() {
        let published = [
            ("LLaMA 7B", 6.74),
            ("llama-3.1-8b", 8.03),
            ("LLAMA2_70B", 69.0),
            ("LLaMA 3.1 405B", 405.9),
            ("GPT 175B", 174.6),
            ("Mixtral 8x7B", 46.7),
            ("Nemotron_340B", 341.0),
        ];
        for (name, billions) in published {
            let found = named(name, 1).unwrap().parameters() / 1e9;
            assert!((found / billions - 1.0).abs() < 0.02, "{name}: {found}");
        }
        assert_eq!(named("a model of nobody", 1), None);
    }

    /// DeepSeek V3 has 58 layers of experts, and three that are dense.
    #[test]
    fn latent_attention_and_shared_experts_have_their_parameters() {
        let model = named("DeepSeekV3", 4096).unwrap();
        assert!((model.parameters() / 1e9 - 671.03).abs() < 0.01, "{}", model.parameters());
        // Of 7168 to 1536, 512 and 64; of 1536 to 128 · 192 and of 512 to 128 · 256; of 128 · 128 to 7168.
        let attention = 7168 * 2112 + 1536 * 24_576 + 512 * 32_768 + 16_384 * 7168;
        let rest = 4 * 7168 + 256 * 7168 + 3 * 7168 * 2048;
        assert!((model.layer_parameters() / f64::from(attention + rest) - 1.0).abs() < 1e-12);
        assert_eq!((model.key_size(), model.value_size(), model.qkv_columns()), (192, 128, 128 * 512));
    }
}
