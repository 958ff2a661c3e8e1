//! What Megatron-LM insists on before it starts: what it refuses has no price.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py`, `validate_args`, version core 0.16.

use super::super::given::{Given, wrong};
use super::super::{Read, ReadError};

/// Refuses what `validate_args` does.
pub(super) fn check(read: &Read, given: &mut Given) -> Result<(), ReadError> {
    if given.flag("bf16")? == Some(true) && given.flag("fp16")? == Some(true) {
        return Err(wrong("--fp16", "stated with `--bf16`", "one of the two"));
    }
    let fsdp = given.flag("use_megatron_fsdp")? == Some(true);
    if given.flag("overlap_param_gather")? == Some(true) {
        if !fsdp && given.flag("use_distributed_optimizer")? != Some(true) {
            let expected = "`--use-distributed-optimizer` or `--use-megatron-fsdp` with it";
            return Err(wrong("--overlap-param-gather", "stated alone", expected));
        }
        if given.flag("overlap_grad_reduce")? != Some(true) {
            return Err(wrong("--overlap-param-gather", "stated alone", "`--overlap-grad-reduce` with it"));
        }
    }
    let format = given.word("ckpt_format")?;
    if fsdp && format.as_deref() != Some("fsdp_dtensor") {
        let found = format.unwrap_or_else(|| "left out".to_owned());
        return Err(wrong("--ckpt-format", &found, "fsdp_dtensor with `--use-megatron-fsdp`"));
    }
    equal_stages(read, given)?;
    positions(read, given)
}

/// Stages of equally many layers, where nothing says otherwise.
fn equal_stages(read: &Read, given: &mut Given) -> Result<(), ReadError> {
    let [layers, pp] = ["num_layers", "pipeline_model_parallel_size"].map(|key| read.known(key).unwrap_or(1));
    let uneven = [
        "pipeline_model_parallel_layout",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "num_virtual_stages_per_pipeline_rank",
    ];
    if uneven.iter().any(|name| given.has(name)) {
        return Ok(());
    }
    let mut counted = layers;
    for name in ["account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"] {
        counted += u64::from(given.flag(name)? == Some(true));
    }
    if counted.is_multiple_of(pp) {
        return Ok(());
    }
    let expected = format!(
        "one that divides the {counted} layers, or stages in `--pipeline-model-parallel-layout` or \
         `--decoder-first-pipeline-num-layers`"
    );
    Err(wrong("--pipeline-model-parallel-size", &pp.to_string(), &expected))
}

/// As many positions as a sequence has.
fn positions(read: &Read, given: &mut Given) -> Result<(), ReadError> {
    let tokens = read.known("seq_length").unwrap_or(1);
    match given.positive("max_position_embeddings")? {
        Some(most) if most < tokens => {
            let expected = format!("at least the {tokens} of `--seq-length`");
            Err(wrong("--max-position-embeddings", &most.to_string(), &expected))
        }
        _ => Ok(()),
    }
}
