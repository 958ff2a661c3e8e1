//! Decoders on a GPU that is not there: tokens as on threads, step by step and issued again.

use std::time::Instant;

use device::{Device, DeviceError, Issuing, Settings};
use driver::generation::choose::{self, Manner};
use files::model_file::ModelFile;
use lower::Program;
use plan::Generation;
use rayon::prelude::*;
use run::Session;

use super::cases::{ALL, Choice, Sessions, grown, likeliest, on_threads, open, plan, programs, prompts};
use super::wrong::planned;
use crate::cli::{Folder, shardloom, works};
use crate::corpus::gpu::settings;
use crate::emulated::{Emulated, emulated};

/// What grows: the model, the mesh, the layout of the cache. Every way of growing is one of them.
const TRIALS: [(&str, &str, Option<&str>); 5] = [
    ("gpt2-past-legacy2.9-op17-dyn", "1", None),
    ("llama-past-dynamo2.15-op21-dyn", "2x2", Some("[a,b,-,-]")),
    ("bloom-past-optimum0.1-op17-dyn", "2", None),
    ("llama-fp32-genai0.18", "2", Some("[-,a,-,-]")),
    ("llama-staticcache-dynamo2.9-op18-static", "2", None),
];

/// How far logits may be from those on threads, in parts of the largest.
const TOLERANCE: f64 = 2e-4;

/// How tokens are drawn.
const DRAWN: Manner = Manner { temperature: 1.2, most: Some(40), mass: 0.95, seed: 11 };

/// A device for a plan's programs.
fn device(settings: &Settings, generation: &Generation) -> Result<Device, DeviceError> {
    let (decode, prefill) = programs(generation);
    let plans: Vec<&[Program]> = [&decode].into_iter().chain(&prefill).map(Vec::as_slice).collect();
    Device::in_turns(settings, &plans)
}

fn on_gpu(emulated: &Emulated, issuing: Issuing, generation: &Generation, file: &ModelFile) -> Sessions {
    let device = device(&Settings { issuing, ..settings(emulated) }, generation).unwrap();
    for remark in device.remarks() {
        println!("  {remark}");
    }
    let (decode, prefill) = programs(generation);
    let decode = Session::on(Box::new(device), None, decode, file).unwrap();
    let prefill = prefill.map(|programs| Session::beside(&decode, programs, file).unwrap());
    (decode, prefill)
}

fn drawn(logits: &[f64], place: choose::Place) -> i64 {
    i64::try_from(choose::next(logits, &DRAWN, place)).unwrap()
}

/// What is planned for each trial whose model is there, lowered: steps of prompts, and of single tokens.
pub(crate) fn programs_of_all() -> Vec<(String, Result<Vec<Program>, String>)> {
    let of = |&(name, mesh, layout): &(&str, &str, Option<&str>)| {
        let case = ALL.iter().find(|case| case.name == name)?;
        let (decode, prefill) = programs(&plan(case, &open(case)?, mesh, layout));
        let steps = [Some((format!("{name} on {mesh}, tokens"), Ok(decode)))];
        let prompts = prefill.map(|it| (format!("{name} on {mesh}, prompts"), Ok(it)));
        Some(steps.into_iter().chain([prompts]).flatten().collect::<Vec<_>>())
    };
    TRIALS.par_iter().filter_map(of).flatten().collect()
}

