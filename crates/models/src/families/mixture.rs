//! Mixtral, and the mixtures of Qwen 2 and 3 and of GLM 4.5.

use super::common::{Sizes, activation, further, head, names, rotated, sizes, windows};
use crate::config::{Config, Result};
use crate::decoder::{
    Activation, Decoder, Experts, Groups, Inside, NormKind, Pairing, Router, Scores, Units,
};
use crate::rotary;

/// The base of Mixtral's angles where none is said.
const BASE: f64 = 1e6;
/// What GLM adds to the sum of weights.
pub(super) const LEAST: f64 = 1e-20;
/// The names of an expert's weights, as most have them.
pub(super) const WEIGHTS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

pub(super) fn decoder(config: &Config, kind: &str) -> Result<Decoder> {
    let sizes = sizes(config, None, NormKind::Rms)?;
    let act = activation(config, "hidden_act", "silu")?;
    let length = config.count("intermediate_size")?;
    let bias = match kind {
        "mixtral" => [false; 2],
        "qwen2_moe" => [config.flag_or("qkv_bias", true)?, false],
        "glm4_moe" => [config.flag_or("attention_bias", false)?, false],
        _ => [config.flag_or("attention_bias", false)?; 2],
    };
    let is_normed = kind == "qwen3_moe" || kind == "glm4_moe" && config.flag_or("use_qk_norm", false)?;
    let turned = match kind {
        "glm4_moe" => rotated(config, "partial_rotary_factor", sizes.size, 0.5)?,
        _ => sizes.size,
    };
    let table = match kind {
        "mixtral" => rotary::table_with(config, turned, Pairing::Halves, BASE)?,
        _ => rotary::table(config, turned, Pairing::Halves)?,
    };
    let windows = windows_of(config, kind, sizes.layers)?;
    let is_dense = dense_layers(config, kind, sizes.layers)?;
    let experts = match kind {
        "mixtral" => mixtral(config, act, length)?,
        "glm4_moe" => glm(config, &sizes, act)?,
        _ => qwen(config, &sizes, kind, act)?,
    };
    let layer = |(name, (window, is_dense)): (String, (Option<u64>, bool))| {
        let mut attention = sizes.attention(&name, bias);
        attention.window = window;
        if is_normed {
            let norm = |it: &str| sizes.norm(format!("{name}.self_attn.{it}"));
            attention.norms = Some([norm("q_norm"), norm("k_norm")]);
        }
        let part = if kind == "mixtral" { "block_sparse_moe" } else { "mlp" };
        let units = match is_dense {
            true => Units::Dense(sizes.gated(format!("{name}.mlp"), length, act, false)),
            false => Units::Experts(Box::new(of_layer(&experts, &format!("{name}.{part}")))),
        };
        sizes.layer(name, attention, units)
    };
    let layers = names(sizes.layers).zip(windows.into_iter().zip(is_dense)).map(layer).collect();
    let further = further(config, &sizes, |name| layer((name, (None, false))))?;
    Ok(Decoder { further, ..sizes.decoder(vec![table], layers, head(config, false)?) })
}

/// The experts of a layer; those that are given have names without its own.
pub(super) fn of_layer(experts: &Experts, name: &str) -> Experts {
    let within = |it: &str| format!("{name}.{it}");
    let mut experts = experts.clone();
    experts.router.weight = within(&experts.router.weight);
    experts.router.added = experts.router.added.as_deref().map(within);
    experts.router.bias = experts.router.bias.as_deref().map(within);
    if let Some((shared, gate)) = &mut experts.shared {
        *gate = gate.as_deref().map(within);
        shared.name = within(&shared.name);
        shared.down.name = within(&shared.down.name);
        if let crate::decoder::Up::Gated(both) = &mut shared.up {
            both.iter_mut().for_each(|it| it.name = within(&it.name));
        }
    }
    name.clone_into(&mut experts.name);
    experts
}

/// How many experts there are, and how many a token takes.
pub(super) fn counts(config: &Config, key: &str) -> Result<[u64; 2]> {
    let (count, active) = (config.count(key)?, config.count("num_experts_per_tok")?);
    let is_part = active <= count;
    if is_part {
        Ok([count, active])
    } else {
        Err(config.wrong("num_experts_per_tok", format!("{count} at most")))
    }
}

fn mixtral(config: &Config, activation: Activation, length: u64) -> Result<Experts> {
    let [count, active] = counts(config, "num_local_experts")?;
    Ok(Experts {
        name: String::new(),
        count,
        active,
        length,
        inside: Inside::Gated { activation, weights: ["w1", "w3", "w2"] },
        router: Router {
            weight: "gate.weight".to_owned(),
            added: None,
            scores: Scores::Softmax,
            bias: None,
            groups: None,
            normalized: Some(0.0),
            factor: 1.0,
            wide: false,
        },
        shared: None,
    })
}

