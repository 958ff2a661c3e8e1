//! Of which kinds the parts of a model are, in the words of Megatron-LM and Megatron-Bridge.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py`, version core 0.16, and its `validate_args` for what it insists
//! on.

use planner_ir::DType;

use super::one::{One, number_of, of_model, perhaps, said, switch};
use crate::model::traits::one_window;
use crate::model::{Model, Rotation, small};
use crate::strategy::Strategy;

/// Of which kinds its parts are.
pub(super) fn kinds(strategy: &Strategy, model: &Model) -> Vec<One> {
    let mut all = match model.bounded {
        Some(limit) => vec![said(
            format!("--quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value {limit:?}"),
            vec![
                of_model("gated_linear_unit", true),
                of_model("glu_linear_offset", "1.0"),
                of_model("activation_func_clamp_value", format!("{limit:?}")),
            ],
        )],
        None => vec![switch(model.gated, "--swiglu", "model", "gated_linear_unit")],
    };
    all.extend(windows(strategy, model));
    if model.sinks {
        all.push(said("--softmax-type learnable", vec![of_model("softmax_type", "learnable")]));
    }
    if model.latent.is_some() {
        let keys = vec![of_model("multi_latent_attention", true)];
        all.push(said("--multi-latent-attention", keys));
    }
    if model.query_norms {
        all.push(said("--qk-layernorm", vec![of_model("qk_layernorm", true)]));
    }
    all.extend(experts(strategy, model));
    all.extend(positions(strategy, model));
    // Nothing is dropped in a plan; something is there if nothing is said.
    all.push(said(
        "--attention-dropout 0 --hidden-dropout 0",
        vec![of_model("attention_dropout", "0.0"), of_model("hidden_dropout", "0.0")],
    ));
    let bare = (!model.biases).then(|| "--disable-bias-linear".to_owned());
    all.push(perhaps(bare, vec![of_model("add_bias_linear", model.biases)]));
    if model.biases_of_queries && !model.biases {
        all.push(said("--add-qkv-bias", vec![of_model("add_qkv_bias", true)]));
    }
    let untied = (!model.tied).then(|| "--untie-embeddings-and-output-weights".to_owned());
    all.push(perhaps(untied, vec![of_model("share_embeddings_and_output_weights", model.tied)]));
    if let Some(epsilon) = model.root_mean_square {
        // What a file has in f32, to as many places as that tells apart.
        let argument = format!("--normalization RMSNorm --norm-epsilon {epsilon:.0e}");
        let keys = vec![
            of_model("normalization", "RMSNorm"),
            of_model("layernorm_epsilon", number_of(&format!("{epsilon:.1e}"))),
        ];
        all.push(said(argument, keys));
    }
    all
}

/// Which layers see how many keys, where some see so many only: the same number wherever they do.
fn windows(strategy: &Strategy, model: &Model) -> Option<One> {
    let window = one_window(model)?;
    let layers = usize::try_from(strategy.layer_count()).unwrap_or(usize::MAX);
    let near: Vec<u8> = model.windows.iter().take(layers).map(|it| u8::from(it.is_some())).collect();
    // Keys before a query's own, and after it.
    let before = window.saturating_sub(1);
    let mut argument = format!("--window-size {before},0");
    let mut keys = vec![of_model("window_size", format!("[{before}, 0]"))];
    if near.contains(&0) {
        let runs: Vec<String> = near.iter().map(u8::to_string).collect();
        argument += &format!(" --window-attn-skip-freq '[{}]'", runs.join(","));
        keys.push(of_model("window_attn_skip_freq", format!("{near:?}")));
    }
    Some(said(argument, keys))
}

/// By which base positions are rotated, and by how much long waves are stretched, if there are arguments for that.
fn frequencies(rotation: Rotation) -> Option<One> {
    let (base, factor) = match rotation {
        Rotation::Powers { base } => (base, None),
        Rotation::Stretched { base, factor } => (base, Some(factor)),
        Rotation::Otherwise => return None,
    };
    let mut argument = format!("--rotary-base {base}");
    let mut keys = vec![of_model("rotary_base", base)];
    if let Some(factor) = factor {
        argument += &format!(" --use-rope-scaling --rope-scaling-factor {factor:?}");
        keys.extend([of_model("rope_scaling", true), of_model("rope_scaling_factor", format!("{factor:?}"))]);
    }
    Some(said(argument, keys))
}

