//! Models whose states go from token to token, in bf16.

use std::fs;

use crate::cli::{Folder, works};

/// Two layers of Mamba-2.
const SCANS: &str = r#"{"model_type":"mamba2","chunk_size":8,"conv_kernel":4,"expand":2,"head_dim":8,
    "hidden_act":"silu","hidden_size":16,"layer_norm_epsilon":1e-5,"n_groups":1,"num_heads":4,
    "num_hidden_layers":2,"rms_norm":true,"state_size":8,"tie_word_embeddings":true,
    "time_step_limit":[0.0,1e9],"time_step_floor":0.0001,"use_bias":false,"use_conv_bias":true,
    "residual_in_fp32":true,"vocab_size":64}"#;

/// States are in f32 whatever the model is in, and steps of it are planned, checked and lowered.
#[test]
fn steps_of_recurrences_are_planned_in_bf16() {
    let folder = Folder::new("narrow-recurrences");
    let (config, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&config, SCANS).unwrap();
    let sizes = ["--dim", "batch=2", "--dim", "sequence=16", "--machine", "h100-80g-2x", "--mesh", "2"];
    for precision in ["bf16", "bf16-stochastic"] {
        let fixed = ["plan", "--config", &config, "--mode", "train", "--loss", "loss", "-o", &plan];
        works(&[&fixed[..], &sizes, &["--precision", precision]].concat());
        works(&["check", &plan]);
        let text = fs::read_to_string(&plan).unwrap();
        assert!(text.contains("selective_scan_gradient"), "{precision}");
        works(&["simulate", &plan]);
    }
}
