//! Arguments of Megatron-LM.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py` and
//! `megatron/core/transformer/pipeline_parallel_layer_layout.py`, version core 0.16.

mod kinds; // of which its parts are
mod one; // thing that is told
mod told; // what Megatron-LM and Megatron-Bridge are told

use schedule::Kind;

use crate::file::File;
use crate::model::Model;
use crate::range::Range;
use crate::strategy::Strategy;
pub(crate) use one::Key;
pub(crate) use told::{is_told, told};

/// What Megatron-LM runs of a strategy, and Megatron-Bridge, which runs it.
pub(crate) fn limited(
    (strategy, model): (Strategy, &Model),
    range: &Range,
    title: &'static str,
    lost: &mut Vec<String>,
) -> Strategy {
    let kind = if strategy.chunks > 1 { Kind::Interleaved } else { Kind::OneForwardOneBackward };
    let mut limited = Strategy { schedule: (strategy.pipeline > 1).then_some(kind), ..strategy.clone() };
    if strategy.pipeline > 1 && strategy.schedule != Some(kind) {
        let name = strategy.schedule.map_or("one of its own", Kind::name);
        lost.push(format!("the schedule is {name}: {title} has {} for such stages", kind.name()));
    }
    limited.zero = range.nearest(strategy.zero, strategy.pipeline);
    if limited.zero != strategy.zero {
        lost.push(format!(
            "ZeRO-{} with a pipeline: {title} shards what the optimizer keeps there (ZeRO-{})",
            strategy.zero, limited.zero
        ));
    }
    if strategy.tensor == 1 {
        limited.sequence = false;
    }
    limited.layers = together(&strategy, title, lost);
    if strategy.tensor > 1 && model.experts.is_some() && !strategy.sequence {
        lost.push(format!(
            "experts and tensor parallelism without split sequences: {title} splits sequences there"
        ));
        limited.sequence = true;
    }
    limited
}

/// The layers of each stage, those that predict tokens after the next in one of them: the last that has any.
fn together(strategy: &Strategy, title: &str, lost: &mut Vec<String>) -> Vec<u64> {
    let mut stages = strategy.layers_and_further();
    if stages.iter().filter(|it| it[1] > 0).count() > 1 {
        lost.push(format!(
            "layers that predict tokens after the next lie in several stages: {title} has them in one, the last of these"
        ));
        let place = stages.iter().rposition(|it| it[1] > 0).unwrap_or(0);
        stages.iter_mut().for_each(|it| it[1] = 0);
        stages[place][1] = strategy.further;
    }
    stages.into_iter().map(|it| it[0] + it[1]).collect()
}

/// The arguments, as an array of a shell.
pub(crate) fn files(strategy: &Strategy, model: &Model, lost: &mut Vec<String>) -> Vec<File> {
    // What of the router no parameter tells.
    let router = if model.router_bias { "the router's groups and scale, " } else { "" };
    let library = if strategy.across { "the library DeepEP, " } else { "" };
    // Kernels wait in as many queues: in one where parts of products are exchanged, in several where FSDP fetches ahead.
    let rotation = if is_told(model) { "" } else { "the rotary base and its scaling, " };
    let queues = match strategy {
        Strategy { zero: 2.., .. } => "export CUDA_DEVICE_MAX_CONNECTIONS=8\n",
        Strategy { tensor: 1, context: 1, .. } => "",
        _ => "export CUDA_DEVICE_MAX_CONNECTIONS=1\n",
    };
    let mut text = format!(
        "# Arguments of Megatron-LM for a plan of Shardloom. In a script of bash:\n\
         #   source megatron.sh\n\
         #   torchrun .. pretrain_gpt.py \"${{SHARDLOOM_ARGS[@]}}\" ..\n\
         # Yours to add: the tokenizer, data, {rotation}{router}{library}learning rates, how long to train.\n\
         {queues}SHARDLOOM_ARGS=(\n",
    );
    let told = told(strategy, model);
    for (title, all) in &told.parts {
        text += &format!("  # {title}\n");
        for argument in all.iter().filter_map(|it| it.argument.as_ref()) {
            text += &format!("  {argument}\n");
        }
    }
    text += ")\n";
    told.not_found(lost, |(argument, _)| argument);
    vec![File { name: "megatron.sh", text }]
}
