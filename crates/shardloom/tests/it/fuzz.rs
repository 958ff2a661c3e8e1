//! Inputs that nobody would write: models, plans, machine files, arrays, checkpoints and arguments of which a
//! few fields are others. Whatever the program is given, it does what is asked or says in one message why not,
//! within limits of memory and time; what it refuses leaves no file; what runs on two ranks computes what one
//! rank does; a plan that is accepted runs.
//!
//! Seeds are counted from 0, so that the same inputs are tried each time. `FUZZ=N` tries N times as many, and
//! `FUZZ_SEED=N` begins elsewhere, or tries one input again.

pub(super) mod child; // the program, with little memory and time
mod dice; // numbers that look random
mod json; // documents
mod wire; // models
mod samples; // what is changed

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use child::{Ended, run};
use dice::Dice;
use samples::{Model, Samples};

/// How many inputs of each kind are tried.
const MODELS: u64 = 260;
const NODES: u64 = 260;
const PLANS: u64 = 160;
const MACHINES: u64 = 60;
const ARRAYS: u64 = 120;
const CHECKPOINTS: u64 = 60;
const ARGUMENTS: u64 = 240;

/// A folder for the files of one trial.
struct Desk(PathBuf);

impl Desk {
    fn new(kind: &str, seed: u64) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-fuzz-{}-{kind}-{seed}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.0.join(name), bytes).unwrap();
        self.path(name)
    }
}

/// Does what is asked of a trial that writes a file: whether it is there; a fault if a refusal leaves it.
fn made(arguments: &[&str], output: &str) -> Result<bool, String> {
    let is_done = run(arguments).verdict().map_err(|error| format!("{arguments:?}: {error}"))?;
    match (is_done, Path::new(output).exists()) {
        (true, false) => Err(format!("{arguments:?}: done without {output}")),
        (false, true) => Err(format!("{arguments:?}: refused, and {output} is there")),
        (is_done, _) => Ok(is_done),
    }
}

fn done(arguments: &[&str]) -> Result<bool, String> {
    run(arguments).verdict().map_err(|error| format!("{arguments:?}: {error}"))
}

