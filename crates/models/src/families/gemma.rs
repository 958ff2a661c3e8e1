//! Gemma: norms around one, softly bounded scores, sliding layers.

use super::common::{activation, head, names, sizes, windows};
use crate::config::{Config, Result};
use crate::decoder::{Decoder, NormKind, Norms, Pairing, Units};
use crate::rotary::{self, real};

/// What `Gemma2Config` and `Gemma3TextConfig` have where a configuration says nothing.
const HEAD: u64 = 256;
const SCALAR: f64 = 256.0;
const WINDOW: u64 = 4096;
const FINAL_BOUND: f64 = 30.0;
const SCORE_BOUND: f64 = 50.0;
const LOCAL_BASE: f64 = 10_000.0;
const GLOBAL_BASE: f64 = 1_000_000.0;
/// Of so many layers of Gemma 3 the last is not sliding.
const PATTERN: u64 = 6;

pub(super) fn decoder(config: &Config, kind: &str) -> Result<Decoder> {
    let sizes = sizes(config, Some(HEAD), NormKind::RmsAroundOne)?;
    let length = config.count("intermediate_size")?;
    let bias = config.flag_or("attention_bias", false)?;
    let (is_first, is_third) = (kind == "gemma", kind == "gemma3_text");
    // The first one's older key is not what its code computes with.
    if is_first {
        config.pass_over(&["hidden_act"]);
    }
    let key = if is_first && !config.has("hidden_activation") { "hidden_act" } else { "hidden_activation" };
    let act = match key {
        "hidden_act" => activation(config, key, "gelu_pytorch_tanh")?,
        _ => {
            config.pass_over(&["hidden_act"]);
            activation(config, key, "gelu_pytorch_tanh")?
        }
    };
    let scalar = if is_first { real(sizes.size) } else { config.real_or("query_pre_attn_scalar", SCALAR)? };
    let bound = |key: &str, default: f64| -> Result<Option<f64>> {
        match config.real_if(key)? {
            None if kind == "gemma2" && !config.has(key) => Ok(Some(default)),
            found => Ok(found),
        }
    };
    let (scores, logits) = if is_first {
        (None, None)
    } else {
        (bound("attn_logit_softcapping", SCORE_BOUND)?, bound("final_logit_softcapping", FINAL_BOUND)?)
    };
    let windows = if is_first {
        windows(config, sizes.layers, None, |_| false)?
    } else {
        let key = if config.has("sliding_window_pattern") {
            "sliding_window_pattern"
        } else {
            "_sliding_window_pattern"
        };
        let every = if is_third { config.number_or(key, PATTERN)? } else { 2 };
        config.pass_over(&["cache_implementation"]);
        let window = config.count_or("sliding_window", WINDOW)?;
        // An older name, which some have besides.
        if config.number_if("sliding_window_size")?.is_some_and(|it| it != window) {
            return Err(config.wrong("sliding_window_size", format!("{window}, as `sliding_window`")));
        }
        let is_sliding = |layer: u64| every == 0 || !(layer + 1).is_multiple_of(every);
        windows(config, sizes.layers, Some(window), is_sliding)?
    };
    let mut tables = match is_third {
        true => vec![rotary::table_with(config, sizes.size, Pairing::Halves, GLOBAL_BASE)?],
        false => vec![rotary::table(config, sizes.size, Pairing::Halves)?],
    };
    if is_third {
        config.only("use_bidirectional_attention", false, false)?;
        let base = config.real_or("rope_local_base_freq", LOCAL_BASE)?;
        tables.push(rotary::plain(base, sizes.size, Pairing::Halves));
    }
    let layer = |(name, window): (String, Option<u64>)| {
        let mut attention = sizes.attention(&name, [bias; 2]);
        attention.scale = scalar.sqrt().recip();
        attention.softcap = scores;
        attention.window = window;
        if is_third {
            let norm = |it: &str| sizes.norm(format!("{name}.self_attn.{it}"));
            attention.norms = Some([norm("q_norm"), norm("k_norm")]);
            attention.table = Some(usize::from(window.is_some()));
        }
        let units = sizes.gated(format!("{name}.mlp"), length, act, false);
        let mut layer = sizes.layer(name.clone(), attention, Units::Dense(units));
        if !is_first {
            let norm = |it: &str| Some(sizes.norm(format!("{name}.{it}")));
            layer.mixer_norms.after = norm("post_attention_layernorm");
            layer.units_norms = Norms {
                before: norm("pre_feedforward_layernorm"),
                after: norm("post_feedforward_layernorm"),
            };
        }
        layer
    };
    let layers = names(sizes.layers).zip(windows).map(layer).collect();
    let mut head = head(config, true)?;
    head.softcap = logits;
    let mut decoder = sizes.decoder(tables, layers, head);
    decoder.embedding_scale = Some(real(sizes.hidden).sqrt());
    Ok(decoder)
}
