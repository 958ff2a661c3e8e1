//! Plans of inference in the words of servers.

use std::collections::BTreeSet;
use std::fs;

use plan::json::{Content, read_any};
use plan::{Assignment, Transfer};
use planner_ir::{Move, Source};
use serde_json::Value;

use super::arguments::held;
use super::{config, exported, read};
use crate::cli::{Folder, fails, says, works};
use crate::pages::compare;
use crate::tidy::root;

const STEPS: [&str; 2] = ["prefill", "decode"];
pub(super) const SERVERS: [&str; 4] = ["vllm", "sglang", "trtllm", "hf"];
/// Targets that deploy servers, and of which kind.
const DEPLOYED: [(&str, &str); 3] =
    [("dynamo", "vllm"), ("dynamo-sglang", "sglang"), ("dynamo-trtllm", "trtllm")];

/// A Qwen3 of two layers, the first without experts.
pub(super) fn experts(count: u64) -> String {
    format!(
        r#"{{"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
            "rms_norm_eps": 1e-5, "num_experts": {count}, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
            "decoder_sparse_step": 1, "mlp_only_layers": [0], "norm_topk_prob": true, "rope_theta": 10000.0,
            "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 128,
            "torch_dtype": "bfloat16"}}"#
    )
}

/// A Qwen3 without experts: queries and keys of each head are normalised before they are transposed.
fn normalised() -> String {
    config(2).replace("\"llama\"", "\"qwen3\", \"head_dim\": 16")
}

/// A plan of generation in this folder.
fn served(folder: &Folder, config: &str, machine: &str, batch: &str, more: &[&str]) -> String {
    let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config).unwrap();
    let fixed = ["plan", "--config", &model, "-o", &plan, "--machine", machine, "--mode", "generate"];
    let sizes = ["--batch", batch, "--prompt", "8", "--context", "32"];
    works(&[&fixed[..], &sizes, more].concat());
    plan
}

/// Heads split further than there are heads of keys; experts in a group; groups that share experts on two nodes; and
/// experts that are too few for that.
#[test]
fn commands_of_servers() {
    // Less than all experts take.
    let on_nodes: &[&str] = &["--mesh", "16", "--memory", "1200000B"];
    let tight: &[&str] = &["--mesh", "16", "--memory", "600000B"];
    for (name, config, machine, batch, more) in [
        ("heads", config(1), "h100-80g-4x", "1", &[][..]),
        ("experts", experts(16), "h100-80g-4x", "1", &[]),
        ("groups", experts(16), "h100-80g-16x", "16", on_nodes),
        ("units", experts(8), "h100-80g-16x", "16", tight),
    ] {
        let folder = Folder::new(&format!("served-{name}"));
        let plan = served(&folder, &config, machine, batch, &[more, &["--for", "vllm"]].concat());
        for target in SERVERS {
            let path = format!("tests/cases/export/served-{name}-{target}.txt");
            compare(&path, &exported(&folder, &plan, target));
        }
        for (target, server) in DEPLOYED {
            let deployed = exported(&folder, &plan, target);
            if matches!((name, target), ("groups", _) | ("heads", "dynamo")) {
                compare(&format!("tests/cases/export/served-{name}-{target}.txt"), &deployed);
            }
            let path = format!("tests/cases/export/served-{name}-{server}.txt");
            let alone = fs::read_to_string(root().join(path)).unwrap();
            assert_eq!(told(&deployed), told(&alone), "{name} {target}");
        }
    }
}

/// What a server is told, in a script or in a deployment: words that are no numbers of nodes, and values.
fn told(text: &str) -> BTreeSet<String> {
    let of_nodes =
        ["--nnodes", "--node-rank", "--master-addr", "--dist-init-addr", "--model", "--model-path"];
    let config = text.contains("trtllm.yaml");
    let mut told = BTreeSet::new();
    let mut last = String::new();
    for line in text.lines().skip_while(|line| !line.starts_with("---- ")) {
        let line = line.trim().trim_end_matches(" \\");
        if let Some(word) = line.strip_prefix("- \"") {
            // A word a line.
            let word = word.strip_suffix('"').unwrap().replace("\\\"", "");
            match word.strip_prefix('{') {
                Some(settings) => {
                    let settings = settings.replace("kv_cache_config:{", "").replace(['{', '}'], "");
                    told.extend(settings.split(',').map(|it| it.replace(':', " ")));
                }
                None if word.starts_with("--") => {
                    told.insert(word.clone());
                    last = word;
                }
                None => {
                    told.remove(&last);
                    told.insert(format!("{last} {word}"));
                }
            }
        } else if line.starts_with("--") && !line.starts_with("---- ") {
            told.insert(line.to_owned());
        } else if config && !line.starts_with("kv_cache_config") && !line.starts_with('#') {
            told.extend(line.split_once(": ").map(|(key, value)| format!("{key} {value}")));
        }
    }
    let is_other = |it: &String| {
        let name = it.split(' ').next().unwrap();
        of_nodes.contains(&name) || matches!(name, "--override-engine-args" | "--config")
    };
    told.retain(|it| !is_other(it));
    told
}

