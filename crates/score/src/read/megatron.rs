//! Arguments of Megatron-LM, and the keys of Megatron-Bridge, which are the same by other names.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py`, `megatron/core/transformer/transformer_config.py` and
//! `megatron/core/transformer/pipeline_parallel_layer_layout.py`, version core 0.16.

mod frequency; // which layers have experts
mod graphs; // what runs as graphs of kernels
mod insists; // what Megatron-LM refuses
mod layout; // which layers each stage has
mod load; // how many tokens experts may have
mod names; // arguments that set nothing

use ::export::Cuts;

use crate::space::Runner;

use layout::layout_layers;

use super::given::{Given, wrong};
use super::{Read, ReadError, integer, product};

/// Sets the keys of what is stated.
pub(super) fn read(
    read: &mut Read,
    mut given: Given,
    devices: Option<u64>,
    runner: Runner,
) -> Result<(), ReadError> {
    let given = &mut given;
    let experts = model(read, given, runner)?;
    let [tp, pp, cp, ep] = degrees(read, given)?;
    let layers = read.known("num_layers").ok_or(lacks("--num-layers"))?;
    if runner == Runner::Megatron {
        insists::check(read, given)?;
    }
    context(read, cp)?;
    stages(read, given, layers, pp)?;
    further(read, given, layers, pp)?;
    let nodes = given.positive("nnodes")?.or(given.positive("num_nodes")?);
    let each = given.positive("nproc_per_node")?.or(given.positive("gpus_per_node")?);
    let launched = each.map(|each| each.saturating_mul(nodes.unwrap_or(1)));
    let found = given.positive("world_size")?.or(launched);
    let world = read.world(devices, found)?;
    let data = (world / product(&[tp, pp, cp])).max(1);
    let micro = given.positive("micro_batch_size")?.ok_or(lacks("--micro-batch-size"))?;
    read.set("micro_batch_size", integer(micro))?;
    let global = given.positive("global_batch_size")?.unwrap_or(micro.saturating_mul(data));
    read.set("global_batch_size", integer(global))?;
    sharding(read, given, pp)?;
    traffic(read, given, tp, experts && (ep > 1 || tp > 1))?;
    again(read, given)?;
    graphs::read(read, given, experts)?;
    arithmetic(read, given)?;
    let given = std::mem::take(given);
    read.rest(given, names::HARMLESS, names::TAKEN);
    if runner == Runner::Bridge {
        read.harmless.sort_unstable();
    }
    Ok(())
}

/// Of a sequence in parts each device has two, one from either end.
///
/// Source: Megatron-LM, `megatron/training/arguments.py`, `validate_args`.
fn context(read: &Read, cp: u64) -> Result<(), ReadError> {
    let tokens = read.known("seq_length").unwrap_or(1);
    let multiple = Cuts::Halves.multiple(1, cp);
    if tokens.is_multiple_of(multiple) {
        return Ok(());
    }
    let expected = format!("a multiple of {multiple}, twice `--context-parallel-size`");
    Err(wrong("--seq-length", &tokens.to_string(), &expected))
}

fn lacks(name: &'static str) -> ReadError {
    ReadError::Missing(name, "add it, or give the model's `config.json` with --config if it is of the model")
}

