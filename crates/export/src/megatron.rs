//! Arguments of Megatron-LM.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py` and
//! `megatron/core/transformer/pipeline_parallel_layer_layout.py`, version core 0.16.

use planner_ir::{DType, Optimizer};
use schedule::Kind;

use crate::file::File;
use crate::model::Model;
use crate::range::Range;
use crate::strategy::{Again, Strategy, number};

/// What Megatron-LM runs of a strategy.
pub(crate) fn limited(strategy: Strategy, range: &Range, lost: &mut Vec<String>) -> Strategy {
    let kind = if strategy.chunks > 1 { Kind::Interleaved } else { Kind::OneForwardOneBackward };
    let mut limited = Strategy { schedule: (strategy.pipeline > 1).then_some(kind), ..strategy.clone() };
    if strategy.pipeline > 1 && strategy.schedule != Some(kind) {
        let name = strategy.schedule.map_or("one of its own", Kind::name);
        lost.push(format!("the schedule is {name}: Megatron-LM has {} for such stages", kind.name()));
    }
    limited.zero = range.nearest(strategy.zero, strategy.pipeline);
    if limited.zero != strategy.zero {
        lost.push(format!(
            "ZeRO-{} with a pipeline: Megatron-LM shards what the optimizer keeps there (ZeRO-{})",
            strategy.zero, limited.zero
        ));
    }
    if strategy.tensor == 1 {
        limited.sequence = false;
    }
    if strategy.tensor > 1 && strategy.experts > 1 && !strategy.sequence {
        lost.push(
            "experts and tensor parallelism without split sequences: Megatron-LM splits sequences there"
                .to_owned(),
        );
        limited.sequence = true;
    }
    limited
}

/// The arguments, as an array of a shell.
pub(crate) fn files(strategy: &Strategy, model: &Model, lost: &mut Vec<String>) -> Vec<File> {
    let mut text = String::from(
        "# Arguments of Megatron-LM for a plan of Shardloom. In a script of bash:\n\
         #   source megatron.sh\n\
         #   torchrun .. pretrain_gpt.py \"${SHARDLOOM_ARGS[@]}\" ..\n\
         # Yours to add: the tokenizer, data, the rotary base, learning rates, how long to train.\n\
         SHARDLOOM_ARGS=(\n",
    );
    for (title, arguments) in [
        ("the model", of_model(strategy, model, lost)),
        ("parallelism", parallel(strategy)),
        ("training", training(strategy, model)),
    ] {
        text += &format!("  # {title}\n");
        for argument in arguments {
            text += &format!("  {argument}\n");
        }
    }
    text += ")\n";
    vec![File { name: "megatron.sh", text }]
}

fn of_model(strategy: &Strategy, model: &Model, lost: &mut Vec<String>) -> Vec<String> {
    let mut arguments = vec![format!("--num-layers {}", strategy.layer_count())];
    let mut unknown = Vec::new();
    let mut say = |name: &'static str, value: Option<u64>| match value {
        Some(value) => arguments.push(format!("{name} {value}")),
        None => unknown.push(name),
    };
    say("--hidden-size", model.hidden);
    say("--ffn-hidden-size", model.units.or(model.experts.map(|it| it.units)));
    say("--num-attention-heads", model.heads.map(|it| it[0]));
    say("--seq-length", model.sequence);
    say("--vocab-size", model.vocabulary);
    if !unknown.is_empty() {
        lost.push(format!("not found in the program, yours to add: {}", unknown.join(", ")));
    }
    if let Some([queries, keys, size]) = model.heads {
        if keys < queries {
            arguments.push(format!("--group-query-attention --num-query-groups {keys}"));
        }
        if model.hidden.is_some_and(|hidden| hidden != queries * size) {
            arguments.push(format!("--kv-channels {size}"));
        }
    }
    if let Some(experts) = model.experts {
        arguments.push(format!("--num-experts {}", experts.count));
        arguments.push(format!("--moe-router-topk {}", experts.active));
        arguments.push(format!("--moe-ffn-hidden-size {}", experts.units));
    }
    let mut flag = |is: bool, argument: &str| {
        if is {
            arguments.push(argument.to_owned());
        }
    };
    flag(model.gated, "--swiglu");
    flag(model.rotary, "--position-embedding-type rope");
    flag(!model.biases, "--disable-bias-linear");
    flag(!model.tied, "--untie-embeddings-and-output-weights");
    if let Some(epsilon) = model.root_mean_square {
        // What a file has in f32, to as many places as that tells apart.
        arguments.push(format!("--normalization RMSNorm --norm-epsilon {epsilon:.0e}"));
    }
    arguments
}

