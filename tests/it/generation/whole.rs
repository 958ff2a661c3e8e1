//! Tokens and logits, step by step with a cache, against those of whole sequences from scratch.

use rayon::prelude::*;

use super::cases::{ALL, Case, NEW, grown, likeliest, on_threads, open, plan, prompts};
use super::scratch;

/// How far logits may be from those from scratch, in parts of the largest.
const TOLERANCE: f64 = 2e-4;

/// On how many ranks, and the layout of the cache: chosen, or said.
const MESHES: [(&str, Option<&str>); 5] = [
    ("1", None),
    ("2", None),
    ("2", Some("[-,a,-,-]")),
    ("2x2", Some("[a,b,-,-]")),
    ("2x2", Some("[b,-,-,-]")),
];

/// Which of the models are tried on the meshes of four: one of each way of growing.
const WIDE: [&str; 4] = [
    "gpt2-past-legacy2.9-op17-dyn",
    "llama-past-dynamo2.15-op21-dyn",
    "llama-fp32-genai0.18",
    "llama-staticcache-dynamo2.9-op18-static",
];

/// What is wrong with the tokens of a model.
fn faults(case: &Case) -> Vec<String> {
    let Some(file) = open(case) else { return Vec::new() };
    let mut expected: Vec<Vec<i64>> = prompts();
    let mut said = vec![Vec::new(); expected.len()];
    for (tokens, said) in expected.iter_mut().zip(&mut said) {
        for _ in 0..NEW {
            let logits = scratch::logits(case, &file, &file, tokens);
            tokens.push(likeliest(&logits));
            said.push(logits);
        }
    }
    let mut faults = Vec::new();
    for (mesh, layout) in MESHES {
        if mesh == "2x2" && !WIDE.contains(&case.name) {
            continue;
        }
        let title = format!("{} on {mesh}, the cache {}", case.name, layout.unwrap_or("as chosen"));
        let generation = plan(case, &file, mesh, layout);
        let (tokens, logits) =
            grown(&generation, on_threads(&generation, &file), &prompts(), &|logits, _| likeliest(logits));
        if tokens != expected {
            faults.push(format!("{title}: {tokens:?}, expected {expected:?}"));
        }
        let largest = said.iter().flatten().flatten().fold(0.0_f64, |most, it| most.max(it.abs()));
        let mut pairs = logits.iter().flatten().flatten().zip(said.iter().flatten().flatten());
        // What is not a number is not near.
        let near = |(a, b): &(&f64, &f64)| (*a - *b).abs() <= TOLERANCE * largest;
        if let Some((found, expected)) = pairs.find(|pair| !near(pair)) {
            faults.push(format!("{title}: a logit is {found}, expected {expected}, of at most {largest}"));
        }
    }
    faults
}

#[test]
fn tokens_step_by_step_are_those_of_whole_sequences() {
    let faults: Vec<String> = ALL.par_iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
