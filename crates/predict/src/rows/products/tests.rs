//! Rows of products: what they name, what is refused, and how far prices are from measurements.

use super::*;
use crate::rows::tests;

const HEAD: &str = "row_id,source,gpu,op,m,n,k,batch,precision,time_us,tflops,mem_gbs,min_bytes,notes\n";

fn answer(line: &str) -> Answer {
    tests::answer(&Products, &format!("{HEAD}{line}\n"))
}

fn predicted(line: &str) -> f64 {
    tests::predicted(answer(line))
}

#[test]
fn a_rate_is_what_the_source_counts_over_the_time() {
    let time = predicted("a,b,A100-SXM4-80GB,gemm,4096,4096,4096,,bf16,600,,,,");
    let rate = predicted("a,b,A100-SXM4-80GB,gemm,4096,4096,4096,,bf16,,230,,,");
    assert!((rate * time / (2.0 * 4096_f64.powi(3) / 1e6) - 1.0).abs() < 1e-9, "{rate} {time}");
    // A large copy at the part of 2039 GB/s that is reached.
    let rate = predicted("a,b,A100-SXM4-80GB,memory:hbm_copy(read+write),,,,,,,,1750,,");
    assert!((rate - 0.874 * 2039.0).abs() < 1e-6, "{rate}");
    // Norms read twice, one element at a time.
    let time = predicted("a,b,A100-SXM4-80GB,memory:input_layernorm,1024,4096,,,fp16,19,,,16777216,");
    assert!((time - 1.5 * 16_777_216.0 / (0.51 * 2039e3)).abs() < 1e-6, "{time}");
}

#[test]
fn notes_say_what_a_product_is_for() {
    let time =
        |notes: &str| predicted(&format!("a,b,A100-PCIe-80GB,gemm,4096,4096,4096,1,bf16,600,,,,\"{notes}\""));
    let forward = time("layout=TN, accumulate=False, out=bf16");
    assert!(forward < time("layout=NT, accumulate=False, out=bf16"));
    assert!(time("layout=NT, accumulate=False, out=fp32") < time("layout=NT, accumulate=True, out=fp32"));
    // Groups of 100 rows fill their tiles less well than one of all.
    let line = |op: &str, groups: u64| {
        predicted(&format!("a,b,A100-PCIe-80GB,{op},4000,3072,5120,{groups},bf16,900,,,,stage=fwd"))
    };
    assert!(line("gemm", 1) < line("grouped_gemm", 40));
}

#[test]
fn attention_counts_all_scores_and_computes_half() {
    let rate = predicted("a,b,A100-PCIe-80GB,sdp_fwd,4096,128,128,1,bf16,,350,,,v_dim=128");
    assert!(rate > 0.62 * 312.0 && rate < 2.0 * 0.62 * 312.0, "{rate}");
    let few = predicted("a,b,A100-PCIe-80GB,sdp_fwd,4096,4,128,1,bf16,,160,,,v_dim=128");
    assert!(few < 0.7 * rate, "{few}");
}

#[test]
fn what_has_no_price_says_why() {
    let check = |line: &str, expected: &str| match answer(line) {
        Answer::Skipped(why) => assert_eq!(why, expected),
        other => panic!("{other:?}"),
    };
    check("a,b,Z900,gemm,1,1,1,,bf16,1,,,,", "no machine file for device `Z900`");
    check("a,b,A100,gemm,1,1,,,bf16,1,,,,", "`k` is not stated");
    check("a,b,A100,gemm,1,1,1,,int4,1,,,,", "no peak rate is known for precision `int4`");
    check("a,b,A100,gemm,1,1,1,,bf16,,,,,", "neither a time nor a rate is stated");
    let layer = "a,b,A100,transformer_layer_forward,,,,,fp16,5,,,,";
    check(layer, "`transformer_layer_forward` is not a product, an attention or a pass over memory");
}

#[test]
fn published_products_are_met() {
    let Some(errors) = crate::rows::tests::errors(&Products) else { return };
    let bounds = [
        ("vidur_mlp_a100", 0.10),
        ("vidur_mlp_h100", 0.12),
        ("simumax_gemm_a100pcie", 0.08),
        ("simumax_gemm_b200", 0.12),
    ];
    for (source, bound) in bounds {
        for (mean, count) in errors[source] {
            assert!(mean < bound && count >= 50, "{source}: {mean} on {count} rows");
        }
    }
}
