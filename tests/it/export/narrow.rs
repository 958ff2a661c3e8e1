//! Plans with narrow products in the words of frameworks, and the machines that have none of 4 bits.

use std::fs;

use super::{TRAINED, config, exported};
use crate::cli::{Folder, fails, works};

/// Arguments for a plan of that precision on a machine.
fn plan<'a>(files: [&'a str; 2], machine: &'a str, precision: &'a str) -> Vec<&'a str> {
    let [model, plan] = files;
    let fixed = ["plan", "--config", model, "-o", plan, "--machine", machine, "--mesh", "4"];
    let sizes = ["--dim", "batch=4", "--dim", "sequence=32", "--in-time", "never"];
    let trained = TRAINED.map(|it| if it == "bf16" { precision } else { it });
    [&fixed[..], &sizes, &trained].concat()
}

/// Megatron's arguments and Bridge's names say which numbers are narrow, and which layers are not; torchtitan has
/// no such numbers, and runs in bf16.
#[test]
fn frameworks_are_told_of_narrow_products() {
    let folder = Folder::new("export-narrow");
    let (model, to) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config(8)).unwrap();
    let cases = [
        ("fp8-delayed", ["--fp8-recipe delayed", "--fp8-amax-history-len 1024"], "fp8_delayed_scaling"),
        ("mxfp8", ["--fp8-format e4m3", "--fp8-recipe mxfp8"], "bf16_with_mxfp8_mixed"),
        ("nvfp4", ["--fp4-format e2m1 --fp4-recipe nvfp4", "--num-layers-at-end-in-bf16 1"], "nvfp4_mixed"),
    ];
    for (precision, arguments, mixed) in cases {
        works(&plan([&model, &to], "b200-180g-4x", precision));
        let megatron = exported(&folder, &to, "megatron");
        assert!(arguments.iter().all(|it| megatron.contains(it)), "{precision}: {megatron}");
        assert_eq!(megatron.contains("--first-last-layers-bf16"), precision == "nvfp4");
        // Recipes in NVFP4 have no products of tensor parallelism beside its traffic.
        let sequences = megatron.contains("--sequence-parallel");
        assert_eq!(megatron.contains("--tp-comm-overlap"), sequences && precision != "nvfp4", "{megatron}");
        let bridge = exported(&folder, &to, "bridge");
        assert!(bridge.contains(mixed), "{precision}: {bridge}");
        let torchtitan = exported(&folder, &to, "torchtitan");
        let other = if precision == "mxfp8" { "MXFP8LinearConverter" } else { "plan with `--precision" };
        assert!(torchtitan.contains(other), "{precision}: {torchtitan}");
    }
}

#[test]
fn machines_without_products_of_4_bits_are_refused() {
    let folder = Folder::new("export-narrow-units");
    let (model, to) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config(2)).unwrap();
    for machine in ["h100-80g-4x", "a100-80g-4x"] {
        let said = fails(2, &plan([&model, &to], machine, "nvfp4"));
        let name = machine.trim_end_matches("-4x");
        assert!(
            said.contains(&format!("machine `{name}` has no units for products of 4-bit numbers")),
            "{said}"
        );
        assert!(said.contains("b200-180g") && said.contains("--precision fp8"), "{said}");
    }
    // Threads compute what quantised numbers stand for.
    works(&plan([&model, &to], "cpu-4x", "nvfp4"));
}
