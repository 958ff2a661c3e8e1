//! A configuration of torchtitan: a Python module that sets what a plan says, and a schedule.
//!
//! Source: torchtitan 0.3.0, `torchtitan/config/configs.py`, `torchtitan/distributed/pipeline_parallel.py`;
//! `torchtitan/trainer.py` and `torchtitan/models/common/decoder.py` for what they refuse; PyTorch,
//! `torch/distributed/pipelining/schedules.py` for the words of a schedule.

mod models; // the decoders that it has

use planner_ir::DType;
use schedule::{Kind, Schedule, Work};

use crate::file::File;
use crate::job::Job;
use crate::model::traits::differences;
use crate::model::{Model, Trait};
use crate::range::Range;
use crate::strategy::{Again, Strategy};
use models::{Like, like};

/// What the file of a schedule is called.
pub const SCHEDULE: &str = "schedule.csv";

/// What torchtitan runs of a strategy, of a model: what its own models do not have of that is lost too.
pub(crate) fn limited(strategy: Strategy, range: &Range, model: &Model, lost: &mut Vec<String>) -> Strategy {
    let layers = strategy.layer_count();
    let like = like(model, layers);
    lost.extend(like.iter().flat_map(not_there));
    let mut limited = further(strategy, like.as_ref(), lost);
    lost.extend(refused(&limited, model));
    let least = u8::from(limited.context > 1).max(limited.zero);
    let zero = range.nearest(least, limited.pipeline);
    if zero != limited.zero {
        lost.push(format!(
            "{}: torchtitan shards gradients too, and parameters between steps (ZeRO-2, FSDP without resharding)",
            if limited.zero == 1 { "ZeRO-1" } else { "context parallelism without ZeRO" }
        ));
        limited.zero = zero;
    }
    // Devices that share experts are of those that share states.
    if limited.experts > 1 && (limited.zero == 0 || !limited.sharded.is_multiple_of(limited.experts)) {
        let (sharded, data) = (if limited.zero == 0 { 1 } else { limited.sharded }, limited.data);
        lost.push(format!(
            "experts split over {} devices, states over {sharded}: torchtitan shards them over all {data} there",
            limited.experts
        ));
        limited.zero = range.nearest(limited.zero.max(1), limited.pipeline);
        limited.sharded = data;
    }
    if limited.tensor == 1 {
        limited.sequence = false;
    }
    if limited.element == DType::F16 {
        lost.push("the model computes in f16: torchtitan does in bf16".to_owned());
        limited.element = DType::BF16;
    }
    limited
}

/// What the model of torchtitan that is like another has not of it, and what it has besides.
fn not_there(like: &Like) -> Vec<String> {
    let missing: Vec<Trait> = like.missing.iter().copied().filter(|it| *it != Trait::Further).collect();
    differences(
        (&missing, &like.besides),
        &format!("`{}`, of torchtitan's models the nearest", like.registry),
    )
}

/// The same without the layers that predict tokens after the next, where torchtitan does not train these.
fn further(strategy: Strategy, like: Option<&Like>, lost: &mut Vec<String>) -> Strategy {
    let trains = like.is_some_and(|it| it.further) && strategy.pipeline == 1 && strategy.context == 1;
    if trains { strategy } else { strategy.without_further("torchtitan", lost) }
}

/// What torchtitan refuses to start with.
fn refused(strategy: &Strategy, model: &Model) -> Vec<String> {
    let mut refused = Vec::new();
    if model.tied && strategy.pipeline > 1 {
        refused.push(format!("{}: torchtitan refuses that with a pipeline", Trait::Tied.words()));
    }
    if let (None, Some([_, keys, _])) = (model.latent, model.heads)
        && !keys.is_multiple_of(strategy.tensor)
    {
        refused.push(format!(
            "{keys} heads of keys over {} tensor parallel devices: torchtitan refuses what these do not divide",
            strategy.tensor
        ));
    }
    refused
}

/// The module, and the schedule if it has none of torchtitan's names.
pub(crate) fn files(strategy: &Strategy, model: &Model, job: &Job<'_>) -> Vec<File> {
    let named = strategy.schedule.and_then(name);
    let mut files = vec![File { name: "shardloom_torchtitan.py", text: module(strategy, model, named) }];
    if let (Some(schedule), None) = (job.schedule(), named) {
        files.push(File { name: SCHEDULE, text: csv(schedule) });
    }
    files
}

