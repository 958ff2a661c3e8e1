//! DeepSeek V2 and V3, and Kimi K2: latent attention, shared experts, dense first layers.

use super::common::{activation, further, head, names, sizes};
use super::mixture::{WEIGHTS, biased, counts, first_dense, groups, of_layer, shared};
use crate::config::{Config, Result};
use crate::decoder::{
    Activation, Decoder, Experts, Inside, Latent, Layer, Mixer, NormKind, Pairing, Router, Scores, Units,
};
use crate::rotary::{self, magnitude, real};

pub(super) fn decoder(config: &Config, kind: &str) -> Result<Decoder> {
    let is_second = kind == "deepseek_v2";
    let [plain, rotated, value] =
        ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"].map(|key| config.count(key));
    let (plain, rotated, value) = (plain?, rotated?, value?);
    config.pass_over(&["head_dim", "qk_head_dim", "num_key_value_heads"]);
    let sizes = sizes(config, Some(plain + rotated), NormKind::Rms)?;
    let act = activation(config, "hidden_act", "silu")?;
    let length = config.count("intermediate_size")?;
    config.only("mlp_bias", false, false)?;
    let is_paired = is_second || config.flag_or("rope_interleave", true)?;
    let pairing = if is_paired { Pairing::Neighbours } else { Pairing::Halves };
    let table = rotary::table(config, rotated, pairing)?;
    let latent = Latent {
        name: String::new(),
        heads: sizes.heads,
        plain,
        rotated,
        value,
        query_rank: config.number_if("q_lora_rank")?,
        rank: config.count("kv_lora_rank")?,
        bias: config.flag_or("attention_bias", false)?,
        // The norms inside have the default of their class.
        epsilon: 1e-6,
        table: 0,
        scale: scale(config, plain + rotated)?,
    };
    if config.number_or("moe_layer_freq", 1)? != 1 {
        return Err(config.wrong("moe_layer_freq", "1"));
    }
    let experts = if is_second { second(config, &sizes, act)? } else { third(config, &sizes, act)? };
    let is_dense = first_dense(config, sizes.layers, if is_second { 0 } else { 3 })?;
    let layer = |(name, is_dense): (String, bool)| {
        let units = match is_dense {
            true => Units::Dense(sizes.gated(format!("{name}.mlp"), length, act, false)),
            false => Units::Experts(Box::new(of_layer(&experts, &format!("{name}.mlp")))),
        };
        let latent = Latent { name: format!("{name}.self_attn"), ..latent.clone() };
        let layer = sizes.layer(name.clone(), sizes.attention(&name, [false; 2]), units);
        Layer { mixer: Mixer::Latent(latent), ..layer }
    };
    let layers = names(sizes.layers).zip(is_dense).map(layer).collect();
    let further = further(config, &sizes, |name| layer((name, false)))?;
    Ok(Decoder { further, ..sizes.decoder(vec![table], layers, head(config, false)?) })
}

/// What scores are multiplied by; more where angles are stretched.
fn scale(config: &Config, size: u64) -> Result<f64> {
    let plain = real(size).sqrt().recip();
    let stretched = match config.inner("rope_scaling")? {
        Some(scaling) => Some(scaling),
        None => config.inner("rope_parameters")?,
    };
    let Some(scaling) = stretched else { return Ok(plain) };
    let (factor, all) = (scaling.real_or("factor", 1.0)?, scaling.real_or("mscale_all_dim", 0.0)?);
    let grown = if all == 0.0 { 1.0 } else { magnitude(factor, all) };
    Ok(plain * grown * grown)
}

fn third(config: &Config, sizes: &super::common::Sizes, activation: Activation) -> Result<Experts> {
    for (key, known) in [("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")] {
        if config.text_if(key)?.is_some_and(|found| found != known) {
            return Err(config.wrong(key, known));
        }
    }
    biased(config, sizes, activation)
}

fn second(config: &Config, sizes: &super::common::Sizes, activation: Activation) -> Result<Experts> {
    let [count, active] = counts(config, "n_routed_experts")?;
    let length = config.count("moe_intermediate_size")?;
    if config.text_if("scoring_func")?.is_some_and(|found| found != "softmax") {
        return Err(config.wrong("scoring_func", "softmax"));
    }
    config.only("norm_topk_prob", false, false)?;
    let groups = match config.text_if("topk_method")?.as_deref().unwrap_or("greedy") {
        "greedy" => {
            config.pass_over(&["n_group", "topk_group"]);
            None
        }
        "group_limited_greedy" => groups(config, count, 1)?,
        _ => return Err(config.wrong("topk_method", "greedy or group_limited_greedy")),
    };
    let router = Router {
        weight: "gate.weight".to_owned(),
        added: None,
        scores: Scores::Softmax,
        bias: None,
        groups,
        normalized: None,
        factor: config.real_or("routed_scaling_factor", 1.0)?,
        wide: true,
    };
    let shared = shared(config, sizes, length, activation)?;
    let inside = Inside::Gated { activation, weights: WEIGHTS };
    Ok(Experts { name: String::new(), count, active, length, inside, router, shared })
}
