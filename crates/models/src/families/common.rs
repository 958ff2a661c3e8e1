//! What most families have, by the keys that most of them use.

use crate::config::{Config, Result};
use crate::decoder::{
    Activation, Attention, Decoder, Dense, Further, Head, Layer, Linear, Mixer, Norm, NormKind, Norms,
    Projections, Stored, Table, Units, Up,
};
use crate::rotary::real;

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) hidden: u64,
    pub(super) vocabulary: u64,
    pub(super) layers: u64,
    pub(super) heads: u64,
    pub(super) groups: u64,
    /// The length of a head's vector.
    pub(super) size: u64,
    pub(super) epsilon: f64,
    pub(super) norm: NormKind,
}

/// Its sizes; heads have this length where nothing says another.
pub(super) fn sizes(config: &Config, head: Option<u64>, norm: NormKind) -> Result<Sizes> {
    let (hidden, heads) = (config.count("hidden_size")?, config.count("num_attention_heads")?);
    let groups = config.number_or("num_key_value_heads", heads)?;
    if groups == 0 || !heads.is_multiple_of(groups) {
        return Err(config.wrong("num_key_value_heads", format!("a divisor of the {heads} heads")));
    }
    let size = match (config.number_if("head_dim")?, head) {
        (Some(size), _) | (None, Some(size)) => size,
        (None, None) if hidden.is_multiple_of(heads) => hidden / heads,
        (None, None) => {
            let expected = format!("a divisor of `hidden_size` = {hidden}, or `head_dim` beside it");
            return Err(config.wrong("num_attention_heads", expected));
        }
    };
    if size == 0 || !size.is_multiple_of(2) {
        return Err(config.wrong("head_dim", "an even number above 0"));
    }
    let key = if config.has("layer_norm_eps") { "layer_norm_eps" } else { "rms_norm_eps" };
    Ok(Sizes {
        hidden,
        vocabulary: config.count("vocab_size")?,
        layers: config.layers()?,
        heads,
        groups,
        size,
        epsilon: config.real(key)?,
        norm,
    })
}

/// How many elements of a head are rotated.
pub(super) fn rotated(config: &Config, key: &str, size: u64, default: f64) -> Result<u64> {
    let part = config.real_or(key, default)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small number")]
    let rotated = (real(size) * part) as u64;
    let is_part = rotated > 0 && rotated <= size && rotated.is_multiple_of(2);
    if is_part { Ok(rotated) } else { Err(config.wrong(key, format!("an even part of {size} elements"))) }
}

/// A product by a weight `[out, in]`.
pub(super) fn linear(name: impl Into<String>, bias: bool) -> Linear {
    Linear { name: name.into(), bias, stored: Stored::OutIn }
}

impl Sizes {
    pub(super) fn norm(&self, name: impl Into<String>) -> Norm {
        Norm { name: name.into(), kind: self.norm, epsilon: self.epsilon }
    }

    /// Attention by four weights, rotated by the first table.
    pub(super) fn attention(&self, layer: &str, biases: [bool; 2]) -> Attention {
        let name = format!("{layer}.self_attn");
        let [inner, out] = biases;
        let projection = |it: &str| linear(format!("{name}.{it}"), inner);
        Attention {
            heads: self.heads,
            groups: self.groups,
            size: self.size,
            projections: Projections::Apart(["q_proj", "k_proj", "v_proj"].map(projection)),
            out: linear(format!("{name}.o_proj"), out),
            norms: None,
            gated: false,
            norms_whole: false,
            table: Some(0),
            scale: real(self.size).sqrt().recip(),
            softcap: None,
            window: None,
            sinks: None,
            name,
        }
    }

    /// Gated units by three weights.
    pub(super) fn gated(&self, name: String, length: u64, activation: Activation, bias: bool) -> Dense {
        let part = |it: &str| linear(format!("{name}.{it}"), bias);
        Dense {
            length,
            activation,
            up: Up::Gated([part("gate_proj"), part("up_proj")]),
            down: part("down_proj"),
            name,
        }
    }

    /// A layer whose parts have a norm before them.
    pub(super) fn layer(&self, name: String, attention: Attention, units: Units) -> Layer {
        let before = |it: &str| Norms { before: Some(self.norm(format!("{name}.{it}"))), after: None };
        Layer {
            mixer: Mixer::Attention(Box::new(attention)),
            mixer_norms: before("input_layernorm"),
            units,
            units_norms: before("post_attention_layernorm"),
            parallel: false,
            residual: None,
            name,
        }
    }

    /// The whole of it, by the names of most checkpoints.
    pub(super) fn decoder(&self, tables: Vec<Table>, layers: Vec<Layer>, head: Head) -> Decoder {
        Decoder {
            vocabulary: self.vocabulary,
            hidden: self.hidden,
            embedding: "model.embed_tokens".to_owned(),
            embedding_scale: None,
            positions: None,
            tables,
            layers,
            norm: self.norm("model.norm"),
            head,
            further: Vec::new(),
        }
    }
}

/// What predicts tokens after the next: layers behind the last, by the names of DeepSeek V3's checkpoint.
pub(super) fn further(
    config: &Config,
    sizes: &Sizes,
    layer: impl Fn(String) -> Layer,
) -> Result<Vec<Further>> {
    let count = config.number_or("num_nextn_predict_layers", 0)?;
    let of = |name: String| {
        let norm = |it: &str| sizes.norm(format!("{name}.{it}"));
        Further {
            norms: [norm("enorm"), norm("hnorm")],
            joined: linear(format!("{name}.eh_proj"), false),
            norm: norm("shared_head.norm"),
            layer: layer(name),
        }
    };
    Ok((sizes.layers..sizes.layers.saturating_add(count)).map(name).map(of).collect())
}

/// The names of layers.
pub(super) fn names(layers: u64) -> impl Iterator<Item = String> {
    (0..layers).map(name)
}

fn name(layer: u64) -> String {
    format!("model.layers.{layer}")
}

/// A head of its own, or the embedding.
pub(super) fn head(config: &Config, tied: bool) -> Result<Head> {
    let tied = config.flag_or("tie_word_embeddings", tied)?;
    Ok(Head { weight: (!tied).then(|| linear("lm_head", false)), ..Head::default() })
}

/// The function of elements that a key says.
pub(super) fn activation(config: &Config, key: &str, default: &str) -> Result<Activation> {
    match config.text_if(key)?.as_deref().unwrap_or(default) {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" | "gelu_python" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        "relu" => Ok(Activation::Relu),
        _ => Err(config.wrong(key, "silu, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or relu")),
    }
}

/// For each layer its window, by `layer_types` or else by `is_sliding`.
pub(super) fn windows(
    config: &Config,
    layers: u64,
    window: Option<u64>,
    is_sliding: impl Fn(u64) -> bool,
) -> Result<Vec<Option<u64>>> {
    let Some(types) = config.texts_if("layer_types")? else {
        return Ok((0..layers).map(|layer| window.filter(|_| is_sliding(layer))).collect());
    };
    let count = u64::try_from(types.len()).unwrap_or(u64::MAX);
    if count != layers {
        return Err(config.wrong("layer_types", format!("{layers} types, one for each layer")));
    }
    let of = |kind: &String| match (kind.as_str(), window) {
        ("full_attention", _) => Ok(None),
        ("sliding_attention", Some(window)) => Ok(Some(window)),
        ("sliding_attention", None) => {
            Err(config.missing("sliding_window", "the width of sliding attention"))
        }
        _ => Err(config.wrong("layer_types", "full_attention and sliding_attention")),
    };
    types.iter().map(of).collect()
}
