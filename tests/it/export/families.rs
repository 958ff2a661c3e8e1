//! What Megatron-LM is told of families of models: what it insists on, and what it has no argument for.
//!
//! Source: Megatron-LM, `megatron/training/arguments.py`, `validate_args`, version core 0.16.

use std::fs;

use serde_json::Value;

use crate::cli::{Folder, works};
use crate::tidy::root;

/// The script for a configuration of the cases that is planned so, and what is lost.
fn told(model: &str, more: &[&str]) -> (String, Vec<String>) {
    let folder = Folder::new(&format!("families-{model}"));
    let config = root().join(format!("tests/cases/models/{model}/config.json"));
    let (plan, to) = (folder.path("plan.json"), folder.path("out"));
    let fixed =
        ["plan", config.to_str().unwrap(), "-o", &plan, "--machine", "h100-80g-4x", "--in-time", "never"];
    let sizes = ["--dim", "batch=4", "--dim", "sequence=16", "--mode", "train", "--loss", "loss"];
    let how = ["--precision", "bf16", "--for", "megatron"];
    works(&[&fixed[..], &sizes, &how, more].concat());
    let said: Value =
        serde_json::from_str(&works(&["export", &plan, "--to", "megatron", "-o", &to, "--json"])).unwrap();
    let lost = said["lost"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
    (fs::read_to_string(format!("{to}/megatron.sh")).unwrap(), lost)
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