/// The model; whether it has experts.
fn model(read: &mut Read, given: &mut Given, runner: Runner) -> Result<bool, ReadError> {
    for (name, key) in [
        ("num_layers", "num_layers"),
        ("hidden_size", "hidden_size"),
        ("num_attention_heads", "num_attention_heads"),
        ("seq_length", "seq_length"),
    ] {
        let count = given.positive(name)?;
        read.count(key, count)?;
    }
    for (key, argument) in [
        ("hidden_size", "--hidden-size"),
        ("num_attention_heads", "--num-attention-heads"),
        ("seq_length", "--seq-length"),
    ] {
        if read.known(key).is_none() {
            return Err(lacks(argument));
        }
    }
    let hidden = read.known("hidden_size").unwrap_or(1);
    let vocabulary = given.positive("padded_vocab_size")?.or(given.positive("vocab_size")?);
    let made = given.positive("make_vocab_size_divisible_by")?;
    if read.known("vocab_size").is_none() {
        read.count("vocab_size", vocabulary)?;
        if vocabulary.is_none() {
            read.take(
                "the vocabulary of the tokenizer",
                "51200 tokens; `--vocab-size` says how many there are",
            );
        }
    } else if let (Some(padded), Some(known)) = (vocabulary, read.known("vocab_size")) {
        // Padded, so that ranks share it equally.
        if padded < known {
            read.count("vocab_size", vocabulary)?;
        } else {
            read.keys.insert("vocab_size".to_owned(), integer(padded).into());
        }
    }
    if let Some(multiple) = made {
        read.take(
            format!("--make-vocab-size-divisible-by {multiple}"),
            "a vocabulary that is not padded further than stated",
        );
    }
    let stated = given.flag("swiglu")?.or(given.flag("gated_linear_unit")?);
    match (stated, read.keys.contains_key("swiglu")) {
        (None, true) => {}
        (gated, _) => read.set("swiglu", gated.unwrap_or(false))?,
    }
    let gated = read.keys.get("swiglu").and_then(toml::Value::as_bool).unwrap_or(false);
    let untied = given.flag("untie_embeddings_and_output_weights")?;
    let untied = untied.or(given.flag("share_embeddings_and_output_weights")?.map(|shared| !shared));
    match (untied, read.keys.contains_key("untie_embeddings_and_output_weights")) {
        (None, true) => {}
        (untied, _) => read.set("untie_embeddings_and_output_weights", untied.unwrap_or(false))?,
    }
    attention(read, given, runner)?;
    feed_forward(read, given, hidden, gated)
}

fn attention(read: &mut Read, given: &mut Given, runner: Runner) -> Result<(), ReadError> {
    let heads = read.known("num_attention_heads").unwrap_or(1);
    if given.flag("multi_latent_attention")? == Some(true) {
        for (name, key, otherwise) in [
            ("q_lora_rank", "q_lora_rank", None),
            ("kv_lora_rank", "kv_lora_rank", Some(32)),
            ("qk_head_dim", "kv_channels", Some(128)),
            ("qk_pos_emb_head_dim", "qk_pos_emb_head_dim", Some(64)),
            ("v_head_dim", "v_head_dim", Some(128)),
        ] {
            let stated = given.positive(name)?;
            let stated = stated.or(if read.known(key).is_none() { otherwise } else { None });
            read.count(key, stated)?;
        }
        return Ok(());
    }
    let channels = given.positive("kv_channels")?;
    read.count("kv_channels", channels)?;
    let grouped = given.flag("group_query_attention")?;
    let groups = given.positive("num_query_groups")?;
    if let (Runner::Megatron, None | Some(false), Some(stated)) = (runner, grouped, groups)
        && stated > 1
    {
        if read.known("num_query_groups").is_some_and(|it| it != heads) {
            return Err(wrong(
                "--num-query-groups",
                &stated.to_string(),
                "`--group-query-attention` with it",
            ));
        }
        let said = format!("--num-query-groups {stated} without --group-query-attention");
        read.take(said, "as many heads of keys as of queries, as Megatron-LM has them then");
        return read.set("num_query_groups", integer(heads));
    }
    match (grouped, groups) {
        (Some(true) | None, Some(groups)) if grouped.is_some() || groups > 1 => {
            read.set("num_query_groups", integer(groups))
        }
        (Some(true), None) => Err(wrong("--group-query-attention", "without groups", "`--num-query-groups`")),
        _ if read.known("num_query_groups").is_none() => read.set("num_query_groups", integer(heads)),
        _ => Ok(()),
    }
}

/// The feed-forward part; whether it is of experts.
fn feed_forward(read: &mut Read, given: &mut Given, hidden: u64, gated: bool) -> Result<bool, ReadError> {
    let stated = given.positive("ffn_hidden_size")?;
    // Two thirds of what it would be without the gate, in whole 64s.
    let usual = if gated { 4 * hidden * 2 / 3 / 64 * 64 } else { 4 * hidden };
    let experts = given.positive("num_experts")?.or(given.positive("num_moe_experts")?);
    read.count("num_experts", experts)?;
    let has = read.known("num_experts").is_some();
    let of_expert = given.positive("moe_ffn_hidden_size")?;
    if has {
        let before = read.known("moe_ffn_hidden_size");
        let width = of_expert.or(if before.is_some() { None } else { Some(stated.unwrap_or(usual)) });
        read.count("moe_ffn_hidden_size", width)?;
        let active = given.positive("moe_router_topk")?;
        let active = active.or(if read.known("moe_router_topk").is_none() { Some(2) } else { None });
        read.count("moe_router_topk", active)?;
        let shared = given.count("moe_shared_expert_intermediate_size")?.filter(|it| *it > 0);
        read.count("moe_shared_expert_intermediate_size", shared)?;
        frequency::read(read, given)?;
    }
    // Where every layer has experts, nothing is as wide as feed-forward parts without them.
    if !has || read.has_dense_layers() {
        let known = read.known("ffn_hidden_size").is_some();
        read.count("ffn_hidden_size", stated.or(if known { None } else { Some(usual) }))?;
    }
    load::read(read, given)?;
    Ok(has)
}