/// What a plan's steps take, and what they take there (seconds), with what is lost.
fn prices(folder: &Folder, plan: &str, target: &str, steps: &[&str]) -> (Vec<[f64; 2]>, Vec<String>) {
    let to = folder.path(&format!("priced-{target}"));
    let text = works(&["export", plan, "--to", target, "-o", &to, "--force", "--json"]);
    let said: Value = serde_json::from_str(&text).unwrap();
    for file in fs::read_dir(&to).unwrap().map(|it| it.unwrap()).filter(|_| target != "hf") {
        let text = fs::read_to_string(file.path()).unwrap();
        if !file.file_name().to_str().unwrap().starts_with("dynamo") {
            held(target, &format!("---- {}\n{text}", file.file_name().to_str().unwrap()));
        }
    }
    let lost = said["lost"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
    let seconds = [&said["seconds"], &said["there"]["seconds"]];
    let of = |name: &&str| seconds.map(|it| it.get(*name).unwrap_or(it).as_f64().unwrap());
    (steps.iter().map(of).collect(), lost)
}

/// A plan for a server is as the server runs it; of another plan what is not is said, and costs something.
#[test]
fn plans_for_servers_are_as_they_run_them() {
    let folder = Folder::new("served-for");
    for target in SERVERS.into_iter().chain(DEPLOYED.map(|it| it.0)) {
        let plan = served(&folder, &config(1), "h100-80g-2x", "2", &["--for", target]);
        let (prices, lost) = prices(&folder, &plan, target, &STEPS);
        assert_eq!(lost, Vec::<String>::new(), "{target}");
        assert!(prices.iter().all(|[own, there]| (own - there).abs() < 1e-9 * own), "{target} {prices:?}");
    }
    let plan = served(&folder, &config(1), "h100-80g-2x", "1", &["--in-time", "never"]);
    let (prices, lost) = prices(&folder, &plan, "vllm", &STEPS);
    assert!(prices.iter().all(|[own, there]| 1.01 * own < *there), "{prices:?}");
    assert!(lost.iter().any(|it| it.contains("used whole by all devices alike")), "{lost:?}");
}

/// Norms of heads are split as the heads: nothing is brought together for them, by any server, and all that makes or
/// takes heads is in parts.
#[test]
fn norms_of_heads_are_in_parts() {
    let folder = Folder::new("served-norms");
    for target in SERVERS.into_iter().chain(DEPLOYED.map(|it| it.0)) {
        let plan = served(&folder, &normalised(), "h100-80g-2x", "1", &["--for", target]);
        let (prices, lost) = prices(&folder, &plan, target, &STEPS);
        assert_eq!(lost, Vec::<String>::new(), "{target}");
        assert!(prices.iter().all(|[own, there]| (own - there).abs() < 1e-9 * own), "{target} {prices:?}");
        let Content::Generation(generation) = read_any(&fs::read(&plan).unwrap()).unwrap() else {
            panic!("no plan of generation")
        };
        for step in [Some(&generation.decode), generation.prefill.as_ref()].into_iter().flatten() {
            assert_eq!(
                plan::strategy(step),
                ["tensor parallel over tensor: columns then rows (84 % of the weights)"],
                "{target}"
            );
            for transfer in step.transfers.iter().filter(|it| it.moves.iter().any(sends)) {
                let name =
                    |it: &planner_ir::Node| it.results.contains(&transfer.value).then(|| it.origin.clone());
                let origin = step.graph.nodes.iter().find_map(name).unwrap_or_default();
                let is_end =
                    ["o_proj", "down_proj", "embed_tokens", "lm_head"].iter().any(|it| origin.contains(it));
                assert!(is_end, "{target}: {origin} is sent");
            }
        }
    }
    let text = exported(&folder, &folder.path("plan.json"), "hf");
    for (module, style) in [
        ("q_proj", "colwise"),
        ("k_proj", "colwise"),
        ("v_proj", "colwise"),
        ("o_proj", "rowwise"),
        ("q_norm", "replicated_with_grad_allreduce"),
        ("k_norm", "replicated_with_grad_allreduce"),
    ] {
        let line = format!("\"model.layers.*.self_attn.{module}\": \"{style}\"");
        assert!(text.contains(&line), "no {line} in {text}");
    }
}

/// Whether devices send something.
fn sends(it: &Move) -> bool {
    !matches!(it, Move::Slice { .. })
}

/// Servers have weights where they use them: where copies of all do not fit nothing is brought together.
#[test]
fn servers_fetch_no_weights() {
    let folder = Folder::new("served-fetched");
    let (model, path) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config(1)).unwrap();
    let fixed = ["plan", "--config", &model, "-o", &path, "--machine", "h100-80g-2x", "--in-time", "never"];
    let sizes = ["--dim", "batch=2", "--dim", "sequence=8", "--mesh", "2", "--memory", "115000B"];
    let fetched = |more: &[&str]| {
        works(&[&fixed[..], &sizes, more].concat());
        let plan = read(&path);
        let at_rest = |it: &&Transfer| match &plan.graph.value(it.value).source {
            Source::Weight(_) => true,
            Source::Result { node, .. } => plan.assignments[node.0] == Assignment::Prepared,
            _ => false,
        };
        let sends = |it: &&Transfer| it.moves.iter().any(sends);
        plan.transfers.iter().filter(at_rest).filter(sends).count()
    };
    assert!(fetched(&[]) > 0);
    assert_eq!(fetched(&["--for", "vllm"]), 0);
    let (_, lost) = prices(&folder, &path, "vllm", &["step"]);
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn what_is_not_served_is_said() {
    let folder = Folder::new("served-refused");
    let plan = served(&folder, &config(1), "h100-80g-2x", "2", &[]);
    let to = folder.path("out");
    let message = fails(2, &["export", &plan, "--to", "megatron", "-o", &to]);
    says(&message, &["the plan is for inference, Megatron-LM trains"]);
    let message = fails(2, &["export", &plan, "--to", "dtensor", "-o", &to]);
    says(
        &message,
        &["is a plan of generation, expected one of a single program or a pipeline: DTensor is told"],
    );
    let other = Folder::new("served-large");
    let large = served(&other, &config(1), "h100-80g-2x", "2", &["--memory", "100GB"]);
    for server in ["vllm", "sglang", "trtllm"] {
        let message = fails(2, &["export", &large, "--to", server, "-o", &to]);
        says(
            &message,
            &["the plan may hold 100000000000 bytes on a device", "plan with a `--memory` of no more"],
        );
    }
    let model = folder.path("config.json");
    let refused = |more: &[&str]| {
        let fixed = ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-8x"];
        fails(1, &[&fixed[..], more].concat())
    };
    let train = ["--mode", "train", "--loss", "loss", "--dim", "batch=8", "--dim", "sequence=16"];
    says(
        &refused(&[&train[..], &["--for", "vllm"]].concat()),
        &["`--for` goes with", "plans of inference for vllm"],
    );
    let generate = ["--mode", "generate", "--context", "32", "--for"];
    says(
        &refused(&[&generate[..], &["torchtitan"]].concat()),
        &["`--mode train` for megatron, bridge, torchtitan"],
    );
    says(&refused(&[&generate[..], &["jax"]].concat()), &["`--for jax` limits no plans of inference"]);
    let message = refused(&[&generate[..], &["vllm", "--batch", "3"]].concat());
    says(&message, &["vLLM does not share a model of 3 sequences at once, 4 heads of queries and 2 of keys"]);
    let mesh = ["vllm", "--batch", "8", "--mesh", "3x3"];
    says(&refused(&[&generate[..], &mesh].concat()), &["expected `--mesh` one of `8`, `4x2`, `2x2x2`"]);
    let mesh = ["vllm", "--batch", "8", "--mesh", "tensr=2,data=4"];
    says(
        &refused(&[&generate[..], &mesh].concat()),
        &["expected `--mesh` one of `data=8`, `data=4,tensor=2`, `data=2,tensor=2,same_keys=2`"],
    );
    works(&[&["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-2x"], &train[..]].concat());
    let message = fails(2, &["export", &plan, "--to", "vllm", "-o", &to]);
    says(&message, &["the plan is of a training step, vLLM serves: expected a plan of inference"]);
}
