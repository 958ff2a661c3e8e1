//! Parameters of models that are known.

use super::*;

fn gpt3() -> Model {
    Model {
        layers: 96,
        further: 0,
        hidden: 12288,
        heads: 96,
        kv_heads: 96,
        head_size: 128,
        latent: None,
        ffn_hidden: 49152,
        mlp: Mlp::Plain,
        vocab: 51200,
        seq: 2048,
        experts: None,
        embedding: Embedding::Tied,
    }
}

#[test]
fn parameters_are_those_that_are_published() {
    let billions = |model: &Model| model.parameters() / 1e9;
    assert!((billions(&gpt3()) - 174.6).abs() < 0.1);
    let llama = Model {
        layers: 80,
        hidden: 8192,
        heads: 64,
        kv_heads: 8,
        ffn_hidden: 28672,
        mlp: Mlp::Gated,
        vocab: 128_256,
        embedding: Embedding::Untied,
        ..gpt3()
    };
    assert!((billions(&llama) - 70.6).abs() < 0.1);
    let experts = Model {
        layers: 48,
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        ffn_hidden: 768,
        mlp: Mlp::Gated,
        vocab: 151_936,
        experts: Some(Experts { count: 128, top_k: 8, shared: 0 }),
        embedding: Embedding::Untied,
        ..gpt3()
    };
    assert!((billions(&experts) - 30.5).abs() < 0.1);
}

/// Source: Narayanan et al., SC21: 72 B s l h² (1 + s/6h + V/12lh).
#[test]
fn work_is_that_of_the_published_formula() {
    let model = gpt3();
    let (l, h, s, v) = (96.0, 12288.0, 2048.0, 51200.0);
    let published = 72.0 * 64.0 * s * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h));
    let whole: f64 = model.forward_flops(64.0 * s).map(|it| 3.0 * it.total().0).iter().sum();
    assert!((whole / published - 1.0).abs() < 1e-12);
}