/// The ranks of each kind: tensor, pipeline, context, expert.
fn degrees(read: &mut Read, given: &mut Given) -> Result<[u64; 4], ReadError> {
    let mut degrees = [1; 4];
    for (degree, name) in degrees.iter_mut().zip([
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
    ]) {
        *degree = given.positive(name)?.unwrap_or(1);
        read.set(name, integer(*degree))?;
    }
    let tensor = given.positive("expert_tensor_parallel_size")?;
    read.count("expert_tensor_parallel_size", tensor)?;
    Ok(degrees)
}

/// Which stage has which layers, and in how many parts.
fn stages(read: &mut Read, given: &mut Given, layers: u64, pp: u64) -> Result<(), ReadError> {
    const PARTS: &str = "virtual_pipeline_model_parallel_size";
    let stated = given.positive("num_virtual_stages_per_pipeline_rank")?.or(given.positive(PARTS)?);
    let each = given.positive("num_layers_per_virtual_pipeline_stage")?;
    let by_layers = each.map(|each| (layers / product(&[pp, each])).max(1));
    let mut parts = stated.or(by_layers).filter(|it| *it > 1);
    if let Some(layout) = given.word("pipeline_model_parallel_layout")? {
        const NAME: &str = "--pipeline-model-parallel-layout";
        let stages = layout_layers(&layout).ok_or_else(|| {
            wrong(
                NAME,
                &layout,
                "stages of `t` and `m` with `|` between them, of which the first begins with the one `E` and the last \
                 ends with the one `L`, such as `Et*3|t*2L`",
            )
        })?;
        let groups = usize::try_from(pp).unwrap_or(usize::MAX);
        if !stages.len().is_multiple_of(groups) {
            let found = format!("{layout}, of {} stages", stages.len());
            return Err(wrong(
                NAME,
                &found,
                &format!("a multiple of {pp} stages; a shell wants quotes around it"),
            ));
        }
        let sums: Vec<u64> =
            (0..groups).map(|group| stages.iter().skip(group).step_by(groups).sum()).collect();
        parts = Some(u64::try_from(stages.len() / groups).unwrap_or(1)).filter(|it| *it > 1);
        layers_of(read, sums)?;
    }
    let first = given.positive("decoder_first_pipeline_num_layers")?;
    let first = first.or(given.positive("num_layers_in_first_pipeline_stage")?);
    let last = given.positive("decoder_last_pipeline_num_layers")?;
    let last = last.or(given.positive("num_layers_in_last_pipeline_stage")?);
    if (first.is_some() || last.is_some()) && pp > 1 {
        let ends = u64::from(first.is_some()) + u64::from(last.is_some());
        let inner = pp.saturating_sub(ends);
        let rest = layers.checked_sub(first.unwrap_or(0) + last.unwrap_or(0));
        let each = rest.filter(|rest| inner == 0 && *rest == 0 || inner > 0 && rest.is_multiple_of(inner));
        let each = each.ok_or_else(|| {
            wrong("--decoder-first-pipeline-num-layers", "what it is", "equal shares for the other stages")
        })?;
        let each = each.checked_div(inner).unwrap_or(0);
        let sums = first.into_iter().chain((0..inner).map(|_| each)).chain(last).collect();
        layers_of(read, sums)?;
    }
    for name in ["account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"] {
        if given.flag(name)? == Some(true) {
            read.take(format!("--{}", name.replace('_', "-")), "stages as even as layers are");
        }
    }
    read.count(PARTS, parts)
}