pub(super) fn qwen(config: &Config, sizes: &Sizes, kind: &str, activation: Activation) -> Result<Experts> {
    let [count, active] = counts(config, "num_experts")?;
    let normalized = config.flag_or("norm_topk_prob", kind == "qwen3_next")?.then_some(0.0);
    let shared = match kind {
        "qwen2_moe" | "qwen3_next" => {
            let length = config.count("shared_expert_intermediate_size")?;
            let units = sizes.gated("shared_expert".to_owned(), length, activation, false);
            Some((units, Some("shared_expert_gate".to_owned())))
        }
        _ => None,
    };
    let length = config.count("moe_intermediate_size")?;
    let router = Router {
        weight: "gate.weight".to_owned(),
        added: None,
        scores: Scores::Softmax,
        bias: None,
        groups: None,
        normalized,
        factor: 1.0,
        wide: false,
    };
    let inside = Inside::Gated { activation, weights: WEIGHTS };
    Ok(Experts { name: String::new(), count, active, length, inside, router, shared })
}

fn glm(config: &Config, sizes: &Sizes, activation: Activation) -> Result<Experts> {
    biased(config, sizes, activation)
}

/// Experts that are chosen by sigmoids and a bias, in groups, beside shared ones.
pub(super) fn biased(config: &Config, sizes: &Sizes, activation: Activation) -> Result<Experts> {
    let [count, active] = counts(config, "n_routed_experts")?;
    let length = config.count("moe_intermediate_size")?;
    let normalized = config.flag_or("norm_topk_prob", true)?.then_some(LEAST);
    let router = Router {
        weight: "gate.weight".to_owned(),
        added: None,
        scores: Scores::Sigmoid,
        bias: Some("gate.e_score_correction_bias".to_owned()),
        groups: groups(config, count, 2)?,
        normalized,
        factor: config.real_or("routed_scaling_factor", 1.0)?,
        wide: true,
    };
    let shared = shared(config, sizes, length, activation)?;
    let inside = Inside::Gated { activation, weights: WEIGHTS };
    Ok(Experts { name: String::new(), count, active, length, inside, router, shared })
}

type Shared = Option<(crate::decoder::Dense, Option<String>)>;

/// Units that every token takes, as long as several experts.
pub(super) fn shared(config: &Config, sizes: &Sizes, length: u64, activation: Activation) -> Result<Shared> {
    let count = config.number_or("n_shared_experts", 0)?;
    let units = || sizes.gated("shared_experts".to_owned(), count * length, activation, false);
    Ok((count > 0).then(|| (units(), None)))
}

/// Groups of experts; all of them are one group where nothing is said.
pub(super) fn groups(config: &Config, experts: u64, best: u64) -> Result<Option<Groups>> {
    let (count, active) = (config.number_or("n_group", 1)?, config.number_or("topk_group", 1)?);
    if count == 0 || !experts.is_multiple_of(count) || experts / count < best {
        return Err(
            config.wrong("n_group", format!("a divisor of {experts} experts into groups of {best} at least"))
        );
    }
    if active == 0 || active > count {
        return Err(config.wrong("topk_group", format!("1 to {count} groups")));
    }
    Ok((active < count).then_some(Groups { count, active, best }))
}

fn windows_of(config: &Config, kind: &str, layers: u64) -> Result<Vec<Option<u64>>> {
    match kind {
        "mixtral" => windows(config, layers, config.number_if("sliding_window")?, |_| true),
        "qwen2_moe" | "qwen3_moe" => {
            let window = config.number_if("sliding_window")?;
            let window = if config.flag_or("use_sliding_window", false)? { window } else { None };
            let full = config.number_or("max_window_layers", if kind == "qwen2_moe" { 28 } else { 0 })?;
            // Qwen 3 has one mask for all layers.
            windows(config, layers, window, |layer| kind == "qwen3_moe" || layer >= full)
        }
        _ => windows(config, layers, None, |_| false),
    }
}

/// Which layers have no experts.
pub(super) fn dense_layers(config: &Config, kind: &str, layers: u64) -> Result<Vec<bool>> {
    Ok(match kind {
        "qwen2_moe" | "qwen3_moe" | "qwen3_next" => {
            let every = config.number_or("decoder_sparse_step", 1)?.max(1);
            let dense = config.numbers_if("mlp_only_layers")?.unwrap_or_default();
            (0..layers).map(|it| dense.contains(&it) || !(it + 1).is_multiple_of(every)).collect()
        }
        "glm4_moe" => first_dense(config, layers, 1)?,
        _ => (0..layers).map(|_| false).collect(),
    })
}

/// The layers before those that have experts.
pub(super) fn first_dense(config: &Config, layers: u64, default: u64) -> Result<Vec<bool>> {
    let first = config.number_or("first_k_dense_replace", default.min(layers))?;
    if first > layers {
        return Err(config.wrong("first_k_dense_replace", format!("a whole number from 0 to {layers}")));
    }
    Ok((0..layers).map(|it| it < first).collect())
}
