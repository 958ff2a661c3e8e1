//! `bench cluster`: models on whole clusters, beside the setups that were published for them.
//!
//! Each model is planned as `plan --stages auto` does, and again with everything pinned that the
//! publication says: both are priced the same way. What was measured stands beside.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use calibrate::host;
use clap::Args;
use cost_models::quantity;
use driver::compile::dimension;
use driver::pipeline::cluster::{Answer, Pins, Question, cheapest};
use driver::{compile, pipeline};
use files::folder::Folder;
use files::{Failure, Say};
use files::{machine, model_file};
use import::Bindings;
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Start};
use model_zoo::llama::{self, Use};
use plan::{Loss, NoDecay, Precision, Recipe};
use planner_ir::{Optimizer, Real};
use schedule::Kind;
use serde::Deserialize;
use serde_json::json;

use super::Report;
use super::half::as_fast_in_bf16;

/// How many blocks come before those of layers.
const EMBEDDING: usize = 1;
/// Setups that were published, with what was measured.
const PUBLISHED: &str = include_str!("cluster/published.json");

/// `bench cluster`.
#[derive(Args, Clone, Debug)]
pub struct Cluster {
    /// Only models and machines whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Plan this model instead, beside nothing, to train on the cross-entropy of its output `logits`
    #[arg(long, value_name = "FILE", requires_all = ["machines", "global_batch"])]
    pub model: Option<PathBuf>,
    /// The machines for that model, or instead of those that were published for the others
    #[arg(long = "machine", value_name = "NAME", value_delimiter = ',', requires = "global_batch")]
    pub machines: Vec<String>,
    /// The examples of a step on these machines, of which `batch` are a micro-batch
    #[arg(long, value_name = "N")]
    pub global_batch: Option<u64>,
    /// The other dimensions of that model; may be repeated
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = dimension)]
    pub dims: Vec<(String, u64)>,
    /// Ask every setup how fast it is, also with little memory: the bound is closer
    #[arg(long)]
    pub thorough: bool,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// A published setup.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    model: String,
    layers: u64,
    hidden: u64,
    heads: u64,
    vocabulary: u64,
    /// Of a Llama, what it has beside these; others are GPTs.
    #[serde(default)]
    gated: Option<Gated>,
    sequence: u64,
    machine: String,
    global_batch: u64,
    pp: usize,
    tp: u64,
    dp: u64,
    microbatches: u64,
    chunks: usize,
    recompute: String,
    /// The dimensions of the model, but for `batch`.
    #[serde(skip)]
    dims: Vec<(String, u64)>,
    /// Where groups differ, the mesh of each.
    #[serde(default)]
    stages: Option<String>,
    /// And how many layers each has.
    #[serde(default)]
    layers_each: Vec<usize>,
    /// What a step took (seconds), if that was published.
    #[serde(default)]
    measured: Option<f64>,
    source: String,
}

/// What a Llama has beside what a GPT has.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gated {
    /// The length inside of gated units.
    units: u64,
    /// Heads of keys and values.
    groups: u64,
}

impl Published {
    /// What is asked of its model.
    fn asked(&self) -> Asked<'_> {
        Asked { machine: &self.machine, global_batch: self.global_batch, dims: &self.dims }
    }

    /// Its model, without weights.
    fn written(&self, folder: &Folder) -> Result<PathBuf, Failure> {
        let &Self { layers, hidden, heads, vocabulary, sequence: positions, .. } = self;
        let writer = Writer::absent(&folder.path);
        let written = match self.gated {
            None => {
                let size = gpt2::Size { layers, hidden, heads, vocabulary, positions };
                gpt2::write(writer, size, Start::Alike, 0)
            }
            Some(Gated { units, groups }) => {
                let size =
                    llama::Size { layers, hidden, units, heads, groups, vocabulary, positions, tied: false };
                llama::write(writer, size, Use::Training, 0)
            }
        };
        written.map_err(|error| Failure::unwritten(&folder.path, &error))
    }

    /// Everything that the publication says, pinned.
    fn pins(&self) -> Result<Pins, Failure> {
        let kind = if self.chunks > 1 { Kind::Interleaved } else { Kind::OneForwardOneBackward };
        let mut pins = match &self.stages {
            Some(meshes) => vec![format!("stages={meshes}"), format!("cut={}", self.cut())],
            None => vec![format!("pp={}", self.pp), format!("tp={}", self.tp), format!("dp={}", self.dp)],
        };
        pins.extend([
            format!("microbatches={}", self.microbatches),
            format!("chunks={}", self.chunks),
            format!("recompute={}", self.recompute),
            format!("schedule={}", kind.name()),
        ]);
        Pins::parse(&pins)
    }

    /// The first block of each group: the embedding is a block before those of the layers.
    fn cut(&self) -> String {
        let starts = self.layers_each.iter().scan(0, |end, layers| {
            let start = if *end == 0 { 0 } else { *end + EMBEDDING };
            *end += layers;
            Some(start.to_string())
        });
        starts.collect::<Vec<_>>().join(",")
    }

    /// What was published, in words.
    fn words(&self) -> String {
        let Self { pp, tp, dp, microbatches, chunks, recompute, .. } = self;
        let groups = match &self.stages {
            Some(meshes) => format!("stages {meshes} with {:?} layers", self.layers_each),
            None => format!("pp {pp} tp {tp} dp {dp}"),
        };
        format!("{groups}, {microbatches} micro-batches, {chunks} chunks, recompute {recompute}")
    }
}

