//! What Megatron-LM is told, and Megatron-Bridge by keys of its own: each thing once.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py`, version core 0.16; Megatron-Bridge 0.2,
//! `src/megatron/bridge/training/config.py`, whose keys of `model` are those of
//! `megatron/core/transformer/transformer_config.py`.

use plan::Scaling;
use planner_ir::{DType, Optimizer};

use super::kinds::{grouped, kinds};
use super::one::{One, number_of, of_model, perhaps, said, switch};
use crate::model::{Model, Rotation, Trait};
use crate::strategy::{Again, Strategy, number};

/// All that is told, in parts with titles.
pub(crate) struct Told {
    /// Titles and what is told.
    pub(crate) parts: [(&'static str, Vec<One>); 3],
    /// Sizes that the program does not have: an argument and a key of the model.
    missing: Vec<(&'static str, &'static str)>,
    /// What of the model has no argument.
    unlike: Vec<Trait>,
    /// What is said of frequencies of positions that are not told.
    positions: Option<String>,
    /// Whether the function that gates is yours to add to Megatron-Bridge, whose keys are no functions.
    pub(crate) bounded: bool,
}

impl Told {
    /// Says what of the model is not told: which sizes were not found, by one of their names, and gates.
    pub(crate) fn not_found(
        &self,
        lost: &mut Vec<String>,
        name: fn((&'static str, &'static str)) -> &'static str,
    ) {
        if !self.missing.is_empty() {
            let names: Vec<&str> = self.missing.iter().map(|&it| name(it)).collect();
            lost.push(format!("not found in the program, yours to add: {}", names.join(", ")));
        }
        lost.extend(self.positions.clone());
        lost.extend(self.unlike.iter().map(|it| format!("{}: there is no argument for that", it.words())));
    }
}

/// What both are told of a strategy.
pub(crate) fn told(strategy: &Strategy, model: &Model) -> Told {
    let (sizes, missing) = sizes(strategy, model);
    let model_part = sizes.into_iter().chain(kinds(strategy, model)).collect();
    let parallel = degrees(strategy).into_iter().chain(sharding(strategy)).collect();
    let training = training(strategy, model).into_iter().chain([optimizer(strategy), clip(strategy)]);
    Told {
        parts: [("the model", model_part), ("parallelism", parallel), ("training", training.collect())],
        missing,
        positions: positions(model),
        unlike: model.traits.iter().copied().filter(|it| NO_ARGUMENT.contains(it)).collect(),
        bounded: model.bounded.is_some(),
    }
}

/// Whether the frequencies of positions are told, if there are some.
pub(crate) fn is_told(model: &Model) -> bool {
    positions(model).is_none()
}

/// What is said of the frequencies of positions, if no argument says them.
fn positions(model: &Model) -> Option<String> {
    let why = match model.rotation {
        _ if !model.rotary => return None,
        Some(Rotation::Powers { .. } | Rotation::Stretched { .. }) => return None,
        Some(Rotation::Otherwise) => "are not powers of a base, nor stretched as those of Llama 3.1",
        None => {
            "are not known: the file of the model is not there, or has no list of them, or several (`inv_freq`)"
        }
    };
    Some(format!("frequencies of positions {why}: yours to add (the base is 10000 if nothing is said)"))
}

/// What no argument of those that are written describes.
const NO_ARGUMENT: [Trait; 11] = [
    Trait::NormsBehind,
    Trait::NormsOverHeads,
    Trait::SeveralWindows,
    Trait::BoundedScores,
    Trait::OtherFactor,
    Trait::Beside,
    Trait::GatedOtherwise,
    Trait::States,
    Trait::Multiplied,
    Trait::BoundedTokens,
    Trait::HeadBias,
];

/// A value, or what stands for none.
fn or_null(value: Option<u64>) -> String {
    value.map_or_else(|| "null".to_owned(), |it| it.to_string())
}

/// The sizes of the model, and those that its program does not have.
fn sizes(strategy: &Strategy, model: &Model) -> (Vec<One>, Vec<(&'static str, &'static str)>) {
    let mut all = Vec::new();
    let mut missing = Vec::new();
    let mut say = |argument: &'static str, key: &'static str, value: Option<u64>| match value {
        Some(value) => all.push(said(format!("{argument} {value}"), vec![of_model(key, value)])),
        None => missing.push((argument, key)),
    };
    say("--num-layers", "num_layers", Some(strategy.layer_count()));
    if strategy.further > 0 {
        say("--mtp-num-layers", "mtp_num_layers", Some(strategy.further));
    }
    say("--hidden-size", "hidden_size", model.hidden);
    let units = model.units.or(model.experts.map(|it| it.units));
    say("--ffn-hidden-size", "ffn_hidden_size", units);
    say("--num-attention-heads", "num_attention_heads", model.heads.map(|it| it[0]));
    say("--seq-length", "seq_length", model.sequence);
    say("--vocab-size", "vocab_size", model.vocabulary);
    if let Some(experts) = model.experts {
        say("--num-experts", "num_moe_experts", Some(experts.count));
        say("--moe-router-topk", "moe_router_topk", Some(experts.active));
        say("--moe-ffn-hidden-size", "moe_ffn_hidden_size", Some(experts.units));
    }
    if let Some(shared) = model.shared {
        let key = "moe_shared_expert_intermediate_size";
        say("--moe-shared-expert-intermediate-size", key, Some(shared));
    }
    if let Some(latent) = model.latent {
        for (argument, key, length) in [
            ("--q-lora-rank", "q_lora_rank", latent.query_rank),
            ("--kv-lora-rank", "kv_lora_rank", Some(latent.rank)),
            ("--qk-head-dim", "qk_head_dim", Some(latent.plain)),
            ("--qk-pos-emb-head-dim", "qk_pos_emb_head_dim", Some(latent.rotated)),
            ("--v-head-dim", "v_head_dim", Some(latent.value)),
        ] {
            if length.is_some() {
                say(argument, key, length);
            }
        }
    } else if let Some([queries, keys, size]) = model.heads {
        let grouped = (keys < queries).then(|| format!("--group-query-attention --num-query-groups {keys}"));
        all.push(perhaps(grouped, vec![of_model("num_query_groups", keys)]));
        let usual = model.hidden == Some(queries * size);
        all.push(perhaps(
            (!usual).then(|| format!("--kv-channels {size}")),
            vec![of_model("kv_channels", size)],
        ));
    }
    if let Some(tokens) = model.sequence {
        all.push(perhaps(None, vec![("dataset", "sequence_length", tokens.to_string())]));
    }
    (all, missing)
}

fn degrees(strategy: &Strategy) -> Vec<One> {
    let degree = |argument: &str, key: &'static str, value: u64| {
        said(format!("{argument} {value}"), vec![of_model(key, value)])
    };
    let mut all = vec![
        degree("--tensor-model-parallel-size", "tensor_model_parallel_size", strategy.tensor),
        degree("--pipeline-model-parallel-size", "pipeline_model_parallel_size", strategy.pipeline),
        degree("--context-parallel-size", "context_parallel_size", strategy.context),
    ];
    if strategy.context > 1 {
        // Keys and values go around, which is what their figures are of.
        all.push(said("--cp-comm-type p2p", vec![of_model("cp_comm_type", "p2p")]));
    }
    let experts = strategy.experts;
    let has = |argument: String| (experts > 1).then_some(argument);
    let tensor = or_null((experts > 1).then_some(1));
    all.push(perhaps(
        has(format!("--expert-model-parallel-size {experts}")),
        vec![of_model("expert_model_parallel_size", experts)],
    ));
    all.push(perhaps(
        has("--expert-tensor-parallel-size 1".to_owned()),
        vec![of_model("expert_tensor_parallel_size", tensor)],
    ));
    if experts > 1 {
        // DeepEP sends a token to a node once, however many of its experts are there, and wants its weights in f32.
        let kind = if strategy.across { "flex" } else { "alltoall" };
        let keys = vec![of_model("moe_token_dispatcher_type", kind)];
        all.push(said(format!("--moe-token-dispatcher-type {kind}"), keys));
    }
    if strategy.across {
        let keys = [("moe_flex_dispatcher_backend", "deepep"), ("moe_router_dtype", "fp32")];
        let keys = keys.map(|(key, value)| of_model(key, value)).to_vec();
        all.push(said("--moe-flex-dispatcher-backend deepep --moe-router-dtype fp32", keys));
    }
    let staged = strategy.pipeline > 1;
    let stages = layout(&strategy.layers_and_further());
    let chunks = Some(strategy.chunks).filter(|it| *it > 1);
    let written = if staged { format!("\"{stages}\"") } else { or_null(None) };
    all.push(perhaps(
        staged.then(|| format!("--pipeline-model-parallel-layout '{stages}'")),
        vec![
            of_model("virtual_pipeline_model_parallel_size", or_null(chunks)),
            of_model("pipeline_model_parallel_layout", written),
        ],
    ));
    all.push(switch(strategy.sequence, "--sequence-parallel", "model", "sequence_parallel"));
    all.push(switch(strategy.overlaps_tensor(), "--tp-comm-overlap", "model", "tp_comm_overlap"));
    all
}

/// What data parallel devices share, and what of it goes on beside computing.
fn sharding(strategy: &Strategy) -> Vec<One> {
    let fsdp = strategy.zero > 1;
    let what = if strategy.zero == 2 { "optim_grads" } else { "optim_grads_params" };
    let distributed = "--use-distributed-optimizer".to_owned();
    let distributed = match strategy.zero {
        0 => None,
        1 => Some(distributed),
        _ => Some(distributed + " --ckpt-format fsdp_dtensor"),
    };
    let used = (strategy.zero > 0).to_string();
    let mut of_fsdp =
        vec![("ddp", "use_megatron_fsdp", fsdp.to_string()), ("dist", "use_megatron_fsdp", fsdp.to_string())];
    let mut of_states = vec![
        ("ddp", "use_distributed_optimizer", used.clone()),
        ("optimizer", "use_distributed_optimizer", used),
    ];
    if fsdp {
        of_fsdp.push(("ddp", "data_parallel_sharding_strategy", what.to_owned()));
        of_states.push(("checkpoint", "ckpt_format", "fsdp_dtensor".to_owned()));
    }
    let mut all = vec![
        perhaps(
            fsdp.then(|| format!("--use-megatron-fsdp --data-parallel-sharding-strategy {what}")),
            of_fsdp,
        ),
        perhaps(distributed, of_states),
    ];
    if fsdp {
        let keys = vec![of_model("gradient_accumulation_fusion", false)];
        all.push(said("--no-gradient-accumulation-fusion", keys));
    }
    // Gradients are summed over what shares examples and what shares sequences.
    let sums = strategy.data * strategy.context > 1;
    all.push(switch(sums, "--overlap-grad-reduce", "ddp", "overlap_grad_reduce"));
    all.push(switch(sums && strategy.zero > 0, "--overlap-param-gather", "ddp", "overlap_param_gather"));
    if strategy.zero > 0 && strategy.sharded < strategy.data {
        let instances = strategy.data / strategy.sharded;
        all.push(said(
            format!("--num-distributed-optimizer-instances {instances}"),
            vec![("ddp", "num_distributed_optimizer_instances", instances.to_string())],
        ));
    }
    all
}

fn training(strategy: &Strategy, model: &Model) -> Vec<One> {
    let counted = |argument: &str, key: &'static str, value: u64| {
        said(format!("{argument} {value}"), vec![("train", key, value.to_string())])
    };
    let granularity = |value: &str| of_model("recompute_granularity", value);
    let again = match strategy.recompute {
        Again::Nothing => perhaps(None, vec![granularity("null")]),
        Again::Selective => {
            // What experts make is computed again where their products are one batch, in 8 bits with scales of now.
            let experts = grouped(strategy, model) && strategy.scaling != Some(Scaling::Delayed);
            let modules = if experts { "core_attn moe_act" } else { "core_attn" };
            let list = format!("[{}]", modules.replace(' ', ", "));
            said(
                format!("--recompute-granularity selective --recompute-modules {modules}"),
                vec![granularity("selective"), of_model("recompute_modules", list)],
            )
        }
        Again::Full => said(
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            vec![
                granularity("full"),
                of_model("recompute_method", "uniform"),
                of_model("recompute_num_layers", 1),
            ],
        ),
    };
    let (element, mixed) = match (strategy.scaling, strategy.element) {
        (Some(Scaling::Whole), _) => (
            Some("--bf16 --fp8-format hybrid --fp8-recipe tensorwise"),
            "bf16_with_fp8_current_scaling_mixed",
        ),
        (Some(Scaling::Delayed), _) => (
            Some(
                "--bf16 --fp8-format hybrid --fp8-recipe delayed --fp8-amax-history-len 1024 \
                 --fp8-amax-compute-algo max",
            ),
            "bf16_with_fp8_delayed_scaling_mixed",
        ),
        (Some(Scaling::Blocks), _) => {
            (Some("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8"), "bf16_with_mxfp8_mixed")
        }
        (Some(Scaling::Nvfp4), _) => {
            (Some("--bf16 --fp4-format e2m1 --fp4-recipe nvfp4"), "bf16_with_nvfp4_mixed")
        }
        (None, DType::BF16) => (Some("--bf16"), "bf16_mixed"),
        (None, DType::F16) => (Some("--fp16"), "fp16_mixed"),
        (None, _) => (None, "null"),
    };
    let layers = usize::try_from(strategy.layer_count()).unwrap_or(usize::MAX);
    let wide = strategy.scaling.map_or(0, |it| it.wide(layers));
    let ends = (wide > 0).then(|| {
        said(
            format!(
                "--first-last-layers-bf16 --num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 {wide}"
            ),
            vec![
                of_model("first_last_layers_bf16", true),
                of_model("num_layers_at_start_in_bf16", 0),
                of_model("num_layers_at_end_in_bf16", wide),
            ],
        )
    });
    let mut all = vec![
        counted("--micro-batch-size", "micro_batch_size", strategy.micro_batch),
        counted("--global-batch-size", "global_batch_size", strategy.examples()),
        again,
        perhaps(element.map(str::to_owned), vec![("", "mixed_precision", mixed.to_owned())]),
    ];
    all.extend(ends);
    all
}