/// Tries as many seeds as are asked for, some at the same time; fails with what was found, and keeps it.
fn try_all(kind: &str, count: u64, trial: &(dyn Fn(&Desk, &mut Dice) -> Result<(), String> + Sync)) {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    let first = number("FUZZ_SEED").unwrap_or(0);
    let count = count * number("FUZZ").unwrap_or(1);
    let (next, found) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= first + count {
            return;
        }
        let desk = Desk::new(kind, seed);
        match trial(&desk, &mut Dice::new(seed)) {
            Ok(()) => fs::remove_dir_all(&desk.0).unwrap(),
            Err(error) => found.lock().unwrap().push((seed, format!("{}: {error}", desk.0.display()))),
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner().unwrap();
    found.sort();
    let lines: Vec<String> = found.into_iter().map(|(seed, error)| format!("seed {seed}: {error}")).collect();
    assert!(lines.is_empty(), "{} of {count} {kind}:\n{}", lines.len(), lines.join("\n"));
}

/// A model that is changed: planned, or run on two ranks and on one.
fn model(sample: &Model, desk: &Desk, dice: &mut Dice) -> Result<(), String> {
    let path = desk.write("model.onnx", &wire::mutant(&sample.bytes, dice));
    let (two, one, plan) = (desk.path("two.npz"), desk.path("one.npz"), desk.path("plan.json"));
    let inputs: Vec<&str> = sample.inputs.as_ref().map_or(vec![], |it| vec!["--inputs", it]);
    if dice.once_in(4) {
        let how: &[&str] = match &sample.loss {
            Some(loss) if dice.once_in(2) => {
                &["--mode", "train", "--loss", loss, "--machine", "cpu-2x", "--mesh", "2"]
            }
            _ => &["--machine", "h100-80g-8x", "--mesh", "2x2"],
        };
        let how = if how[1] == "h100-80g-8x" { &["--machine", "h100-80g-4x", "--mesh", "2x2"] } else { how };
        made(&[&["-q", "plan", &path, "-o", &plan], how, &inputs].concat(), &plan)?;
        return Ok(());
    }
    let on = |ranks, output: &str| {
        made(&[&["-q", "run", &path, "--ranks", ranks, "-o", output], &inputs[..]].concat(), output)
    };
    if !on("2", &two)? {
        return Ok(());
    }
    if !on("1", &one)? {
        return Err("refused on one rank, and not on two".to_owned());
    }
    samples::compare(&two, &one)
}

#[test]
fn models_with_other_fields() {
    let samples = Samples::get();
    try_all("models", MODELS, &|desk, dice| model(dice.of(&samples.models), desk, dice));
}

#[test]
fn operators_with_other_fields() {
    let samples = Samples::get();
    try_all("nodes", NODES, &|desk, dice| model(dice.of(&samples.nodes), desk, dice));
}

#[test]
fn plans_with_other_fields() {
    let samples = Samples::get();
    try_all("plans", PLANS, &|desk, dice| {
        let (plan, model) = dice.of(&samples.plans);
        let text = json::mutant(plan, dice).to_string();
        let path = desk.write("plan.json", text.as_bytes());
        let output = desk.path("out.npz");
        let accepted = done(&["-q", "check", &path])?;
        match dice.below(4) {
            0 => drop(done(&["-q", "explain", &path])?),
            1 => drop(done(&["-q", "simulate", &path])?),
            2 => drop(done(&["-q", "diff", &path, &path])?),
            // A plan that is accepted runs, or is of another model.
            _ if accepted => drop(made(&["-q", "run", &path, "--model", model, "-o", &output], &output)?),
            _ => drop(done(&["-q", "kernels", &path])?),
        }
        Ok(())
    });
}

#[test]
fn machine_files_with_other_fields() {
    let samples = Samples::get();
    try_all("machines", MACHINES, &|desk, dice| {
        let machine = json::mutant(dice.of(&samples.machines), dice).to_string();
        let (path, plan) = (desk.write("machine.json", machine.as_bytes()), desk.path("plan.json"));
        let model = &samples.small;
        made(&["-q", "plan", model, "--machine", &path, "-o", &plan], &plan).map(drop)
    });
}

/// What differs from the inputs that were given is noticed, or changes nothing.
#[test]
fn arrays_with_other_bytes() {
    let samples = Samples::get();
    try_all("arrays", ARRAYS, &|desk, dice| {
        let sample = dice.of(&samples.models);
        let Some(inputs) = &sample.inputs else { return Ok(()) };
        let path = desk.write("in.npz", &dice.bytes(&fs::read(inputs).unwrap()));
        let model = desk.write("model.onnx", &sample.bytes);
        let (output, expected) = (desk.path("out.npz"), desk.path("expected.npz"));
        if made(&["-q", "run", &model, "--ranks", "1", "--inputs", &path, "-o", &output], &output)? {
            made(&["-q", "run", &model, "--ranks", "1", "--inputs", inputs, "-o", &expected], &expected)?;
            samples::compare(&output, &expected)?;
        }
        Ok(())
    });
}

/// Training goes on from a checkpoint as it was written, or not at all.
#[test]
fn checkpoints_with_other_bytes() {
    let samples = Samples::get();
    try_all("checkpoints", CHECKPOINTS, &|desk, dice| {
        let folder = samples.checkpoint.copied(&desk.0);
        let files = samples::files(&folder);
        let file = dice.of(&files);
        fs::write(file, dice.bytes(&fs::read(file).unwrap())).unwrap();
        let weights = desk.path("weights.safetensors");
        let all = samples.checkpoint.further(folder.to_str().unwrap(), &weights);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        if made(&all, &weights)? && fs::read(&weights).unwrap() != samples.checkpoint.weights {
            return Err(format!("{}: other weights", file.display()));
        }
        Ok(())
    });
}

#[test]
fn arguments_that_are_others() {
    const WORDS: [&str; 16] = [
        "",
        "0",
        "-1",
        "1e999",
        "nan",
        "18446744073709551616",
        "é",
        "../x",
        "a=b",
        ",",
        "--",
        "2x0",
        "x",
        "/dev/null",
        "[a,-]",
        "0.0000001",
    ];
    let samples = Samples::get();
    try_all("arguments", ARGUMENTS, &|desk, dice| {
        let mut words = dice.of(&samples.commands).clone();
        for _ in 0..=dice.below(2) {
            let place = 1 + dice.below(words.len() - 1);
            match dice.below(4) {
                0 => drop(words.remove(place)),
                1 => words.insert(place, (*dice.of(&WORDS)).to_owned()),
                2 => words[place] = dice.changed(&words[place].clone()).replace('\0', "0"),
                _ => words[place] = (*dice.of(&WORDS)).to_owned(),
            }
            if words.len() < 2 {
                break;
            }
        }
        let words: Vec<String> = words.iter().map(|it| it.replace("OUT", &desk.path("out"))).collect();
        let words: Vec<&str> = [&["-q"], &words.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
        let ended: Ended = run(&words);
        // What does not even look like arguments gets usage after the message.
        ended.verdict().map(drop).map_err(|error| format!("{words:?}: {error}"))
    });
}