/// Plans every model, and says what it took.
pub(crate) fn measure(options: &Cluster, say: &Say<'_>) -> Result<Report, Failure> {
    if let Some(path) = &options.model {
        let mut report = Report { text: ELSEWHERE.to_owned(), lines: Vec::new() };
        let name = path.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into_owned());
        elsewhere(path, (&name, &options.dims), options, say, &mut report)?;
        return Ok(report);
    }
    let mut rows: Vec<Published> =
        serde_json::from_str(PUBLISHED).map_err(|error| Failure::internal("bench", error))?;
    rows.iter_mut().for_each(|row| row.dims = vec![("sequence".to_owned(), row.sequence)]);
    if !options.machines.is_empty() {
        return of_size(&rows, options, say);
    }
    let mut text = String::from(
        "| model | machine | batch | chosen | step | bound | published | its price | measured | planned in |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut lines = Vec::new();
    let folder = Folder::new("cluster", None)?;
    let named = |row: &Published| format!("{} {}", row.model, row.machine);
    for row in rows.iter().filter(|row| named(row).contains(&options.only)) {
        say(named(row).into());
        let path = row.written(&folder)?;
        let asked = row.asked();
        let (free, seconds) = timed(&path, &asked, options.thorough)?;
        let memory = host::peak_memory();
        let pinned = planned(&path, &asked, &row.pins()?, false);
        let priced = pinned.as_ref().map_or_else(
            |failure| format!("none: {failure}"),
            |answer| quantity::seconds(answer.pipeline.seconds()),
        );
        let (step, bound) = (free.pipeline.seconds(), bound(&free));
        let setup = format!("{}, {}", free.in_words(), free.kind.name());
        let published = row.words();
        let peak = memory.map(|bytes| format!(", {}", quantity::bytes(bytes))).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {setup} | {} | {} | {published} | {priced} | {} | {}{peak} |",
            row.model,
            row.machine,
            row.global_batch,
            quantity::seconds(step),
            quantity::seconds(bound),
            row.measured.map_or_else(|| "not published".to_owned(), quantity::seconds),
            quantity::seconds(seconds),
        );
        lines.push(json!({
            "benchmark": "cluster",
            "model": row.model,
            "machine": row.machine,
            "global_batch": row.global_batch,
            "chosen": setup,
            "seconds": step,
            "lower_bound": bound,
            "published": published,
            "published_seconds": pinned.as_ref().ok().map(|answer| answer.pipeline.seconds()),
            "measured": row.measured,
            "source": row.source,
            "setups": free.looked_at.0,
            "priced": free.looked_at.1,
            "planning_seconds": seconds,
            "peak_memory": memory,
        }));
    }
    Ok(Report { text, lines })
}

/// The head of a table of models that nobody published for a machine.
const ELSEWHERE: &str =
    "| model | machine | batch | chosen | step | bound | planned in |\n|---|---|---|---|---|---|---|\n";

/// Published models on other machines than those they were published for.
fn of_size(rows: &[Published], options: &Cluster, say: &Say<'_>) -> Result<Report, Failure> {
    let mut report = Report { text: ELSEWHERE.to_owned(), lines: Vec::new() };
    let folder = Folder::new("cluster", None)?;
    let is_first = |&it: &usize| rows[..it].iter().all(|other| other.model != rows[it].model);
    for row in (0..rows.len()).filter(is_first).map(|it| &rows[it]) {
        if row.model.contains(&options.only) {
            elsewhere(&row.written(&folder)?, (&row.model, &row.dims), options, say, &mut report)?;
        }
    }
    Ok(report)
}

