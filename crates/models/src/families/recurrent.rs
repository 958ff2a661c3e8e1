//! Decoders some of whose layers have states that go from token to token: Mamba-2 and Qwen3-Next.

use super::common::{activation, head, linear, names, rotated, sizes};
use super::mixture::{dense_layers, of_layer, qwen};
use crate::config::{Config, Result};
use crate::decoder::{
    Activation, Decoder, Head, Layer, Mixer, Norm, NormKind, Norms, Pairing, Recurrent, Rule, Units,
};
use crate::rotary;

/// One layer in so many of Qwen3-Next has attention where nothing else is said.
const INTERVAL: u64 = 4;

pub(super) fn mamba2(config: &Config) -> Result<Decoder> {
    // How weights are initialised, how kernels cut sequences, and what is used in training.
    config.pass_over(&["chunk_size", "rescale_prenorm_residual", "time_step_rank", "rms_norm"]);
    config.pass_over(&["time_step_min", "time_step_max", "time_step_floor", "residual_in_fp32"]);
    let (hidden, heads, value) =
        (config.count("hidden_size")?, config.count("num_heads")?, config.count("head_dim")?);
    if config.number_or("expand", 2)? * hidden != heads * value {
        return Err(config.wrong("expand", format!("{heads} heads of {value} over `hidden_size` = {hidden}")));
    }
    if activation(config, "hidden_act", "silu")? != Activation::Silu {
        return Err(config.wrong("hidden_act", "silu"));
    }
    let groups = config.number_or("n_groups", 8)?;
    if groups == 0 || !heads.is_multiple_of(groups) {
        return Err(config.wrong("n_groups", format!("a divisor of the {heads} heads")));
    }
    let epsilon = config.real_or("layer_norm_epsilon", 1e-5)?;
    let rule = Rule::SelectiveScan {
        bias: config.flag_or("use_bias", false)?,
        conv_bias: config.flag_or("use_conv_bias", true)?,
        limit: limit(config)?,
    };
    let (key, window) = (config.count_or("state_size", 128)?, config.count_or("conv_kernel", 4)?);
    let norm = |name: String| Norm { name, kind: NormKind::Rms, epsilon };
    let layer = |number: u64| {
        let name = format!("backbone.layers.{number}");
        let mixer = format!("{name}.mixer");
        let mixer = Recurrent { name: mixer, heads, groups, key, value, window, epsilon, rule };
        Layer {
            mixer: Mixer::Recurrent(Box::new(mixer)),
            mixer_norms: Norms { before: Some(norm(format!("{name}.norm"))), after: None },
            units: Units::None,
            units_norms: Norms::default(),
            parallel: false,
            residual: None,
            name,
        }
    };
    let layers = config.layers()?;
    let tied = config.flag_or("tie_word_embeddings", false)?;
    Ok(Decoder {
        vocabulary: config.count("vocab_size")?,
        hidden,
        embedding: "backbone.embeddings".to_owned(),
        embedding_scale: None,
        positions: None,
        tables: vec![],
        layers: (0..layers).map(layer).collect(),
        norm: norm("backbone.norm_f".to_owned()),
        head: Head { weight: (!tied).then(|| linear("lm_head", false)), ..Head::default() },
        further: Vec::new(),
    })
}

/// The bounds of time steps, unless they bound nothing.
fn limit(config: &Config) -> Result<Option<[f64; 2]>> {
    let Some(list) = config.value("time_step_limit") else { return Ok(None) };
    let wrong = || config.wrong("time_step_limit", "two numbers, the second of which may be Infinity");
    let [least, most] = list.as_array().map_or(&[][..], Vec::as_slice) else { return Err(wrong()) };
    let least = least.as_f64().ok_or_else(wrong)?;
    let unbound = most.as_str().or_else(|| most.get("__float__")?.as_str()) == Some("Infinity");
    match most.as_f64() {
        Some(most) => Ok(Some([least, most])),
        // What softplus makes is above 0.
        None if unbound && least <= 0.0 => Ok(None),
        None if unbound => Ok(Some([least, f64::from(f32::MAX)])),
        None => Err(wrong()),
    }
}

pub(super) fn qwen3_next(config: &Config, kind: &str) -> Result<Decoder> {
    let sizes = sizes(config, Some(256), NormKind::RmsAroundOne)?;
    let act = activation(config, "hidden_act", "silu")?;
    let bias = config.flag_or("attention_bias", false)?;
    let turned = rotated(config, "partial_rotary_factor", sizes.size, 0.25)?;
    let table = rotary::table(config, turned, Pairing::Halves)?;
    config.pass_over(&["router_aux_loss_coef"]);
    config.only("use_sliding_window", false, false)?;
    let length = config.number_or("intermediate_size", 0)?;
    let is_dense = dense_layers(config, kind, sizes.layers)?;
    let experts = qwen(config, &sizes, kind, act)?;
    let groups = config.count("linear_num_key_heads")?;
    let heads = config.count("linear_num_value_heads")?;
    if !heads.is_multiple_of(groups) {
        return Err(config.wrong("linear_num_value_heads", format!("a multiple of {groups} heads of keys")));
    }
    let (key, value) = (config.count("linear_key_head_dim")?, config.count("linear_value_head_dim")?);
    let window = config.number_or("linear_conv_kernel_dim", 4)?;
    let has_attention = attention_layers(config, sizes.layers)?;
    let layer = |(name, (is_dense, attends)): (String, (bool, bool))| {
        let mut attention = sizes.attention(&name, [bias; 2]);
        let norm = |it: &str| sizes.norm(format!("{name}.self_attn.{it}"));
        (attention.norms, attention.gated) = (Some([norm("q_norm"), norm("k_norm")]), true);
        let units = match is_dense {
            true => Units::Dense(sizes.gated(format!("{name}.mlp"), length, act, false)),
            false => Units::Experts(Box::new(of_layer(&experts, &format!("{name}.mlp")))),
        };
        let mixer = format!("{name}.linear_attn");
        let mut layer = sizes.layer(name, attention, units);
        if !attends {
            let (epsilon, rule) = (sizes.epsilon, Rule::GatedDelta);
            let mixer = Recurrent { name: mixer, heads, groups, key, value, window, epsilon, rule };
            layer.mixer = Mixer::Recurrent(Box::new(mixer));
        }
        layer
    };
    let layers = names(sizes.layers).zip(is_dense.into_iter().zip(has_attention)).map(layer).collect();
    Ok(sizes.decoder(vec![table], layers, head(config, false)?))
}

/// Which layers have attention.
fn attention_layers(config: &Config, layers: u64) -> Result<Vec<bool>> {
    let every = config.number_or("full_attention_interval", INTERVAL)?;
    let Some(types) = config.texts_if("layer_types")? else {
        return Ok((1..=layers).map(|it| every > 0 && it.is_multiple_of(every)).collect());
    };
    if u64::try_from(types.len()) != Ok(layers) {
        return Err(config.wrong("layer_types", format!("{layers} types, one for each layer")));
    }
    let of = |kind: &String| match kind.as_str() {
        "full_attention" => Ok(true),
        "linear_attention" => Ok(false),
        _ => Err(config.wrong("layer_types", "full_attention and linear_attention")),
    };
    types.iter().map(of).collect()
}
