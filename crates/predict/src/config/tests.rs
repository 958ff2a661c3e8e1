//! Configurations: what they state, and what is refused.

use super::*;

/// A configuration that names no model.
fn read(text: &str) -> Result<Config, ConfigError> {
    super::read(text, &|name| Err(format!("no `{name}`")))
}

const LLAMA: &str = "\
machine = \"h100-80g\"
framework = \"nemo\"
num_layers = 80
hidden_size = 8192
num_attention_heads = 64
num_query_groups = 8
ffn_hidden_size = 28672
swiglu = true
vocab_size = 128256
seq_length = 8192
world_size = 64
tensor_model_parallel_size = 4
pipeline_model_parallel_size = 8
virtual_pipeline_model_parallel_size = 5
global_batch_size = 128
zero_stage = 1
precision = \"fp8\"
";

#[test]
fn a_configuration_is_a_setup() {
    let config = read(LLAMA).unwrap();
    let setup = config.setup;
    assert_eq!((setup.dp, setup.microbatches(), setup.stages.len()), (2, 64, 8));
    assert_eq!(
        (setup.zero, setup.precision, setup.recompute),
        (Zero::Optimizer, Arithmetic::F8, Recompute::None)
    );
    assert!((setup.model.parameters() / 1e9 - 70.6).abs() < 0.1);
    assert_eq!((config.machine.as_str(), config.framework.as_str()), ("h100-80g", "nemo"));
}

/// Where stages have parts, layers that predict further tokens are beside equal shares of the others, in the last.
#[test]
fn further_tokens_are_predicted_in_the_last_stage() {
    let with = |more: &str| read(&format!("{LLAMA}{more}")).map(|it| it.setup.stages);
    assert_eq!(with("mtp_num_layers = 1\n").unwrap(), [10, 10, 10, 10, 10, 10, 10, 11]);
    assert_eq!(with("mtp_num_layers = 0\n").unwrap(), [10; 8]);
    let uneven = LLAMA.replace("num_layers = 80", "num_layers = 79");
    let refused = read(&format!("{uneven}mtp_num_layers = 1\n")).unwrap_err().to_string();
    assert!(refused.starts_with("`num_layers` is 79, expected a multiple of"), "{refused}");
}

#[test]
fn what_is_left_out_is_told() {
    let assumed = |text: &str| read(text).unwrap().assumed;
    assert!(!assumed(LLAMA).iter().any(|it| it.0 == "vocab_size"));
    let without = LLAMA.replace("vocab_size = 128256\n", "");
    assert!(assumed(&without).contains(&("vocab_size", "51200")));
    assert_eq!(read(&without).unwrap().setup.model.vocab, 51_200);
    assert_eq!(assumed(&without).len(), KEYS.len() - 1 - (LLAMA.lines().count() - 1));
}