fn parallel(strategy: &Strategy) -> Vec<String> {
    let mut arguments = vec![
        format!("--tensor-model-parallel-size {}", strategy.tensor),
        format!("--pipeline-model-parallel-size {}", strategy.pipeline),
        format!("--context-parallel-size {}", strategy.context),
    ];
    if strategy.experts > 1 {
        arguments.push(format!("--expert-model-parallel-size {}", strategy.experts));
        arguments.push("--expert-tensor-parallel-size 1".to_owned());
        arguments.push("--moe-token-dispatcher-type alltoall".to_owned());
    }
    if strategy.pipeline > 1 {
        arguments.push(format!("--pipeline-model-parallel-layout '{}'", layout(&strategy.layers)));
    }
    if strategy.sequence {
        arguments.push("--sequence-parallel".to_owned());
    }
    match strategy.zero {
        0 => {}
        1 => arguments.push("--use-distributed-optimizer".to_owned()),
        level => {
            let what = if level == 2 { "optim_grads" } else { "optim_grads_params" };
            arguments.push(format!("--use-megatron-fsdp --data-parallel-sharding-strategy {what}"));
            arguments.push("--use-distributed-optimizer --ckpt-format fsdp_dtensor".to_owned());
            arguments.push("--no-gradient-accumulation-fusion".to_owned());
        }
    }
    // Gradients are summed over what shares examples and what shares sequences.
    if strategy.data * strategy.context > 1 {
        arguments.push("--overlap-grad-reduce".to_owned());
        if strategy.zero > 0 {
            arguments.push("--overlap-param-gather".to_owned());
        }
    }
    if strategy.zero > 0 && strategy.sharded < strategy.data {
        arguments.push(format!("--num-distributed-optimizer-instances {}", strategy.data / strategy.sharded));
    }
    arguments
}

fn training(strategy: &Strategy, model: &Model) -> Vec<String> {
    let mut arguments = vec![
        format!("--micro-batch-size {}", strategy.micro_batch),
        format!("--global-batch-size {}", strategy.examples()),
    ];
    match strategy.recompute {
        Again::Nothing => {}
        Again::Selective => {
            let modules = if model.experts.is_some() { "core_attn moe_act" } else { "core_attn" };
            arguments.push(format!("--recompute-granularity selective --recompute-modules {modules}"));
        }
        Again::Full => {
            arguments.push("--recompute-granularity full --recompute-method uniform".to_owned());
            arguments.push("--recompute-num-layers 1".to_owned());
        }
    }
    match strategy.element {
        DType::BF16 => arguments.push("--bf16".to_owned()),
        DType::F16 => arguments.push("--fp16".to_owned()),
        _ => {}
    }
    arguments.push(match strategy.optimizer {
        Optimizer::Sgd { decay } => {
            format!("--optimizer sgd --sgd-momentum 0 --weight-decay {}", decay.0)
        }
        Optimizer::Momentum { momentum, decay } => {
            format!("--optimizer sgd --sgd-momentum {} --weight-decay {}", momentum.0, decay.0)
        }
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => format!(
            "--optimizer adam --adam-beta1 {} --adam-beta2 {} --adam-eps {:e} --weight-decay {}",
            beta1.0, beta2.0, epsilon.0, decay.0
        ),
    });
    arguments.push(format!("--clip-grad {}", strategy.clip.unwrap_or(0.0)));
    arguments
}

/// Which stage has which layers: `E` the embeddings, `t` a layer, `L` the loss, `|` between stages.
fn layout(stages: &[u64]) -> String {
    let last = number(stages.len()).saturating_sub(1);
    let stage = |(place, &layers): (u64, &u64)| {
        let layers = match layers {
            0 => String::new(),
            1 => "t".to_owned(),
            several => format!("t*{several}"),
        };
        let first = if place == 0 { "E" } else { "" };
        format!("{first}{layers}{}", if place == last { "L" } else { "" })
    };
    (0..).zip(stages).map(stage).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::layout;

    #[test]
    fn layouts_have_embeddings_first_and_the_loss_last() {
        assert_eq!(layout(&[7, 9, 9, 7]), "Et*7|t*9|t*9|t*7L");
        assert_eq!(layout(&[0, 1, 0]), "E|t|L");
        assert_eq!(layout(&[2]), "Et*2L");
    }
}
