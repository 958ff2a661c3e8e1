//! What frameworks are told of families of models: what they insist on, and what they have no words for.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py`, `validate_args`, version core 0.16; for the others the files
//! that name their tables.

use std::fs;

use serde_json::Value;

use super::arguments::held;
use crate::cli::{Folder, works};
use crate::tidy::root;

/// What is written for a configuration of the cases that is planned so, and what is lost.
fn exported_to(target: &str, model: &str, more: &[&str]) -> (String, Vec<String>) {
    let folder = Folder::new(&format!("families-{target}-{model}"));
    let config = root().join(format!("tests/cases/models/{model}/config.json"));
    exported_of(target, (&folder, config.to_str().unwrap()), more)
}

/// The same of the file of a model.
fn exported_of(target: &str, (folder, model): (&Folder, &str), more: &[&str]) -> (String, Vec<String>) {
    let (plan, to) = (folder.path("plan.json"), folder.path("out"));
    let fixed = ["plan", model, "-o", &plan, "--machine", "h100-80g-4x"];
    let sizes = ["--dim", "sequence=16", "--mode", "train", "--loss", "loss"];
    let how = ["--precision", "bf16", "--for", target];
    let alone: &[&str] =
        if more.contains(&"auto") { &[] } else { &["--in-time", "never", "--dim", "batch=4"] };
    works(&[&fixed[..], &sizes, &how, alone, more].concat());
    let said: Value =
        serde_json::from_str(&works(&["export", &plan, "--to", target, "-o", &to, "--json"])).unwrap();
    let lost = said["lost"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
    let file = said["files"][0].as_str().unwrap();
    (fs::read_to_string(format!("{to}/{file}")).unwrap(), lost)
}

/// The same for Megatron-LM, whose arguments are held against those that there are.
fn told(model: &str, more: &[&str]) -> (String, Vec<String>) {
    let (script, lost) = exported_to("megatron", model, more);
    held("megatron", &script);
    (script, lost)
}

/// Each of these is said of what is lost, and nothing else is.
fn lost_is(model: &str, lost: &[String], expected: &[&str]) {
    for words in expected {
        assert!(lost.iter().any(|it| it.contains(words)), "{model}: no `{words}` in {lost:?}");
    }
    // Little is as fast whole: with less than ZeRO-3 what PyTorch gathers stays there.
    let expected = [expected, &["parameters are in f32 alone: "]].concat();
    let besides: Vec<&String> =
        lost.iter().filter(|it| !expected.iter().any(|words| it.contains(words))).collect();
    assert!(besides.is_empty(), "{model}: {besides:?}");
}

/// What Megatron-LM refuses to start without, or computes something else without.
#[test]
fn what_megatron_insists_on_is_told() {
    let mesh = ["--mesh", "4"];
    for (model, arguments) in [
        ("mistral", &["--max-position-embeddings 16\n", "--disable-bias-linear\n"][..]),
        ("qwen2", &["--disable-bias-linear\n", "--add-qkv-bias\n"]),
        ("glm", &["--rotary-percent 0.5\n", "--rotary-interleaved\n", "--add-qkv-bias\n"]),
        ("smollm3", &["--no-rope-freq '[0,0,1,0]'\n"]),
        ("mixtral", &["--moe-grouped-gemm\n"]),
        ("qwen2_moe", &["--moe-shared-expert-gate\n", "--add-qkv-bias\n"]),
    ] {
        let (script, lost) = told(model, &mesh);
        for argument in [&["--attention-dropout 0 --hidden-dropout 0\n"], arguments].concat() {
            assert!(script.contains(argument), "{model}: no {argument}in\n{script}");
        }
        assert!(!script.contains("--add-qkv-bias") || arguments.contains(&"--add-qkv-bias\n"), "{script}");
        assert!(lost.is_empty(), "{model}: {lost:?}");
    }
}

/// Of a softmax over all experts the weights of a token's experts are taken as they are, or brought to 1, which is what
/// Megatron-LM does if nothing is said; and norms of the vectors that keys and values are made of are there where queries
/// have none.
#[test]
fn routers_and_norms_are_as_the_model_has_them() {
    for (model, before, norms) in [
        ("deepseek_v2", true, true),
        ("qwen2_moe", true, false),
        ("mixtral", false, false),
        ("qwen3_moe", false, true),
        ("gpt_oss", false, false),
        ("deepseek_v3", false, true),
    ] {
        let (script, _) = told(model, &["--mesh", "4"]);
        assert_eq!(script.contains("--moe-router-pre-softmax\n"), before, "{model}: {script}");
        assert_eq!(script.contains("--qk-layernorm\n"), norms, "{model}: {script}");
    }
}

/// What experts make is computed again where their products are one batch only.
#[test]
fn experts_are_computed_again_as_megatron_does() {
    let (script, _) = told("mixtral", &["--mesh", "4", "--recompute", "selective"]);
    assert!(script.contains("--recompute-modules core_attn moe_act\n"), "{script}");
    assert!(script.contains("--moe-grouped-gemm\n"), "{script}");
}

/// What no argument says of a model is lost, and said.
#[test]
fn what_megatron_has_no_argument_for_is_lost() {
    for (model, expected) in [
        ("gemma2", &["gated by another function", "scores of attention are bounded", "norms are behind"][..]),
        // A layer's scores are divided by its number.
        ("gpt2", &["scores of attention have another factor"]),
        ("granite", &["multiplied by numbers", "scores of attention have another factor"]),
        ("gpt_neox", &["units are beside attention"]),
        ("olmo2", &["norms are behind", "over all heads together"]),
        ("phi", &["units are beside attention", "scores of tokens have a bias"]),
        ("mamba2", &["states that go from token to token"]),
        ("qwen3_next", &["states that go from token to token"]),
    ] {
        let (script, lost) = told(model, &["--mesh", "4"]);
        // A table has rows for more positions than there are.
        assert_eq!(script.contains("--max-position-embeddings 32\n"), model == "gpt2", "{script}");
        for words in expected {
            assert!(lost.iter().any(|it| it.contains(words)), "{model}: no `{words}` in {lost:?}");
        }
    }
}

/// torchtitan has a model that is like a few, and what that is not is said. Experts are split over devices that share
/// states there.
#[test]
fn what_torchtitan_has_no_model_for_is_lost() {
    let split = "torchtitan shards them over all 4 there";
    for (model, like, expected) in [
        ("qwen3", "torchtitan's `qwen3` with 2 layers of 16, a flavor", &[][..]),
        ("qwen3_moe", "torchtitan's `qwen3` with 2 layers of 16, a flavor", &[split]),
        ("gpt_oss", "torchtitan's `gpt_oss` with", &[split]),
        ("deepseek_v3", "torchtitan's `deepseek_v3` with", &[split]),
        ("llama", "torchtitan's `llama3` is the nearest", &["products have biases: not in `llama3`"]),
        ("mistral", "torchtitan's `llama3` is the nearest", &["a window of keys: not in `llama3`"]),
        (
            "mixtral",
            "torchtitan's `qwen3` is the nearest",
            &["queries and keys are normalised in `qwen3`", split],
        ),
        ("smollm3", "`llama3`", &["some layers have no positions: not in"]),
        ("granite", "`llama3`", &["multiplied by numbers", "another factor"]),
        ("olmo2", "`qwen3`", &["norms are behind", "over all heads together"]),
        (
            "gpt2",
            "`llama3`",
            &["subtract means", "products have biases", "another factor", "learned vectors", "no gate"],
        ),
        (
            "gemma2",
            "`llama3`",
            &[
                "gated by another",
                "attention are bounded",
                "tokens are bounded",
                "norms are behind",
                "multiplied by",
                "window",
            ],
        ),
        (
            "phi",
            "`qwen3`",
            &[
                "subtract means",
                "products have biases",
                "a part of each head",
                "units are beside",
                "no gate",
                "tokens have a bias",
            ],
        ),
        ("mamba2", "`llama3`", &["states that go from token to token"]),
    ] {
        let more = if expected.contains(&split) { &SHARED[..] } else { &["--mesh", "4"] };
        let (module, lost) = exported_to("torchtitan", model, more);
        assert!(module.contains(like), "{model}: no `{like}` in {module}");
        lost_is(model, &lost, expected);
    }
}

/// Layers that predict tokens after the next are trained by torchtitan where it has neither stages nor split
/// sequences, if the file of the model has them: of a configuration they are left out for it.
#[test]
fn torchtitan_trains_further_tokens() {
    let (module, lost) = exported_to("torchtitan", "deepseek_v3_further", &SHARED);
    lost_is("deepseek_v3_further", &lost, &["torchtitan shards them over all 4 there"]);
    assert!(!module.contains("mtp") && !module.contains("MTP"), "{module}");
    let folder = Folder::new("families-further");
    let config = root().join("tests/cases/models/deepseek_v3_further/config.json");
    let model = folder.path("model.onnx");
    works(&["model", "--config", config.to_str().unwrap(), "--for", "loss", "-o", &model]);
    let (module, lost) = exported_of("torchtitan", (&folder, &model), &SHARED);
    lost_is("deepseek_v3_further", &lost, &["torchtitan shards them over all 4 there"]);
    assert!(module.contains("num_mtp_layers=2, a flavor"), "{module}");
    assert!(module.contains("config.loss = MTPLoss.Config(mtp_scale=0.1, global_vocab_size="), "{module}");
    // Experts wait for the host to know how many tokens come.
    assert!(module.contains("config.training.disable_cuda_graphs = True"), "{module}");
}

/// A plan whose devices share experts.
const SHARED: [&str; 4] = ["--mesh", "4", super::SHARED[0], super::SHARED[1]];

/// A plan with two tensor parallel devices.
const SPLIT: [&str; 6] = ["--stages", "auto", "--global-batch", "4", "--pin", "tp=2"];

/// Rules that transformers has none of: those of latent attention, which it computes whole in DeepSeek V3.
fn is_ours(model: &str, module: &str) -> bool {
    model == "deepseek_v3" && module.contains("self_attn")
}

/// Modules of transformers are split as its own plans do, or whole: what takes apart what a packed product makes has that
/// whole, and sinks, states and products of `Conv1D` are not split. What that is not of a plan is said.
#[test]
fn modules_are_split_as_transformers_can() {
    let plans = fs::read_to_string(root().join("tests/cases/export/transformers.txt")).unwrap();
    let general =
        ["sequences split between products", "without ZeRO", "ZeRO-1", "the target has ZeRO-3 for all"];
    for (model, expected) in [
        ("llama", &[][..]),
        ("qwen3", &[]),
        ("gpt_neox", &[]),
        ("glm", &["gate_up_proj` makes is brought together"]),
        ("phi3", &["qkv_proj` makes is brought together", "gate_up_proj` makes is brought together"]),
        ("olmo2", &["_proj` makes is brought together"]),
        ("gpt2", &["does not split products of `Conv1D`"]),
        ("gpt_oss", &["does not split attention with sinks"]),
        ("mamba2", &["does not split modules with a state"]),
        ("deepseek_v3", &["q_a_proj` is not in parts", "kv_a_proj_with_mqa` is not in parts"]),
    ] {
        let (module, lost) = exported_to("hf", model, &SPLIT);
        let lost: Vec<String> =
            lost.into_iter().filter(|it| !general.iter().any(|words| it.contains(words))).collect();
        lost_is(model, &lost, expected);
        let mut rules = 0;
        for line in module.lines().filter_map(|line| line.strip_prefix("    \"")) {
            let Some((name, style)) = line.trim_end_matches("\",").split_once("\": \"") else { continue };
            let within = &name[name.find("layers.").unwrap_or(0)..];
            let same = format!("{model} {within} {style}");
            assert!(
                is_ours(model, name) || plans.lines().any(|line| line == same),
                "{same} is no rule of transformers"
            );
            rules += 1;
        }
        assert_eq!(rules > 0, !matches!(model, "gpt2" | "gpt_oss" | "mamba2"), "{model}: {module}");
    }
}

/// Frameworks that keep sequences whole between products have heads in parts through their norms too.
#[test]
fn norms_of_heads_are_split_in_training() {
    for target in ["hf", "deepspeed"] {
        let folder = Folder::new(&format!("families-heads-{target}"));
        let config = root().join("tests/cases/models/qwen3/config.json");
        let (text, lost) = exported_of(target, (&folder, config.to_str().unwrap()), &SPLIT);
        for product in ["q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"] {
            assert!(text.contains(product), "{target}: no {product} in {text}");
        }
        assert!(!lost.iter().any(|it| it.contains("sequences split")), "{target}: {lost:?}");
    }
}

/// The same of AutoTP, which brings nothing together; and experts are of a preset of AutoEP, or not.
#[test]
fn what_deepspeed_does_not_split_is_lost() {
    let general = ["sequences split between products", "states sharded over"];
    for (model, expected, spec) in [
        ("llama", &[][..], "\"column\""),
        ("qwen3", &[], "\"grad_allreduce\": true"),
        ("glm", &[], "\"shape\": ["),
        (
            "phi3",
            &["self_attn` is not in parts: AutoTP does not split what takes products apart"],
            "\"shape\": [",
        ),
        ("olmo2", &["self_attn` is not in parts"], "\"row\""),
        ("deepseek_v2", &["AutoTP does not split attention whose rotated keys all heads share"], "\"row\""),
        (
            "gpt_oss",
            &["does not split attention with sinks", "biases and bounds: not in `mixtral`, of AutoEP"],
            "\"autoep_size\"",
        ),
    ] {
        let (config, lost) = exported_to("deepspeed", model, &SPLIT);
        let lost: Vec<String> =
            lost.into_iter().filter(|it| !general.iter().any(|words| it.contains(words))).collect();
        lost_is(model, &lost, expected);
        assert!(config.contains(spec), "{model}: no {spec} in {config}");
    }
}
