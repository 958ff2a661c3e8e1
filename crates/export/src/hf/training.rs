//! A Python module for training with transformers: how the model is loaded, and arguments of its trainer.
//!
//! Source: transformers 5.24, `transformers/training_args.py`, `transformers/distributed/configuration_utils.py`;
//! accelerate 1.15, `accelerate/parallelism_config.py` and `accelerate/accelerator.py`. A model with tensor parallel
//! parts or split experts is loaded in parts, its data parallel ones too; any other is sharded by accelerate, which
//! alone splits sequences.

use planner_ir::{DType, Optimizer};

use super::tp_plan;
use crate::error::ExportError;
use crate::file::File;
use crate::job::Job;
use crate::model::Model;
use crate::range::Range;
use crate::strategy::{Again, Strategy};

/// What transformers trains of a strategy.
pub(crate) fn limited(
    strategy: Strategy,
    range: &Range,
    lost: &mut Vec<String>,
) -> Result<Strategy, ExportError> {
    if strategy.pipeline > 1 {
        return Err(ExportError::Pipeline("transformers"));
    }
    let mut limited = strategy;
    if limited.context > 1 && in_parts(&limited) {
        lost.push(format!(
            "sequences are split over {} devices beside tensor parallelism or experts: transformers is tensor parallel \
             there",
            limited.context
        ));
        limited.tensor *= limited.context;
        limited.context = 1;
    }
    if limited.sequence {
        lost.push("sequences split between products: transformers keeps them whole there".to_owned());
        limited.sequence = false;
    }
    let least = u8::from(limited.context > 1 || in_parts(&limited) && limited.data > 1);
    let zero = range.nearest(least.max(limited.zero), 1);
    if zero != limited.zero {
        let what = if limited.zero == 1 { "ZeRO-1" } else { "parts of a model without ZeRO" };
        lost.push(format!("{what}: FSDP shards gradients too, and parameters between steps (ZeRO-2)"));
        limited.zero = zero;
        limited.sharded = if limited.sharded > 1 { limited.sharded } else { limited.data };
    }
    if !limited.sharded.is_multiple_of(limited.experts) {
        lost.push(format!(
            "states sharded over {} devices, experts split over {}: FSDP is over all {} there",
            limited.sharded, limited.experts, limited.data
        ));
        limited.sharded = limited.data;
    }
    if limited.recompute == Again::Selective {
        lost.push("recompute selective: transformers computes layers again".to_owned());
        limited.recompute = Again::Full;
    }
    if let Optimizer::Momentum { .. } = limited.optimizer {
        lost.push("momentum of `sgd` is said in code: `Trainer(optimizers=..)`".to_owned());
    }
    Ok(limited)
}

/// Whether the model is loaded in parts.
fn in_parts(strategy: &Strategy) -> bool {
    strategy.tensor > 1 || strategy.experts > 1
}

/// The module.
pub(crate) fn files(strategy: &Strategy, job: &Job<'_>, model: &Model, lost: &mut Vec<String>) -> Vec<File> {
    let loaded = in_parts(strategy);
    let plan = if strategy.tensor > 1 {
        let plan = tp_plan(job, (model, strategy.tensor), lost);
        format!("# How modules are split; those that are not here are as the model has them.\n{plan}\n")
    } else {
        String::new()
    };
    let (config, import) = if loaded {
        let config = format!("DISTRIBUTED = DistributedConfig(\n{})\n", lines(&distributed(strategy)));
        (config, "from transformers.distributed import DistributedConfig\n")
    } else {
        ("DISTRIBUTED = None\n".to_owned(), "")
    };
    let other = if loaded { "" } else { "from accelerate import ParallelismConfig\n" };
    let text = format!(
        "\"\"\"How transformers 5.24 and accelerate 1.15 run a plan of Shardloom: {}.\n\n\
         A program that makes `Trainer(load(name), arguments(folder), ..)` is run on {} devices by `torchrun`.\n\
         \"\"\"\n\n\
         {other}from transformers import AutoModelForCausalLM, TrainingArguments\n{import}\n\
         {plan}{config}\n\
         # Arguments of the trainer; learning rates, data and how long to train are yours to add.\n\
         ARGUMENTS = dict(\n{})\n\n\n\
         def load(name, **more):\n    \"\"\"The model of a folder or name.\"\"\"\n    \
         return AutoModelForCausalLM.from_pretrained(name, dtype=\"{}\", distributed_config=DISTRIBUTED, **more)\n\n\n\
         def arguments(folder, **more):\n    \"\"\"The trainer's arguments; what it writes goes to a folder.\"\"\"\n    \
         return TrainingArguments(folder, **ARGUMENTS, {}**more)\n",
        strategy.in_words(),
        strategy.devices,
        lines(&arguments(strategy)),
        dtype(strategy),
        if loaded { String::new() } else { format!("parallelism_config={}, ", parallelism(strategy)) },
    );
    vec![File { name: "shardloom_hf.py", text }]
}

