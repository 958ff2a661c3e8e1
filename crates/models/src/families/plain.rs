//! Llama and those that differ from it in little: Mistral, Qwen, Phi-3, GLM, Granite, OLMo 2, SmolLM 3.

use super::common::{activation, head, linear, names, rotated, sizes, windows};
use crate::config::{Config, Result};
use crate::decoder::{Decoder, NormKind, Norms, Pairing, Projections, Units, Up};
use crate::rotary;

/// The window of Mistral, and of Qwen where it has one, where none is said.
const WINDOW: u64 = 4096;
/// The layers of Qwen before those that have windows.
const FULL_LAYERS: u64 = 28;

pub(super) fn decoder(config: &Config, kind: &str) -> Result<Decoder> {
    let is_glm = matches!(kind, "glm" | "glm4");
    let size = match kind {
        "qwen3" | "glm" | "glm4" => Some(128),
        _ => None,
    };
    let sizes = sizes(config, size, NormKind::Rms)?;
    let length = config.count("intermediate_size")?;
    let act = activation(config, "hidden_act", "silu")?;
    let [inner, out] = biases(config, kind)?;
    let part = if is_glm { 0.5 } else { 1.0 };
    let pairing = if is_glm { Pairing::Neighbours } else { Pairing::Halves };
    let turned = match kind {
        "glm" | "glm4" | "phi3" => rotated(config, "partial_rotary_factor", sizes.size, part)?,
        _ => sizes.size,
    };
    let table = rotary::table(config, turned, pairing)?;
    if kind == "phi3" {
        // Which only scaled angles look at.
        config.pass_over(&["original_max_position_embeddings"]);
    }
    let windows = windows_of(config, kind, sizes.layers)?;
    let unrotated = unrotated(config, kind, sizes.layers)?;
    let mlp_bias = matches!(kind, "llama" | "granite" | "smollm3") && config.flag_or("mlp_bias", false)?;
    let multiplier = |key: &str| -> Result<Option<f64>> {
        if kind == "granite" { config.real_or(key, 1.0).map(Some) } else { Ok(None) }
    };
    let [residual, scale] = [multiplier("residual_multiplier")?, multiplier("attention_multiplier")?];
    let layer = |(name, (number, window)): (String, (usize, Option<u64>))| {
        let mut attention = sizes.attention(&name, [inner, out]);
        attention.window = window;
        attention.scale = scale.unwrap_or(attention.scale);
        if unrotated[number] {
            attention.table = None;
        }
        let norm = |it: &str| sizes.norm(format!("{name}.self_attn.{it}"));
        if matches!(kind, "qwen3" | "olmo2") {
            attention.norms = Some([norm("q_norm"), norm("k_norm")]);
            attention.norms_whole = kind == "olmo2";
        }
        if kind == "phi3" {
            attention.projections = Projections::Blocks(linear(format!("{name}.self_attn.qkv_proj"), false));
        }
        let mut units = sizes.gated(format!("{name}.mlp"), length, act, mlp_bias);
        if is_glm || kind == "phi3" {
            units.up = Up::Together(linear(format!("{name}.mlp.gate_up_proj"), false));
        }
        let mut layer = sizes.layer(name.clone(), attention, Units::Dense(units));
        layer.residual = residual;
        let norm = |it: &str| Some(sizes.norm(format!("{name}.{it}")));
        if kind == "glm4" {
            layer.mixer_norms.after = norm("post_self_attn_layernorm");
            layer.units_norms.after = norm("post_mlp_layernorm");
        }
        if kind == "olmo2" {
            layer.mixer_norms = Norms { before: None, after: norm("post_attention_layernorm") };
            layer.units_norms = Norms { before: None, after: norm("post_feedforward_layernorm") };
        }
        layer
    };
    let layers = names(sizes.layers).zip(windows.into_iter().enumerate()).map(layer).collect();
    let mut head = head(config, kind == "smollm3")?;
    head.scale = multiplier("logits_scaling")?.map(f64::recip);
    let mut decoder = sizes.decoder(vec![table], layers, head);
    decoder.embedding_scale = multiplier("embedding_multiplier")?;
    Ok(decoder)
}

/// Whether queries, keys and values have biases, and whether what attention makes has one.
fn biases(config: &Config, kind: &str) -> Result<[bool; 2]> {
    Ok(match kind {
        "qwen2" => [true, false],
        "glm" | "glm4" => [config.flag_or("attention_bias", true)?, false],
        "mistral" | "phi3" => {
            config.only("attention_bias", false, false)?;
            [false, false]
        }
        _ => [config.flag_or("attention_bias", false)?; 2],
    })
}

fn windows_of(config: &Config, kind: &str, layers: u64) -> Result<Vec<Option<u64>>> {
    match kind {
        "mistral" => {
            let default = if config.has("sliding_window") { None } else { Some(WINDOW) };
            windows(config, layers, config.number_if("sliding_window")?.or(default), |_| true)
        }
        "phi3" => windows(config, layers, config.number_if("sliding_window")?, |_| true),
        "qwen2" | "qwen3" => {
            let window = config.count_or("sliding_window", WINDOW)?;
            let window = config.flag_or("use_sliding_window", false)?.then_some(window);
            let full = config.number_or("max_window_layers", FULL_LAYERS)?;
            windows(config, layers, window, |layer| layer >= full)
        }
        "smollm3" => {
            let window = config.number_if("sliding_window")?;
            let window = if config.flag_or("use_sliding_window", false)? { window } else { None };
            config.pass_over(&["max_window_layers"]);
            windows(config, layers, window, |_| false)
        }
        _ => windows(config, layers, None, |_| false),
    }
}

/// Which layers have no positions.
fn unrotated(config: &Config, kind: &str, layers: u64) -> Result<Vec<bool>> {
    let count = usize::try_from(layers).unwrap_or(usize::MAX);
    if kind != "smollm3" {
        return Ok(vec![false; count]);
    }
    let every = config.number_or("no_rope_layer_interval", 4)?;
    match config.numbers_if("no_rope_layers")? {
        Some(all) if all.len() == count => Ok(all.into_iter().map(|it| it == 0).collect()),
        Some(_) => Err(config.wrong("no_rope_layers", format!("{layers} numbers, one for each layer"))),
        None => Ok((1..=layers).map(|it| every > 0 && it.is_multiple_of(every)).collect()),
    }
}