/// A field of a configuration and its value, as they stand in a module.
type Field = (&'static str, String);

/// In which ways the model is split.
fn parallelism(strategy: &Strategy, schedule: Option<&'static str>) -> Vec<Field> {
    let replicated = if strategy.zero == 0 { strategy.data } else { strategy.data / strategy.sharded };
    let mut parallelism = vec![
        ("data_parallel_replicate_degree", replicated.to_string()),
        ("data_parallel_shard_degree", (strategy.data / replicated).to_string()),
    ];
    let mut say = |name: &'static str, value: String| parallelism.push((name, value));
    if strategy.zero > 0 {
        say("fsdp_reshard_after_forward", quoted(if strategy.zero == 3 { "always" } else { "never" }));
    }
    say("tensor_parallel_degree", strategy.tensor.to_string());
    if strategy.tensor > 1 {
        say("enable_sequence_parallel", truth(strategy.sequence));
    }
    say("context_parallel_degree", strategy.context.to_string());
    say("expert_parallel_degree", strategy.experts.to_string());
    say("pipeline_parallel_degree", strategy.pipeline.to_string());
    if strategy.pipeline > 1 {
        say("module_fqns_per_model_part", parts(&strategy.layers));
        match schedule {
            Some(name) => say("pipeline_parallel_schedule", quoted(name)),
            None => say(
                "pipeline_parallel_schedule_csv",
                format!("str(Path(__file__).with_name(\"{SCHEDULE}\"))"),
            ),
        }
        say("pipeline_parallel_microbatch_size", strategy.micro_batch.to_string());
    }
    parallelism
}

/// What is trained on, and in which numbers.
fn training(strategy: &Strategy, model: &Model) -> Vec<Field> {
    // Micro-batches of a pipeline are of one batch of its schedule, others are accumulated.
    let local = if strategy.pipeline > 1 {
        strategy.micro_batch * strategy.micro_batches
    } else {
        strategy.micro_batch
    };
    let mut training =
        vec![("local_batch_size", local.to_string()), ("global_batch_size", strategy.examples().to_string())];
    training.extend(model.sequence.map(|it| ("seq_len", it.to_string())));
    // Without a largest norm nothing is scaled down; torchtitan has one if nothing is said.
    let norm = strategy.clip.map_or_else(|| "float(\"inf\")".to_owned(), |it| format!("{it:?}"));
    training.push(("max_norm", norm));
    let bf16 = strategy.element == DType::BF16;
    if bf16 && strategy.masters.is_none() {
        training.push(("dtype", quoted("bfloat16")));
    }
    training.push(("mixed_precision_param", quoted(if bf16 { "bfloat16" } else { "float32" })));
    if strategy.pipeline > 1 || strategy.experts > 1 {
        training.push(("disable_cuda_graphs", truth(true)));
    }
    training
}

fn module(strategy: &Strategy, model: &Model, schedule: Option<&'static str>) -> String {
    // Where no schedule of theirs is meant, it is in a file beside the module.
    let path = if strategy.pipeline > 1 && schedule.is_none() { "from pathlib import Path\n\n" } else { "" };
    let again = match strategy.recompute {
        Again::Nothing => "None",
        Again::Selective => "SelectiveAC.Config()",
        Again::Full => "FullAC.Config()",
    };
    let import = match strategy.recompute {
        Again::Nothing => "",
        Again::Selective => "from torchtitan.distributed.activation_checkpoint import SelectiveAC\n",
        Again::Full => "from torchtitan.distributed.activation_checkpoint import FullAC\n",
    };
    let mut text = format!(
        "\"\"\"How torchtitan runs a plan of Shardloom: `configured(config)` sets it in a configuration of the model.\n\
         \n\
         In a registry of configurations, around one {}, on {} devices:\n\
         \n    def planned():\n        return configured(yours())\n\
         \"\"\"\n\n\
         {path}from torchtitan.config import ParallelismConfig\n{import}{}\n\n\
         def configured(config):\n    config.parallelism = ParallelismConfig(\n",
        around(strategy, model),
        strategy.devices,
        if strategy.further > 0 { "from torchtitan.models.deepseek_v3.mtp import MTPLoss\n" } else { "" },
    );
    for (name, value) in parallelism(strategy, schedule) {
        text += &format!("        {name}={value},\n");
    }
    text += "    )\n";
    for (name, value) in training(strategy, model) {
        text += &format!("    config.training.{name} = {value}\n");
    }
    text += &format!("    config.activation_checkpoint = {again}\n");
    if let (1.., Some(tokens)) = (strategy.further, model.vocabulary) {
        text += &format!("    config.loss = MTPLoss.Config(mtp_scale=0.1, global_vocab_size={tokens})\n");
    }
    text + "    return config\n"
}

/// Of which model of torchtitan a configuration has to be.
fn around(strategy: &Strategy, model: &Model) -> String {
    let layers = strategy.layer_count();
    let Some(like) = like(model, layers) else { return format!("of a model of {layers} layers") };
    let (registry, further) = (like.registry, strategy.further);
    let further = if further > 0 { format!(", num_mtp_layers={further}") } else { String::new() };
    let differs = like.missing.iter().any(|it| *it != Trait::Further) || !like.besides.is_empty();
    match (like.flavor, model.hidden) {
        _ if differs => {
            format!("of a model of yours with {layers} layers: torchtitan's `{registry}` is the nearest")
        }
        (Some(flavor), _) => {
            format!("with `torchtitan.models.{registry}.model_registry(\"{flavor}\"{further})`")
        }
        (None, hidden) => format!(
            "of torchtitan's `{registry}` with {layers} layers of {}{further}, a flavor that is yours to add",
            hidden.map_or_else(String::new, |it| it.to_string())
        ),
    }
}

/// The modules of each stage, by the names that torchtitan's decoders have.
fn parts(stages: &[u64]) -> String {
    let last = stages.len().saturating_sub(1);
    let mut text = String::from("[\n");
    let mut next = 0;
    for (stage, &count) in stages.iter().enumerate() {
        let first = (stage == 0).then(|| quoted("tok_embeddings"));
        let layers = (next..next + count).map(|layer| quoted(&format!("layers.{layer}")));
        let end = ["norm", "lm_head"].into_iter().filter(|_| stage == last).map(quoted);
        let all: Vec<String> = first.into_iter().chain(layers).chain(end).collect();
        text += &format!("            [{}],\n", all.join(", "));
        next += count;
    }
    text + "        ]"
}

/// What torchtitan calls a schedule.
fn name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::GPipe => Some("GPipe"),
        Kind::OneForwardOneBackward => Some("1F1B"),
        Kind::Interleaved => Some("Interleaved1F1B"),
        Kind::OneForwardOneBackwardDelayed
        | Kind::Eager
        | Kind::EagerDelayed
        | Kind::InterleavedDelayed
        | Kind::ZeroBubbleH1
        | Kind::ZeroBubbleH2 => None,
    }
}