fn optimizer(strategy: &Strategy) -> One {
    let key = |key: &'static str, value: &dyn ToString| ("optimizer", key, value.to_string());
    let sgd = |momentum: f64, decay: f64| {
        said(
            format!("--optimizer sgd --sgd-momentum {momentum} --weight-decay {decay}"),
            vec![key("optimizer", &"sgd"), key("sgd_momentum", &momentum), key("weight_decay", &decay)],
        )
    };
    match strategy.optimizer {
        Optimizer::Sgd { decay } => sgd(0.0, decay.0),
        Optimizer::Momentum { momentum, decay } => sgd(momentum.0, decay.0),
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => said(
            format!(
                "--optimizer adam --adam-beta1 {} --adam-beta2 {} --adam-eps {:e} --weight-decay {}",
                beta1.0, beta2.0, epsilon.0, decay.0
            ),
            vec![
                key("optimizer", &"adam"),
                key("adam_beta1", &beta1.0),
                key("adam_beta2", &beta2.0),
                key("adam_eps", &number_of(&format!("{:e}", epsilon.0))),
                key("weight_decay", &decay.0),
            ],
        ),
    }
}

fn clip(strategy: &Strategy) -> One {
    let norm = strategy.clip.unwrap_or(0.0);
    said(format!("--clip-grad {norm}"), vec![("optimizer", "clip_grad", norm.to_string())])
}