/// A model on every machine that is named: what is found, or why nothing is.
fn elsewhere(
    path: &Path,
    (name, dims): (&str, &[(String, u64)]),
    options: &Cluster,
    say: &Say<'_>,
    report: &mut Report,
) -> Result<(), Failure> {
    // What is wrong with a model is wrong on every machine.
    drop(model_file::open(path)?);
    for machine in &options.machines {
        say(format!("{name} {machine}").into());
        let global_batch = options.global_batch.unwrap_or(1);
        let start = Instant::now();
        let found = timed(path, &Asked { machine, global_batch, dims }, options.thorough);
        let planning = start.elapsed().as_secs_f64();
        let memory = host::peak_memory();
        let (setup, prices) = match &found {
            Ok((answer, _)) => {
                let prices = (answer.pipeline.seconds(), bound(answer));
                (format!("{}, {}", answer.in_words(), answer.kind.name()), Some(prices))
            }
            Err(failure) if failure.is_refusal() => (failure.to_string(), None),
            Err(_) => return found.map(drop),
        };
        let [step, least] = [prices.map(|it| it.0), prices.map(|it| it.1)];
        let shown = |it: Option<f64>| it.map_or_else(String::new, quantity::seconds);
        let peak = memory.map(|bytes| format!(", {}", quantity::bytes(bytes))).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(
            report.text,
            "| {name} | {machine} | {global_batch} | {setup} | {} | {} | {}{peak} |",
            shown(step),
            shown(least),
            quantity::seconds(planning),
        );
        let looked_at = found.as_ref().ok().map(|(answer, _)| answer.looked_at);
        report.lines.push(json!({
            "benchmark": "cluster",
            "model": name,
            "machine": machine,
            "global_batch": global_batch,
            "chosen": setup,
            "seconds": step,
            "lower_bound": least,
            "setups": looked_at.map(|it| it.0),
            "priced": looked_at.map(|it| it.1),
            "planning_seconds": planning,
            "peak_memory": memory,
        }));
    }
    Ok(())
}

/// What a step is proven to take at least (seconds).
fn bound(answer: &Answer) -> f64 {
    answer.pipeline.proof.bound(answer.pipeline.seconds())
}

/// What is asked of a model.
struct Asked<'a> {
    machine: &'a str,
    global_batch: u64,
    /// Its dimensions, but for `batch`.
    dims: &'a [(String, u64)],
}

/// The cheapest pipeline of a model, and how long that took to find (seconds).
fn timed(path: &Path, asked: &Asked<'_>, thorough: bool) -> Result<(Answer, f64), Failure> {
    host::forget_peak();
    let start = Instant::now();
    let answer = planned(path, asked, &Pins::default(), thorough)?;
    Ok((answer, start.elapsed().as_secs_f64()))
}

/// The cheapest pipeline of a model with these decisions.
fn planned(path: &Path, asked: &Asked<'_>, pins: &Pins, thorough: bool) -> Result<Answer, Failure> {
    let file = model_file::open(path)?;
    let machine = cost_models::cluster::Cluster::of(as_fast_in_bf16(machine::named(asked.machine, None)?));
    let dims = |micro_batches: u64| {
        let mut dims: BTreeMap<String, u64> = asked.dims.iter().cloned().collect();
        dims.insert("batch".to_owned(), asked.global_batch / micro_batches.max(1));
        dims
    };
    let imported = |micro_batches: u64| {
        let bindings = Bindings { dims: dims(micro_batches), ..Bindings::default() };
        let graph = pipeline::import(&file, &bindings, &mut |_, _| {});
        graph.map_err(|error| compile::refusal(&file, &error))
    };
    let header = |micro_batches: u64| plan::ModelFile {
        path: path.display().to_string(),
        sha256: file.sha256.clone(),
        dims: dims(micro_batches).into_iter().collect(),
    };
    let recipe = Recipe {
        precision: Precision::Bf16,
        clip: Some(1.0),
        no_decay: NoDecay { names: vec![], vectors: true },
        ..Recipe::new(
            Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
            Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.1) },
        )
    };
    let question = Question {
        file: &file,
        header: &header,
        imported: &imported,
        recipe: &recipe,
        cluster: &machine,
        kind: 0,
        memory: None,
        examples: asked.global_batch,
        pins,
        thorough,
    };
    cheapest(&question, &|_| {})
}
