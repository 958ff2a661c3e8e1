//! Kernels for GPUs on the command line, where there is no GPU.

use super::{Folder, example, fails, planned, shardloom, works};

#[test]
fn kernels_of_a_plan_are_listed_and_written() {
    let folder = Folder::new("kernels");
    let plan = planned(&folder, "plan.json", &["--mesh", "2x2"]);
    let text = works(&["kernels", &plan, "-q"]);
    assert_eq!(text, "");
    let text = works(&["kernels", &plan]);
    for part in ["kernels for 4 ranks", "norm_", "pointwise_", "attention_", "computed by cuBLASLt"] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let out = folder.path("kernels");
    let text = works(&["kernels", &plan, "--arch", "sm_80", "--out", &out]);
    assert!(text.contains("written: kernels.cu"), "{text}");
    let source = std::fs::read_to_string(folder.path("kernels/kernels.cu")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&works(&["kernels", &plan, "--json"])).unwrap();
    let kernels = json["kernels"].as_array().unwrap();
    assert!(kernels.len() > 5, "{} kernels", kernels.len());
    for kernel in kernels {
        let name = kernel["name"].as_str().unwrap();
        assert_eq!(source.matches(&format!(" {name}(")).count(), 1, "{name}");
    }
}

#[test]
fn an_architecture_that_is_none_is_refused() {
    let folder = Folder::new("architecture");
    let plan = planned(&folder, "plan.json", &[]);
    let said = shardloom(&["kernels", &plan, "--arch", "volta"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("expected an architecture such as `sm_90a`"), "{}", said.err);
}

#[test]
fn running_on_gpus_says_what_is_missing() {
    let said = fails(2, &["run", &example("model.onnx"), "--device", "cuda"]);
    assert!(said.contains("`--device cuda`"), "{said}");
    let there = said.contains("its libraries are there");
    assert!(there || said.contains("libcuda.so.1") || said.contains("libnccl.so.2"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
}
