//! A command of TensorRT-LLM, and its configuration.
//!
//! Source: TensorRT-LLM, `docs/source/features/parallel-strategy.md`, `tensorrt_llm/commands/serve.py`. Attention
//! is data parallel over all devices of a server, or tensor parallel over all; without experts, data parallel
//! groups are servers.

use plan::{ExpertsBy, Served};
use serde_json::{Value, json};

use crate::file::File;
use crate::model::Model;
use crate::server::{script, with};
use crate::serving::Serving;

/// What TensorRT-LLM runs.
pub(crate) fn limited(serving: Serving, model: &Model, lost: &mut Vec<String>) -> Serving {
    let Served { replicas, data, tensor, .. } = serving.served;
    if model.experts.is_none() {
        return serving.groups_apart();
    }
    if data == 1 || tensor == 1 {
        return serving;
    }
    let all = data * tensor;
    lost.push(format!(
        "data {data} and tensor {tensor} in a server: TensorRT-LLM has attention either data or tensor parallel over \
         all {all} devices"
    ));
    if !serving.sequences.is_multiple_of(replicas * all) {
        return serving.without_groups(model);
    }
    Serving { served: Served { data: all, tensor: 1, ..serving.served }, ..serving }
}

/// The script and the configuration.
pub(crate) fn files(serving: &Serving, lost: &mut Vec<String>) -> Vec<File> {
    let mut yaml = String::new();
    for (key, value) in settings(serving, lost) {
        let lines: Vec<String> = match value {
            Value::Object(inside) => {
                inside.iter().map(|(key, value)| format!("\n  {key}: {value}")).collect()
            }
            value => vec![format!(" {value}")],
        };
        yaml += &format!("{key}:{}\n", lines.concat());
    }
    let title = ("TensorRT-LLM", "1.2", "trtllm.sh");
    let arguments = [with("--config", "\"$(dirname \"$0\")/trtllm.yaml\"")];
    let launch = if serving.nodes() > 1 { "trtllm-llmapi-launch " } else { "" };
    let command = format!("{launch}trtllm-serve \"$MODEL\"");
    let text = script(serving, title, (&command, &arguments, &[]));
    vec![File { name: "trtllm.sh", text }, File { name: "trtllm.yaml", text: yaml }]
}

/// What a server is told: keys and values.
pub(crate) fn settings(serving: &Serving, lost: &mut Vec<String>) -> Vec<(&'static str, Value)> {
    let of_server = serving.of_server();
    let mut all = vec![("tensor_parallel_size", json!(of_server)), ("pipeline_parallel_size", json!(1))];
    all.extend(match serving.served.experts {
        None => None,
        Some(ExpertsBy::Experts) => Some(("moe_expert_parallel_size", json!(of_server))),
        Some(ExpertsBy::Units) => Some(("moe_tensor_parallel_size", json!(of_server))),
    });
    all.extend([
        ("enable_attention_dp", json!(serving.served.data > 1)),
        ("max_batch_size", json!(serving.of_group())),
        ("max_num_tokens", json!(serving.of_group() * serving.prompt)),
        ("max_seq_len", json!(serving.context)),
        ("enable_chunked_prefill", json!(true)),
    ]);
    match serving.device {
        Some(device) => {
            let free = |bytes: u64| bytes.saturating_sub(serving.room.weights);
            // As many places as shares have.
            let share = Serving::share(free(serving.room.capacity), free(device.memory));
            let share: Value = share.parse().unwrap_or(Value::Null);
            all.push(("gpus_per_node", json!(device.of_node)));
            all.push(("kv_cache_config", json!({ "free_gpu_memory_fraction": share })));
        }
        None => lost.push(
            "the machine of the plan is not known: `kv_cache_config` is yours to add, with a \
             `free_gpu_memory_fraction`"
                .to_owned(),
        ),
    }
    all
}
