//! A configuration of DeepSpeed.
//!
//! Source: DeepSpeed, `docs/_pages/config-json.md`, `docs/_tutorials/autotp-training.md`,
//! `deepspeed/runtime/config.py`.

use std::collections::BTreeMap;

use planner_ir::{DType, Optimizer};
use schedule::Kind;
use serde_json::{Value, json};

use crate::file::File;
use crate::job::Job;
use crate::placements::{Cut, cuts};
use crate::range::Range;
use crate::strategy::{Again, Strategy};

/// What DeepSpeed runs of a strategy.
pub(crate) fn limited(strategy: Strategy, range: &Range, lost: &mut Vec<String>) -> Strategy {
    let mut limited = strategy;
    if limited.pipeline > 1 {
        let zero = range.nearest(limited.zero, limited.pipeline);
        if limited.zero != zero {
            lost.push(format!("ZeRO-{} with a pipeline: DeepSpeed has ZeRO-{zero} there", limited.zero));
            limited.zero = zero;
        }
        if limited.schedule != Some(Kind::OneForwardOneBackward) {
            let name = limited.schedule.map_or("one of its own", Kind::name);
            lost.push(format!("the schedule is {name}: DeepSpeed has 1f1b"));
            limited.schedule = Some(Kind::OneForwardOneBackward);
        }
    }
    if limited.chunks > 1 {
        lost.push(format!(
            "{} stages of each group: DeepSpeed has one, of as many layers together",
            limited.chunks
        ));
        limited.layers = together(&limited);
        limited.chunks = 1;
    }
    if limited.pipeline > 1 {
        let starts: Vec<String> = limited.layers.iter().map(ToString::to_string).collect();
        lost.push(format!(
            "which layers a stage has is said in code, where the model is made a `PipelineModule` of {} stages: {} layers",
            limited.layers.len(),
            starts.join(", ")
        ));
    }
    if limited.sequence {
        lost.push("sequences split between products: AutoTP keeps them whole there".to_owned());
        limited.sequence = false;
    }
    if limited.sharded < limited.data && limited.zero > 0 {
        lost.push(format!(
            "states sharded over {} of {} devices: DeepSpeed shards them over all",
            limited.sharded, limited.data
        ));
        limited.sharded = limited.data;
    }
    if limited.recompute != Again::Nothing {
        lost.push(format!(
            "recompute {} is said in code: `model.gradient_checkpointing_enable()` computes all again",
            limited.recompute.name()
        ));
        limited.recompute = Again::Full;
    }
    limited
}

/// The layers of each group's stages, counted together.
fn together(strategy: &Strategy) -> Vec<u64> {
    let groups = usize::try_from(strategy.pipeline).unwrap_or(1).max(1);
    let of = |group: usize| strategy.layers.iter().skip(group).step_by(groups).sum();
    (0..groups).map(of).collect()
}

/// The configuration.
pub(crate) fn files(strategy: &Strategy, job: &Job<'_>) -> Vec<File> {
    let mut config = json!({
        "train_batch_size": strategy.examples(),
        "train_micro_batch_size_per_gpu": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.micro_batches,
        // With a pipeline, DeepSpeed's engine sets it to false.
        "zero_optimization": { "stage": strategy.zero, "overlap_comm": strategy.pipeline == 1 },
        "bf16": { "enabled": strategy.element == DType::BF16 },
        "fp16": { "enabled": strategy.element == DType::F16 },
        "gradient_clipping": strategy.clip.unwrap_or(0.0),
    });
    if let Optimizer::AdamW { beta1, beta2, epsilon, decay } = strategy.optimizer {
        config["optimizer"] = json!({
            "type": "AdamW",
            "params": { "betas": [beta1.0, beta2.0], "eps": epsilon.0, "weight_decay": decay.0 },
        });
    }
    if strategy.tensor > 1 {
        config["tensor_parallel"] = json!({
            "autotp_size": strategy.tensor,
            "partition_config": { "use_default_specs": false, "layer_specs": specs(job) },
        });
    }
    if strategy.context > 1 {
        config["sequence_parallel_size"] = json!(strategy.context);
    }
    if strategy.experts > 1 {
        config["expert_parallel"] = json!({ "enabled": true, "autoep_size": strategy.experts });
    }
    if strategy.pipeline > 1 {
        config["pipeline"] = json!({ "stages": strategy.pipeline });
    }
    vec![File { name: "deepspeed.json", text: format!("{config:#}\n") }]
}

/// The patterns of parameters that are split by columns, and by rows.
fn specs(job: &Job<'_>) -> Vec<Value> {
    let mut patterns: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (name, cut) in cuts(job) {
        let kind = match cut {
            Cut::Columns => "column",
            Cut::Rows => "row",
            Cut::Other => continue,
        };
        patterns.entry(kind).or_default().push(pattern(&name));
    }
    let spec = |(kind, patterns)| json!({ "patterns": patterns, "partition_type": kind });
    patterns.into_iter().map(spec).collect()
}

/// A name in which `*` stands for a number, as an expression.
fn pattern(name: &str) -> String {
    format!("^{}$", name.replace('.', "\\.").replace('*', "\\d+"))
}
