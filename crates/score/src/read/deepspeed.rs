//! Configurations of DeepSpeed, which state neither the model nor how long its examples are.
//!
//! Source: DeepSpeed 0.18, `docs/_pages/config-json.md`, `deepspeed/runtime/config.py`.

use serde_json::Value;

use super::given::{Given, wrong};
use super::{Read, ReadError, integer, product};

/// What it states: `section.key`.
pub(super) fn given(text: &str) -> Result<Given, ReadError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| ReadError::Language(format!("is not JSON: {error}")))?;
    if !value.is_object() {
        return Err(ReadError::Language(
            "is not a configuration of DeepSpeed: expected an object".to_owned(),
        ));
    }
    let mut found = Given::default();
    flat("", &value, &mut found);
    Ok(found)
}

fn flat(name: &str, value: &Value, found: &mut Given) {
    match value {
        Value::Object(keys) => {
            for (key, inner) in keys {
                flat(&if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, inner, found);
            }
        }
        Value::Null => {}
        // Who starts the run replaces these.
        Value::String(text) if text == "auto" => {}
        other => {
            let text = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
            let shown: String = format!("{name}: {text}").chars().take(120).collect();
            found.state(name, vec![text], shown);
        }
    }
}

/// Sets the keys of what is stated.
pub(super) fn read(read: &mut Read, mut given: Given, devices: Option<u64>) -> Result<(), ReadError> {
    let given = &mut given;
    if read.known("num_layers").is_none() {
        return Err(ReadError::Missing("the sizes of the model", "give its `config.json` with --config"));
    }
    if read.known("seq_length").is_none() {
        return Err(ReadError::Missing("how long an example is", "say it with --sequence TOKENS"));
    }
    let (pp, data) = degrees(read, given, devices)?;
    zero(read, given, pp)?;
    let tp = given.positive("tensor_parallel.autotp_size")?.unwrap_or(1);
    batch(read, given, (data, tp))?;
    let kept = given.flag("activation_checkpointing.enabled")?;
    let again = kept.unwrap_or_else(|| given.has("activation_checkpointing.partition_activations"));
    if !again {
        read.take("recompute", "none; where the model's code asks for it, say `activation_checkpointing`");
    }
    read.set("recompute_granularity", if again { "full" } else { "none" })?;
    precision(read, given)?;
    read.set("attention_backend", "flash")?;
    read.rest(std::mem::take(given), HARMLESS, TAKEN);
    Ok(())
}

/// How many devices the model is split over in each way; how many stages there are, and how many replicas.
fn degrees(read: &mut Read, given: &mut Given, devices: Option<u64>) -> Result<(u64, u64), ReadError> {
    let tp = given.positive("tensor_parallel.autotp_size")?;
    let tp = tp.or(given.positive("tensor_parallel.tp_size")?).unwrap_or(1);
    let stages = given.word("pipeline.stages")?;
    let pp = stages.map_or(Ok(1), |it| {
        let count = it.parse::<u64>().ok().filter(|it| *it > 0);
        count.ok_or_else(|| wrong("pipeline.stages", &it, "how many stages there are"))
    })?;
    let cp = given.positive("sequence_parallel_size")?.unwrap_or(1);
    if cp > 1 {
        read.take(format!("sequence_parallel_size: {cp}"), "keys and values that go around a ring");
    }
    let is_split = given.flag("expert_parallel.enabled")?.unwrap_or(true);
    let ep = given.positive("expert_parallel.autoep_size")?.filter(|_| is_split).unwrap_or(1);
    let world = read.world(devices, None)?;
    let data = (world / product(&[tp, pp, cp])).max(1);
    for (key, degree) in [
        ("tensor_model_parallel_size", tp),
        ("pipeline_model_parallel_size", pp),
        ("context_parallel_size", cp),
        ("expert_model_parallel_size", ep),
    ] {
        read.set(key, integer(degree))?;
    }
    // AutoTP keeps what is between products whole; where experts are split, a stated setup needs it split.
    let experts = read.known("num_experts").is_some();
    read.set("sequence_parallel", experts && tp > 1)?;
    if experts && tp > 1 {
        read.take("tensor parallelism with experts", "sequences split between products");
    }
    if experts {
        read.set("expert_tensor_parallel_size", 1_i64)?;
    }
    Ok((pp, data))
}

