//! Parameters of models that are known.

use super::*;
use crate::setup::Setup;

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
        dense: None,
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

/// DeepSeek V3 with so many layers that predict further tokens.
fn deepseek(further: u64) -> Model {
    let model = crate::shapes::named("deepseek-v3", 4096).unwrap();
    Model { layers: model.layers + further, further, ..model }
}

/// Source: the checkpoint, 11.6 billion parameters without the head and the embedding that it has again.
#[test]
fn layers_that_predict_further_tokens_are_counted_and_pass_through_the_head() {
    let [without, with] = [deepseek(0), deepseek(1)];
    let more = with.parameters() - without.parameters();
    assert!((more / 1e9 - 11.6).abs() < 0.1, "{more}");
    let flops = |model: &Model| model.forward_flops(1.0).map(|it| it.products.0);
    assert!((flops(&with)[1] / flops(&without)[1] - 2.0).abs() < 1e-12);
}

/// Of all stages whose last has those layers, the slowest takes least; without such layers they are even.
#[test]
fn stages_are_as_even_as_their_times() {
    for further in [0, 1, 3] {
        let model = deepseek(further);
        let ends = exact(1 + further) * model.head_in_layers();
        assert!((1.0..3.0).contains(&model.head_in_layers()));
        for pp in 1..=model.layers {
            let stages = model.stages(pp);
            assert_eq!(
                (stages.iter().sum::<u64>(), stages.len()),
                (model.layers, usize::try_from(pp).unwrap())
            );
            if further == 0 || pp == 1 {
                assert_eq!(stages, even_stages(model.layers, pp));
                continue;
            }
            let (last, others) = stages.split_last().unwrap();
            let found = others.iter().map(|it| exact(*it)).fold(exact(*last) + ends, f64::max);
            // A layer more or less in the last makes none faster.
            for other in [last.saturating_sub(1).max(further), *last + 1] {
                let rest = model.layers - other;
                let most = exact(rest.div_ceil(pp - 1)).max(exact(other) + ends);
                assert!(found <= most || rest < pp - 1, "{pp}: {stages:?}, {other}");
            }
        }
    }
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

/// Whatever layers have no experts and however they lie in stages and their parts: stages have all layers together.
#[test]
fn stages_have_the_parameters_of_the_model() {
    let experts = deepseek(1);
    let mut seed = 7_u64;
    let mut any = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let layers: Vec<u64> = (0..experts.layers - 1).filter(|_| any(3) == 0).collect();
        let dense = Some(Dense { layers, width: 18_432 }).filter(|it| !it.layers.is_empty());
        let model = Model { dense, ..experts.clone() };
        let pp = 1 + any(8);
        let (stages, vpp) = (model.stages(pp), 1 + any(4));
        let setup = Setup { model, pp, vpp, stages, ..crate::stated::gpt(1, 1, 1, 1) };
        let kinds = crate::setup::Kinds::of(&setup);
        let each = (0..setup.stages.len()).map(|it| kinds.parameters_of_rank(it));
        let sum: f64 = each.map(|it| it[0] + it[1]).sum();
        // A last stage of its own has the embedding once more, for the tokens that are put in for further ones.
        let again = if pp > 1 { setup.model.embedding_parameters() } else { 0.0 };
        assert!((sum / (setup.model.parameters() + again) - 1.0).abs() < 1e-12, "{pp} {vpp}");
        let found: u64 = (0..setup.stages.len()).map(|it| setup.dense(it)).sum();
        assert_eq!(found, setup.model.dense_layers());
    }
}

/// What layers of both kinds have is what models of one kind have, by how many there are of each.
#[test]
fn dense_layers_are_between_a_model_with_experts_and_one_without() {
    let experts = Model { dense: None, ..deepseek(0) };
    let all = |layers: u64| Some(Dense { layers: (0..layers).collect(), width: 18_432 });
    let with = |layers: u64| Model { dense: all(layers), ..experts.clone() };
    let none = with(1).as_dense().unwrap();
    assert_eq!((none.experts, none.ffn_hidden), (None, 18_432));
    let halfway = |of: &dyn Fn(&Model) -> f64, dense: u64| {
        let part = exact(dense) / 61.0;
        let expected = part * of(&none) + (1.0 - part) * of(&experts);
        assert!((of(&with(dense)) / expected - 1.0).abs() < 1e-12, "{dense}");
    };
    for dense in [1, 3, 30, 60] {
        halfway(&Model::parameters, dense);
        halfway(&|it| it.forward_flops(1.0)[0].products.0, dense);
    }
}
