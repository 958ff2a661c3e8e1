//! Every key of a configuration file: its unit, what it is taken to be where it is left out, what it says.

use std::fmt::Write as _;

/// A key of a configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The unit of its value, or the kind of value it is.
    pub unit: &'static str,
    /// What it is taken to be where it is left out.
    pub absent: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

const fn key(name: &'static str, unit: &'static str, absent: &'static str, meaning: &'static str) -> Key {
    Key { name, unit, absent, meaning }
}

/// Every key.
pub const KEYS: [Key; 55] = [
    key(
        "machine",
        "name",
        MUST,
        "a device type of `shardloom machines`, a machine file, or a file of several kinds of nodes",
    ),
    key(
        "device_power",
        "W",
        "the data sheet's",
        "power that a device is held to: products are slower by the third root of what it is of the data sheet's",
    ),
    key("device_memory", "GB", "the machine's", "memory of a device, 10⁹ bytes"),
    key("device_memory_bandwidth", "GB/s", "the machine's", "peak rate of a device's memory"),
    key(
        "gpus_per_node",
        "devices",
        "the machine's",
        "devices that links join; of an NVLink domain, all of it that the run has",
    ),
    key(
        "adapters_per_node",
        "adapters",
        "the machine's",
        "network adapters of such a node, all trays of a domain together",
    ),
    key("adapter_bandwidth", "GB/s", "the machine's", "rate of one adapter in one direction"),
    key("framework", "name", "megatron-core", "whose figures count: a file of `cost-models/frameworks/`"),
    key("framework_year", "year", "that of the framework's figures", "year of the framework's version"),
    key(
        "model_config",
        "file",
        "sizes are stated",
        "a `config.json` of Hugging Face, beside this file unless its path is whole: keys that say sizes of a model are taken from it where they are left out here",
    ),
    key("num_layers", "layers", MUST, "layers of the model"),
    key(
        "mtp_num_layers",
        "layers",
        "0",
        "layers after these that predict tokens after the next, each with a pass of its own through the head",
    ),
    key("hidden_size", "elements", MUST, "length of a token's vector"),
    key("num_attention_heads", "heads", MUST, "heads of queries"),
    key("num_query_groups", "heads", "num_attention_heads", "heads of keys and values"),
    key("kv_channels", "elements", "hidden_size / num_attention_heads", "length of a head's vector"),
    key(
        "q_lora_rank",
        "elements",
        "queries are made of a token's vector",
        "length of the vector that queries are made of, where attention is latent",
    ),
    key(
        "kv_lora_rank",
        "elements",
        "no latent attention",
        "length of the vector that keys and values are made of; `kv_channels` is then the part of a head without a position",
    ),
    key(
        "qk_pos_emb_head_dim",
        "elements",
        "no latent attention",
        "length of the part of a query and of a key that has the position",
    ),
    key("v_head_dim", "elements", "no latent attention", "length of a head's value"),
    key(
        "ffn_hidden_size",
        "elements",
        "4 hidden_size",
        "width of the feed-forward part of layers without experts, and of experts where `moe_ffn_hidden_size` is left out",
    ),
    key(
        "swiglu",
        "true, false",
        "false",
        "whether the feed-forward part begins with two products, of which one lets the other through",
    ),
    key(
        "untie_embeddings_and_output_weights",
        "true, false",
        "as swiglu",
        "whether logits have weights of their own",
    ),
    key("vocab_size", "tokens", "51200", "tokens that there are"),
    key("seq_length", "tokens", MUST, "tokens of an example"),
    key("num_experts", "experts", "none", "experts of each layer that has some"),
    key("moe_ffn_hidden_size", "elements", "ffn_hidden_size", "width of one expert"),
    key(
        "moe_layer_freq",
        "n, or list of 1 and 0",
        "1",
        "which layers have experts: every n-th, from the first; or for each a 1 if it has some, a 0 if not",
    ),
    key("moe_router_topk", "experts", "2, if there are experts", "experts that a token goes to"),
    key("moe_shared_expert_intermediate_size", "elements", "0", "width of the expert that all tokens go to"),
    key(
        "moe_token_dispatcher_type",
        "alltoall, flex",
        "the framework's",
        "`alltoall`: a token is sent once for each of its experts; `flex` (DeepEP, HybridEP): once to each node, and there once to each rank",
    ),
    key(
        "moe_load_imbalance",
        "ratio",
        "1",
        "tokens of the busiest of the ranks that share experts over its even share, in every layer; what a token's experts allow bounds it",
    ),
    key("world_size", "devices", MUST, "devices of the run"),
    key("tensor_model_parallel_size", "ranks", "1", "ranks that compute parts of each product"),
    key("pipeline_model_parallel_size", "stages", "1", "stages of the pipeline"),
    key("virtual_pipeline_model_parallel_size", "parts", "1", "parts of the model that a stage has"),
    key(
        "pipeline_layers",
        "list of layers",
        "equal shares (with `mtp_num_layers`, of time)",
        "layers of each stage, all its parts and those of `mtp_num_layers` together",
    ),
    key("context_parallel_size", "ranks", "1", "ranks that share an example's tokens"),
    key("expert_model_parallel_size", "ranks", "1", "ranks that share the experts of a layer"),
    key(
        "expert_tensor_parallel_size",
        "ranks",
        "tensor_model_parallel_size",
        "ranks that compute parts of each product of an expert; groups of this by expert_model_parallel_size lie in tp x cp x dp",
    ),
    key("micro_batch_size", "examples", "1", "examples that a pipeline sees at once"),
    key("global_batch_size", "examples", MUST, "examples of a step"),
    key(
        "zero_stage",
        "0 to 3",
        "0; 1 is use_distributed_optimizer",
        "what is sharded among data-parallel ranks: optimizer states, gradients, weights; with 2, and no pipeline, gradients are reduced in every micro-batch, and FSDP gathers weights again",
    ),
    key(
        "hybrid_shard",
        "true, false",
        "false",
        "whether the ranks of a node have all weights together, and each node a copy; goes with `zero_stage` 3",
    ),
    key(
        "sequence_parallel",
        "true, false",
        "false",
        "whether tensor-parallel ranks split along the sequence what they would hold alike",
    ),
    key(
        "recompute_granularity",
        "none, selective, every-second-product, every-second-layer, full",
        "none",
        "what is recomputed in the backward pass: the core of attention, every second product and what lies between products, every second layer, or all layers",
    ),
    key(
        "attention_backend",
        "fused, flash, unfused",
        "fused",
        "`fused`: the device's own matrix instructions (cuDNN, FlashAttention 3); `flash`: FlashAttention 2; `unfused`: scores in memory",
    ),
    key(
        "fp8_dot_product_attention",
        "true, false",
        "false",
        "whether attention is computed in 8 bits; goes with `fused`",
    ),
    key("precision", "bf16, fp16, fp8, fp4", "bf16", "arithmetic of products with weights"),
    key(
        "schedule",
        "1f1b, gpipe, eager-1f1b, zb-h1, zb-h2",
        "1f1b",
        "order in which a stage works on micro-batches; `1f1b` is interleaved where a stage has several parts",
    ),
    key(
        "cuda_graph_scope",
        "list of attn, mlp, moe, moe_router, moe_preprocess; or of full_iteration",
        "nothing",
        "what runs as graphs of kernels, which a host starts as one: `attn` and `mlp` of layers, `moe` all that experts add, `moe_router` with the norm before it and the shared expert, `moe_preprocess` what is made of its choices; `full_iteration` forward and backward passes as a whole",
    ),
    key(
        "overlap_grad_reduce",
        "true, false",
        "true",
        "whether the traffic of data parallelism runs beside computing",
    ),
    key("tp_comm_overlap", "true, false", "false", "whether that of tensor parallelism does"),
    key(
        "grad_reduce_bytes",
        "bytes",
        "the framework's",
        "bytes of an element of a gradient as it is reduced",
    ),
    key("lora", "true, false", "false", "whether adapters of low rank are trained beside frozen weights"),
];

