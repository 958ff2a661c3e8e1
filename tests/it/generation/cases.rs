//! The models, planned and grown.

use std::path::PathBuf;

use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::choose::Place;
use driver::generation::planned::{Step, Wanted, planned};
use driver::generation::roles::{Told, roles};
use driver::generation::sequences::Sequences;
use driver::pipeline;
use files::model_file::{self, ModelFile};
use lower::Program;
use plan::Generation;
use planner_ir::{Graph, Mesh};
use rewrite::Steps;
use run::{Session, Stored};

use crate::corpus::machine;
use crate::outside;

/// A model, and how much it is given.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Sizes that its names do not say.
    pub(super) dims: &'static [(&'static str, u64)],
    /// How many tokens of prompts are taken at once, if there is a choice.
    pub(super) prompt: Option<u64>,
    /// How many tokens there is room for.
    pub(super) capacity: u64,
}

impl Case {
    /// Prompts are taken in several steps.
    const fn of(name: &'static str) -> Self {
        Self { name, dims: &[], prompt: Some(3), capacity: 12 }
    }

    /// Prompts are taken in one step, and keys have a size without a number.
    const fn at_length(name: &'static str, size: &'static [(&'static str, u64)]) -> Self {
        Self { name, dims: size, prompt: Some(6), capacity: 12 }
    }

    /// Everything is fixed.
    const fn fixed(name: &'static str) -> Self {
        Self { name, dims: &[], prompt: None, capacity: 16 }
    }
}

/// The models that tools write with a cache.
pub(super) const ALL: [Case; 17] = [
    Case::of("gpt2-past-dynamo2.9-op18-dyn"),
    Case::of("gpt2-past-legacy2.9-op17-dyn"),
    Case::of("gpt2-past-optimum0.1-op17-dyn"),
    Case::of("llama-past-dynamo2.9-op18-dyn"),
    Case::of("llama-past-dynamo2.15-op21-dyn"),
    Case::of("llama-past-legacy2.9-op17-dyn"),
    Case::of("llama-past-optimum0.1-op18-dyn"),
    Case::of("qwen3-past-dynamo2.9-op18-dyn"),
    Case::of("qwen3-past-legacy2.9-op17-dyn"),
    Case::of("qwen3-past-optimum0.1-op18-dyn"),
    Case::of("bloom-past-optimum0.1-op17-dyn"),
    Case::of("opt-past-optimum0.1-op17-dyn"),
    Case::at_length("llama-fp32-genai0.18", &[]),
    Case::at_length("llama-int4-genai0.18", &[]),
    Case::at_length("qwen3-fp32-genai0.18", &[("kv_cache_dim", 16)]),
    Case::fixed("llama-staticcache-dynamo2.9-op18-static"),
    Case::fixed("llama-staticcache-legacy2.9-op17-static"),
];

/// How many tokens are made.
pub(super) const NEW: usize = 6;

/// Prompts of different lengths: they do not fill the steps that take them.
pub(super) fn prompts() -> Vec<Vec<i64>> {
    vec![vec![17, 3, 200, 41, 8], vec![99, 5]]
}

/// Where a model is, if it is there.
pub(super) fn path(name: &str) -> Option<PathBuf> {
    let found = outside::models("").into_iter().find(|it| it.ends_with(name))?;
    Some(found.join("model.onnx"))
}

pub(super) fn open(case: &Case) -> Option<ModelFile> {
    path(case.name).map(|path| model_file::open(&path).unwrap())
}

/// A plan for two sequences, on a mesh; the cache in a layout, or in the best one.
pub(super) fn plan(case: &Case, file: &ModelFile, mesh: &str, layout: Option<&str>) -> Generation {
    let (mesh, machine) = machine(mesh);
    let dims = case.dims.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
    let sizes = Sizes { batch: Some(2), prompt: case.prompt, context: Some(case.capacity), dims };
    let roles = roles(&file.model, &Told::default()).unwrap();
    let decoder = Decoder::of(file, roles, &sizes).unwrap();
    let step = |graph: &Graph| {
        let header =
            plan::ModelFile { path: case.name.to_owned(), sha256: file.sha256.clone(), dims: vec![] };
        Step { prepared: pipeline::prepare(graph, &mut |_, _| {}).unwrap(), header }
    };
    let prefill = decoder.prompt().map(|width| step(&decoder.step(width).unwrap()));
    let decode = step(&decoder.step(1).unwrap());
    let wanted = Wanted {
        machine: &machine,
        ways: vec![(Mesh::clone(&mesh), None)],
        capacity: machine.usable_memory().0,
        steps: Steps::One,
        layout: layout.map(str::to_owned),
    };
    let (generation, _) = planned(&decoder.cache(), prefill, decode, &wanted, &|_| {}).unwrap();
    plan::check_generation(&generation).unwrap();
    generation
}

/// The sessions of a plan's programs: of single tokens, and of prompts.
pub(super) type Sessions = (Session, Option<Session>);

/// The programs of a plan: of single tokens, and of prompts.
pub(super) fn programs(generation: &Generation) -> (Vec<Program>, Option<Vec<Program>>) {
    let programs = |plan| pipeline::lower(plan, &mut |_, _| {}).unwrap();
    (programs(&generation.decode), generation.prefill.as_ref().map(programs))
}

/// On threads.
pub(super) fn on_threads(generation: &Generation, weights: &dyn Stored) -> Sessions {
    let (decode, prefill) = programs(generation);
    let decode = Session::new(decode, weights).unwrap();
    let prefill = prefill.map(|programs| Session::beside(&decode, programs, weights).unwrap());
    (decode, prefill)
}

/// What was said of each token that was made of a sequence.
pub(super) type Said = Vec<Vec<f64>>;

/// How the next token of a sequence is chosen, and which choice it is.
pub(super) type Choice<'a> = &'a dyn Fn(&[f64], Place) -> i64;

/// Tokens, so many of each sequence; and what was said of each.
pub(super) fn grown(
    generation: &Generation,
    (decode, prefill): Sessions,
    prompts: &[Vec<i64>],
    choice: Choice,
) -> (Vec<Vec<i64>>, Vec<Said>) {
    let mut sequences = Sequences::new(generation, prefill, decode, prompts.to_vec()).unwrap();
    let mut said: Vec<Said> = vec![Vec::new(); prompts.len()];
    while said.iter().any(|said| said.len() < NEW) {
        let logits = sequences.logits().unwrap();
        let next = logits.iter().zip(sequences.tokens()).enumerate();
        let next = next.map(|(sequence, (logits, tokens))| {
            let number = |it: usize| u64::try_from(it).unwrap();
            let place = Place { sequence: number(sequence), position: number(tokens.len()) };
            logits.as_deref().map(|logits| choice(logits, place))
        });
        let next: Vec<Option<i64>> = next.collect();
        sequences.push(&next);
        for (said, logits) in said.iter_mut().zip(logits) {
            said.extend(logits);
        }
    }
    let tokens = sequences.tokens().iter().zip(prompts);
    let tokens = tokens.map(|(tokens, prompt)| tokens[..prompt.len() + NEW].to_vec()).collect();
    said.iter_mut().for_each(|said| said.truncate(NEW));
    (tokens, said)
}

/// The first of the largest.
pub(super) fn likeliest(logits: &[f64]) -> i64 {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    i64::try_from(best).unwrap()
}
