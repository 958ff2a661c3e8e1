//! gpt-oss: attention with sinks, windows in every other layer, and experts that are bounded and have biases.

use super::common::{head, names, sizes, windows};
use super::mixture::{counts, of_layer};
use crate::config::{Config, Result};
use crate::decoder::{Decoder, Experts, Inside, NormKind, Pairing, Router, Scores, Units};
use crate::rotary;

/// The base of angles, the window and the limit where none is said.
///
/// Source: `configuration_gpt_oss.py` and `modeling_gpt_oss.py` of transformers 4.57.
const BASE: f64 = 150_000.0;
const WINDOW: u64 = 128;
const LIMIT: f64 = 7.0;

pub(super) fn decoder(config: &Config) -> Result<Decoder> {
    let sizes = sizes(config, Some(64), NormKind::Rms)?;
    // The function of units is their own.
    if config.text_if("hidden_act")?.is_some_and(|it| it != "silu") {
        return Err(config.wrong("hidden_act", "silu"));
    }
    let bias = config.flag_or("attention_bias", true)?;
    let table = rotary::table_with(config, sizes.size, Pairing::Halves, BASE)?;
    let window = config.count_or("sliding_window", WINDOW)?;
    let windows = windows(config, sizes.layers, Some(window), |layer| layer.is_multiple_of(2))?;
    let [count, active] = counts(config, "num_local_experts")?;
    let limit = config.real_or("swiglu_limit", LIMIT)?;
    if limit <= 0.0 {
        return Err(config.wrong("swiglu_limit", "a number above 0"));
    }
    let experts = Experts {
        name: String::new(),
        count,
        active,
        length: config.count("intermediate_size")?,
        inside: Inside::Bounded { limit },
        router: Router {
            weight: "router.weight".to_owned(),
            added: Some("router.bias".to_owned()),
            scores: Scores::SoftmaxOfChosen,
            bias: None,
            groups: None,
            normalized: None,
            factor: 1.0,
            wide: false,
        },
        shared: None,
    };
    let layer = |(name, window): (String, Option<u64>)| {
        let mut attention = sizes.attention(&name, [bias; 2]);
        attention.window = window;
        attention.sinks = Some(format!("{name}.self_attn.sinks"));
        let units = Units::Experts(Box::new(of_layer(&experts, &format!("{name}.mlp"))));
        sizes.layer(name, attention, units)
    };
    let layers = names(sizes.layers).zip(windows).map(layer).collect();
    Ok(sizes.decoder(vec![table], layers, head(config, false)?))
}