/// A line for each group, a word for each task: its stage, what is done, its micro-batch. `B` are all
/// gradients, `I` those of what the stage took, `W` those of its weights.
#[must_use]
pub fn csv(schedule: &Schedule) -> String {
    let mut text = String::new();
    for (group, tasks) in schedule.groups.iter().enumerate() {
        let word = |task: &schedule::Task| {
            let work = match task.work {
                Work::Forward => 'F',
                Work::Backward if schedule.splits_backward => 'I',
                Work::Backward => 'B',
                Work::Weight => 'W',
            };
            format!("{}{work}{}", schedule.stage(group, task.chunk), task.micro_batch)
        };
        text += &tasks.iter().map(word).collect::<Vec<_>>().join(",");
        text.push('\n');
    }
    text
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn truth(is: bool) -> String {
    if is { "True".to_owned() } else { "False".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{csv, parts};

    #[test]
    fn schedules_are_written_task_by_task() {
        let schedule: schedule::Schedule = "F0 F1 B0 W0 B1 W1\nF0 B0 F1 B1 W0 W1".parse().unwrap();
        assert_eq!(csv(&schedule), "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
        let schedule: schedule::Schedule = "F0.0 F0.1 B0.1 B0.0".parse().unwrap();
        assert_eq!(csv(&schedule), "0F0,1F0,1B0,0B0\n");
    }

    #[test]
    fn stages_have_their_modules() {
        let expected = "[\n            [\"tok_embeddings\", \"layers.0\"],\n            [\"layers.1\", \"layers.2\", \"norm\", \"lm_head\"],\n        ]";
        assert_eq!(parts(&[1, 2]), expected);
    }
}