const MUST: &str = "must be stated";

/// The page that lists every key.
#[must_use]
pub fn page() -> String {
    let mut page = ABOUT.to_owned();
    for Key { name, unit, absent, meaning } in KEYS {
        // Writing to a string does not fail.
        let _ = writeln!(page, "| `{name}` | {unit} | {absent} | {meaning} |");
    }
    page
}

const ABOUT: &str = "\
# Estimates of stated setups

`shardloom predict --config RUN.toml` estimates the time and the memory of a training step that is stated in
Megatron's words, without a search. A file has one `key = value` on a line:

```toml
machine = \"h100-80g\"
framework = \"nemo\"
num_layers = 80
hidden_size = 8192
num_attention_heads = 64
num_query_groups = 8
ffn_hidden_size = 28672
swiglu = true
seq_length = 8192
world_size = 64
tensor_model_parallel_size = 4
pipeline_model_parallel_size = 8
global_batch_size = 128
```

With `model_config = \"config.json\"` the sizes of the model are those of that file of Hugging Face's, as far as the
file here does not say others.

A key that is left out is listed under `assumed` in the answer, with the value that it is taken to have. A key
that is not in this table is refused, with the nearest that is; so is a value that does not go with the rest.
The data-parallel size is what is left: `world_size` / (tp x pp x cp).

Numbers of a device or a network that differ from those of the machine file are stated in place of them
(`device_power`, `adapter_bandwidth`): an H100 with 500 W and HBM2e is `machine = \"h100-80g\"`,
`device_power = 500`, `device_memory = 96`, `device_memory_bandwidth = 2400`.

A setup fits if a device can hold it and leaves free what plans leave: 2 % of a GPU's memory, or what `--reserve`
says.

Kernels of graphs (`cuda_graph_scope`) are not waited for: of the time in which a host starts a layer, that part is
left which its other kernels are of all. Of a layer's forward pass attention is 7 kernels (norm, product, two
rotations, attention, product, sum) and the rest 5; a router with what prepares dispatch is 17 where tokens are sent
once to each node and 31 otherwise, experts are two products each and 5 kernels besides; a product of narrow numbers
is two kernels. Counts of routers are those of NVIDIA's \"Optimizing DeepSeek-V3 Training Performance on NVIDIA GB200
NVL72\", what a scope has is as [Megatron-Core says](https://docs.nvidia.com/megatron-core/developer-guide/nightly/user-guide/features/cuda_graph.html). Graphs take memory of their own, which is not counted.

The figures of frameworks, such as the time to launch a layer, are in `cost-models/frameworks/`, each with its
source; [decision 0010](decisions/0010-figures-of-frameworks-stand-in-files.md) says why they are there.

This page is written from `crates/predict/src/config/keys.rs`; a test compares the two.

| key | unit or values | left out | meaning |
|---|---|---|---|
";