/// What of gradients, states and weights is split over replicas.
fn zero(read: &mut Read, given: &mut Given, pp: u64) -> Result<(), ReadError> {
    let stage = given.count("zero_optimization.stage")?.unwrap_or(0);
    if stage > 3 || (stage > 1 && pp > 1) {
        let expected = if pp > 1 { "0 or 1 with a pipeline" } else { "0, 1, 2 or 3" };
        return Err(wrong("zero_optimization.stage", &stage.to_string(), expected));
    }
    read.set("zero_stage", integer(stage))?;
    if let Some(ranks) = given.positive("zero_optimization.zero_hpz_partition_size")?.filter(|it| *it > 1) {
        read.take(
            format!("zero_hpz_partition_size: {ranks}"),
            "weights sharded over all data-parallel ranks",
        );
    }
    let overlap = given.flag("zero_optimization.overlap_comm")?;
    if overlap == Some(true) && pp > 1 {
        read.take(
            "zero_optimization.overlap_comm: true",
            "false, as DeepSpeed's engine sets it with a pipeline",
        );
    }
    // Left out, it is what DeepSpeed has for the stage: set for the third.
    read.set("overlap_grad_reduce", overlap.unwrap_or(stage == 3) && pp == 1)
}

/// In which numbers products are.
fn precision(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    let bf16 = given.flag("bf16.enabled")?.or(given.flag("bfloat16.enabled")?) == Some(true);
    let fp16 = given.flag("fp16.enabled")? == Some(true);
    match (bf16, fp16) {
        (true, false) => read.set("precision", "bf16"),
        (false, true) => read.set("precision", "fp16"),
        _ => Err(ReadError::Missing(
            "one of `bf16` and `fp16` that is enabled",
            "add it: products of 32-bit numbers are not stated setups",
        )),
    }
}

/// Two of the batch, the micro-batch and how many there are say the third. Tensor parallel devices count as replicas in
/// the batch: DeepSpeed, `runtime/config.py`, `_batch_assertion`.
fn batch(read: &mut Read, given: &mut Given, (data, tp): (u64, u64)) -> Result<(), ReadError> {
    let said = given.positive("train_batch_size")?;
    let global = match said {
        Some(said) if !said.is_multiple_of(tp) => {
            let expected = format!("a multiple of `autotp_size`, {tp}: devices of it count as replicas");
            return Err(wrong("train_batch_size", &said.to_string(), &expected));
        }
        said => said.map(|it| it / tp),
    };
    let micro = given.positive("train_micro_batch_size_per_gpu")?;
    let times = given.positive("gradient_accumulation_steps")?;
    let (micro, global) = match (micro, global, times) {
        (Some(micro), Some(global), Some(times)) if product(&[micro, times, data]) != global => {
            let found = format!("{}", global * tp);
            let expected = format!(
                "micro-batch x accumulation x replicas, {micro} x {times} x {}",
                product(&[data, tp])
            );
            return Err(wrong("train_batch_size", &found, &expected));
        }
        (Some(micro), Some(global), _) => (micro, global),
        (Some(micro), None, times) => (micro, product(&[micro, times.unwrap_or(1), data])),
        (None, Some(global), times) => ((global / product(&[times.unwrap_or(1), data])).max(1), global),
        (None, None, _) => {
            return Err(ReadError::Missing(
                "`train_batch_size` or `train_micro_batch_size_per_gpu`",
                "add one, as a number",
            ));
        }
    };
    read.set("micro_batch_size", integer(micro))?;
    read.set("global_batch_size", integer(global))
}

/// Of no effect on the time of a step or on memory.
const HARMLESS: &[&str] = &[
    "optimizer.*",
    "scheduler.*",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "dump_state",
    "prescale_gradients",
    "gradient_predivide_factor",
    "fp16.*",
    "bf16.*",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "flops_profiler.*",
    "tensorboard.*",
    "wandb.*",
    "csv_monitor.*",
    "comet.*",
    "comms_logger.*",
    "checkpoint.*",
    "seed",
    "data_types.*",
    "tensor_parallel.partition_config.*",
    "tensor_parallel.preset_model",
    "pipeline.seed_layers",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.elastic_checkpoint",
    "elasticity.*",
    "dataloader_drop_last",
    "expert_parallel.preset_model",
    "zero_optimization.ignore_unused_parameters",
];

/// Of an effect that prices do not know.
const TAKEN: &[(&str, &str)] = &[
    ("zero_optimization.offload_*", "weights and states on the device"),
    ("zero_optimization.cpu_offload*", "weights and states on the device"),
    ("zero_optimization.zero_quantized_*", "exchanges in 16 bits"),
    ("zero_optimization.mics_*", "weights sharded over all data-parallel ranks"),
    ("zero_optimization.*", "buckets as the framework's figures say"),
    ("communication_data_type", "gradients as the framework's figures say"),
    ("sparse_gradients", "gradients that are dense"),
    ("activation_checkpointing.*", "whole layers recomputed, kept on the device"),
    ("pipeline.*", "stages as even as layers are"),
    ("autotuning.*", "the configuration as it is"),
    ("compile.*", "as the framework's figures say"),
    ("compression_training.*", "weights as they are"),
    ("data_efficiency.*", "examples as they are"),
    ("curriculum_learning.*", "examples as they are"),
    ("aio.*", "weights and states on the device"),
    ("amp.*", "the numbers that `bf16` and `fp16` say"),
];