#[test]
fn what_is_wrong_is_said() {
    let check = |change: &dyn Fn(&str) -> String, expected: &str| {
        assert_eq!(read(&change(LLAMA)).unwrap_err().to_string(), expected);
    };
    let with = |line: &'static str| move |text: &str| format!("{text}{line}\n");
    let without = |key: &'static str| {
        move |text: &str| {
            text.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect()
        }
    };
    let instead = |from: &'static str, to: &'static str| move |text: &str| text.replace(from, to);
    check(
        &with("tensor_parallel_size = 2"),
        "no key `tensor_parallel_size`, did you mean `tensor_model_parallel_size`?",
    );
    check(&with("num_layer = 2"), "no key `num_layer`, did you mean `num_layers`?");
    check(&without("num_layers"), "`num_layers` is missing");
    check(&instead("= 80", "= \"80\""), "`num_layers` is \"80\", expected a whole number from 0 to 2097152");
    check(
        &instead("\"fp8\"", "\"int8\""),
        "`precision` is \"int8\", expected one of \"bf16\", \"fp16\", \"fp8\", \"fp4\"",
    );
    check(
        &instead("world_size = 64", "world_size = 48"),
        "`world_size` is 48, expected a multiple of tp x pp x cp = 32",
    );
    check(
        &instead("global_batch_size = 128", "global_batch_size = 127"),
        "a batch of 127 examples, expected a multiple of mbs x dp = 1 x 2",
    );
    check(
        &instead("num_attention_heads = 64", "num_attention_heads = 66"),
        "`num_attention_heads` is 66, expected a multiple of `tensor_model_parallel_size`, 4",
    );
    check(
        &instead("num_query_groups = 8", "num_query_groups = 3"),
        "`num_attention_heads` is 64, expected a multiple of `num_query_groups`, 3",
    );
    check(
        &instead("28672", "28674"),
        "`ffn_hidden_size` is 28674, expected a multiple of `tensor_model_parallel_size`, 4",
    );
    check(
        &instead("parallel_size = 5", "parallel_size = 3"),
        "`num_layers` is 80, expected a multiple of `pipeline x virtual_pipeline_model_parallel_size`, 24",
    );
    check(
        &without("pipeline_model_parallel_size"),
        "`virtual_pipeline_model_parallel_size` is 5, expected 1 where `pipeline_model_parallel_size` is 1",
    );
    check(
        &with("expert_model_parallel_size = 2"),
        "`expert_model_parallel_size` is 2, expected 1 without `num_experts`, or nothing",
    );
    check(
        &with("moe_token_dispatcher_type = \"flex\""),
        "`moe_token_dispatcher_type` is \"flex\", expected 1 without `num_experts`, or nothing",
    );
    check(
        &with("moe_load_imbalance = 1.5"),
        "`moe_load_imbalance` is 1.5, expected 1 without `num_experts`, or nothing",
    );
    check(
        &with("num_experts = 8\nmoe_load_imbalance = 0.5"),
        "`moe_load_imbalance` is 0.5, expected at least 1, which is an even share",
    );
    check(
        &with("num_experts = 8"),
        "`sequence_parallel` is left out, expected true where experts and tensor parallelism are, as Megatron asks for",
    );
    check(
        &with("num_experts = 8\nsequence_parallel = true\nexpert_model_parallel_size = 8"),
        "ep x etp is 32, expected a divisor of tp x cp x dp = 8",
    );
    check(
        &with("attention_backend = \"flash\"\nfp8_dot_product_attention = true"),
        "`fp8_dot_product_attention` is true, expected false where `attention_backend` is not \"fused\"",
    );
    check(&with("device_power = 0"), "`device_power` is 0, expected a number above 0, at most 2097152");
    check(&with("gpus_per_node = 0"), "`gpus_per_node` is 0, expected at least 1");
    check(
        &with("num_experts = 8\nmoe_router_topk = 9"),
        "`moe_router_topk` is 9, expected at most `num_experts`, 8",
    );
    let words =
        "a list of \"attn\", \"mlp\", \"moe\", \"moe_router\", \"moe_preprocess\", \"full_iteration\"";
    check(&with("cuda_graph_scope = \"attn\""), &format!("`cuda_graph_scope` is \"attn\", expected {words}"));
    check(
        &with("cuda_graph_scope = [\"all\"]"),
        &format!("`cuda_graph_scope` is [\"all\"], expected {words}"),
    );
    check(
        &with("cuda_graph_scope = [\"attn\", \"full_iteration\"]"),
        "`cuda_graph_scope` is [\"attn\", \"full_iteration\"], expected \"full_iteration\" alone, which is all of them",
    );
    check(
        &with("cuda_graph_scope = [\"moe_router\"]"),
        "`cuda_graph_scope` is [\"moe_router\"], expected no graphs of experts without `num_experts`",
    );
    check(
        &with("num_experts = 8\nsequence_parallel = true\ncuda_graph_scope = [\"moe_preprocess\"]"),
        "`cuda_graph_scope` is [\"moe_preprocess\"], expected \"moe_router\" with \"moe_preprocess\", as Megatron asks for",
    );
    check(&with("framework_year = 7"), "the framework's year is 7, expected 2017 to 2099");
    // Fewer groups than ranks are there more than once.
    assert!(read(&LLAMA.replace("num_query_groups = 8", "num_query_groups = 2")).is_ok());
    for text in ["num_layers = 2\nnum_layers = = 2", "a = 1\na = 99999999999999999999"] {
        let toml = read(text).unwrap_err().to_string();
        assert!(toml.starts_with("line 2: ") && !toml.contains('\n'), "{toml}");
    }
}