fn layers_of(read: &mut Read, sums: Vec<u64>) -> Result<(), ReadError> {
    let sums: Vec<toml::Value> = sums.into_iter().map(|it| integer(it).into()).collect();
    read.set("pipeline_layers", sums)
}

/// Layers that predict further tokens: in the last stage, unless a layout says where they are.
fn further(read: &mut Read, given: &mut Given, layers: u64, pp: u64) -> Result<(), ReadError> {
    let Some(more) = given.count("mtp_num_layers")?.filter(|it| *it > 0) else { return Ok(()) };
    read.trains_further(more)?;
    if !read.keys.contains_key("pipeline_layers") && layers.is_multiple_of(pp) {
        layers_of(read, (0..pp).map(|_| layers / pp).collect())?;
    }
    let stages = read.keys.get_mut("pipeline_layers").and_then(toml::Value::as_array_mut);
    if let Some(stages) = stages {
        let all: i64 = stages.iter().filter_map(toml::Value::as_integer).sum();
        if all == integer(layers)
            && let Some(last) = stages.last_mut()
        {
            *last = (last.as_integer().unwrap_or(0) + integer(more)).into();
        }
    }
    Ok(())
}

/// What data-parallel ranks share.
fn sharding(read: &mut Read, given: &mut Given, pp: u64) -> Result<(), ReadError> {
    let optimizer = given.flag("use_distributed_optimizer")? == Some(true);
    let fsdp = [given.flag("use_megatron_fsdp")?, given.flag("use_custom_fsdp")?].contains(&Some(true));
    let torch = given.flag("use_torch_fsdp2")? == Some(true);
    let strategy = given.word("data_parallel_sharding_strategy")?;
    let strategy = strategy.filter(|_| fsdp).unwrap_or_else(|| "no_shard".to_owned());
    let stage = match strategy.as_str() {
        _ if torch => 3,
        "no_shard" => u64::from(optimizer),
        "optim" => 1,
        "optim_grads" => 2,
        "optim_grads_params" => 3,
        other => {
            return Err(wrong(
                "--data-parallel-sharding-strategy",
                other,
                "no_shard, optim, optim_grads or optim_grads_params",
            ));
        }
    };
    if stage > 1 && pp > 1 {
        return Err(wrong(
            "--pipeline-model-parallel-size",
            &pp.to_string(),
            "1 where gradients or parameters are sharded among data-parallel ranks",
        ));
    }
    read.set("zero_stage", integer(stage))
}

/// What moves beside computing.
fn traffic(read: &mut Read, given: &mut Given, tp: u64, experts: bool) -> Result<(), ReadError> {
    let reduce = given.flag("overlap_grad_reduce")?.unwrap_or(false);
    let gather = given.flag("overlap_param_gather")?.unwrap_or(false);
    read.set("overlap_grad_reduce", reduce)?;
    if reduce != gather && read.known("zero_stage").is_some_and(|stage| stage > 0) {
        let (said, taken) = if reduce {
            ("no --overlap-param-gather", "overlapped, as --overlap-grad-reduce is")
        } else {
            ("--overlap-param-gather", "not overlapped, as --overlap-grad-reduce is left out")
        };
        read.take(said, taken);
    }
    let sequence = given.flag("sequence_parallel")?.unwrap_or(false);
    // Megatron-LM sets it back where there is nothing to split.
    read.set("sequence_parallel", sequence && tp > 1)?;
    let overlap = given.flag("tp_comm_overlap")?.unwrap_or(false);
    if overlap && tp > 1 && !sequence {
        return Err(wrong("--tp-comm-overlap", "stated", "`--sequence-parallel` with it"));
    }
    read.set("tp_comm_overlap", overlap && tp > 1)?;
    match given.word("moe_token_dispatcher_type")?.as_deref() {
        Some(kind @ ("alltoall" | "flex")) if experts => read.set("moe_token_dispatcher_type", kind)?,
        Some("allgather") if experts => {
            read.take("--moe-token-dispatcher-type allgather", "alltoall");
            read.set("moe_token_dispatcher_type", "alltoall")?;
        }
        None if experts => {
            read.take("no --moe-token-dispatcher-type, which is allgather", "alltoall");
            read.set("moe_token_dispatcher_type", "alltoall")?;
        }
        Some("alltoall" | "flex" | "allgather") | None => {}
        Some(other) => {
            return Err(wrong("--moe-token-dispatcher-type", other, "alltoall, flex or allgather"));
        }
    }
    Ok(())
}

