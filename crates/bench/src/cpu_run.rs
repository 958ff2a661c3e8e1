//! `bench cpu-run`: GPT-2 through the whole pipeline on one rank of this machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use calibrate::host;
use clap::Args;
use cost_models::quantity;
use driver::pipeline::{self, Target};
use files::folder::Folder;
use files::model_file;
use files::{Failure, Say};
use files::{inputs, machine};
use import::Bindings;
use kernels::Array;
use lower::{Action, Program};
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Size, Start};
use planner_ir::Mesh;
use serde_json::{Value, json};

use super::onnxruntime::Other;
use super::{Report, flops, median};

/// How many positions have an embedding, in GPT-2 of every size.
const POSITIONS: u64 = 1024;

/// `bench cpu-run`.
#[derive(Args, Clone, Debug)]
pub struct CpuRun {
    /// Run this model instead of one that is written for the purpose
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Keep what is written in this folder
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Sizes of the model's symbolic dimensions
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = driver::compile::dimension,
          default_values = ["batch=1", "sequence=128"])]
    pub dims: Vec<(String, u64)>,
    /// Blocks of the model that is written
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub layers: u64,
    /// The length of its vectors
    #[arg(long, default_value_t = 768, value_name = "N")]
    pub hidden: u64,
    /// Its heads of attention
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub heads: u64,
    /// Its vocabulary
    #[arg(long, default_value_t = 50_257, value_name = "N")]
    pub vocabulary: u64,
    /// Seed of its weights and of the inputs
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Steps that are measured
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Steps before that
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub warm_up: u32,
    /// Run the model with ONNX Runtime too, on one thread
    #[arg(long)]
    pub against_onnxruntime: bool,
    /// The Python that has the package onnxruntime
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    pub python: String,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// What was measured.
struct Measured {
    model: String,
    /// What each stage took (seconds).
    stages: Vec<(&'static str, f64)>,
    /// What each step took (seconds).
    steps: Vec<f64>,
    /// The time by prices (seconds).
    predicted: f64,
    /// The operations of one step's matrix products.
    flops: u64,
    /// The most memory that was resident (bytes).
    memory: Option<u64>,
    /// For each kind of instruction, how many there are and what they took in a step (seconds).
    kinds: Vec<(String, usize, f64)>,
    /// The same by ONNX Runtime, or why not, if it is asked for.
    compared: Option<Result<Comparison, String>>,
}

/// Steps of ONNX Runtime.
struct Comparison {
    version: String,
    /// What each took (seconds).
    seconds: Vec<f64>,
    /// The largest difference of an output (infinite if one is missing) and the largest number.
    apart: (f64, f64),
}

/// Writes the model, runs it, and says what it took.
pub(crate) fn measure(options: &CpuRun, say: &Say<'_>) -> Result<Report, Failure> {
    let folder = Folder::new("cpu-run", options.keep.as_deref())?;
    let path = match &options.model {
        Some(path) => path.clone(),
        None => {
            let &CpuRun { layers, hidden, heads, vocabulary, .. } = options;
            if heads == 0 || !hidden.is_multiple_of(heads) {
                return Err(Failure::Usage(format!("{hidden} numbers do not fall into {heads} heads")));
            }
            say("writing the model".into());
            let size = Size { layers, hidden, heads, vocabulary, positions: POSITIONS };
            Writer::large(&folder.path)
                .and_then(|writer| gpt2::write(writer, size, Start::Alike, options.seed))
                .map_err(|error| Failure::unwritten(&folder.path, &error))?
        }
    };
    let measured = run(options, &path, &folder.path, say)?;
    Ok(Report { text: text(options, &measured), lines: vec![line(options, &measured)] })
}

fn run(options: &CpuRun, path: &Path, folder: &Path, say: &Say<'_>) -> Result<Measured, Failure> {
    let mut stages = Vec::new();
    host::forget_peak();
    let mut start = Instant::now();
    let mut next = |stage: &'static str| {
        stages.push((stage, start.elapsed().as_secs_f64()));
        start = Instant::now();
    };
    say("compiling".into());
    let file = model_file::open(path)?;
    let bindings = Bindings { dims: options.dims.iter().cloned().collect(), ..Bindings::default() };
    let imported =
        pipeline::import(&file, &bindings, &mut |_, _| {}).map_err(|error| Failure::file(path, error))?;
    next("import");
    let prepared = pipeline::prepare(&imported, &mut |_, _| {})?;
    next("raise");
    let machine = machine::named("cpu-1x", None)?;
    let mesh = Mesh::of_sizes(&[1]);
    let target = Target::of(&machine, &mesh);
    let header = plan::ModelFile {
        path: path.display().to_string(),
        sha256: file.sha256.clone(),
        dims: options.dims.clone(),
    };
    let plan = pipeline::plan(&prepared, &header, &target, &mut |_, _| {})?;
    next("plan");
    let programs = pipeline::lower(&plan, &mut |_, _| {})?;
    next("lower");
    let failed = |error: run::RunError| Failure::input("run", error);
    let names = programs.first().map(instruction_names).unwrap_or_default();
    let mut session = run::Session::new(programs, &file).map_err(failed)?;
    next("load");
    say("running".into());
    let given = inputs::made(&plan.graph, options.seed);
    let other = options.against_onnxruntime.then(|| Other::start(&options.python, path, &given, folder));
    let (ran, other) = ran(options, &mut session, &given, other)?;
    let memory = host::peak_memory();
    let kinds = kinds(&names, &ran.instructions);
    drop(session);
    let compared = other.map(|other| {
        let other = other?;
        let version = other.version.clone();
        let apart = difference(&ran.outputs, &other.finish()?);
        Ok(Comparison { version, seconds: ran.theirs, apart })
    });
    Ok(Measured {
        model: if options.model.is_some() { path.display().to_string() } else { described(options) },
        stages,
        steps: ran.steps,
        predicted: plan.seconds(),
        flops: flops::flops(&plan.graph),
        memory,
        kinds,
        compared,
    })
}