/// A file states keys in place of those of the machine file and of conventions; each is obeyed.
#[test]
fn keys_of_devices_networks_and_experts_are_obeyed() {
    let with = |lines: &str| read(&format!("{LLAMA}{lines}")).unwrap();
    let part = with("device_power = 500\ndevice_memory = 96\ndevice_memory_bandwidth = 2400.5\n").chip;
    assert_eq!(part.power, Some(500.0));
    assert_eq!((part.memory, part.bandwidth), (Some(96e9), Some(BytesPerSecond(2400.5e9))));
    let links = with("gpus_per_node = 64\nadapters_per_node = 32\nadapter_bandwidth = 25\n").links;
    assert_eq!((links.node, links.adapters, links.adapter), (Some(64), Some(32), Some(BytesPerSecond(25e9))));
    let experts = "num_experts = 8\nsequence_parallel = true\nexpert_model_parallel_size = 2\n";
    let setup = |lines: &str| with(&format!("{experts}{lines}")).setup;
    assert_eq!((setup("").etp, setup("").dispatch), (4, None));
    assert_eq!(setup("expert_tensor_parallel_size = 1\n").etp, 1);
    assert!((setup("moe_load_imbalance = 1.5\n").imbalance - 1.5).abs() < 1e-12);
    let dispatch = |word: &str| setup(&format!("moe_token_dispatcher_type = \"{word}\"\n")).dispatch;
    assert_eq!(dispatch("alltoall"), Some(Dispatch::AllToAll));
    assert_eq!(dispatch("flex"), Some(Dispatch::OncePerNode));
    assert_eq!(setup("").graphs, []);
    let graphs = setup("cuda_graph_scope = [\"attn\", \"moe_router\"]\n").graphs;
    assert_eq!(graphs, [Graph::Attention, Graph::Router]);
    let latent = "q_lora_rank = 1536\nkv_lora_rank = 512\nqk_pos_emb_head_dim = 64\nv_head_dim = 96\n";
    let model = setup(&format!("{latent}moe_shared_expert_intermediate_size = 2048\n")).model;
    assert_eq!((model.key_size(), model.value_size(), model.experts.unwrap().shared), (192, 96, 2048));
    let part = read(&format!("{LLAMA}q_lora_rank = 1536\n")).unwrap_err().to_string();
    assert_eq!(part, "`kv_lora_rank` is missing");
    let attention = |lines: &str| with(lines).setup.attention;
    assert_eq!(attention(""), Attention::Fused);
    assert_eq!(attention("attention_backend = \"flash\"\n"), Attention::Flash);
    assert_eq!(attention("fp8_dot_product_attention = true\n"), Attention::FusedF8);
}

