//! The sizes of a model from its `config.json`, as stated setups have them.

use serde_json::Value;

use super::{FURTHER, Read, ReadError, integer};

/// Families whose layers are all alike in what is priced: attention over all tokens, and a feed-forward part with
/// or without a gate.
const GATED: [&str; 22] = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3",
    "phi3",
    "glm",
    "glm4",
    "granite",
    "olmo2",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
    "glm4_moe",
    "smollm3",
];
const PLAIN: [&str; 5] = ["gpt2", "gpt_neox", "gptj", "phi", "starcoder2"];

/// Sets the keys of the model.
pub(super) fn model(read: &mut Read, text: &str) -> Result<(), ReadError> {
    let config: Value = serde_json::from_str(text)
        .map_err(|error| ReadError::Model(format!("the model's configuration is not JSON: {error}")))?;
    let config = config.get("text_config").unwrap_or(&config);
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let gated = GATED.contains(&kind);
    if !gated && !PLAIN.contains(&kind) {
        let known: Vec<&str> = GATED.into_iter().chain(PLAIN).collect();
        return Err(ReadError::Model(format!(
            "the model's configuration has `model_type` `{kind}`, expected one of {}: layers of others are not \
             stated setups",
            known.join(", ")
        )));
    }
    let config = &Config(config);
    let (hidden, heads) =
        (config.needed(&["hidden_size", "n_embd"])?, config.needed(&["num_attention_heads", "n_head"])?);
    let layers = config.needed(&["num_hidden_layers", "n_layer"])?;
    read.set("hidden_size", integer(hidden))?;
    read.set("num_attention_heads", integer(heads))?;
    read.set("vocab_size", integer(config.needed(&["vocab_size"])?))?;
    read.set("swiglu", gated)?;
    let ties = matches!(kind, "gemma" | "gemma2" | "gemma3" | "gemma3_text" | "gpt2" | "starcoder2");
    let tied = config.0.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(ties);
    read.set("untie_embeddings_and_output_weights", !tied)?;
    let wide = config.count(&["intermediate_size", "n_inner"]).unwrap_or(4 * hidden);
    experts(read, config, (wide, layers, kind))?;
    attention(read, config, [hidden, heads])?;
    if let Some(window) = config.count(&["sliding_window"])
        && config.0.get("use_sliding_window") != Some(&Value::Bool(false))
    {
        read.take(format!("sliding_window {window}"), "attention over all tokens");
    }
    if let Some(further) = config.count(&[FURTHER]).filter(|it| *it > 0) {
        read.further = further;
        read.take(format!("{FURTHER} {further}"), "not trained, unless the arguments say that they are");
    }
    read.set("num_layers", integer(layers))
}

/// A configuration of transformers.
struct Config<'a>(&'a Value);

impl Config<'_> {
    /// A whole number by the first of its names that is there.
    fn count(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.0.get(name).and_then(Value::as_u64))
    }

    /// One that has to be there.
    fn needed(&self, names: &[&str]) -> Result<u64, ReadError> {
        self.count(names).ok_or_else(|| {
            ReadError::Model(format!("the model's configuration lacks `{}`, a whole number", names[0]))
        })
    }

    /// Whether each layer has experts, where the model has some: of Qwen every `n`-th that is not listed, of
    /// DeepSeek and those after it every `n`-th after the first few.
    ///
    /// Source: transformers, `modeling_qwen3_moe.py` and `modeling_deepseek_v3.py`, and the defaults of their
    /// configurations.
    fn layers_with_experts(&self, kind: &str, layers: u64) -> Result<Vec<bool>, ReadError> {
        let number = |name: &str, otherwise: u64| match self.0.get(name) {
            None | Some(Value::Null) => Ok(otherwise),
            Some(value) => value.as_u64().ok_or_else(|| Self::is_not(name, value, "a whole number")),
        };
        let first = match kind {
            "deepseek_v3" | "kimi_k2" => number("first_k_dense_replace", 3)?,
            "glm4_moe" => number("first_k_dense_replace", 1)?,
            "deepseek_v2" => number("first_k_dense_replace", 0)?,
            _ => 0,
        };
        let (often, sparse) = match kind {
            "qwen2_moe" | "qwen3_moe" => (1, number("decoder_sparse_step", 1)?),
            "deepseek_v2" | "deepseek_v3" | "kimi_k2" => (number("moe_layer_freq", 1)?, 1),
            _ => (1, 1),
        };
        let listed =
            match self.0.get("mlp_only_layers").filter(|it| !it.is_null() && kind.starts_with("qwen")) {
                None => Vec::new(),
                Some(value) => {
                    let all: Option<Vec<u64>> =
                        value.as_array().and_then(|it| it.iter().map(Value::as_u64).collect());
                    all.ok_or_else(|| Self::is_not("mlp_only_layers", value, "a list of layers"))?
                }
            };
        let every = |it: u64, step: u64| it.is_multiple_of(step.max(1));
        let has = |it: u64| it >= first && every(it, often) && every(it + 1, sparse) && !listed.contains(&it);
        Ok((0..layers).map(has).collect())
    }

    fn is_not(name: &str, value: &Value, expected: &str) -> ReadError {
        ReadError::Model(format!("the model's configuration has `{name}` {value}, expected {expected}"))
    }
}

/// Sets how wide feed-forward parts are, and the keys of experts.
fn experts(
    read: &mut Read,
    config: &Config<'_>,
    (wide, layers, kind): (u64, u64, &str),
) -> Result<(), ReadError> {
    let experts =
        config.count(&["n_routed_experts", "num_local_experts", "num_experts"]).filter(|it| *it > 1);
    let Some(experts) = experts else { return read.set("ffn_hidden_size", integer(wide)) };
    let with = config.layers_with_experts(kind, layers)?;
    if !with.contains(&true) {
        return read.set("ffn_hidden_size", integer(wide));
    }
    let width = config.count(&["moe_intermediate_size"]).unwrap_or(wide);
    read.set("num_experts", integer(experts))?;
    read.set("moe_ffn_hidden_size", integer(width))?;
    read.set("moe_router_topk", integer(config.needed(&["num_experts_per_tok", "experts_per_token"])?))?;
    let shared = config.count(&["n_shared_experts"]).map(|it| it * width);
    let shared = config.count(&["shared_expert_intermediate_size"]).or(shared).filter(|it| *it > 0);
    read.count("moe_shared_expert_intermediate_size", shared)?;
    read.experts_in(&with)?;
    if with.contains(&false) { read.set("ffn_hidden_size", integer(wide)) } else { Ok(()) }
}

/// Sets the keys of the heads of attention.
fn attention(read: &mut Read, config: &Config<'_>, [hidden, heads]: [u64; 2]) -> Result<(), ReadError> {
    if let Some(rank) = config.count(&["kv_lora_rank"]) {
        read.set("kv_lora_rank", integer(rank))?;
        read.count("q_lora_rank", config.count(&["q_lora_rank"]))?;
        read.set("kv_channels", integer(config.needed(&["qk_nope_head_dim"])?))?;
        read.set("qk_pos_emb_head_dim", integer(config.needed(&["qk_rope_head_dim"])?))?;
        read.set("v_head_dim", integer(config.needed(&["v_head_dim"])?))?;
        read.set("num_query_groups", integer(heads))?;
    } else {
        read.set("num_query_groups", integer(config.count(&["num_key_value_heads"]).unwrap_or(heads)))?;
        read.set("kv_channels", integer(config.count(&["head_dim"]).unwrap_or(hidden / heads.max(1))))?;
    }
    Ok(())
}