/// Recomputation.
fn again(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    let granularity = given.word("recompute_granularity")?;
    let old = given.flag("recompute_activations")? == Some(true);
    let modules = given.words("recompute_modules");
    let (method, count) = (given.word("recompute_method")?, given.positive("recompute_num_layers")?);
    let word = match granularity.as_deref() {
        None if old => "selective",
        None | Some("none") => "none",
        Some(word @ ("selective" | "full")) => word,
        Some(other) => return Err(wrong("--recompute-granularity", other, "selective or full")),
    };
    const MODULES: [&str; 7] =
        ["core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"];
    let other = modules.iter().find(|it| !MODULES.contains(&it.as_str()));
    if let Some(other) = other.filter(|_| granularity.as_deref() == Some("selective")) {
        return Err(wrong("--recompute-modules", other, &format!("some of {}", MODULES.join(", "))));
    }
    let core = modules.is_empty() || modules.iter().any(|it| it == "core_attn");
    let others: Vec<&str> = modules.iter().map(String::as_str).filter(|it| *it != "core_attn").collect();
    let word = if word == "selective" && !core { "none" } else { word };
    if !others.is_empty() && granularity.as_deref() == Some("selective") {
        read.take(format!("--recompute-modules {}", others.join(" ")), "kept, not recomputed");
    }
    if word == "full" {
        let layers = read.known("num_layers").unwrap_or(0);
        match (method.as_deref(), count) {
            (Some("block"), Some(count)) if count < layers => {
                read.take(format!("--recompute-method block --recompute-num-layers {count}"), "every layer");
            }
            (Some("uniform"), Some(count)) if count > 1 => {
                read.take(format!("--recompute-num-layers {count}"), "groups of one layer");
            }
            _ => {}
        }
    }
    read.set("recompute_granularity", word)
}

/// In which numbers is computed, and how attention is.
fn arithmetic(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    let (bf16, fp16) = (given.flag("bf16")? == Some(true), given.flag("fp16")? == Some(true));
    // Bridge has `fp8`, Megatron-LM `fp8-format`; a recipe of mixed precision says all of it.
    let eight = given.word("fp8_format")?.or(given.word("fp8")?);
    let four = given.word("fp4_format")?.or(given.word("fp4")?);
    let mixed = given.word("mixed_precision")?.unwrap_or_default();
    let has = |it: &Option<String>| it.as_deref().is_some_and(|it| !matches!(it, "null" | "none" | "false"));
    let precision = if has(&four) || mixed.contains("fp4") {
        "fp4"
    } else if has(&eight) || mixed.contains("fp8") {
        "fp8"
    } else if bf16 || mixed.starts_with("bf16") {
        "bf16"
    } else if fp16 || mixed.starts_with("fp16") {
        "fp16"
    } else {
        return Err(ReadError::Missing(
            "`--bf16` or `--fp16`",
            "add one: products of 32-bit numbers are not stated setups",
        ));
    };
    read.set("precision", precision)?;
    if given.flag("grad_reduce_in_bf16")? == Some(true) || given.flag("grad_reduce_in_fp32")? == Some(false) {
        read.set("grad_reduce_bytes", 2_i64)?;
    }
    let backend = given.word("attention_backend")?;
    let flash = given.flag("use_flash_attn")? == Some(true);
    let word = match backend.as_deref() {
        Some("unfused" | "local" | "AttnBackend.unfused" | "AttnBackend.local") => "unfused",
        Some("flash" | "AttnBackend.flash") => "flash",
        None if flash => "flash",
        Some("fused" | "auto" | "AttnBackend.fused" | "AttnBackend.auto") | None => "fused",
        Some(other) => {
            return Err(wrong("--attention-backend", other, "auto, fused, flash, unfused or local"));
        }
    };
    read.set("attention_backend", word)?;
    let narrow = given.flag("fp8_dot_product_attention")? == Some(true);
    match (narrow, word) {
        (true, "fused") => read.set("fp8_dot_product_attention", true),
        (true, _) => {
            Err(wrong("--fp8-dot-product-attention", "stated", "`--attention-backend fused` with it"))
        }
        (false, _) => Ok(()),
    }
}