/// Every key has a line in `docs/predict.md`, which says its unit, what it is where it is left out, and what it
/// means; and a value that no key takes is refused for every one of them, so that none is only listed.
#[test]
fn the_page_lists_every_key_that_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/predict.md");
    let page = keys::page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == page, "docs/predict.md is not what the keys are (BLESS=1 rewrites it)");
    for key in KEYS {
        let lines = LLAMA.lines().filter(|line| line.split(' ').next() != Some(key.name));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let refused = read(&format!("{text}{} = {{ a = 1 }}\n", key.name)).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{}` is {{ a = 1 }}, expected", key.name)), "{refused}");
    }
}

/// DeepSeek V3: 256 experts of 2,048 in 58 layers after three of 18,432.
const DEEPSEEK: &str = "\
machine = \"h100-80g\"
num_layers = 61
hidden_size = 7168
num_attention_heads = 128
q_lora_rank = 1536
kv_lora_rank = 512
qk_pos_emb_head_dim = 64
v_head_dim = 128
kv_channels = 128
ffn_hidden_size = 18432
moe_ffn_hidden_size = 2048
moe_shared_expert_intermediate_size = 2048
num_experts = 256
moe_router_topk = 8
swiglu = true
vocab_size = 129280
seq_length = 4096
world_size = 64
expert_model_parallel_size = 8
pipeline_model_parallel_size = 4
global_batch_size = 64
";

fn frequency(of: &str) -> String {
    format!("{DEEPSEEK}moe_layer_freq = {of}\n")
}

/// Source: DeepSeek-AI, arXiv 2412.19437, section 4.2: 671 billion parameters, of which 37 billion are active.
#[test]
fn layers_without_experts_are_as_wide_as_stated() {
    let first = [vec!["0"; 3], vec!["1"; 58]].concat().join(", ");
    let setup = read(&frequency(&format!("[{first}]"))).unwrap().setup;
    assert_eq!(setup.model.dense.as_ref().unwrap().width, 18_432);
    assert!((setup.model.parameters() / 1e9 - 671.03).abs() < 0.01);
    let active = setup.model.forward_flops(1.0)[0].products.0 / 2e9;
    assert!((active + setup.model.embedding_parameters() / 1e9 - 36.6).abs() < 0.1, "{active}");
    let dense: Vec<u64> = (0..4).map(|stage| setup.dense(stage)).collect();
    assert_eq!(dense, [3, 0, 0, 0]);
    // Every second layer from the first has some.
    let every = read(&frequency("2")).unwrap().setup;
    assert_eq!(every.model.dense_layers(), 30);
    assert_eq!(every.model.dense.unwrap().layers[..3], [1, 3, 5]);
    // Nothing is as wide as stated, where all have.
    for all in [&frequency("1"), DEEPSEEK] {
        let refused = read(all).unwrap_err().to_string();
        assert!(refused.starts_with("`ffn_hidden_size` is 18432, expected nothing where every"), "{refused}");
        let without = all.replace("\nffn_hidden_size = 18432", "");
        assert_eq!(read(&without).unwrap().setup.model.dense, None);
    }
    // Of a file of a model with more layers the first are taken, of one with fewer the last again.
    let sizes = |_: &str| Ok("num_layers = 4\nmoe_layer_freq = [0, 1, 1, 1]".parse().unwrap());
    for layers in [2, 61] {
        let text =
            DEEPSEEK.replace("num_layers = 61", &format!("num_layers = {layers}\nmodel_config = \"m\""));
        let text = text.replace("pipeline_model_parallel_size = 4", "pipeline_model_parallel_size = 1");
        let model = super::read(&text, &sizes).unwrap().setup.model;
        assert_eq!((model.layers, model.dense.unwrap().layers), (layers, vec![0]));
    }
}

#[test]
fn layers_that_are_no_list_of_all_are_refused() {
    let none = vec!["0"; 61].join(", ");
    for wrong in ["0", "\"x\"", "[0, 1]", "[]", &format!("[{none}]"), &format!("[2{}]", &none[1..])] {
        let refused = read(&frequency(wrong)).unwrap_err().to_string();
        assert!(refused.starts_with("`moe_layer_freq` is ") && refused.contains("61"), "{wrong}: {refused}");
    }
    for alone in ["moe_layer_freq = 2", "moe_layer_freq = [1]", "moe_ffn_hidden_size = 8"] {
        let refused = read(&format!("{LLAMA}{alone}\n")).unwrap_err().to_string();
        assert!(refused.ends_with("expected 1 without `num_experts`, or nothing"), "{refused}");
    }
    let narrow = frequency("2").replace("ffn_hidden_size = 18432", "ffn_hidden_size = 18433");
    let narrow =
        narrow.replace("world_size", "tensor_model_parallel_size = 2\nsequence_parallel = true\nworld_size");
    let refused = read(&narrow).unwrap_err().to_string();
    assert!(refused.starts_with("`ffn_hidden_size` is 18433, expected a multiple of"), "{refused}");
}

/// Source: DeepSeek-AI, arXiv 2405.04434, appendix B: 15.7 billion parameters, of which 2.4 billion are active.
#[test]
fn queries_may_be_made_of_tokens_where_attention_is_latent() {
    let lite = "\
machine = \"h100-80g\"
num_layers = 27
hidden_size = 2048
num_attention_heads = 16
kv_lora_rank = 512
qk_pos_emb_head_dim = 64
v_head_dim = 128
kv_channels = 128
ffn_hidden_size = 10944
moe_ffn_hidden_size = 1408
moe_shared_expert_intermediate_size = 2816
num_experts = 64
moe_router_topk = 6
swiglu = true
vocab_size = 102400
seq_length = 4096
world_size = 8
global_batch_size = 64
";
    let first = [vec!["0"], vec!["1"; 26]].concat().join(", ");
    let model = read(&format!("{lite}moe_layer_freq = [{first}]\n")).unwrap().setup.model;
    assert_eq!(model.latent.unwrap().query_rank, None);
    assert!((model.parameters() / 1e9 - 15.7).abs() < 0.05, "{}", model.parameters());
    let active = model.forward_flops(1.0)[0].products.0 / 2.0 + model.embedding_parameters();
    assert!((active / 1e9 - 2.45).abs() < 0.05, "{active}");
}