#[test]
fn tokens_on_a_gpu_are_those_on_threads() {
    let gpu = emulated();
    for (name, mesh, layout) in TRIALS {
        let case = ALL.iter().find(|case| case.name == name).unwrap();
        let Some(file) = open(case) else { continue };
        let start = Instant::now();
        println!("{name} on {mesh}");
        let generation = plan(case, &file, mesh, layout);
        println!("  planned after {:?}", start.elapsed());
        let on = |issuing, choice| {
            grown(&generation, on_gpu(&gpu, issuing, &generation, &file), &prompts(), choice)
        };
        let on_threads = |choice| grown(&generation, on_threads(&generation, &file), &prompts(), choice);
        let greedy: Choice = &|logits, _| likeliest(logits);
        let ((expected, said), (tokens, logits)) = (on_threads(greedy), on(Issuing::Captured, greedy));
        assert_eq!(tokens, expected, "{name} on {mesh}");
        let largest = said.iter().flatten().flatten().fold(0.0_f64, |most, it| most.max(it.abs()));
        let mut pairs = logits.iter().flatten().flatten().zip(said.iter().flatten().flatten());
        assert!(pairs.all(|(a, b)| (a - b).abs() <= TOLERANCE * largest), "{name} on {mesh}");
        // What is issued again has the same bits as what is issued by itself.
        assert_eq!(on(Issuing::Single, greedy), (tokens, logits), "{name} on {mesh}");
        assert_eq!(on(Issuing::Captured, &drawn).0, on_threads(&drawn).0, "{name} on {mesh}, drawn");
        println!("  done after {:?}", start.elapsed());
    }
}

/// What both steps have at rest is there once, and so is the memory of a step.
#[test]
fn steps_share_memory_and_too_little_is_said() {
    let gpu = emulated();
    let case = &ALL[0];
    let file = open(case).expect("the model is in the repository");
    let generation = plan(case, &file, "2", Some("[-,a,-,-]"));
    let settings = settings(&gpu);
    let used = |device: Device| device.facts().memory - device.free_memory().unwrap();
    let (decode, prefill) = programs(&generation);
    let of = |programs: &[Program]| used(Device::together(&settings, programs).unwrap());
    let prefill = prefill.unwrap();
    let apart = of(&decode) + of(&prefill);
    let both = used(device(&settings, &generation).unwrap());
    let inputs = |program: &Program| -> u64 {
        program.inputs.iter().map(|port| program.buffer(port.buffer).type_.bytes()).sum()
    };
    let own = |program: &Program| program.resident - inputs(program);
    // Of what is at rest, all but inputs is the same here; of inputs, and of what steps use, the smaller one is in
    // the larger one.
    let least = |of: &dyn Fn(&Program) -> u64, a: &Program, b: &Program| of(a).min(of(b));
    let each =
        |(a, b): (&Program, &Program)| least(&own, a, b) + least(&inputs, a, b) + least(&|it| it.arena, a, b);
    let saved: u64 = decode.iter().zip(&prefill).map(each).sum();
    assert!(both + saved <= apart, "{both} and {saved} bytes, apart {apart}");

    let large = Settings { workspace: 3 << 30, ..settings };
    let refused = device(&large, &generation).err().expect("two ranks have 6 GB of workspace");
    assert!(matches!(refused, DeviceError::Room { ranks: 2, .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.starts_with("2 ranks need 64") && said.contains("4294 MB free"), "{said}");
}

#[test]
fn the_command_line_generates_on_a_gpu() {
    let folder = Folder::new("generation-gpu");
    let plan = planned(&folder, "two.json", "2", &["--batch", "2", "--context", "14", "--prompt", "4"]);
    let gpu = emulated();
    let (libraries, cache) = (gpu.libraries.display().to_string(), gpu.cache.display().to_string());
    let on = ["--device", "cuda", "--libraries", &libraries, "--cache", &cache];
    let ids =
        ["generate", &plan, "--prompt-ids", "5,6,7,8,9", "--prompt-ids", "10,11", "--max-new-tokens", "5"];
    for manner in [&[][..], &["--temperature", "1.5", "--top-k", "50", "--seed", "3"]] {
        let said = shardloom(&[&ids[..], manner, &on].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(said.out, works(&[&ids[..], manner].concat()));
    }
    let empty = folder.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let said = shardloom(&[&ids[..], &["--device", "cuda", "--libraries", &empty]].concat());
    if device::count(&[]).is_err() {
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains("`--device cuda` cannot run on this machine"), "{}", said.err);
        assert_eq!(said.err.trim_end().lines().count(), 1, "{}", said.err);
    }
}
