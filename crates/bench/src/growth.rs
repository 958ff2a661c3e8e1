//! `bench growth`: how what the stages take grows with the number of operations.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use calibrate::host;
use clap::Args;
use cost_models::quantity;
use driver::pipeline::{self, Decisions, Phases, Target, Training};
use files::folder::Folder;
use files::{Failure, Say};
use files::{machine, model_file};
use import::Bindings;
use kernels::random::SplitMix;
use model_zoo::folder::{Attribute, Writer};
use plan::{Loss, Recipe};
use planner_ir::{Mesh, Optimizer, Real};
use serde_json::{Value, json};

use super::Report;

/// The machine that is planned for.
const MACHINE: &str = "h100-80g-4x";
/// The extent of the values.
const EXTENT: u64 = 64;
/// How many values are summed up at once.
const ADDENDS: usize = 8;
/// How many values of random operations may wait for one that uses them.
const WAITING: usize = 4;

/// `bench growth`.
#[derive(Args, Clone, Debug)]
pub struct Growth {
    /// Number of nodes of a model; may be repeated
    #[arg(long, default_values_t = [1_000, 4_000, 16_000], value_name = "N")]
    pub nodes: Vec<usize>,
    /// Only models of kinds whose names contain this: chain, layers, residual, wide, random
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// The mesh, instead of all devices of the machine along one axis
    #[arg(long, default_value = "4", value_name = "MESH", value_parser = mesh)]
    pub mesh: Mesh,
    /// Plan training steps (AdamW, recomputation as the search decides) of the mean of what the models make
    #[arg(long)]
    pub train: bool,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// What a model is like.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Functions of single elements, one after another.
    Chain,
    /// Layers of products whose weights are as large, one after another.
    Layers,
    /// Layers each of which adds to the stream what it makes of it three layers before.
    Residual,
    /// As many products of one value, summed up in a tree.
    Wide,
    /// Products, functions and sums of any values before.
    Random,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Chain, Self::Layers, Self::Residual, Self::Wide, Self::Random];

    fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Layers => "layers",
            Self::Residual => "residual",
            Self::Wide => "wide",
            Self::Random => "random",
        }
    }

    /// Writes a model of about so many nodes, which ends with its mean if that is to be made small.
    fn write(self, folder: &Path, nodes: usize, is_trained: bool) -> io::Result<PathBuf> {
        let mut writer = Writer::absent(folder);
        writer.floats("x", &[EXTENT, EXTENT]);
        let (extent, made) = (EXTENT.to_string(), self.nodes(&mut writer, nodes)?);
        if is_trained {
            let loss = writer.node("ReduceMean", &[&made], &[("keepdims", Attribute::Integer(0))]);
            writer.output("loss", &loss, &[]);
        } else {
            writer.output("y", &made, &[&extent, &extent]);
        }
        writer.finish()
    }

    /// Its nodes: the name of what the last one makes.
    fn nodes(self, writer: &mut Writer, nodes: usize) -> io::Result<String> {
        let product = |writer: &mut Writer, operand: &str, number: usize| {
            let weight = writer.weight(&format!("w{number}"), &[EXTENT, EXTENT], || 0.0)?;
            Ok::<_, io::Error>(writer.node("MatMul", &[operand, &weight], &[]))
        };
        let mut stream = vec!["x".to_owned()];
        let last = |stream: &[String], back: usize| stream[stream.len().saturating_sub(back)].clone();
        match self {
            Self::Chain => {
                for number in 0..nodes {
                    let op = if number % 2 == 0 { "Tanh" } else { "Relu" };
                    stream.push(writer.node(op, &[&last(&stream, 1)], &[]));
                }
            }
            Self::Layers => {
                for number in 0..nodes / 2 {
                    let made = product(writer, &last(&stream, 1), number)?;
                    stream.push(writer.node("Relu", &[&made], &[]));
                }
            }
            Self::Residual => {
                for number in 0..nodes / 2 {
                    let made = product(writer, &last(&stream, 1), number)?;
                    stream.push(writer.node("Add", &[&made, &last(&stream, 3)], &[]));
                }
            }
            Self::Wide => {
                let products = (0..nodes * (ADDENDS - 1) / ADDENDS).map(|it| product(writer, "x", it));
                stream = products.collect::<io::Result<_>>()?;
                while stream.len() > 1 {
                    let sum = |addends: &[String]| {
                        let addends: Vec<&str> = addends.iter().map(String::as_str).collect();
                        writer.node("Sum", &addends, &[])
                    };
                    stream = stream.chunks(ADDENDS).map(sum).collect();
                }
            }
            Self::Random => {
                // Values that nothing uses yet are among those to choose from first.
                let (mut random, mut unused) = (SplitMix(1), Vec::new());
                for number in 0..nodes {
                    let mut any = |stream: &[String]| match unused.len() {
                        many if many > WAITING => unused.remove(0),
                        _ => stream[usize::try_from(random.bits() >> 33).unwrap_or(0) % stream.len()].clone(),
                    };
                    let (one, other) = (any(&stream), any(&stream));
                    let made = match number % 3 {
                        0 => product(writer, &one, number)?,
                        1 => writer.node("Relu", &[&one], &[]),
                        _ => writer.node("Add", &[&one, &other], &[]),
                    };
                    unused.push(made.clone());
                    stream.push(made);
                }
                let addends: Vec<&str> = unused.iter().map(String::as_str).collect();
                let sum = writer.node("Sum", &addends, &[]);
                stream.push(sum);
            }
        }
        Ok(last(&stream, 1))
    }
}