/// An argument's name and its value.
type Argument = (&'static str, String);

fn lines(arguments: &[Argument]) -> String {
    arguments.iter().map(|(name, value)| format!("    {name}={value},\n")).collect()
}

/// How often states are there, and over how many devices each is sharded.
fn shards(strategy: &Strategy) -> [u64; 2] {
    if strategy.zero == 0 { [strategy.data, 1] } else { [strategy.data / strategy.sharded, strategy.sharded] }
}

/// How the model is loaded in parts.
fn distributed(strategy: &Strategy) -> Vec<Argument> {
    let [replicas, sharded] = shards(strategy);
    let mut all = vec![
        ("tp_size", strategy.tensor.to_string()),
        ("tp_plan", if strategy.tensor > 1 { "TP_PLAN" } else { "{}" }.to_owned()),
        ("fsdp_size", sharded.to_string()),
        ("dp_replicate_size", replicas.to_string()),
    ];
    if strategy.zero == 2 {
        all.push(("fsdp_plan", format!("{{\"{}.*\": \"keep_full_weight\"}}", strategy.prefix)));
    }
    if strategy.element == DType::BF16 && strategy.masters.is_some() && sharded > 1 {
        all.push(("fsdp_mixed_precision", "True".to_owned()));
    }
    if strategy.experts > 1 {
        all.push(("ep_size", (strategy.experts * strategy.tensor).to_string()));
    }
    all
}

/// What accelerate does with a model that is loaded whole.
fn parallelism(strategy: &Strategy) -> String {
    let [replicas, sharded] = shards(strategy);
    format!(
        "ParallelismConfig(dp_replicate_size={replicas}, dp_shard_size={sharded}, cp_size={})",
        strategy.context
    )
}

fn arguments(strategy: &Strategy) -> Vec<Argument> {
    let mut all = vec![
        ("per_device_train_batch_size", strategy.micro_batch.to_string()),
        ("gradient_accumulation_steps", strategy.micro_batches.to_string()),
    ];
    let mut say = |name: &'static str, value: &dyn ToString| all.push((name, value.to_string()));
    match strategy.element {
        DType::BF16 if strategy.masters.is_some() => say("bf16", &"True"),
        DType::F16 => say("fp16", &"True"),
        _ => {}
    }
    let again = strategy.recompute != Again::Nothing;
    if strategy.zero > 0 && !in_parts(strategy) {
        let reshard = truth(strategy.zero == 3);
        let config = format!(
            "{{\"version\": 2, \"reshard_after_forward\": {reshard}, \"activation_checkpointing\": {}}}",
            truth(again)
        );
        say("fsdp", &"True");
        say("fsdp_config", &config);
    } else {
        say("gradient_checkpointing", &truth(again));
    }
    match strategy.optimizer {
        Optimizer::Sgd { decay } | Optimizer::Momentum { decay, .. } => {
            say("optim", &"\"sgd\"");
            say("weight_decay", &decay.0);
        }
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => {
            say("optim", &"\"adamw_torch\"");
            say("adam_beta1", &beta1.0);
            say("adam_beta2", &beta2.0);
            say("adam_epsilon", &format!("{:e}", epsilon.0));
            say("weight_decay", &decay.0);
        }
    }
    say("max_grad_norm", &strategy.clip.unwrap_or(0.0));
    all
}

/// In what parameters are kept.
fn dtype(strategy: &Strategy) -> &'static str {
    match strategy.element {
        DType::BF16 if strategy.masters.is_none() => "bfloat16",
        _ => "float32",
    }
}

fn truth(is: bool) -> &'static str {
    if is { "True" } else { "False" }
}
