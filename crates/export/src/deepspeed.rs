//! A configuration of DeepSpeed.
//!
//! Source: DeepSpeed, `docs/_pages/config-json.md`, `docs/_tutorials/autotp-training.md`,
//! `deepspeed/runtime/config.py`.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{DType, Optimizer};
use schedule::Kind;
use serde_json::{Value, json};

use crate::file::File;
use crate::job::Job;
use crate::model::traits::{Known, differences, nearest};
use crate::model::{Model, Trait};
use crate::modules::{Modules, Style, modules};
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
    if limited.tensor > 1 && limited.pipeline > 1 {
        lost.push(
            "how stages split products is said in code: AutoTP does not split a `PipelineModule`".to_owned(),
        );
    }
    if limited.tensor > 1 && limited.context > 1 {
        lost.push("sequences in parts beside AutoTP: DeepSpeed has them whole there".to_owned());
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
pub(crate) fn files(strategy: &Strategy, job: &Job<'_>, model: &Model, lost: &mut Vec<String>) -> Vec<File> {
    let mut config = json!({
        "train_micro_batch_size_per_gpu": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.micro_batches,
        // With a pipeline, DeepSpeed's engine sets it to false.
        "zero_optimization": { "stage": strategy.zero, "overlap_comm": strategy.pipeline == 1 },
        "bf16": { "enabled": strategy.element == DType::BF16 },
        "fp16": { "enabled": strategy.element == DType::F16 },
        "gradient_clipping": strategy.clip.unwrap_or(0.0),
    });
    config["optimizer"] = match strategy.optimizer {
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => json!({
            "type": "AdamW",
            "params": { "betas": [beta1.0, beta2.0], "eps": epsilon.0, "weight_decay": decay.0 },
        }),
        Optimizer::Sgd { decay } => sgd(0.0, decay.0),
        Optimizer::Momentum { momentum, decay } => sgd(momentum.0, decay.0),
    };
    if strategy.zero > 0 && !matches!(strategy.optimizer, Optimizer::AdamW { .. }) {
        config["zero_allow_untested_optimizer"] = json!(true);
    }
    if strategy.tensor == 1 {
        // DeepSpeed counts tensor parallel devices as replicas here, and refuses another product than that.
        config["train_batch_size"] = json!(strategy.examples());
    } else {
        config["tensor_parallel"] = json!({
            "autotp_size": strategy.tensor,
            "partition_config": { "use_default_specs": false, "layer_specs": specs(job, (model, strategy.tensor), lost) },
        });
    }
    if strategy.context > 1 {
        config["sequence_parallel_size"] = json!(strategy.context);
        lost.push(
            "which devices share sequences is said in code: `deepspeed.initialize` takes the `mpu` that \
             `UlyssesSPAttentionHF.register_with_transformers` returns"
                .to_owned(),
        );
    }
    if strategy.experts > 1 {
        config["expert_parallel"] = json!({ "enabled": true, "autoep_size": strategy.experts });
        lost.extend(not_in_presets(model));
    }
    if strategy.pipeline > 1 {
        config["pipeline"] = json!({ "stages": strategy.pipeline });
    }
    vec![File { name: "deepspeed.json", text: format!("{config:#}\n") }]
}

/// PyTorch's stochastic gradient descent.
fn sgd(momentum: f64, decay: f64) -> Value {
    json!({ "type": "SGD", "params": { "momentum": momentum, "weight_decay": decay } })
}

/// The patterns of parameters that are split by columns, and by rows; what is not as a plan has it is added to what
/// is lost.
fn specs(job: &Job<'_>, (model, tensor): (&Model, u64), lost: &mut Vec<String>) -> Vec<Value> {
    let modules = without_latent(modules(job, model, tensor).without_gathers());
    lost.extend(
        modules
            .whole
            .iter()
            .map(|(parent, why)| format!("`{parent}` is not in parts: AutoTP does not split {why}")),
    );
    let mut patterns: BTreeMap<Style, Vec<String>> = BTreeMap::new();
    for (module, style) in &modules.styles {
        patterns.entry(*style).or_default().push(pattern(&format!("{module}.weight")));
    }
    let spec = |(style, patterns): (Style, Vec<String>)| {
        let kind = match style {
            Style::Columns | Style::Halves | Style::Gathered => "column",
            Style::Rows | Style::RowsOfWhole => "row",
            Style::Summed | Style::SummedKeys => "skip",
        };
        let mut spec = json!({ "patterns": patterns, "partition_type": kind });
        match style {
            Style::Halves => {
                spec["shape"] = json!([2, -1]);
                spec["partition_dim"] = json!(0);
            }
            Style::Gathered => spec["gather_output"] = json!(true),
            Style::Summed => spec["grad_allreduce"] = json!(true),
            Style::Columns | Style::Rows | Style::RowsOfWhole | Style::SummedKeys => {}
        }
        spec
    };
    patterns.into_iter().map(spec).collect()
}

/// The same without latent attention: of the gradient of what makes its keys, AutoTP sums all or nothing over devices,
/// while only that of the rotated ones is in addends.
fn without_latent(mut modules: Modules) -> Modules {
    let latent: Vec<String> = modules
        .styles
        .iter()
        .filter(|it| *it.1 == Style::SummedKeys)
        .filter_map(|it| it.0.rsplit_once('.'))
        .map(|(parent, _)| parent.to_owned())
        .collect();
    for parent in latent {
        let is_elsewhere = |module: &str| module.rsplit_once('.').is_none_or(|it| it.0 != parent);
        modules.styles.retain(|module, _| is_elsewhere(module));
        modules.whole.retain(|module, _| is_elsewhere(module));
        modules.whole.insert(parent, "attention whose rotated keys all heads share");
    }
    modules
}

/// What layers with experts have that AutoEP has in presets: its name there, what its layers may have, and always do.
///
/// Source: DeepSpeed 0.19.8, `deepspeed/module_inject/auto_ep_presets/`.
const PRESETS: [(&str, &[Trait], &[Trait]); 4] = [
    ("mixtral", &[Trait::Experts], &[]),
    ("qwen3_moe", &[Trait::Experts, Trait::Dense, Trait::Shared, Trait::SharedGate], &[]),
    ("deepseek_v2", &[Trait::Experts, Trait::Dense, Trait::Shared], &[]),
    ("deepseek_v3", &[Trait::Experts, Trait::Dense, Trait::Shared, Trait::RouterBias], &[Trait::RouterBias]),
];

/// What of a model's experts is in no preset of AutoEP.
fn not_in_presets(model: &Model) -> Vec<String> {
    let of_experts = |it: &Trait| {
        use Trait::{BoundedExperts, Dense, Experts, RouterBias, Shared, SharedGate};
        matches!(it, Experts | Dense | Shared | SharedGate | RouterBias | BoundedExperts)
    };
    let traits: BTreeSet<Trait> = model.traits.iter().copied().filter(of_experts).collect();
    let set = |of: &[Trait]| of.iter().copied().collect();
    let known = PRESETS.map(|(name, may, always)| Known { name, may: set(may), always: set(always) });
    let Some((like, missing, besides)) = nearest(&known, &traits) else { return Vec::new() };
    differences((&missing, &besides), &format!("`{}`, of AutoEP's presets the nearest", like.name))
}

/// A name in which `*` stands for a number, as an expression.
fn pattern(name: &str) -> String {
    format!("^{}$", name.replace('.', "\\.").replace('*', "\\d+"))
}
