//! Numbers that times were made with are found again.

use cost_models::machine::shipped;

use super::fitted::fitted;
use super::*;
use std::path::PathBuf;

fn facts(name: &str) -> Facts {
    Facts {
        name: name.to_owned(),
        capability: (9, 0),
        processors: 120,
        memory: 70 << 30,
        shared: 1,
        cache: 1,
        clocks: [1, 1],
        bus: 1,
        driver: 13000,
        path: PathBuf::new(),
    }
}

/// The file of an H100 with other numbers.
fn made() -> (Machine, Vec<(&'static str, f64)>) {
    let numbers = vec![
        ("device.launch", 2.5e-6),
        ("device.memory_efficiency", 0.87),
        ("device.products.processors", 120.0),
        ("device.matrix_reached.bf16", 0.8),
        ("device.products.feed", 7e10),
        ("device.products.tile_start", 5e-7),
        ("device.products.start", 3e-6),
        ("device.products.sustained", 0.78),
        ("device.products.heating", 0.003),
        ("device.matrix_reached.f16", 0.83),
        ("device.matrix_reached.f32", 0.7),
        ("device.matrix_reached.f64", 0.6),
        ("device.products.input_gradient", 0.97),
        ("device.products.weight_gradient", 0.9),
        ("device.attention_forward", 0.3),
        ("device.attention_backward", 0.12),
    ];
    let mut draft = draft::Draft::of(&shipped::named("h100-80g-1x").unwrap(), "made").unwrap();
    for (field, number) in &numbers {
        if field.ends_with("processors") { draft.set(field, 120_u64) } else { draft.set(field, *number) }
    }
    (draft.machine().unwrap(), numbers)
}

#[test]
fn numbers_that_times_were_made_with_are_found_again() {
    let (machine, numbers) = made();
    let rows = trials::all(&Sizes::FULL)
        .into_iter()
        .filter_map(|it| it.priced(&machine).map(|seconds| (it, seconds)));
    let measured = Measured { rows: rows.collect(), care: Care::default() };
    let like = shipped::named("h100-80g-1x").unwrap();
    let found = fitted("found", &like, &facts("made"), &measured, "made").unwrap();
    for (field, number) in numbers {
        let (_, stated, found) = found.numbers.iter().find(|it| it.0 == field).unwrap();
        assert!((found / number - 1.0).abs() < 0.01, "{field}: {found:e} for {number:e}, stated {stated:e}");
    }
    for (timed, seconds) in &measured.rows {
        let priced = timed.priced(&found.machine).unwrap();
        assert!((priced / seconds - 1.0).abs() < 0.005, "{}: {priced} for {seconds}", timed.name);
    }
}

#[test]
fn a_gpu_starts_from_the_machine_of_its_name_or_says_what_to_give() {
    let name = |gpu: &str| like(None, &facts(gpu)).map(|it| it.name);
    for (gpu, expected) in [
        ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ("NVIDIA H100 PCIe", "h100-80g-pcie"),
        ("NVIDIA H200", "h200-141g"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g"),
        ("NVIDIA GH200 480GB", "gh200-96g"),
        ("Tesla V100-SXM2-16GB", "v100-16g"),
    ] {
        assert_eq!(name(gpu).unwrap(), expected);
    }
    let said = name("GeForce 256").unwrap_err().to_string();
    assert!(said.contains("calls this GPU `GeForce 256`") && said.contains("`--like`"), "{said}");
    let said = like(Some("toaster"), &facts("NVIDIA H200")).unwrap_err().to_string();
    assert!(said.contains("`--like toaster`: expected one of v100-16g"), "{said}");
    assert_eq!(like(Some("a40-48g"), &facts("NVIDIA H200")).unwrap().name, "a40-48g");
}
