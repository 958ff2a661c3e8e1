//! Rows whose words were misread once.

use super::*;
use crate::cluster::Cluster;
use crate::device::machine_of;
use crate::table::Table;

const COLUMNS: &str = "model,dp_overlap,gpu,gpus_per_node,intra_link,inter_link,n_gpus,framework,year,layers,hidden,heads,ffn_hidden,\
                       mlp_gated,vocab,seq,n_experts,top_k,gbs,mbs,tp,pp,vpp,dp,cp,ep,zero_stage,attn_impl,notes";
const ROW: &str = "Qwen3,,GB200-186GB,4,NVLink5 1800GB/s NVL72,4x400Gb/s per 4-GPU tray; NVLink domain 72 GPUs,256,\
                   NeMo/Megatron-Core,2025,48,2048,16,768,1,151936,4096,128,8,512,1,2,1,,128,1,64,1,cuDNN/TE fused,";

/// What is made of the row with some fields in place of others.
fn of<T>(changes: &[(&str, &str)], what: impl Fn(&Row<'_>) -> T) -> T {
    let (names, mut fields): (Vec<&str>, Vec<&str>) =
        (COLUMNS.split(',').collect(), ROW.split(',').collect());
    for (column, value) in changes {
        fields[names.iter().position(|name| name == column).unwrap()] = value;
    }
    let text = format!("{COLUMNS}\n{}\n", fields.join(","));
    let table = Table::read("a test", &text, &[]).unwrap();
    what(&table.rows().next().unwrap())
}

/// A device reaches other domains by an adapter of 50 GB/s, not by a part of those of one tray.
#[test]
fn adapters_of_a_tray_are_not_those_of_a_domain() {
    let links = |changes: &[_]| of(changes, setup).unwrap().links;
    let cluster = |links: &Links| {
        let machine = machine_of("GB200-186GB").unwrap();
        Cluster::new(machine, links, "a test").unwrap()
    };
    // 256 devices are four domains of 64, whole trays of 4.
    let four = links(&[]);
    assert_eq!((four.node, four.adapters), (Some(64), Some(64)));
    let pair = cluster(&four).group(2, 64).unwrap();
    assert!((pair.across.unwrap().0 / 50e9 - 1.0).abs() < 1e-9, "{pair:?}");
    let one = links(&[("n_gpus", "64"), ("dp", "32")]);
    assert_eq!((one.node, one.adapters, cluster(&one).group(64, 1).unwrap().nodes), (Some(72), Some(72), 1));
    let whole = links(&[("n_gpus", "144"), ("dp", "72"), ("ep", "8"), ("gbs", "72")]);
    assert_eq!(whole.node, Some(72));
    // Without the word, the devices of a node are those of a tray.
    let unsaid = links(&[("inter_link", "4x800Gb/s; NVLink domain 72 GPUs")]);
    assert_eq!((unsaid.node, unsaid.adapters), (Some(64), Some(64)));
    assert!((unsaid.network.unwrap().0 / (64.0 * 100e9) - 1.0).abs() < 1e-9);
    let node = links(&[("gpus_per_node", "8"), ("inter_link", "8x400Gb/s NDR IB")]);
    assert_eq!((node.node, node.adapters), (Some(8), Some(8)));
}

#[test]
fn experts_are_shared_over_all_ranks_of_a_stage_where_nobody_says_otherwise() {
    let shared = |changes: &[_]| {
        let Setup { ep, etp, seq_parallel, dispatch, .. } = of(changes, setup).unwrap().setup;
        (ep, etp, seq_parallel, dispatch)
    };
    assert_eq!(shared(&[]), (64, 1, true, None));
    assert_eq!(shared(&[("notes", "ETP=2; alltoall")]), (64, 2, true, Some(Dispatch::AllToAll)));
    assert_eq!(shared(&[("notes", "DeepEP")]), (64, 1, true, Some(Dispatch::OncePerNode)));
    let refused = of(&[("ep", "128"), ("n_gpus", "64"), ("dp", "32"), ("gbs", "32")], setup);
    assert!(
        matches!(refused, Err(Unstated::Why(why)) if why.contains("expected a divisor of tp x cp x dp = 64"))
    );
}

#[test]
fn torchtitan_is_no_megatron() {
    let titan = [("framework", "torchtitan"), ("zero_stage", ""), ("n_experts", ""), ("ep", "1")];
    assert_eq!(of(&titan, framework).unwrap().name, "torchtitan");
    assert_eq!(of(&titan, setup).unwrap().setup.zero, Zero::Weights);
    assert_eq!(of(&[], framework).unwrap().name, "nemo");
}

#[test]
fn words_for_attention_are_kernels() {
    let kernel = |text| of(&[("attn_impl", text)], setup).unwrap().setup.attention;
    for (text, expected) in [
        ("flash", Attention::Flash),
        ("SDPA flash", Attention::Flash),
        ("flash/TE fused", Attention::Flash),
        ("flash/cuDNN fused", Attention::Fused),
        ("FlashAttention-3", Attention::Fused),
        ("cuDNN fused FP8 DPA", Attention::FusedF8),
        ("unfused (scale-mask-softmax fused)", Attention::Unfused),
        ("unknown", Attention::Unfused),
        ("", Attention::Fused),
    ] {
        assert_eq!(kernel(text), expected, "{text}");
    }
}

#[test]
fn latent_attention_and_shared_experts_are_those_of_the_published_model() {
    let deepseek = [
        ("model", "DeepSeekV3"),
        ("layers", "61"),
        ("hidden", "7168"),
        ("heads", "128"),
        ("ffn_hidden", "2048"),
        ("n_experts", "256"),
    ];
    let model = of(&deepseek, setup).unwrap().setup.model;
    assert_eq!((model.key_size(), model.value_size(), model.experts.unwrap().shared), (192, 128, 2048));
    // Another model of that name is as its columns say.
    let cut = of(&[deepseek.as_slice(), &[("hidden", "2048")]].concat(), setup).unwrap().setup.model;
    assert_eq!((cut.latent, cut.experts.unwrap().shared), (None, 0));
}

#[test]
fn fsdp_fetches_ahead_where_nobody_says_otherwise_and_hai_llm_sends_once() {
    let of = |changes: &[_]| of(changes, setup).unwrap().setup;
    assert!(
        !of(&[]).dp_overlap && of(&[("framework", "torchtitan"), ("n_experts", ""), ("ep", "1")]).dp_overlap
    );
    assert_eq!(of(&[("framework", "HAI-LLM (DualPipe)")]).dispatch, Some(Dispatch::OncePerNode));
}
