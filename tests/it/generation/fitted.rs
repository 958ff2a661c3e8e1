//! Both steps in little memory: what holds of all plans, on small random models.

use std::fs;

use driver::generation::bound::{Decoder, Wanted as Sizes};
use driver::generation::planned::{Step, Wanted, planned};
use driver::generation::roles::{Told, roles};
use driver::generation::together::held;
use driver::ways::{self, Way};
use driver::{Failure, pipeline};
use export::Target as Runtime;
use files::model_file;
use models::Use;
use plan::{Cache, Generation};
use planner_ir::{Graph, Mesh};
use rewrite::Steps;
use serde_json::Value;

use crate::cli::{Folder, fails, says, works};
use crate::corpus::machine;
use crate::laws::programs::Dice;
use crate::tier::{is_long, one_of};

/// How many models are tried in the gate, and in the long tier.
const MODELS: [u64; 2] = [1, 20];

/// Memories that are tried (parts in a hundred of what a server's plans hold that have all that they want).
const PARTS: [u64; 10] = [60, 80, 90, 95, 98, 100, 105, 120, 150, 300];

/// How much longer a plan may take that is as fast, by rounding (seconds).
const SAME: f64 = 1e-12;

/// How much longer a token may take without what limits plans (parts): how far below plans their bounds may be. With
/// more memory it may take longer, for tokens are planned again beside prompts in steps.
const OPEN: [f64; 2] = [0.02, 0.1];

/// A decoder and a machine.
struct Job {
    cache: Cache,
    prefill: Step,
    decode: Step,
    mesh: Mesh,
    machine: cost_models::machine::Machine,
}

impl Job {
    /// A small model of random sizes.
    fn random(dice: &mut Dice, folder: &Folder) -> Self {
        let heads = dice.of(&[4, 8]);
        let keys = dice.of(&[2, 4]);
        let config = format!(
            r#"{{"model_type": "qwen3", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
                "num_hidden_layers": {}, "num_attention_heads": {heads}, "num_key_value_heads": {keys}, "head_dim": 8,
                "hidden_act": "silu", "tie_word_embeddings": {}, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
                "rope_theta": 10000.0, "torch_dtype": "bfloat16"}}"#,
            dice.of(&[24, 64, 256]),
            dice.of(&[16, 32, 64]),
            dice.of(&[16, 64, 128]),
            dice.of(&[1, 2, 4]),
            dice.of(&[true, false]),
        );
        let path = folder.0.join("config.json");
        fs::write(&path, config).unwrap();
        let file = model_file::open_for(&path, Use::Decode).unwrap();
        let sequences = dice.of(&[2, 4, 8]);
        let (prompt, context) = (dice.of(&[2, 8, 12]), dice.of(&[16, 32, 64]));
        let sizes =
            Sizes { batch: Some(sequences), prompt: Some(prompt), context: Some(context), dims: vec![] };
        let decoder = Decoder::of(&file, roles(&file.model, &Told::default()).unwrap(), &sizes).unwrap();
        let step = |graph: &Graph| {
            let header =
                plan::ModelFile { path: "config.json".to_owned(), sha256: file.sha256.clone(), dims: vec![] };
            Step { prepared: pipeline::prepare(graph, &mut |_, _| {}).unwrap(), header }
        };
        let prefill = step(&decoder.step(decoder.prompt().unwrap()).unwrap());
        let decode = step(&decoder.step(1).unwrap());
        let (mesh, machine) = machine(dice.of(&["2", "4", "2x2"]));
        Self { cache: decoder.cache(), prefill, decode, mesh, machine }
    }

    fn planned(&self, ways: &[Way], capacity: u64) -> Result<Generation, Failure> {
        let step = |it: &Step| Step { prepared: it.prepared.clone(), header: it.header.clone() };
        let wanted =
            Wanted { machine: &self.machine, ways: ways.to_vec(), capacity, steps: Steps::One, layout: None };
        let steps = (Some(step(&self.prefill)), step(&self.decode));
        planned(&self.cache, steps.0, steps.1, &wanted, &|_| {}).map(|(generation, _)| generation)
    }
}