/// Another program, if it is asked for, or why it does not run.
type Beside = Option<Result<Other, String>>;

/// Steps that were run, and those of another program (seconds).
#[derive(Default)]
struct Ran {
    steps: Vec<f64>,
    theirs: Vec<f64>,
    /// For each step what its instructions took.
    instructions: Vec<Vec<f64>>,
    outputs: BTreeMap<String, Array>,
}

/// Runs all steps, in turn with those of the other program, if there is one.
fn ran(
    options: &CpuRun,
    session: &mut run::Session,
    given: &BTreeMap<String, Array>,
    mut other: Beside,
) -> Result<(Ran, Beside), Failure> {
    let mut ran = Ran::default();
    for step in 0..options.warm_up + options.steps {
        let outcome = session.step(given).map_err(|error| Failure::input("run", error))?;
        let their = other.as_mut().and_then(|it| it.as_mut().ok()).map(Other::step);
        match their {
            Some(Err(why)) => other = Some(Err(why)),
            Some(Ok(seconds)) if step >= options.warm_up => ran.theirs.push(seconds),
            _ => {}
        }
        if step >= options.warm_up {
            ran.steps.push(outcome.seconds);
            ran.instructions.push(outcome.instructions);
        }
        ran.outputs = outcome.outputs;
    }
    Ok((ran, other))
}

fn described(options: &CpuRun) -> String {
    let CpuRun { layers, hidden, heads, vocabulary, .. } = options;
    format!("GPT-2 of {layers} layers, hidden {hidden}, {heads} heads, vocabulary {vocabulary}")
}

/// What the operation of each instruction is called.
fn instruction_names(program: &Program) -> Vec<String> {
    let name = |action: &Action| match action {
        Action::Compute(compute) => compute.op.name().to_owned(),
        Action::Copy(_) => "copies".to_owned(),
        Action::Collective(collective) => collective.kind.name().to_owned(),
        Action::Message(_) => "messages".to_owned(),
        Action::Send(_) => "sends".to_owned(),
        Action::Receive(_) => "receives".to_owned(),
    };
    program.instructions.iter().map(|it| name(&it.action)).collect()
}

