//! `calibrate --device cuda` of a GPU that is not there and whose speed is planted: the file has what was
//! planted, within the noise that is planted too.

use cost_models::machine::{json, shipped};
use files::folder::Folder;
use serde_json::Value;

use crate::emulated::{Emulated, emulated};

/// How fast the GPU is, and what of a file that says; nothing where no field of it does.
const PLANTED: [(&str, f64, Option<&str>); 21] = [
    ("processors", 120.0, Some("device.products.processors")),
    ("memory_bytes", 7.0e10, Some("device.memory_capacity")),
    ("launch", 2.5e-6, Some("device.launch")),
    ("event", 1.5e-6, None),
    ("copy_start", 3e-6, None),
    ("copy", 2.6e12, None),
    ("memory", 2.9145e12, Some("device.memory_efficiency")),
    ("bf16", 7.9152e14, Some("device.matrix_reached.bf16")),
    ("f16", 8.2e14, Some("device.matrix_reached.f16")),
    ("f32", 4.8e13, Some("device.matrix_reached.f32")),
    ("f64", 4.4e13, Some("device.matrix_reached.f64")),
    ("feed", 8e10, Some("device.products.feed")),
    ("tile_start", 5e-7, Some("device.products.tile_start")),
    ("product_start", 3e-6, Some("device.products.start")),
    ("sustained", 0.8, Some("device.products.sustained")),
    ("heating", 0.002, Some("device.products.heating")),
    ("input_gradient", 0.96, Some("device.products.input_gradient")),
    ("weight_gradient", 0.9, Some("device.products.weight_gradient")),
    ("attention", 3e14, Some("device.attention_forward")),
    ("attention_gradient", 2.5e14, None),
    ("noise", 0.01, None),
];

/// A GPU of that speed.
pub(crate) fn planted(gpu: Emulated, noise: f64, outliers: f64) -> Emulated {
    let mut speeds: Vec<(&str, f64)> = PLANTED.iter().map(|it| (it.0, it.1)).collect();
    speeds.iter_mut().filter(|it| it.0 == "noise").for_each(|it| it.1 = noise);
    speeds.push(("outliers", outliers));
    gpu.planted("NVIDIA H100 80GB HBM3", &speeds)
}

/// A command: its exit code, what it prints, what it says.
fn shardloom(arguments: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code =
        crate::main_with(std::iter::once("shardloom").chain(arguments.iter().copied()), &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// What a field of a file is of the peak that the shipped one states.
fn expected(name: &str, number: f64, shipped: &Value) -> f64 {
    let peak = |field: &str| shipped["device"][field]["value"].as_f64().unwrap();
    let matrix = |precision: &str| shipped["device"]["matrix_peak"][precision]["value"].as_f64().unwrap();
    match name {
        "memory" => number / peak("memory_bandwidth"),
        "bf16" | "f16" | "f32" | "f64" => number / matrix(name),
        "attention" => number / matrix("bf16"),
        _ => number,
    }
}

#[test]
fn a_file_has_what_was_planted_within_the_noise() {
    let folder = Folder::new("planted", None).unwrap();
    let (libraries, cache) = (emulated(), folder.path.join("cache").display().to_string());
    let gpu = planted(libraries, 0.01, 0.04);
    let (libraries, output) = (gpu.libraries.display().to_string(), folder.path.join("found.json"));
    let file = output.display().to_string();
    let all = ["calibrate", "--device", "cuda", "--libraries", &libraries, "--cache", &cache, "-o", &file];
    let (code, out, err) = shardloom(&all);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for part in ["NVIDIA H100 80GB HBM3: compute", "started from h100-80g", "did not count", "by h100-80g"] {
        assert!(out.contains(part), "no `{part}` in {out}");
    }
    let file: Value = serde_json::from_str(shipped::text("h100-80g").unwrap()).unwrap();
    let text = std::fs::read_to_string(&output).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    for (name, number, field) in PLANTED {
        let Some(field) = field else { continue };
        let known = found.pointer(&format!("/{}", field.replace('.', "/"))).unwrap();
        let (number, known_number) = (expected(name, number, &file), known["value"].as_f64().unwrap());
        // What is hidden by larger parts of the time is not found as exactly.
        let near =
            if ["device.products.heating", "device.products.feed"].contains(&field) { 0.25 } else { 0.04 };
        assert!(
            (known_number / number - 1.0).abs() < near,
            "{field}: {known_number:e} for {number:e}\n{out}"
        );
        let source = known["source"].as_str().unwrap();
        assert!(source.contains("NVIDIA H100 80GB HBM3"), "{field}: {source}");
    }
    // What was not measured is as it was, with where it is from.
    let (own, like) = (json::read("found", &text).unwrap(), shipped::named("h100-80g-8x").unwrap());
    assert_eq!((own.name.as_str(), &own.node, &own.transport), ("found", &like.node, &like.transport));
    assert_eq!(own.network, like.network);
    // What was measured is there the next time, until it is to be measured again.
    let (code, out, _) = shardloom(&[&all[..], &["--force"]].concat());
    assert_eq!(code, 0);
    assert!(out.contains("measurements were there from before"), "{out}");
}

#[test]
fn a_gpu_that_others_use_is_not_measured() {
    let folder = Folder::new("unsteady", None).unwrap();
    let cache = folder.path.join("cache").display().to_string();
    let gpu = planted(emulated(), 0.9, 0.0);
    let (libraries, file) = (gpu.libraries.display().to_string(), folder.path.join("found.json"));
    let output = file.display().to_string();
    let all = ["calibrate", "--device", "cuda", "--libraries", &libraries, "--cache", &cache, "-o", &output];
    let (code, out, err) = shardloom(&all);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(
        err.contains("half of the times of") && err.contains("does something else use the GPU?"),
        "{err}"
    );
    assert!(!file.exists());
}
