//! A command of TensorRT-LLM, and its configuration.
//!
//! Source: TensorRT-LLM, `docs/source/features/parallel-strategy.md`, `tensorrt_llm/commands/serve.py`. Attention
//! is data parallel over all devices of a server, or tensor parallel over all; without experts, data parallel
//! groups are servers.

use plan::{ExpertsBy, Served};

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
    let of_server = serving.of_server();
    let of_experts = match serving.served.experts {
        None => String::new(),
        Some(ExpertsBy::Experts) => format!("moe_expert_parallel_size: {of_server}\n"),
        Some(ExpertsBy::Units) => format!("moe_tensor_parallel_size: {of_server}\n"),
    };
    let mut yaml = format!(
        "tensor_parallel_size: {of_server}\npipeline_parallel_size: 1\n{of_experts}enable_attention_dp: {}\n\
         max_batch_size: {}\nmax_num_tokens: {}\nmax_seq_len: {}\nenable_chunked_prefill: true\n",
        serving.served.data > 1,
        serving.of_group(),
        serving.of_group() * serving.prompt,
        serving.context
    );
    match serving.device {
        Some(device) => {
            yaml += &format!("gpus_per_node: {}\n", device.of_node);
            let free = |bytes: u64| bytes.saturating_sub(serving.room.weights);
            let share = Serving::share(free(serving.room.capacity), free(device.memory));
            yaml += &format!("kv_cache_config:\n  free_gpu_memory_fraction: {share}\n");
        }
        None => lost.push(
            "the machine of the plan is not known: `kv_cache_config` is yours to add, with a \
             `free_gpu_memory_fraction`"
                .to_owned(),
        ),
    }
    let title = ("TensorRT-LLM", "1.2", "trtllm.sh");
    let arguments = [with("--config", "\"$(dirname \"$0\")/trtllm.yaml\"")];
    let launch = if serving.nodes() > 1 { "trtllm-llmapi-launch " } else { "" };
    let command = format!("{launch}trtllm-serve \"$MODEL\"");
    let text = script(serving, title, (&command, &arguments, &[]));
    vec![File { name: "trtllm.sh", text }, File { name: "trtllm.yaml", text: yaml }]
}
