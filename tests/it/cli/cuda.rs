//! Kernels for GPUs on the command line, where there is no GPU.

use super::{Folder, example, fails, planned, shardloom, works};
use crate::emulated::emulated;

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
    if device::count(&[]).is_ok() {
        println!("left out: there is a driver here");
        return;
    }
    let said = fails(2, &["run", &example("model.onnx"), "--device", "cuda"]);
    assert!(said.contains("`--device cuda`"), "{said}");
    assert!(said.contains("libcuda.so.1") || said.contains("GPU"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
}

/// The same plan on threads and on a GPU that is not there.
#[test]
fn plans_run_on_a_gpu_as_on_threads() {
    let folder = Folder::new("on-gpu");
    let plan = planned(&folder, "plan.json", &[]);
    let (own, theirs) = (folder.path("cpu.npz"), folder.path("gpu.npz"));
    works(&["run", &plan, "-o", &own]);
    let gpu = emulated();
    let (libraries, cache) = (gpu.libraries.display().to_string(), gpu.cache.display().to_string());
    let on = ["--device", "cuda", "--libraries", &libraries, "--cache", &cache];
    let all = [&["run", &plan, "-o", &theirs, "--steps", "3"][..], &on].concat();
    let said = shardloom(&all);
    assert_eq!(said.code, 0, "{}", said.err);
    let (own, theirs) = (arrays(&own), arrays(&theirs));
    assert_eq!(own.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (name, expected) in &own {
        let (found, expected) = (theirs[name].to_floats(), expected.to_floats());
        let (Ok(found), Ok(expected)) = (found, expected) else { continue };
        let largest = expected.iter().fold(0.0_f64, |most, it| most.max(it.abs()));
        let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-4 * largest);
        assert!(near, "{name}");
    }
}

fn arrays(path: &str) -> std::collections::BTreeMap<String, kernels::Array> {
    files::arrays::read(std::path::Path::new(path)).unwrap()
}
