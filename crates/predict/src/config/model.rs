//! The model that a configuration states.

use toml::Value;

use super::{ConfigError, Fields};
use crate::model::{Dense, Embedding, Experts, Latent, Mlp, Model};

pub(super) fn model(fields: &Fields) -> Result<Model, ConfigError> {
    let (hidden, heads) = (fields.needed("hidden_size")?, fields.needed("num_attention_heads")?);
    let gated = fields.flag("swiglu", false)?;
    let untied = fields.flag("untie_embeddings_and_output_weights", gated)?;
    let top_k = fields.count("moe_router_topk")?.unwrap_or(2);
    let shared = fields.count("moe_shared_expert_intermediate_size")?.unwrap_or(0);
    let usual = hidden / heads.max(1);
    let (layers, further) = (fields.needed("num_layers")?, fields.count("mtp_num_layers")?.unwrap_or(0));
    let width = fields.count("ffn_hidden_size")?.unwrap_or(4 * hidden);
    let of_expert = fields.positive("moe_ffn_hidden_size")?.unwrap_or(width);
    let experts = fields.count("num_experts")?.map(|count| Experts { count, top_k, shared });
    Ok(Model {
        layers: layers + further,
        further,
        hidden,
        heads,
        kv_heads: fields.count("num_query_groups")?.unwrap_or(heads),
        head_size: fields.count("kv_channels")?.unwrap_or(usual),
        latent: latent(fields)?,
        ffn_hidden: if experts.is_some() { of_expert } else { width },
        dense: if experts.is_some() { dense(fields, layers, width)? } else { None },
        mlp: if gated { Mlp::Gated } else { Mlp::Plain },
        vocab: fields.count("vocab_size")?.unwrap_or(51_200),
        seq: fields.needed("seq_length")?,
        experts,
        embedding: if untied { Embedding::Untied } else { Embedding::Tied },
    })
}

/// The layers without experts, which are so wide; none if every layer has some.
///
/// Source: Megatron-LM, `megatron/core/models/gpt/gpt_layer_specs.py`, `get_gpt_decoder_block_spec`.
fn dense(fields: &Fields, layers: u64, width: u64) -> Result<Option<Dense>, ConfigError> {
    const KEY: &str = "moe_layer_freq";
    let expected =
        || format!("n for every n-th layer, or a list of a 1 (experts) or 0 for each of {layers}, with a 1");
    let has: Box<dyn Fn(u64) -> bool> = match fields.table.get(KEY) {
        None => return Ok(None),
        Some(Value::Array(_)) => {
            let each = fields.counts(KEY)?.unwrap_or_default();
            if u64::try_from(each.len()) != Ok(layers) || each.iter().any(|it| *it > 1) || !each.contains(&1)
            {
                return Err(fields.wrong(KEY, expected()));
            }
            Box::new(move |it| usize::try_from(it).ok().and_then(|it| each.get(it)) == Some(&1))
        }
        Some(_) => {
            let every = fields.positive(KEY).map_err(|_| fields.wrong(KEY, expected()))?.unwrap_or(1);
            Box::new(move |it| it.is_multiple_of(every))
        }
    };
    let without: Vec<u64> = (0..layers).filter(|it| !has(*it)).collect();
    Ok((!without.is_empty()).then_some(Dense { layers: without, width }))
}

/// Latent attention: all of its keys but that of queries, or none.
fn latent(fields: &Fields) -> Result<Option<Latent>, ConfigError> {
    let query_rank = fields.positive("q_lora_rank")?;
    let keys = ["kv_lora_rank", "qk_pos_emb_head_dim", "v_head_dim"];
    let mut sizes = [None; 3];
    for (key, size) in keys.into_iter().zip(&mut sizes) {
        *size = fields.positive(key)?;
    }
    match sizes {
        [Some(rank), Some(rotary), Some(value)] => Ok(Some(Latent { query_rank, rank, rotary, value })),
        [None, None, None] if query_rank.is_none() => Ok(None),
        _ => {
            let missing = keys.iter().zip(&sizes).find(|(_, size)| size.is_none());
            Err(ConfigError::Missing(missing.map_or(keys[0], |(key, _)| *key)))
        }
    }
}
