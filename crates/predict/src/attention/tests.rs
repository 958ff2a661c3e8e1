//! Kernels of attention: which there are, and how long heads and which types they are fast with.

use super::*;
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::framework::Framework;
use crate::stated::gpt;

/// Forward and backward of 32 heads with vectors of `size`, over 4096 tokens.
fn time(device: &str, size: u64, attention: Attention) -> [f64; 2] {
    let mut setup = gpt(2, 4096, 32, 4096);
    setup.model.head_size = size;
    setup.attention = attention;
    let cluster = Cluster::new(machine_of(device).unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("megatron-core").unwrap().on(&cluster.machine.name);
    core(&Job::new(&setup, &framework, &cluster).unwrap()).map(|time| time.0)
}

/// FlashAttention 2 has the instructions of Ampere: on A100 it is as fast as any, on H100 it takes
/// 1.5 to 2 times as long.
#[test]
fn the_second_flash_attention_is_slow_on_hopper_alone() {
    let ratio = |device| {
        let [fused, flash] = [Attention::Fused, Attention::Flash].map(|it| time(device, 128, it));
        [0, 1].map(|way| fused[way] / flash[way])
    };
    for way in [0, 1] {
        assert!((ratio("A100-SXM4-80GB")[way] - 1.0).abs() < 1e-9);
        assert!((0.5..0.67).contains(&ratio("H100-SXM5-80GB")[way]));
    }
}

/// Measured: 680 beside 545 of 989 TFLOP/s on H100 with heads of 128, forward.
#[test]
fn eight_bits_are_as_much_faster_as_was_measured() {
    let [wide, narrow] = [Attention::Fused, Attention::FusedF8].map(|it| time("H100-SXM5-80GB", 128, it)[0]);
    assert!((1.15..1.4).contains(&(wide / narrow)), "{}", wide / narrow);
}

/// Measured medians of forward attention on H100: 0.42 of the peak with heads of 64, 0.545 with 128, 0.594 with
/// 256; on B200 0.315, 0.505 and 0.551.
#[test]
fn short_heads_are_slower() {
    let rate = |device, size: u64| exact(size) / time(device, size, Attention::Fused)[0];
    let beside = |device, size| rate(device, size) / rate(device, 128);
    assert!((0.7..0.85).contains(&beside("H100-SXM5-80GB", 64)), "{}", beside("H100-SXM5-80GB", 64));
    assert!((0.55..0.75).contains(&beside("B200-SXM-180GB", 64)), "{}", beside("B200-SXM-180GB", 64));
    assert!((1.0..1.25).contains(&beside("H100-SXM5-80GB", 256)), "{}", beside("H100-SXM5-80GB", 256));
}

/// Heads of 108 are padded to 128, of 150 to 160; for heads of 450 there is no kernel.
#[test]
fn heads_are_padded_and_long_ones_are_not_fused() {
    let of = |size, attention| time("A100-SXM4-80GB", size, attention).map(f64::to_bits);
    assert_eq!(of(108, Attention::Fused), of(128, Attention::Fused));
    assert_eq!(of(150, Attention::Fused), of(160, Attention::Fused));
    assert!(of(150, Attention::Fused)[0] < of(192, Attention::Fused)[0]);
    assert_eq!(of(450, Attention::Fused), of(450, Attention::Unfused));
    assert_ne!(of(256, Attention::Fused), of(256, Attention::Unfused));
}

/// Scores of 192 and values of 128, as DeepSeek V3 has them: 5/4 of the work of heads of 128.
#[test]
fn latent_attention_has_long_keys_and_short_values() {
    let mut setup = gpt(2, 4096, 32, 4096);
    setup.attention = Attention::Fused;
    let latent = crate::model::Latent { query_rank: Some(1536), rank: 512, rotary: 64, value: 128 };
    let cluster = Cluster::new(machine_of("A100-SXM4-80GB").unwrap(), &Links::default(), "a test").unwrap();
    let framework = Framework::shipped("megatron-core").unwrap();
    let time = |setup: &Setup| core(&Job::new(setup, &framework, &cluster).unwrap())[0].0;
    let usual = time(&setup);
    setup.model.latent = Some(latent);
    assert!((1.2..1.3).contains(&(time(&setup) / usual)), "{}", time(&setup) / usual);
}