/// Which stage has which layers: `E` the embeddings, `t` a layer, `m` one that predicts tokens after the next, `L`
/// the loss, `|` between stages.
fn layout(stages: &[[u64; 2]]) -> String {
    let last = number(stages.len()).saturating_sub(1);
    let times = |what: &str, count: u64| match count {
        0 => String::new(),
        1 => what.to_owned(),
        several => format!("{what}*{several}"),
    };
    let stage = |(place, &[layers, further]): (u64, &[u64; 2])| {
        let first = if place == 0 { "E" } else { "" };
        let end = if place == last { "L" } else { "" };
        format!("{first}{}{}{end}", times("t", layers), times("m", further))
    };
    (0..).zip(stages).map(stage).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::layout;

    #[test]
    fn layouts_have_embeddings_first_and_the_loss_last() {
        let plain = |stages: &[u64]| layout(&stages.iter().map(|&it| [it, 0]).collect::<Vec<_>>());
        assert_eq!(plain(&[7, 9, 9, 7]), "Et*7|t*9|t*9|t*7L");
        assert_eq!(plain(&[0, 1, 0]), "E|t|L");
        assert_eq!(plain(&[2]), "Et*2L");
        assert_eq!(layout(&[[15, 0], [16, 1], [0, 2]]), "Et*15|t*16m|m*2L");
    }
}
