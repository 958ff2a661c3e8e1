//! Decoders with windows, whose layers have no more places than they see, against whole sequences from scratch.

use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::roles::{Told, roles};
use files::model_file::{self, ModelFile};
use models::Use;

use super::cases::{Case, NEW, grown, likeliest, on_threads, plan};
use super::made::Made;
use super::scratch;
use crate::models::cases;

/// Models of which some or all layers have a window, of 4 tokens. Phi 3 has one too, but its positions change
/// for whole sequences once they are longer, which keys in a cache do not follow.
const WINDOWS: [&str; 5] = ["gemma2", "gemma3_text", "gpt_oss", "mistral", "qwen2"];

/// Prompts, of which one is longer than windows and does not fill its steps.
const PROMPTS: [&[i64]; 2] = [&[17, 3, 12, 8, 4, 9, 2], &[11, 5]];

/// How far logits may be from those from scratch, in parts of the largest.
const TOLERANCE: f64 = 2e-4;

fn open(name: &str) -> (ModelFile, Made) {
    let folder = cases().into_iter().find(|it| it.ends_with(name)).unwrap();
    let config = folder.join("config.json");
    (model_file::open_for(&config, Use::Decode).unwrap(), Made::of(&config))
}

/// Numbers of places, of which the windows are a part or not: slots are counted beyond all places then.
const CAPACITIES: [u64; 2] = [16, 14];

fn case(name: &'static str, capacity: u64) -> Case {
    Case { name, dims: &[], prompt: Some(3), capacity }
}

#[test]
fn tokens_beyond_windows_are_those_of_whole_sequences() {
    for (name, capacity) in WINDOWS.into_iter().flat_map(|name| CAPACITIES.map(|it| (name, it))) {
        let (file, made) = open(name);
        let (case, weights) = (case(name, capacity), made.beside(&file));
        let mut expected: Vec<Vec<i64>> = PROMPTS.iter().map(|it| it.to_vec()).collect();
        let mut said = vec![Vec::new(); expected.len()];
        for (tokens, said) in expected.iter_mut().zip(&mut said) {
            for _ in 0..NEW {
                let logits = scratch::logits(&case, &file, &weights, tokens);
                tokens.push(likeliest(&logits));
                said.push(logits);
            }
        }
        let largest = said.iter().flatten().flatten().fold(0.0_f64, |most, it| most.max(it.abs()));
        for (mesh, layout) in [("1", None), ("2x2", Some("[a,b,-,-]"))] {
            let generation = plan(&case, &file, mesh, layout);
            assert!(generation.cache.has_windows(), "{name}");
            let prompts = PROMPTS.map(<[i64]>::to_vec);
            let sessions = on_threads(&generation, &weights);
            let (tokens, logits) = grown(&generation, sessions, &prompts, &|logits, _| likeliest(logits));
            assert_eq!(tokens, expected, "{name} on {mesh}");
            for (found, expected) in logits.iter().flatten().flatten().zip(said.iter().flatten().flatten()) {
                let apart = (found - expected).abs();
                assert!(apart <= TOLERANCE * largest, "{name} on {mesh}: {found}, expected {expected}");
            }
        }
    }
}

/// Of each part of the cache its window.
fn windows(name: &str, context: u64, prompt: u64) -> Vec<Option<u64>> {
    let (file, _) = open(name);
    let sizes = Sizes { batch: Some(1), prompt: Some(prompt), context: Some(context), dims: Vec::new() };
    let decoder = Decoder::of(&file, roles(&file.model, &Told::default()).unwrap(), &sizes).unwrap();
    decoder.cache().entries().map(|it| it.window).collect()
}

#[test]
fn parts_have_the_windows_of_their_layers() {
    let (near, all) = ([Some(4); 2], [None; 2]);
    for prompt in [1, 2, 8] {
        assert_eq!(windows("mistral", 16, prompt), [near, near].concat());
        assert_eq!(windows("phi3", 16, prompt), [Some(5); 4]);
        assert_eq!(windows("gpt_oss", 16, prompt), [near, all].concat());
        assert_eq!(windows("gemma3_text", 16, prompt), [near, all, near].concat());
        assert_eq!(windows("qwen2", 16, prompt), [all, near].concat());
        assert_eq!(windows("llama", 16, prompt), [all, all].concat());
    }
    // Windows that hide nothing.
    assert_eq!(windows("mistral", 5, 2), [near, near].concat());
    assert_eq!(windows("mistral", 4, 2), [all, all].concat());
    assert_eq!(windows("phi3", 5, 2), [all, all].concat());
}