/// What holds of plans of both steps in so much memory, or why there are none.
fn right(found: Result<Generation, Failure>, capacity: u64) -> Result<f64, String> {
    let generation = match found {
        Ok(generation) => generation,
        Err(Failure::NoRoom { message, .. }) => {
            let is_short = message.contains("bytes are missing") && !message.contains(" 0 bytes are missing");
            assert!(is_short, "{message}");
            return Err(message);
        }
        Err(other) => panic!("{other}"),
    };
    plan::check_generation(&generation).unwrap();
    let held = held(&generation).unwrap();
    assert!(held <= capacity && generation.capacity == capacity, "{held} of {capacity}");
    for (name, plan) in generation.plans() {
        pipeline::lower(plan, &mut |_, _| {}).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    Ok(generation.decode.seconds())
}

/// What a server runs is among what is searched: where it fits, something does that is as fast. What fits in some
/// memory fits in more, and is as fast.
#[test]
fn what_fits_for_a_server_or_in_less_memory_fits_and_is_as_fast() {
    let models = MODELS[usize::from(is_long())];
    let models = std::env::var("LAWS").ok().map_or(models, |it| it.parse().unwrap());
    let mut wrong = Vec::new();
    for seed in 0..models {
        let folder = Folder::new(&format!("fitted-{seed}"));
        let job = Job::random(&mut Dice::new(seed), &folder);
        let free = ways::unlimited(Some(&job.mesh), &job.machine);
        let graph = &job.decode.prepared.graph;
        let Ok(server) = ways::of_program(Some(Runtime::Vllm), Some(&job.mesh), &job.machine, graph) else {
            continue;
        };
        let roomy = held(&job.planned(&server, 1 << 40).unwrap()).unwrap();
        let mut before: [Option<f64>; 2] = [None, None];
        for part in one_of(2, &PARTS) {
            let capacity = roomy * part / 100;
            let found = [&server, &free].map(|ways| right(job.planned(ways, capacity), capacity));
            let mut expect = |at_most: Option<f64>, open: f64, found: &Result<f64, String>, what: &str| {
                let Some(at_most) = at_most else { return };
                let is_so = found.as_ref().is_ok_and(|it| *it <= at_most * (1.0 + open) + SAME);
                if !is_so {
                    wrong.push(format!("model {seed}, {part} % ({capacity} B): {what} {at_most}, {found:?}"));
                }
            };
            expect(found[0].as_ref().ok().copied(), OPEN[0], &found[1], "a server takes");
            expect(before[0], OPEN[1], &found[0], "a server takes in less memory");
            expect(before[1], OPEN[1], &found[1], "with less memory it takes");
            for (before, found) in before.iter_mut().zip(found) {
                *before = found.ok().or(*before);
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Weights of a large model are held once in little memory. Where there is no room for both steps, what the nearest plans
/// hold is said.
#[test]
fn a_large_decoder_fits_where_a_server_fits() {
    let folder = Folder::new("fitted-qwen3-8b");
    let (config, to) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/configs/qwen3_8b.json"), folder.path("plan.json"));
    let fixed = ["plan", "--config", config, "--mode", "generate", "--batch", "32", "--prompt", "512"];
    let sizes = ["--context", "8192", "--machine", "h100-80g-8x", "--mesh", "8", "-o", &to, "--json"];
    let seconds = |memory: &str, more: &[&str]| {
        let out = works(&[&fixed[..], &sizes, &["--force", "--memory", memory], more].concat());
        let said: Value = serde_json::from_str(&out).unwrap();
        ["prefill", "decode"].map(|step| said[step]["seconds"].as_f64().unwrap())
    };
    let server = seconds("20GB", &["--for", "vllm"]);
    let [prompts, token] = seconds("20GB", &[]);
    assert!(token <= server[1] && prompts < 0.8 * server[0], "{prompts} and {token}, {server:?}");
    assert!(seconds("12.6GB", &[])[1] <= seconds("12.6GB", &["--for", "vllm"])[1]);
    let message = fails(2, &[&fixed[..], &sizes, &["--memory", "12GB"]].concat());
    let expected = ["the nearest plans that were found hold 12.", "of weights", "of inputs", "`--context`"];
    says(&message, &expected);
}