/// A mesh as a value of an option.
fn mesh(text: &str) -> Result<Mesh, String> {
    Mesh::parse(text).map_err(|error| error.to_string())
}

/// How each model is trained.
fn training() -> Training {
    let [beta1, beta2, epsilon, decay] = [0.9, 0.95, 1e-8, 0.1].map(Real);
    let recipe =
        Recipe::new(Loss::Output("loss".to_owned()), Optimizer::AdamW { beta1, beta2, epsilon, decay });
    Training { recipe, decisions: Decisions::Values, phases: Phases::Together }
}

/// Plans and lowers models of growing length, and says what it took.
pub(crate) fn measure(options: &Growth, say: &Say<'_>) -> Result<Report, Failure> {
    let mut text = String::new();
    let mut lines = Vec::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "| model | nodes | import | raise | plan | check | lower | peak memory |");
    let _ = writeln!(text, "|---|---|---|---|---|---|---|---|");
    for kind in Kind::ALL.into_iter().filter(|kind| kind.name().contains(&options.only)) {
        for &nodes in &options.nodes {
            say(format!("{} of {nodes}", kind.name()).into());
            let folder = Folder::new("growth", None)?;
            let path = kind.write(&folder.path, nodes, options.train).map_err(|error| {
                Failure::file(&folder.path, format!("a model cannot be written there: {error}"))
            })?;
            let mesh = options.mesh.to_string();
            let mut line = json!({
                "benchmark": "growth", "kind": kind.name(), "nodes": nodes, "mesh": mesh,
                "mode": if options.train { "train" } else { "inference" },
                "profile": if cfg!(debug_assertions) { "dev" } else { "release" },
            });
            let outcome = stages(&path, options, &mut line);
            line["peak_bytes"] = json!(host::peak_memory());
            let seconds = |name: &str| line[name].as_f64().map_or_else(|| "-".to_owned(), quantity::seconds);
            let _ = writeln!(
                text,
                "| {} | {nodes} | {} | {} | {} | {} | {} | {} |{}",
                kind.name(),
                seconds("import_seconds"),
                seconds("raise_seconds"),
                seconds("plan_seconds"),
                seconds("check_seconds"),
                seconds("lower_seconds"),
                line["peak_bytes"].as_u64().map_or_else(|| "?".to_owned(), quantity::bytes),
                outcome.as_ref().err().map(|failure| format!(" refused: {failure}")).unwrap_or_default()
            );
            if let Err(failure) = outcome {
                line["refused"] = json!(failure.to_string());
            }
            lines.push(line);
        }
    }
    Ok(Report { text, lines })
}

/// One stage after another; how long each took is added to the line (seconds).
fn stages(path: &Path, options: &Growth, line: &mut Value) -> Result<(), Failure> {
    host::forget_peak();
    let mut start = Instant::now();
    let mut took = |stage: &str| {
        line[format!("{stage}_seconds")] = json!(start.elapsed().as_secs_f64());
        start = Instant::now();
    };
    let file = model_file::open(path)?;
    let graph = pipeline::import(&file, &Bindings::default(), &mut |_, _| {})
        .map_err(|error| Failure::file(path, error))?;
    took("import");
    let prepared = match options.train {
        true => pipeline::prepare_training(&file, &graph, &training(), &mut |_, _| {})?,
        false => pipeline::prepare(&graph, &mut |_, _| {})?,
    };
    took("raise");
    let machine = machine::named(MACHINE, None)?;
    let header =
        plan::ModelFile { path: path.display().to_string(), sha256: file.sha256.clone(), dims: Vec::new() };
    let plan = pipeline::plan(&prepared, &header, &Target::of(&machine, &options.mesh), &mut |_, _| {})?;
    took("plan");
    plan::check(&plan).map_err(|error| Failure::internal("plan", error))?;
    took("check");
    pipeline::lower(&plan, &mut |_, _| {})?;
    took("lower");
    Ok(())
}