/// For each kind of instruction, how many there are and the median of what they took, most first.
fn kinds(names: &[String], steps: &[Vec<f64>]) -> Vec<(String, usize, f64)> {
    let mut kinds: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        kinds.entry(name).or_default().push(number);
    }
    let took = |numbers: &[usize]| {
        let sum = |step: &Vec<f64>| numbers.iter().map(|&number| step[number]).sum();
        median(&steps.iter().map(sum).collect::<Vec<f64>>())
    };
    let mut kinds: Vec<(String, usize, f64)> =
        kinds.into_iter().map(|(name, numbers)| (name.to_owned(), numbers.len(), took(&numbers))).collect();
    kinds.sort_by(|a, b| b.2.total_cmp(&a.2));
    kinds
}

/// The largest difference, and the largest number there is; infinite if an output is missing.
fn difference(own: &BTreeMap<String, Array>, other: &BTreeMap<String, Array>) -> (f64, f64) {
    let mut worst = (0.0_f64, 0.0_f64);
    for (name, own) in own {
        let numbers = |array: &Array| array.to_floats().ok();
        let pair = numbers(own).zip(other.get(name).filter(|it| it.shape() == own.shape()).and_then(numbers));
        let Some((own, other)) = pair else { return (f64::INFINITY, worst.1) };
        for (a, b) in own.iter().zip(&other) {
            let apart = (a - b).abs();
            let apart = if apart.is_nan() { f64::INFINITY } else { apart };
            worst = (worst.0.max(apart), worst.1.max(b.abs()));
        }
    }
    worst
}

#[expect(clippy::cast_precision_loss, reason = "a rate is printed with three digits")]
fn rate(flops: u64, seconds: f64) -> f64 {
    flops as f64 / seconds / 1e9
}

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn text(options: &CpuRun, measured: &Measured) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let dims: Vec<String> = options.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    line(format!("model      {} with {}", measured.model, dims.join(", ")));
    let stages: Vec<String> =
        measured.stages.iter().map(|(name, it)| format!("{name} {}", quantity::seconds(*it))).collect();
    line(format!("stages     {}", stages.join(", ")));
    let step = median(&measured.steps);
    line(format!(
        "step       {} median, {} least of {}, {} predicted; {:.1} GFLOP/s",
        quantity::seconds(step),
        quantity::seconds(least(&measured.steps)),
        measured.steps.len(),
        quantity::seconds(measured.predicted),
        rate(measured.flops, step)
    ));
    if let Some(memory) = measured.memory {
        line(format!("memory     {} at most", quantity::bytes(memory)));
    }
    for (kind, count, seconds) in &measured.kinds {
        let part = quantity::percent(*seconds, step);
        line(format!("  {:<18} {count:>5} {:>12} {part:>8}", kind, quantity::seconds(*seconds)));
    }
    match &measured.compared {
        Some(Ok(other)) => {
            let theirs = median(&other.seconds);
            line(format!(
                "against    ONNX Runtime {}, one thread, steps in turn: {} median, {} least; ratio {:.2} (least {:.2})",
                other.version,
                quantity::seconds(theirs),
                quantity::seconds(least(&other.seconds)),
                step / theirs,
                least(&measured.steps) / least(&other.seconds)
            ));
            let (apart, largest) = other.apart;
            line(format!(
                "           outputs differ by {apart:.1e} at most, the largest number is {largest:.1}"
            ));
        }
        Some(Err(why)) => line(format!("against    ONNX Runtime did not run: {why}")),
        None => {}
    }
    text
}

fn line(options: &CpuRun, measured: &Measured) -> Value {
    let dims: BTreeMap<&str, u64> = options.dims.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    let stages: BTreeMap<&str, f64> = measured.stages.iter().copied().collect();
    let kinds: Vec<Value> = measured
        .kinds
        .iter()
        .map(|(kind, count, seconds)| json!({ "kind": kind, "count": count, "seconds": seconds }))
        .collect();
    let mut line = json!({
        "benchmark": "cpu-run",
        "model": measured.model,
        "dims": dims,
        "stage_seconds": stages,
        "steps": measured.steps.len(),
        "median_seconds": median(&measured.steps),
        "least_seconds": least(&measured.steps),
        "predicted_seconds": measured.predicted,
        "flops": measured.flops,
        "peak_memory_bytes": measured.memory,
        "kinds": kinds,
    });
    if let Some(Ok(other)) = &measured.compared {
        line["onnxruntime"] = json!({
            "version": other.version,
            "median_seconds": median(&other.seconds),
            "least_seconds": least(&other.seconds),
            "largest_difference": other.apart.0,
        });
    }
    line
}
