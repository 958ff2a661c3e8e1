//! GPT-2, GPT-NeoX and Phi: norms with biases, units without gates.

use super::common::{activation, linear, rotated, sizes};
use crate::config::{Config, Result};
use crate::decoder::{
    Attention, Decoder, Dense, Head, Layer, Linear, Mixer, Norm, NormKind, Norms, Pairing, Projections,
    Stored, Units, Up,
};
use crate::rotary::{self, real};

const NORM: NormKind = NormKind::Layer { bias: true };

pub(super) fn gpt2(config: &Config) -> Result<Decoder> {
    let (hidden, heads) = (config.count("n_embd")?, config.count("n_head")?);
    let (layers, vocabulary) = (config.count("n_layer")?, config.count("vocab_size")?);
    let positions = config.count("n_positions")?;
    if !hidden.is_multiple_of(heads) {
        return Err(config.wrong("n_head", format!("a divisor of `n_embd` = {hidden}")));
    }
    let length = config.number_or("n_inner", 4 * hidden)?;
    let epsilon = config.real_or("layer_norm_epsilon", 1e-5)?;
    let act = activation(config, "activation_function", "gelu_new")?;
    let by_size = config.flag_or("scale_attn_weights", true)?;
    let by_layer = config.flag_or("scale_attn_by_inverse_layer_idx", false)?;
    // This changes only the order of roundings.
    config.pass_over(&["reorder_and_upcast_attn"]);
    let size = hidden / heads;
    let norm = |name: String| Norm { name, kind: NORM, epsilon };
    let layer = |number: u64| {
        let name = format!("transformer.h.{number}");
        // Its products are by weights `[in, out]`.
        let product = |it: &str| Linear { name: format!("{name}.{it}"), bias: true, stored: Stored::InOut };
        let mut scale = if by_size { real(size).sqrt().recip() } else { 1.0 };
        if by_layer {
            scale /= real(number + 1);
        }
        let attention = Attention {
            name: format!("{name}.attn"),
            heads,
            groups: heads,
            size,
            projections: Projections::Blocks(product("attn.c_attn")),
            out: product("attn.c_proj"),
            norms: None,
            gated: false,
            norms_whole: false,
            table: None,
            scale,
            softcap: None,
            window: None,
            sinks: None,
        };
        let units = Dense {
            name: format!("{name}.mlp"),
            length,
            activation: act,
            up: Up::Plain(product("mlp.c_fc")),
            down: product("mlp.c_proj"),
        };
        let before = |it: &str| Norms { before: Some(norm(format!("{name}.{it}"))), after: None };
        Layer {
            mixer: Mixer::Attention(Box::new(attention)),
            mixer_norms: before("ln_1"),
            units: Units::Dense(units),
            units_norms: before("ln_2"),
            parallel: false,
            residual: None,
            name,
        }
    };
    let tied = config.flag_or("tie_word_embeddings", true)?;
    Ok(Decoder {
        vocabulary,
        hidden,
        embedding: "transformer.wte".to_owned(),
        embedding_scale: None,
        positions: Some(("transformer.wpe".to_owned(), positions)),
        tables: vec![],
        layers: (0..layers).map(layer).collect(),
        norm: norm("transformer.ln_f".to_owned()),
        head: Head { weight: (!tied).then(|| linear("lm_head", false)), ..Head::default() },
        further: Vec::new(),
    })
}

pub(super) fn neox(config: &Config) -> Result<Decoder> {
    let sizes = sizes(config, None, NORM)?;
    let length = config.count("intermediate_size")?;
    let act = activation(config, "hidden_act", "gelu")?;
    let bias = config.flag_or("attention_bias", true)?;
    let parallel = config.flag_or("use_parallel_residual", true)?;
    let turned = rotated(config, same(config, ["rotary_pct", "partial_rotary_factor"])?, sizes.size, 0.25)?;
    let base = config.real_or(same(config, ["rotary_emb_base", "rope_theta"])?, 10_000.0)?;
    let table = rotary::table_with(config, turned, Pairing::Halves, base)?;
    let layer = |number: u64| {
        let name = format!("gpt_neox.layers.{number}");
        let mut attention = sizes.attention(&name, [bias; 2]);
        attention.name = format!("{name}.attention");
        attention.projections = Projections::Heads(linear(format!("{name}.attention.query_key_value"), bias));
        attention.out = linear(format!("{name}.attention.dense"), bias);
        let units = Dense {
            name: format!("{name}.mlp"),
            length,
            activation: act,
            up: Up::Plain(linear(format!("{name}.mlp.dense_h_to_4h"), true)),
            down: linear(format!("{name}.mlp.dense_4h_to_h"), true),
        };
        Layer { parallel, ..sizes.layer(name, attention, Units::Dense(units)) }
    };
    let tied = config.flag_or("tie_word_embeddings", false)?;
    let head = Head { weight: (!tied).then(|| linear("embed_out", false)), ..Head::default() };
    let mut decoder = sizes.decoder(vec![table], (0..sizes.layers).map(layer).collect(), head);
    "gpt_neox.embed_in".clone_into(&mut decoder.embedding);
    decoder.norm = sizes.norm("gpt_neox.final_layer_norm");
    Ok(decoder)
}

pub(super) fn phi(config: &Config) -> Result<Decoder> {
    let sizes = sizes(config, None, NORM)?;
    let length = config.count("intermediate_size")?;
    let act = activation(config, "hidden_act", "gelu_new")?;
    let turned = rotated(config, "partial_rotary_factor", sizes.size, 0.5)?;
    let table = rotary::table(config, turned, Pairing::Halves)?;
    let is_normed = config.flag_or("qk_layernorm", false)?;
    let layer = |number: u64| {
        let name = format!("model.layers.{number}");
        let mut attention = sizes.attention(&name, [true; 2]);
        attention.out = linear(format!("{name}.self_attn.dense"), true);
        if is_normed {
            let norm = |it: &str| sizes.norm(format!("{name}.self_attn.{it}"));
            attention.norms = Some([norm("q_layernorm"), norm("k_layernorm")]);
        }
        let units = Dense {
            name: format!("{name}.mlp"),
            length,
            activation: act,
            up: Up::Plain(linear(format!("{name}.mlp.fc1"), true)),
            down: linear(format!("{name}.mlp.fc2"), true),
        };
        let layer = sizes.layer(name, attention, Units::Dense(units));
        // One norm is before both.
        Layer { parallel: true, units_norms: layer.mixer_norms.clone(), ..layer }
    };
    // Its head has a bias, which an embedding has not.
    config.only("tie_word_embeddings", false, false)?;
    let head = Head { weight: Some(linear("lm_head", true)), ..Head::default() };
    let mut decoder = sizes.decoder(vec![table], (0..sizes.layers).map(layer).collect(), head);
    decoder.norm = sizes.norm("model.final_layernorm");
    Ok(decoder)
}

/// Which of two keys for one number is there; where both are, they have to say the same.
fn same(config: &Config, [first, second]: [&'static str; 2]) -> Result<&'static str> {
    match (config.real_if(first)?, config.real_if(second)?) {
        (Some(one), Some(other)) if one.to_bits() != other.to_bits() => {
            Err(config.wrong(second, format!("{one}, as `{first}`")))
        }
        (None, Some(_)) => Ok(second),
        _ => Ok(first),
    }
}
