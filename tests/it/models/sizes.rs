//! Public configurations: they have as many parameters as is published of them.

use std::fs;

use models::onnx::Data;
use models::{Use, Wanted};

use crate::tidy::root;

/// What the weights of each add up to, without what predicts tokens after the next.
///
/// Source: the modules of transformers 4.57.6 (5.24 for Mamba-2 and Qwen3-Next) for these configurations; their
/// cards say 8.03 B, 235 B, 671 B and so on.
const PUBLISHED: [(&str, u64); 20] = [
    ("deepseek_v2_lite", 15_706_484_224),
    ("deepseek_v3", 671_026_419_200),
    ("gemma2_9b", 9_241_705_984),
    ("gemma3_1b", 999_885_952),
    ("glm4_9b", 9_399_951_360),
    ("gpt2", 124_439_808),
    ("gpt_neox_20b", 20_554_567_680),
    ("gpt_oss_120b", 116_829_156_672),
    ("gpt_oss_20b", 20_914_757_184),
    ("kimi_k2", 1_026_408_232_448),
    ("llama3.1_70b", 70_553_706_496),
    ("llama3_8b", 8_030_261_248),
    ("mamba2_2.7b", 2_702_599_680),
    ("mistral_7b", 7_241_732_096),
    ("mixtral_8x7b", 46_702_792_704),
    ("phi3_mini", 3_821_079_552),
    ("qwen2_7b", 7_615_616_512),
    ("qwen3_235b_a22b", 235_093_634_560),
    ("qwen3_8b", 8_190_735_360),
    ("qwen3_next_80b_a3b", 79_674_391_296),
];

/// What predicts tokens after the next has, of those that have it.
///
/// Source: `README_WEIGHTS.md` of DeepSeek V3 says 11.5 B without the embedding and the head, which it shares.
const FURTHER: [(&str, u64); 1] = [("deepseek_v3", 11_610_068_224)];

#[test]
fn public_configurations_have_as_many_parameters_as_published() {
    let there = fs::read_dir(root().join("tests/configs")).unwrap().count();
    assert_eq!(there, PUBLISHED.len(), "configurations, each with its count");
    for (name, expected) in PUBLISHED {
        let text = fs::read_to_string(root().join(format!("tests/configs/{name}.json"))).unwrap();
        for of in Use::ALL {
            let model = models::written(&text, &Wanted::of(of), Data::Absent)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let further = FURTHER.iter().find(|it| of == Use::Loss && it.0 == name).map_or(0, |it| it.1);
            assert_eq!(model.count(), expected + further, "{name} for {of:?}");
        }
    }
}