/// Which layers have experts, where some have none, and how a token chooses where it is not by softmax.
fn experts(strategy: &Strategy, model: &Model) -> Vec<One> {
    let mut all = Vec::new();
    let layers = usize::try_from(strategy.layer_count()).unwrap_or(usize::MAX);
    let with: Vec<u8> = model.layers_with_experts.iter().take(layers).map(|&it| u8::from(it)).collect();
    if with.contains(&1) && with.contains(&0) {
        let runs: Vec<String> =
            with.chunk_by(|a, b| a == b).map(|run| format!("[{}]*{}", run[0], run.len())).collect();
        all.push(said(
            format!("--moe-layer-freq '({})'", runs.join("+")),
            vec![of_model("moe_layer_freq", format!("{with:?}"))],
        ));
    }
    if grouped(strategy, model) {
        all.push(said("--moe-grouped-gemm", vec![of_model("moe_grouped_gemm", true)]));
    }
    if model.shared_gate {
        all.push(said("--moe-shared-expert-gate", vec![of_model("moe_shared_expert_gate", true)]));
    }
    if model.softmax_before_choice {
        all.push(said("--moe-router-pre-softmax", vec![of_model("moe_router_pre_softmax", true)]));
    }
    if model.router_bias {
        all.push(said(
            "--moe-router-score-function sigmoid --moe-router-enable-expert-bias",
            vec![
                of_model("moe_router_score_function", "sigmoid"),
                of_model("moe_router_enable_expert_bias", true),
            ],
        ));
    }
    all
}

/// Whether products of a rank's experts are one batch, which Megatron-LM has in bf16 alone.
pub(super) fn grouped(strategy: &Strategy, model: &Model) -> bool {
    model.experts.is_some() && strategy.element == DType::BF16
}

/// How many positions there are, and what is rotated: of a head, and in which layers.
fn positions(strategy: &Strategy, model: &Model) -> Vec<One> {
    let mut all = Vec::new();
    // Megatron-LM wants to know even where no table has as many rows.
    if let Some(most) = model.positions.or(model.sequence) {
        all.push(perhaps(Some(format!("--max-position-embeddings {most}")), vec![]));
    }
    if !model.rotary {
        return all;
    }
    let frequencies = model.rotation.and_then(frequencies);
    // A recipe whose frequencies stay may have them by a type of their own, as YaRN.
    let kind = frequencies.as_ref().map(|_| of_model("position_embedding_type", "rope"));
    all.push(said("--position-embedding-type rope", kind.into_iter().collect()));
    all.extend(frequencies);
    if model.latent.is_some() && matches!(model.rotation, Some(Rotation::Powers { .. })) {
        // Beside latent attention it is YaRN if nothing is said.
        all.push(said("--rope-type rope", vec![of_model("rope_type", "rope")]));
    }
    if let (None, Some([.., size]), Some(rotated)) = (model.latent, model.heads, model.rotated)
        && rotated < size
    {
        let part = small(rotated) / small(size);
        all.push(said(format!("--rotary-percent {part}"), vec![of_model("rotary_percent", part)]));
    }
    if model.latent.is_none() && model.neighbours {
        all.push(said("--rotary-interleaved", vec![of_model("rotary_interleaved", true)]));
    }
    let layers = usize::try_from(strategy.layer_count()).unwrap_or(usize::MAX);
    let without: Vec<u8> = model.turned.iter().take(layers).map(|&it| u8::from(!it)).collect();
    if without.contains(&1) {
        let runs: Vec<String> = without.iter().map(u8::to_string).collect();
        all.push(said(
            format!("--no-rope-freq '[{}]'", runs.join(",")),
            vec![of_model("no_rope_freq", format!("{without:?}"))],
        ));
    }
    all
}
